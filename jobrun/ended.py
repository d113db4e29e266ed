"""How a command ended, as values: what `process` hands back and every platform fills in."""

from __future__ import annotations

from jobrun.value import NamedTuple

EXITED = "exited"  # by itself, whatever it answered
TIMED_OUT = "timed-out"  # the limit passed; true whatever the command answered to our signal
INTERRUPTED = "interrupted"  # a signal to us was passed on; true whatever it answered
LOCK_LOST = "lock-lost"  # `detail` says how; true whatever the command answered to our signal
NOT_STARTED = "not-started"  # `error` says why

# Where a start failed, the second half of `Ended.error`.
AT_CWD = "cwd"  # no such directory, or not ours to enter
AT_EXEC = "exec"  # the program: not found, not executable, no interpreter, too long a line
AT_INPUT = "input"  # a value that it was to get is missing
AT_GUARDIAN = "guardian"  # its guardian was killed first, or had no descriptors left for it

UNKNOWN_PID = 0  # somebody holds the pipe, but not where we can see it


class Ended(NamedTuple):
    cause: str
    exit_code: int | None = None
    signal: int | None = None  # the command died by it; or SIGTTIN/SIGTTOU with wants_terminal
    our_signal: int | None = None  # the first one that we sent, where we sent any
    error: tuple[int, str] | None = None  # (errno, AT_…), for NOT_STARTED
    took: float = 0.0  # seconds, monotonic, from `go`
    left_open: int | None = None  # pid that still holds the output, after a good end
    survivors: tuple[int, ...] = ()  # pids alive after KILL, or not ours to signal
    wants_terminal: bool = False  # it was stopped for reading or writing a terminal it hasn't got
    detail: str | None = None  # of `error`, where the errno does not say it all; of a lost lock
