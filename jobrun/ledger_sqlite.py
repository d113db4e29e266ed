"""The ledger in one SQLite file: what is written, under the job's lock.

A call that runs n windows is n + 1 transactions: `open` takes a token and claims the first window,
each `finish` closes one run and claims the next. Nothing slow happens inside of one: commands run,
windows are planned and schedules are worked out between them.

The token is the guard. `open` raises it only from the value that planning read, a further try of
the same in its call raises it again, every later write looks whether it is still the writer's, and
a writer that finds another one changes nothing but its own run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from jobrun.errors import DamagedLedger, JobrunError, LedgerError, NotRecorded
from jobrun.instants import from_iso, iso
from jobrun.ledger import NextBoundary
from jobrun.ledger_sqlite_events import note_end, note_success
from jobrun.ledger_sqlite_pause import (
    Before,
    before_end,
    begin_pause,
    end_pause,
    is_paused,
    weigh_end,
    weigh_loss,
    weigh_marked_loss,
    weigh_standing,
    weight,
)
from jobrun.ledger_sqlite_reads import SqliteReads
from jobrun.ledger_sqlite_values import damaged
from jobrun.ledger_sqlite_windows import (
    add_event,
    add_gap,
    advance,
    claim_window,
    end_window,
    give_up_window,
    has_schedule,
    has_window,
    keep_values,
    lose_window,
    make_due,
    put_watermark,
    skip_window,
    text,
    void_window,
)
from jobrun.rows import (
    BY_HAND,
    DEAD,
    FAILED,
    FENCED,
    LOST,
    MARKED,
    PROCESSED,
    SUCCEEDED,
    Caller,
    Claim,
    Claimed,
    Finished,
    Opened,
    Opening,
    Pause,
    Result,
    Setting,
    Skipped,
)
from jobrun.sqlite_database import PATIENCE, Database, Transaction
from jobrun.sqlite_file import connect
from jobrun.sqlite_skip import record_skip
from jobrun.value import NamedTuple

_MAKE_JOB = """
INSERT OR IGNORE INTO jobrun_job (name, token, largest_now, first_seen, last_seen)
SELECT :job, token_floor, :now, :now, :now FROM jobrun_meta
"""

_TAKE_TOKEN = """
UPDATE jobrun_job
   SET token = token + 1,
       schedule = coalesce(:schedule, schedule),
       first = coalesce(first, :first),
       watermark = coalesce(watermark, :watermark),
       largest_now = CASE WHEN :believed THEN max(largest_now, :now) ELSE largest_now END,
       clock_jump_at = :clock_jump_at,
       last_seen = :now,
       spec = coalesce(:spec, spec)
 WHERE name = :job AND (token = :token OR :is_new)
"""

_START_RUN = """
INSERT INTO jobrun_run (job, key, kind, attempt, token, host, pid, child_pid, birth, user, terminal,
                        started, slot, by_hand)
VALUES (:job, :key, :kind, :attempt, :token, :host, :pid, :child_pid, :birth, :user, :terminal,
        :started, :slot, :by_hand)
"""

# A run that was given up for lost, and ends after all, is better known now.
_END_RUN = """
UPDATE jobrun_run
   SET outcome = :outcome, ended = :ended, took = :took, exit_code = :exit_code, signal = :signal,
       output_bytes = :output_bytes, why = :why
 WHERE id = :run_id AND (outcome IS NULL OR outcome = 'lost')
"""

FINISH_PATIENCE = 2.0  # seconds
_TABLES = (
    "jobrun_event", "jobrun_skip", "jobrun_run", "jobrun_gap", "jobrun_value", "jobrun_window",
)  # fmt: skip


def open_ledger(
    path: str,
    caller: Caller | None = None,
    create: bool = True,
    network: bool | None = None,
    to_read: bool = False,
) -> SqliteLedger:
    """The ledger in the file at `path`; `caller` is kept with each run, and needed to claim one.

    `create`, `network`, `to_read` and the errors: see sqlite_file.connect.
    """
    database, created = connect(path, create, network, to_read)
    return SqliteLedger(database, created, caller)


class _Losses(NamedTuple):
    """What comes of lost runs: the fields of Opened."""

    tripped: Pause | None
    resumed: Pause | None
    marked: tuple[int, ...]


class SqliteLedger(SqliteReads):
    def __init__(self, database: Database, created: bool, caller: Caller | None) -> None:
        super().__init__(database, created)
        self._caller = caller

    def open(
        self, opening: Opening, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Opened | None:
        return self._under_token(
            opening, next_boundary, lambda token: self._claim(opening.job, token, claim), claim
        )

    def finish(
        self, result: Result, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Finished:
        # Not the usual patience: the caller tries again, and looks for signals in between.
        with self._writing(FINISH_PATIENCE, lost=NotRecorded):
            if not self._is_holder(result):
                return self._fence(result)
            before = before_end(self._database, result.run_id)
            blocks = partial(self.blocks, result.job)
            self._end_run(result, result.outcome)
            end_window(self._database, result)
            state, marked = self._window_state(result.job, result.key, result.token)
            tripped, resumed = weigh_end(self._database, result, before, marked, blocks)
            if result.outcome == SUCCEEDED or marked:
                keep_values(self._database, result.job, result.key, result.values)
            note_end(self._database, result, state, marked)
            if result.beside and not has_schedule(self._database, result):
                next_boundary = None
            watermark = advance(self._database, result.job, next_boundary)
            paused = self._is_halted(result.job, claim, result.ended)
            claimed = self._claim(result.job, result.token, None if paused else claim)
        return Finished(result.outcome, state, watermark, paused, claimed, marked, tripped, resumed)

    def claim(self, job: str, token: int, claim: Claim) -> Claimed | None:
        with self._writing():
            if not self._has_token(job, token) or self._is_halted(job, claim, claim.started):
                return None
            return self._claim(job, self._renew(job, token) if claim.again else token, claim)

    def stand(self, result: Result) -> Pause | None:
        with self._writing():
            if not self._has_token(result.job, result.token):
                return None
            state, marked = self._window_state(result.job, result.key, result.token)
            note_end(self._database, result._replace(goes_on=False), state, marked)
            if state == PROCESSED:
                return None
            return weigh_standing(self._database, result, partial(self.blocks, result.job))

    def skip_windows(
        self,
        opening: Opening,
        rows: tuple[tuple[str, int, int], ...],
        next_boundary: NextBoundary | None,
    ) -> Opened | None:
        def write(token: int) -> None:
            for key, start, end in rows:
                skipped = Skipped(key, start, end, BY_HAND)
                skip_window(self._database, opening.job, token, skipped, opening.now)

        return self._under_token(opening, next_boundary, write)

    def set_watermark(
        self, opening: Opening, to: int, next_boundary: NextBoundary
    ) -> Opened | None:
        def write(_: int) -> None:
            put_watermark(self._database, opening.job, to, opening.now)

        return self._under_token(opening, next_boundary, write)

    def forget(self, job: str, token: int) -> bool:
        with self._writing() as transaction:
            if not self._has_token(job, token):
                transaction.roll_back()
                return False
            # A later job of this name goes on counting: no token is ever given twice.
            self._database.change(
                "UPDATE jobrun_meta SET token_floor = max(token_floor, ?)", (token,)
            )
            for table in _TABLES:
                self._database.change(f"DELETE FROM {table} WHERE job = ?", (job,))
            self._database.change("DELETE FROM jobrun_job WHERE name = ?", (job,))
        return True

    def skip(
        self,
        job: str,
        reason: str,
        key: str | None,
        detail: str | None,
        at: int,
        believed: bool = False,
    ) -> bool:
        try:
            return record_skip(self._database, job, reason, key, detail, at, believed)
        except DamagedLedger as error:
            raise self._explained(error) from None

    def pause(self, job: str, pause: Pause) -> bool:
        with self._writing():
            return begin_pause(self._database, job, pause)

    def resume(self, job: str, by: str, at: int) -> bool:
        with self._writing():
            return end_pause(self._database, job, by, at)

    def override(self, job: str, setting: Setting) -> bool:
        sql = "UPDATE jobrun_job SET overrides = ? WHERE name = ? AND overrides IS ?"
        with self._database.writing():
            if self._database.change(sql, (setting.text, job, setting.was)) != 1:
                return False
            add_event(self._database, job, setting.at, None, setting.kind, setting.detail)
        return True

    def note_event(self, job: str, key: str | None, kind: str, detail: str, at: int) -> None:
        with self._database.writing():
            add_event(self._database, job, at, key, kind, detail)

    def weight(self, run_id: int) -> int | None:
        return weight(self._database, run_id)

    def problems(self) -> list[str]:
        from jobrun.ledger_sqlite_care import problems

        return problems(self._database)

    # -- writing ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(
        self, patience: float = PATIENCE, lost: type[JobrunError] = LedgerError
    ) -> Iterator[Transaction]:
        """A transaction; where it meets what can't be, the error names the row that is to blame."""
        try:
            with self._database.writing(patience, lost) as transaction:
                yield transaction
        except DamagedLedger as error:
            raise self._explained(error) from None

    def _explained(self, error: DamagedLedger) -> Exception:
        """A rule that is broken although all that is there is sound, is broken by us: a bug."""
        from jobrun.ledger_sqlite_care import damage

        broken = error.__cause__
        if broken is not None and not isinstance(broken, sqlite3.IntegrityError):
            return error  # SQLite has said what it is
        for what in damage(self._database):
            return damaged(self._database, what)
        return broken or error

    # -- the beginning of a call ------------------------------------------------------------------

    def _under_token(
        self,
        opening: Opening,
        next_boundary: NextBoundary | None,
        write: Callable[[int], Claimed | None],
        claim: Claim | None = None,
    ) -> Opened | None:
        """Take a token, write what planning decided, then what the call is for.

        None if another holder, or a pause, has been since planning read.
        """
        with self._writing() as transaction:
            token = self._take_token(opening)
            if token is None or self._is_halted(opening.job, claim, opening.now):
                transaction.roll_back()
                return None
            losses = self._lose_runs(opening)
            self._write_opening(opening, token)
            # A pause that comes of what was lost stays, and all that was found with it.
            is_halted = self._is_halted(opening.job, claim, opening.now)
            claimed = None if is_halted else write(token)
            watermark = advance(self._database, opening.job, next_boundary)
        return Opened(token, watermark, claimed, *losses)

    def _write_opening(self, opening: Opening, token: int) -> None:
        for key in opening.void:
            void_window(self._database, opening.job, key, opening.now)
        for gap in opening.gaps:
            add_gap(self._database, opening.job, gap._replace(at=gap.at or opening.now))
        for given_up, reason in opening.ended:
            give_up_window(self._database, opening.job, given_up, reason, opening.now)
        for skipped in opening.skipped:
            skip_window(self._database, opening.job, token, skipped, opening.now)
        for unit in opening.due:
            make_due(self._database, opening.job, unit, opening.now)
        for about, kind, detail in opening.events:
            self._add_event(opening, about, kind, detail)
        if opening.resumed_by is not None:
            end_pause(self._database, opening.job, opening.resumed_by, opening.now)

    def _take_token(self, opening: Opening) -> int | None:
        now = iso(opening.now)
        is_new = self._database.change(_MAKE_JOB, {"job": opening.job, "now": now}) == 1
        values: dict[str, object] = {
            **opening._asdict(),
            "now": now,
            "watermark": text(opening.watermark),
            "clock_jump_at": text(opening.clock_jump_at),
            "believed": not opening.keep_largest_now,
            "is_new": is_new and opening.token == 0,
        }
        if self._database.change(_TAKE_TOKEN, values) != 1:
            return None
        return int(
            self._database.rows("SELECT token FROM jobrun_job WHERE name = ?", (opening.job,))[0][0]
        )

    def _renew(self, job: str, token: int) -> int:
        """A new token for its holder: what is left of the try before must not pass for this one."""
        self._database.change(
            "UPDATE jobrun_job SET token = token + 1 WHERE name = ? AND token = ?", (job, token)
        )
        return token + 1

    def _lose_runs(self, opening: Opening) -> _Losses:
        tripped, resumed, marked = None, None, []
        for run_id in opening.lost:
            before = before_end(self._database, run_id)
            lost = self._database.change(
                "UPDATE jobrun_run SET outcome = ? WHERE id = ? AND job = ? AND outcome IS NULL",
                (LOST, run_id, opening.job),
            )
            if not lost:
                continue
            key, token = self._database.rows(
                "SELECT key, token FROM jobrun_run WHERE id = ?", (run_id,)
            )[0]
            _, is_marked = self._window_state(opening.job, key, token)
            if is_marked:
                marked.append(run_id)
                resumed = self._lose_marked(opening, run_id, key, before) or resumed
            else:
                tripped = self._lose(opening, run_id, key) or tripped
        return _Losses(tripped, resumed, tuple(marked))

    def _lose(self, opening: Opening, run_id: int, key: str | None) -> Pause | None:
        """Nobody saw it end: no end is made up, and its window is due at once."""
        state = dict(opening.fates).get(key or "", FAILED)
        lose_window(self._database, opening.job, key, state, opening.now)
        self._add_event(opening, key, LOST, f"run={run_id}")
        blocks = partial(self.blocks, opening.job)
        return weigh_loss(self._database, opening, run_id, state == DEAD, blocks)

    def _lose_marked(
        self, opening: Opening, run_id: int, key: str | None, before: Before
    ) -> Pause | None:
        """Its window is done whatever became of it: as at the end of one that marked itself."""
        self._add_event(opening, key, LOST, f"run={run_id}, its window is processed")
        keep_values(self._database, opening.job, key, dict(opening.left).get(run_id, ()))
        resumed = weigh_marked_loss(self._database, opening, key, before)
        note_success(self._database, opening.job, key, opening.now, f"{LOST}, run={run_id}")
        return resumed

    def _add_event(self, opening: Opening, key: str | None, kind: str, detail: str | None) -> None:
        add_event(self._database, opening.job, opening.now, key, kind, detail)

    # -- claiming ---------------------------------------------------------------------------------

    def _claim(self, job: str, token: int, claim: Claim | None) -> Claimed | None:
        if claim is None:
            return None
        attempt, failures = claim.attempt, claim.attempt - 1
        if claim.key is not None:
            attempt, failures = claim_window(self._database, job, token, claim)
        caller = self._caller
        assert caller is not None, "open_ledger() without a caller can't claim"
        run: dict[str, object] = {
            **claim._asdict(),
            **caller._asdict(),
            "started": iso(claim.started),
            "job": job,
            "attempt": attempt,
            "token": token,
        }
        run_id = self._database.insert(_START_RUN, run)
        return Claimed(run_id, attempt, claim.started, failures, token)

    # -- finishing --------------------------------------------------------------------------------

    def _is_holder(self, result: Result) -> bool:
        """Whether nobody has been who could have run the same: by the job's token, or where others
        run beside it by that of its window."""
        if result.beside and not has_window(self._database, result):
            return False
        remember = "UPDATE jobrun_job SET told = ?, told_at = ? WHERE name = ? AND (token = ? OR ?)"
        told = (result.told, text(result.told_at))
        return (
            self._database.change(remember, (*told, result.job, result.token, result.beside)) == 1
        )

    def _has_token(self, job: str, token: int) -> bool:
        holder = "SELECT 1 FROM jobrun_job WHERE name = ? AND token = ?"
        return bool(self._database.rows(holder, (job, token)))

    def _fence(self, result: Result) -> Finished:
        self._end_run(result, FENCED)
        found = self._database.rows(
            "SELECT watermark FROM jobrun_job WHERE name = ?", (result.job,)
        )
        watermark = from_iso(found[0][0]) if found and found[0][0] else None
        state, marked = self._window_state(result.job, result.key, result.token)
        return Finished(FENCED, state, watermark, False, None, marked)

    def _end_run(self, result: Result, outcome: str) -> None:
        values = {**result._asdict(), "outcome": outcome, "ended": iso(result.ended)}
        self._database.change(_END_RUN, values)

    def _window_state(self, job: str, key: str | None, token: int) -> tuple[str | None, bool]:
        """The window's state, and whether the command of the run with that token marked it."""
        window = "SELECT state, reason, token FROM jobrun_window WHERE job = ? AND key = ?"
        for state, reason, holder in self._database.rows(window, (job, key)):
            return state, reason == MARKED and holder == token
        return None, False

    def _is_halted(self, job: str, claim: Claim | None, now: int) -> bool:
        """Whether a pause keeps the claim from being made."""
        return claim is not None and not claim.by_hand and is_paused(self._database, job, now)
