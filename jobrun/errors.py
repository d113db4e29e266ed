"""What can go wrong, and the exit code that each kind owns.

    JobrunError
    +-- UsageError        2   the call is wrong; nothing was read or changed
    +-- UnsafePlace      73   a state folder or lock file can't be made, or is not safe
    +-- LedgerError      74   the ledger is unreadable, full, corrupt, or newer than this program
    |   +-- NoLedger          there is none, and none is to be made
    |   +-- DamagedLedger     what it holds can't be: to try again is no use
    |       +-- Contradiction     ... together with what is to be written
    +-- Refused          75   not now: nothing ran, a later call may
    |   +-- StoreDown         the server of the ledger is out of reach, or has cut us off
    |       +-- InDoubt           ... and whether it has done what was asked last is not known
    +-- NotRecorded      76   the command ran, its result is not on record
    +-- ConfigError      78   configuration, or a schedule change that wants consent

An error holds one line that names the thing with its value, the rule it breaks, and a hint: the
next step, as something that can be typed. Only `main` turns it into text and into an exit code.
"""

from __future__ import annotations

EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_UNSAFE_PLACE = 73
EXIT_LEDGER = 74
EXIT_REFUSED = 75
EXIT_NOT_RECORDED = 76
EXIT_CONFIG = 78
EXIT_TIMED_OUT = 124
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128  # + the signal's number


class JobrunError(Exception):
    """An error that a person can act on; `code` is the exit code of the contract."""

    code = EXIT_BUG

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(JobrunError):
    code = EXIT_USAGE


class UnsafePlace(JobrunError):
    code = EXIT_UNSAFE_PLACE


class LedgerError(JobrunError):
    code = EXIT_LEDGER


class NoLedger(LedgerError):
    pass


class DamagedLedger(LedgerError):
    pass


class Contradiction(DamagedLedger):
    pass


class Refused(JobrunError):
    code = EXIT_REFUSED


class StoreDown(Refused):
    """`is_late`: the call had asked what is on record, and who has the job's lock."""

    is_late = False


class InDoubt(StoreDown):
    pass


class NotRecorded(JobrunError):
    code = EXIT_NOT_RECORDED


class ConfigError(JobrunError):
    """`gist` is what is the same at each call that meets it, where the message is not."""

    code = EXIT_CONFIG

    def __init__(self, message: str, hint: str | None = None, gist: str | None = None) -> None:
        super().__init__(message, hint)
        self.gist = gist or message
