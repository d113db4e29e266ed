"""Runs on record that have no end: which of them live, and which are lost."""

from __future__ import annotations

from collections.abc import Iterable

from jobrun import locks, process
from jobrun.errors import LedgerError
from jobrun.rows import RunRow
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.call import Call
    from jobrun.ledger import Ledger
    from jobrun.lock import Lock


class Living(NamedTuple):
    """A run of which something is left."""

    run: RunRow
    pids: tuple[int, ...]  # its command's processes; without any it is the wrapper that lives


class Judged(NamedTuple):
    """Runs without an end, although the job's lock was free."""

    lost: list[RunRow]  # nothing of them is left
    living: list[Living]  # oldest first

    @property
    def alive(self) -> RunRow | None:
        return self.living[0].run if self.living else None

    @property
    def pids(self) -> tuple[int, ...]:
        return self.living[0].pids if self.living else ()


def judge_open_runs(
    ledger: Ledger,
    job: str,
    call: Call,
    lock: Lock | None = None,
    slot: int | None = None,
    by_lock: bool = True,
) -> Judged:
    """A wrapper alive means that its lock file was replaced, or that it runs beside others and
    holds a slot. A command alive means that its wrapper and guardian were both killed. In any case
    never a second copy beside it. `slot` is our own. Without `by_lock` no lock is touched: for what
    is looked at only.

    The processes are asked whatever host the row names: a machine may have been renamed, and a pid
    of another boot or container is never taken for ours. What other machines have under way is
    asked of `lock`, the job's; None: the ledger is a file. Raises ConfigError where they go by
    another one.
    """
    judged = Judged([], [])
    open_runs = ledger.open_runs(job)
    if lock is not None:
        lock.check_others(open_runs)
    for row in open_runs:
        is_tried = by_lock and row.slot not in (None, slot)
        pids = () if is_tried and locks.is_held_here(row, call) else left_of(row, call)
        if pids is None and lock is not None and (row.slot is None or row.slot != slot):
            pids = () if lock.is_elsewhere(row) else None
        if pids is not None:
            judged.living.append(Living(row, pids))
        elif not _has_ended_since(ledger, row):
            if locks.is_doubtful(row, call):
                raise _of_another_host(row, call)
            judged.lost.append(row)
    return judged


def left_of(row: RunRow, call: Call) -> tuple[int, ...] | None:
    """Its command's processes, none of them where it is the wrapper that lives; None: nothing."""
    if process.wrapper_alive(row):
        return ()
    return process.command_alive(row, row.marker(call.ledger)) or None


def _has_ended_since(ledger: Ledger, row: RunRow) -> bool:
    """A run beside others is recorded without the job's lock: between our reading and our look."""
    found = ledger.run(row.id) if row.slot is not None else None
    return found is not None and found.outcome is not None


def keys_of(living: Iterable[Living]) -> frozenset[str]:
    """What a call beside them leaves to them."""
    return frozenset(each.run.key for each in living if each.run.key is not None)


def _of_another_host(row: RunRow, call: Call) -> LedgerError:
    return LedgerError(
        f"the ledger {call.ledger} is on a network filesystem, and run {row.id} of host"
        f" {row.host} has not ended: this host is {call.caller.host}",
        "a ledger on a local disk of each host",
    )
