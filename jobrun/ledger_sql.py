"""A ledger in a database: what is written, under the job's lock.

A call that runs n windows is n + 1 transactions: `open` takes a token and claims the first window,
each `finish` closes one run and claims the next. Nothing slow happens inside of one: commands run,
windows are planned and schedules are worked out between them.

The token is the guard. `open` raises it only from the value that planning read, a further try of
the same in its call raises it again, every later write looks whether it is still the writer's, and
a writer that finds another one changes nothing but its own run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jobrun.database import PATIENCE
from jobrun.errors import Contradiction, DamagedLedger, JobrunError, LedgerError, NotRecorded
from jobrun.instants import MINUTE, from_iso, iso
from jobrun.ledger_end import (
    Before,
    end_window,
    keep_values,
    note_end,
    note_success,
    read_before,
    remember,
)
from jobrun.ledger_hosts import forget_host, forget_old, note_host
from jobrun.ledger_pause import (
    Weighed,
    begin_pause,
    end_pause,
    is_paused,
    weigh_end,
    weigh_loss,
    weigh_marked_loss,
    weigh_standing,
    weight,
)
from jobrun.ledger_reads import Reads
from jobrun.ledger_runs import claimed_before, end_run, lose_run, start_run
from jobrun.ledger_values import damaged
from jobrun.ledger_windows import (
    add_event,
    add_gap,
    advance,
    claim_window,
    give_up_window,
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
    NEW,
    PROCESSED,
    RETRY,
    SUCCEEDED,
    Caller,
    Claim,
    Claimed,
    Finished,
    Opened,
    Opening,
    Pause,
    Result,
    Server,
    Setting,
    Skipped,
)
from jobrun.value import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobrun.database import Database, Transaction
    from jobrun.exported import Exported, Part, Row, Table
    from jobrun.ledger import NextBoundary
    from jobrun.ledger_import import Taken

_MAKE_JOB = """
INSERT INTO jobrun_job (name, token, largest_now, first_seen, last_seen)
SELECT :job, token_floor, :now, :now, :now FROM jobrun_meta WHERE true
    ON CONFLICT (name) DO NOTHING
"""

_TAKE_TOKEN = """
UPDATE jobrun_job
   SET token = token + 1,
       schedule = coalesce(:schedule, schedule),
       first = coalesce(first, :first),
       watermark = coalesce(watermark, :watermark),
       largest_now = CASE WHEN :believed AND largest_now < :now THEN :now ELSE largest_now END,
       clock_jump_at = :clock_jump_at,
       last_seen = :now,
       spec = coalesce(:spec, spec)
 WHERE name = :job AND token = :token
"""

# No text of theirs is empty.
_OVERRIDE = """
UPDATE jobrun_job SET overrides = :text
 WHERE name = :job AND coalesce(overrides, '') = coalesce(:was, '')
"""

FINISH_PATIENCE = 2.0  # seconds
_TABLES = (
    "jobrun_event", "jobrun_skip", "jobrun_run", "jobrun_gap", "jobrun_value", "jobrun_window",
)  # fmt: skip


class _Losses(NamedTuple):
    """What comes of lost runs: the fields of Opened."""

    tripped: Pause | None
    resumed: Pause | None
    marked: tuple[int, ...]


class SqlLedger(Reads):
    """What is the same in each; `caller` is kept with each run, and needed to claim one."""

    def __init__(self, database: Database, created: bool, caller: Caller | None) -> None:
        super().__init__(database, created)
        self.skew: int | None = None
        self._caller = caller

    def open(
        self, opening: Opening, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Opened | None:
        return self._under_token(
            opening,
            next_boundary,
            lambda token: self._claim_first(opening.job, token, claim),
            claim,
        )

    def finish(
        self, result: Result, claim: Claim | None, next_boundary: NextBoundary | None
    ) -> Finished:
        # Not the usual patience: the caller tries again, and looks for signals in between.
        with self._writing(result.job, FINISH_PATIENCE, lost=NotRecorded):
            before = self._before(result)
            is_holder = self._is_holder(result, before)
            # What is on record is the answer, whoever has been since.
            if before.is_recorded and (is_holder or before.outcome == result.outcome):
                return self._again(result, before, claim)
            if not is_holder:
                return self._fence(result, before)
            weighed = self._end(result, before)
            watermark = advance(self._database, result.job, _grid(result, before, next_boundary))
            paused = _halts(weighed.pause, claim, result.ended)
            claimed = self._claim(result.job, result.token, None if paused else claim)
            self._note_host(result.ended)
        marked, state = before.is_marked(result.token), before.state_after(result)
        pauses = weighed.tripped, weighed.resumed
        return Finished(result.outcome, state, watermark, paused, claimed, marked, *pauses)

    def claim(self, job: str, token: int, claim: Claim) -> Claimed | None:
        with self._writing(job):
            if not self._has_token(job, token) or self._is_halted(job, claim, claim.started):
                return None
            return self._claim(job, self._renew(job, token) if claim.again else token, claim)

    def stand(self, result: Result) -> Pause | None:
        with self._writing(result.job):
            before = self._before(result)
            if before.token != result.token:
                return None
            note_end(self._database, result._replace(goes_on=False), before)
            if before.state == PROCESSED:
                return None
            blocks = partial(self.blocks, result.job)
            return weigh_standing(self._database, result, before, blocks).tripped

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

        return self._under_token(opening, next_boundary, write, long=True)

    def set_watermark(
        self, opening: Opening, to: int, next_boundary: NextBoundary
    ) -> Opened | None:
        def write(_: int) -> None:
            put_watermark(self._database, opening.job, to, opening.now)

        return self._under_token(opening, next_boundary, write, long=True)

    def forget(self, job: str, token: int) -> bool:
        with self._writing(job, long=True) as transaction:
            if not self._has_token(job, token):
                transaction.roll_back()
                return False
            # A later job of this name goes on counting: no token is ever given twice.
            floor = "UPDATE jobrun_meta SET token_floor = ? WHERE token_floor < ?"
            self._database.change(floor, (token, token))
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
        from jobrun.ledger_skip import record_skip

        try:
            note = self._note_host
            return record_skip(self._database, job, reason, key, detail, at, believed, note)
        except DamagedLedger as error:
            raise self._explained(error) from None

    def pause(self, job: str, pause: Pause) -> bool:
        with self._writing(job):
            return begin_pause(self._database, job, pause)

    def resume(self, job: str, by: str, at: int) -> bool:
        with self._writing(job):
            return end_pause(self._database, job, by, at)

    def override(self, job: str, setting: Setting) -> bool:
        with self._database.writing(job=job):
            if self._database.change(_OVERRIDE, {**setting._asdict(), "job": job}) != 1:
                return False
            add_event(self._database, job, setting.at, None, setting.kind, setting.detail)
        return True

    def note_event(self, job: str, key: str | None, kind: str, detail: str, at: int) -> None:
        with self._database.writing(job=job):
            add_event(self._database, job, at, key, kind, detail)

    def note_host(self, now: int) -> None:
        with self._database.writing():
            self._note_host(now, every=0)

    def forget_host(self, host: str) -> bool:
        with self._database.writing():
            return forget_host(self._database, host)

    def weight(self, run_id: int) -> int | None:
        return weight(self._database, run_id)

    @contextmanager
    def exporting(self, jobs: Sequence[str]) -> Iterator[tuple[int, Iterator[tuple[Table, Row]]]]:
        from jobrun.ledger_export import all_rows, token_floor

        with self._database.reading():
            names = jobs or [row.name for row in self.jobs()]
            yield token_floor(self._database), all_rows(self._database, names)

    def judge_import(self, exported: Exported, part: Part) -> str:
        from jobrun.ledger_import import judge

        return judge(self._database, exported, part)

    def take_import(self, exported: Exported, part: Part, used: Collection[int] = ()) -> Taken:
        from jobrun.ledger_import import take

        return take(self._database, exported, part, used)

    def keep_token_floor(self, floor: int) -> None:
        from jobrun.ledger_import import keep_token_floor

        keep_token_floor(self._database, floor)

    def server(self) -> Server | None:
        return None

    def problems(self) -> list[str]:
        from jobrun.ledger_care import problems

        return problems(self._database, self._own_damage)

    def _own_damage(self) -> Iterable[str]:
        """What the database itself finds wrong; asked only where a row is in doubt."""
        return ()

    # -- writing ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(
        self,
        job: str,
        patience: float = PATIENCE,
        lost: type[JobrunError] = LedgerError,
        long: bool = False,
    ) -> Iterator[Transaction]:
        """A transaction; where it meets what can't be, the error names the row that is to blame."""
        try:
            with self._database.writing(patience, lost, job, long) as transaction:
                yield transaction
        except DamagedLedger as error:
            raise self._explained(error) from None

    def _explained(self, error: DamagedLedger) -> BaseException:
        """A rule that is broken although all that is there is sound, is broken by us: a bug."""
        from jobrun.ledger_care import damage

        broken = error.__cause__
        if broken is not None and not isinstance(error, Contradiction):
            return error  # the database has said what it is
        for what in damage(self._database, self._own_damage):
            return damaged(self._database, what)
        return broken or error

    def _note_host(self, now: int, every: int = MINUTE) -> None:
        if self._caller is not None:
            note_host(self._database, self._caller.host, now, self.skew, every)

    # -- the beginning of a call ------------------------------------------------------------------

    def _under_token(
        self,
        opening: Opening,
        next_boundary: NextBoundary | None,
        write: Callable[[int], Claimed | None],
        claim: Claim | None = None,
        long: bool = False,
    ) -> Opened | None:
        """Take a token, write what planning decided, then what the call is for.

        None if another holder, a pause, or the end of that window, has been since planning read; or
        where what was taken for lost has an end by now, from an outbox.
        """
        with self._writing(opening.job, long=long) as transaction:
            token = self._take_token(opening)
            if token is None or self._is_halted(opening.job, claim, opening.now):
                transaction.roll_back()
                return None
            losses = self._lose_runs(opening)
            if losses is None:
                transaction.roll_back()
                return None
            self._write_opening(opening, token)
            # A pause that comes of what was lost stays, and all that was found with it.
            is_halted = bool(opening.lost) and self._is_halted(opening.job, claim, opening.now)
            claimed = None if is_halted else write(token)
            if claim is not None and claimed is None and not is_halted:
                transaction.roll_back()
                return None
            watermark = advance(self._database, opening.job, next_boundary)
            if self._caller is not None:
                forget_old(self._database, self._caller.host, opening.now)
            self._note_host(opening.now)
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
        values: dict[str, object] = {
            **opening._asdict(),
            "now": now,
            "watermark": text(opening.watermark),
            "clock_jump_at": text(opening.clock_jump_at),
            "believed": not opening.keep_largest_now,
        }
        if self._database.change(_TAKE_TOKEN, values) == 1:
            return opening.token + 1
        # Unknown, or forgotten: its token goes on from the largest that was forgotten.
        if opening.token or not self._database.change(_MAKE_JOB, values):
            return None
        ((floor,),) = self._database.rows(
            "SELECT token FROM jobrun_job WHERE name = ?", (opening.job,)
        )
        self._database.change(_TAKE_TOKEN, {**values, "token": floor})
        return int(floor) + 1

    def _has_token(self, job: str, token: int) -> bool:
        holder = "SELECT 1 FROM jobrun_job WHERE name = ? AND token = ?"
        return bool(self._database.rows(holder, (job, token)))

    def _renew(self, job: str, token: int) -> int:
        """A new token for its holder: what is left of the try before must not pass for this one."""
        renew = "UPDATE jobrun_job SET token = token + 1 WHERE name = ? AND token = ?"
        self._database.put(renew, (job, token))
        return token + 1

    def _lose_runs(self, opening: Opening) -> _Losses | None:
        """None where one of them has an end by now."""
        tripped, resumed, marked = None, None, []
        for run_id in opening.lost:
            lost = lose_run(self._database, opening.job, run_id)
            if lost is None:
                return None
            key, token = lost
            before = read_before(self._database, opening.job, key, run_id)
            if before.is_marked(token):
                marked.append(run_id)
                resumed = self._lose_marked(opening, run_id, key, before) or resumed
            else:
                tripped = self._lose(opening, run_id, key, before) or tripped
        return _Losses(tripped, resumed, tuple(marked))

    def _lose(self, opening: Opening, run_id: int, key: str | None, before: Before) -> Pause | None:
        """Nobody saw it end: no end is made up, and its window is due at once."""
        state = dict(opening.fates).get(key or "", FAILED)
        lose_window(self._database, opening.job, key, state, opening.now)
        self._add_event(opening, key, LOST, f"run={run_id}")
        blocks = partial(self.blocks, opening.job)
        is_dead = state == DEAD
        return weigh_loss(self._database, opening, key, is_dead, before, blocks).tripped

    def _lose_marked(
        self, opening: Opening, run_id: int, key: str | None, before: Before
    ) -> Pause | None:
        """Its window is done whatever became of it: as at the end of one that marked itself."""
        job, now, how = opening.job, opening.now, f"{LOST}, run={run_id}"
        self._add_event(opening, key, LOST, f"run={run_id}, its window is processed")
        values = dict(opening.left).get(run_id, ())
        keep_values(self._database, job, key, values, before)
        resumed = weigh_marked_loss(self._database, opening, key, before).resumed
        note_success(self._database, job, key, now, how, before)
        return resumed

    def _add_event(self, opening: Opening, key: str | None, kind: str, detail: str | None) -> None:
        add_event(self._database, opening.job, opening.now, key, kind, detail)

    # -- claiming ---------------------------------------------------------------------------------

    def _claim_first(self, job: str, token: int, claim: Claim | None) -> Claimed | None:
        """None where the window is done although it was planned as one that is not: its command has
        marked it, or the machine that ran it has told its end, later than anybody waits for.

        Of the windows that the call claims after this one nobody else can say so any more.
        """
        if claim is not None and self._is_under_way(job, claim):
            return None
        is_open = claim is not None and claim.kind in (NEW, RETRY)
        return self._claim(job, token, claim, but_for=PROCESSED if is_open else None)

    def _is_under_way(self, job: str, claim: Claim) -> bool:
        """Whether one that runs beside this call has claimed it since the runs without an end were
        judged: that takes neither the job's lock nor a token (Claim.planned)."""
        if claim.slot is None or claim.planned is not None:  # alone; or it is looked at anyhow
            return False
        open_run = "SELECT 1 FROM jobrun_run WHERE job = ? AND outcome IS NULL AND key = ?"
        return bool(self._database.rows(open_run, (job, claim.key)))

    def _claim(
        self, job: str, token: int, claim: Claim | None, but_for: str | None = None
    ) -> Claimed | None:
        """None for no claim, and where the window has the state `but_for`: to be rolled back;
        and where others have taken all that it names."""
        if claim is not None and claim.planned is not None:
            claim = self._first_free(job, claim)
        if claim is None:
            return None
        attempt, failures = claim.attempt, claim.attempt - 1
        if claim.key is not None:
            state, attempt, failures = claim_window(self._database, job, token, claim)
            if state == but_for:
                return None
        assert self._caller is not None, "open_ledger() without a caller can't claim"
        run_id = start_run(self._database, job, token, claim, attempt, self._caller)
        return Claimed(run_id, attempt, claim.started, failures, token, claim.key)

    def _first_free(self, job: str, claim: Claim) -> Claim | None:
        claims = (claim._replace(instead=()), *claim.instead)
        taken = self.taken(job, {each.key or "": each.planned or 0 for each in claims})
        return next((each for each in claims if each.key not in taken), None)

    # -- finishing --------------------------------------------------------------------------------

    def _before(self, result: Result) -> Before:
        return read_before(self._database, result.job, result.key, result.run_id)

    def _is_holder(self, result: Result, before: Before) -> bool:
        return before.is_held_by(result)

    def _fence(self, result: Result, before: Before) -> Finished:
        end_run(self._database, result, FENCED)
        watermark = from_iso(before.watermark) if before.watermark else None
        marked = before.is_marked(result.token)
        return Finished(FENCED, before.state, watermark, False, None, marked)

    def _again(self, result: Result, before: Before, claim: Claim | None) -> Finished:
        """What has been answered before, to somebody who did not hear it."""
        watermark = from_iso(before.watermark) if before.watermark else None
        paused = _halts(before.pause, claim, result.ended)
        claimed = claimed_before(self._database, result.job, claim) if claim is not None else None
        marked = before.is_marked(result.token)
        assert before.outcome is not None
        return Finished(before.outcome, before.state, watermark, paused, claimed, marked)

    def _end(self, result: Result, before: Before) -> Weighed:
        end_run(self._database, result, result.outcome)
        end_window(self._database, result)
        remember(self._database, result, before)
        blocks = partial(self.blocks, result.job)
        weighed = weigh_end(self._database, result, before, blocks)
        if result.outcome == SUCCEEDED or before.is_marked(result.token):
            keep_values(self._database, result.job, result.key, result.values, before)
        note_end(self._database, result, before)
        return weighed

    def _is_halted(self, job: str, claim: Claim | None, now: int) -> bool:
        """Whether a pause keeps the claim from being made."""
        return claim is not None and not claim.by_hand and is_paused(self._database, job, now)


def _halts(pause: Pause | None, claim: Claim | None, now: int) -> bool:
    """The same, of a pause that has been read."""
    return pause is not None and claim is not None and not claim.by_hand and pause.holds(now)


def _grid(
    result: Result, before: Before, next_boundary: NextBoundary | None
) -> NextBoundary | None:
    """The grid that the run goes by; None where another one is on record by now."""
    return None if result.beside and before.schedule != result.schedule else next_boundary
