"""What becomes of a call: which of its commands fail, and where it is killed itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from jobrun.ledger_sqlite import SqliteLedger
from tests.forked import die

# After the first claim, before the command is let go; after the nth command, before its record;
# after the nth record, which claims the next, before that is let go.
KILLS = ("claimed", "ended", "recorded")


class Kill(NamedTuple):
    """Of the wrapper, between a claim and its record; for calls in forks (forked.py)."""

    where: str
    turn: int

    @property
    def is_blocked(self) -> bool:
        """Whether the last command that was claimed is never let go."""
        return self.where != "ended"

    def hook(self) -> None:
        """Called in the fork that is to be killed."""
        opens, finishes = SqliteLedger.open, SqliteLedger.finish
        turns = iter(range(1, 1000))

        def open_(ledger: SqliteLedger, *arguments: Any) -> Any:
            opened = opens(ledger, *arguments)
            if self.where == "claimed" and opened is not None and opened.claimed is not None:
                die()
            return opened

        def finish(ledger: SqliteLedger, *arguments: Any) -> Any:
            is_now = next(turns) == self.turn
            if is_now and self.where == "ended":
                die()
            finished = finishes(ledger, *arguments)
            if is_now and self.where == "recorded":
                die()
            return finished

        SqliteLedger.open = open_  # type: ignore[assignment,method-assign]
        SqliteLedger.finish = finish  # type: ignore[assignment,method-assign]


# Each run says what it is, and then fails if it is one of those of its call that are to.
SCRIPT = """
n=1; while read -r _; do n=$((n + 1)); done < "$LOG"
echo "$JOBRUN_RUN_ID ${JOBRUN_KEY:--} ${JOBRUN_WINDOW_START:--} ${JOBRUN_WINDOW_END:--} \
$JOBRUN_ATTEMPT $JOBRUN_TOKEN" >> "$LOG"
case " $FAILS " in *" $n "*) if [ "$ENDING" = KILL ]; then kill -9 $$; else exit 3; fi ;; esac
"""
CODES = {"3": 3, "KILL": 137, "missing": 127}


class Fate(NamedTuple):
    """What becomes of a call's commands, and of the call itself."""

    fails: frozenset[int] = frozenset()
    ending: str = "3"
    kill: Kill | None = None

    @property
    def command(self) -> tuple[str, ...]:
        return ("/nowhere/command",) if self.ending == "missing" else ("sh", "-c", SCRIPT)


WELL = Fate()
FAILING = st.builds(
    Fate,
    st.frozensets(st.integers(1, 3), min_size=1),
    st.sampled_from(["3", "KILL", "missing"]),
    st.none(),
)
KILLED_ONES = st.builds(
    Fate,
    st.frozensets(st.integers(1, 2)),
    st.just("3"),
    st.builds(Kill, st.sampled_from(KILLS), st.integers(1, 3)),
)
FATES = st.one_of(st.just(WELL), FAILING, KILLED_ONES)
