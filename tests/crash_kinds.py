"""The kinds of calls that are disturbed, and the commands that bear witness.

A *kind* is a ledger as the call finds it, the call that is disturbed, and the undisturbed calls
after it. Commands say in a file what they were started for and that they came to their end; a lock
of their own tells two at once.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.conftest import instant

# What a command does in the first place; exits 3 for keys like its argument.
WITNESS = """
cd "${JOBRUN_LEDGER%/*}"  # by hand it is the folder of the last call otherwise
exec 9>>busy
flock -n 9 || : > twice
echo "start $JOBRUN_KEY $JOBRUN_ATTEMPT $JOBRUN_RUN_ID" >> witness
case "$JOBRUN_KEY" in $1) exit 3;; esac
echo said
echo "done $JOBRUN_KEY $JOBRUN_ATTEMPT $JOBRUN_RUN_ID" >> witness
"""
# Data of its own in the ledger's database, marked there: its exit code does not matter then.
MARKS = """
sqlite3 -bail "$JOBRUN_LEDGER" <<END
PRAGMA busy_timeout = 20000;
CREATE TABLE IF NOT EXISTS mine (key TEXT);
BEGIN IMMEDIATE;
INSERT INTO mine VALUES ('$JOBRUN_KEY');
INSERT INTO jobrun_done (job, key, token) VALUES ('$JOBRUN_JOB', '$JOBRUN_KEY', $JOBRUN_TOKEN);
COMMIT;
END
echo "done $JOBRUN_KEY $JOBRUN_ATTEMPT $JOBRUN_RUN_ID" >> witness
exit 4
"""
FLOODS = "head -c 1400000 /dev/zero; head -c 1400000 /dev/zero >&2\n"
COMMANDS = {
    "W": ["sh", "-c", WITNESS, "sh", "never"],
    # Beside others: its own window's alone.
    "B": ["sh", "-c", WITNESS.replace("9>>busy", '9>>"busy.$JOBRUN_KEY"'), "sh", "never"],
    "FAIL": ["sh", "-c", WITNESS, "sh", "*T10:*"],
    "MARKS": ["sh", "-c", WITNESS.rpartition("echo said")[0] + MARKS, "sh", "never"],
    "FLOODS": ["sh", "-c", WITNESS + FLOODS, "sh", "never"],
}


class Call(NamedTuple):
    line: str  # arguments; the last word may be one of COMMANDS
    at: str = "12:05"
    status: int = 0
    or_status: int | None = None  # where the disturbed call before it has not come to its end

    @property
    def argv(self) -> list[str]:
        words = self.line.split()
        return words[:-1] + COMMANDS[words[-1]] if words[-1] in COMMANDS else words

    @property
    def now(self) -> float:
        return instant(f"2026-09-04T{self.at}:00Z")


class Kind(NamedTuple):
    name: str
    before: tuple[Call, ...]
    call: Call
    then: tuple[Call, ...]
    locked: bool = False  # another holds the lock while the call is made
    by_hand: bool = False  # what is processed may run again: that is what the call is for
    mutant: str = ""
    lost: bool = False  # the last of `before` was killed before its command's end was on record


HOURLY = "run a --every 1h"
BESIDE = f"{HOURLY} --overlap allow"
TRIPS = f"{HOURLY} --on-failure continue --pause-after 1 --resume-after 5m"
SOON = Call(f"{HOURLY} -- W", "12:15")
NINE = (Call(f"{HOURLY} -- W", "09:05"),)
NOON = (Call(f"{HOURLY} -- W", "12:02"),)  # nothing is left to do


# 10:00 fails, and is dead after one attempt, after two of two calls, after two of one call.
ONCE, TWICE, AGAIN = (
    Call(f"{HOURLY} --on-failure continue {options} -- FAIL", status=3)
    for options in ("--max-attempts 1", "--max-attempts 2", "--retries 1 --retry-delay 0")
)
RESOLVE = "resolve a 2026-09-04T10:00Z --note x"


def after(call: Call) -> tuple[Call, ...]:
    """The same again, until it is dead whatever happened; a disturbed one may fail once more."""
    return (
        call._replace(at="12:25", status=0, or_status=3),
        call._replace(at="12:35", status=0),
    )


def same(line: str, *more: Call, status: int = 0) -> tuple[Call, tuple[Call, ...]]:
    """A call, and the same again as what comes then."""
    return Call(line, status=status), (Call(line, "12:15"), *more)


KINDS = (
    Kind("no-ledger", (), *same(f"{HOURLY} -- W")),
    Kind("first-run", (Call("run b -- true"),), *same(f"{HOURLY} -- W")),
    Kind("catch-up", NINE, *same(f"{HOURLY} -- W")),
    Kind("stops", NINE, Call(f"{HOURLY} -- FAIL", status=3), (SOON,)),
    Kind("continues", NINE, Call(f"{HOURLY} --on-failure continue -- FAIL", status=3), (SOON,)),
    Kind(
        "trips",
        NINE,
        Call(f"{TRIPS} -- FAIL", status=3),
        # Where the call was lost, the first of these pauses the job: the next may try again.
        (Call(f"{TRIPS} -- W", "12:25"), SOON._replace(at="12:35")),
    ),
    Kind("dies", (*NINE, TWICE), TWICE._replace(at="12:15"), after(TWICE)),
    Kind("tries-again", NINE, AGAIN, after(AGAIN)),
    Kind("retry", (*NINE, ONCE), *same("retry a -- W", SOON)),
    Kind(
        "resolve",
        (*NINE, ONCE),
        Call(RESOLVE),
        (Call(RESOLVE, "12:15", 2, 0), SOON),
    ),
    Kind("holds", NINE, *same(f"{HOURLY} --on-lost hold -- W"), lost=True),
    Kind("locked", NINE, *same(f"{HOURLY} -- W"), locked=True),
    Kind("idle", NOON, *same(f"{HOURLY} -- W")),
    Kind("merge", NINE, *same(f"{HOURLY} --catch-up merge -- W")),
    Kind("latest", NINE, *same(f"{HOURLY} --catch-up latest -- W")),
    Kind("too-old", NINE, *same(f"{HOURLY} --max-age 90m -- W")),
    Kind("rerun", NINE, *same("rerun a 2026-09-04T08:00Z -- W", SOON), by_hand=True),
    Kind("rerun-idle", NOON, Call("rerun a 2026-09-04T11:00Z -- W"), (SOON,), by_hand=True),
    Kind(
        "backfill", NINE, *same("backfill a --from 2026-09-04T05:00Z --to 2026-09-04T08:00Z -- W")
    ),
    Kind("window", NINE, *same(f"{HOURLY} --window 2026-09-04T10:00Z -- W", SOON)),
    # The call after it may find its window still under way, and do the next.
    Kind("beside", NINE, *same(f"{BESIDE} -- B", Call(f"{BESIDE} -- B", "12:16"))),
    Kind("beside-key", (), *same("run k --key one --overlap allow -- B")),
    Kind("key", (), *same("run k --key one -- W")),
    Kind("plain", (Call("run b -- true"),), *same("run p -- W"), by_hand=True),
    Kind(
        "skip",
        NINE,
        Call("skip a 2026-09-04T10:00Z --reason x"),
        (Call("skip a 2026-09-04T10:00Z --reason x"), SOON),
    ),
    Kind(
        "watermark",
        NINE,
        *same("watermark a --set 2026-09-04T11:00Z --reason x", SOON),
    ),
    Kind("pause", NINE, Call("pause a --reason x"), (Call("pause a"), Call("resume a"), SOON)),
    Kind(
        "resume",
        (*NINE, Call("pause a", "09:10")),
        *same("resume a --catch-up latest", SOON),
    ),
    Kind("schedule", NINE, *same("run a --every 30m --accept-schedule -- W")),
    Kind("migration", NINE, *same(f"{HOURLY} -- W"), mutant="second_schema"),
    Kind("marks", NINE, Call(f"{HOURLY} --on-failure continue -- MARKS", status=4), (SOON,)),
    Kind("floods", NINE, *same(f"{HOURLY} -- FLOODS")),
    Kind("lost", NINE, *same(f"{HOURLY} -- W"), lost=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}
