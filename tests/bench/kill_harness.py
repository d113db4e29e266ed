"""The harness of tests/bench/kill.py: calls as cron would make them, strikes, then silence."""

from __future__ import annotations

import heapq
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from jobrun import places
from jobrun.instants import MINUTE, from_iso, iso
from tests.bench import kill_calls, kill_record, kill_strikes
from tests.bench.kill_calls import PHASES, Clock, Order, Slot
from tests.bench.kill_strikes import GUARDIAN, STRIKES, WRAPPER, Strike
from tests.conftest import PYTHON

FIRST = from_iso("2026-09-04T00:00:00+00:00")
JOBS = {"bills": (), "sales": ("--on-failure", "continue"), "stock": ("-q",)}
ALLOWED = 0.8  # of the calls are made with --overlap allow, if any
CALLED_EVERY = 0.1  # seconds, all jobs together, on average
STRUCK_EVERY = 0.02  # seconds between two strikes, on average, besides the hunt
HUNTS = 2  # at a time
HUNT = 0.3  # seconds to wait for a call in the wanted phase
PATIENCE = 25.0  # seconds for what must end by itself
MARGIN = 2.0  # seconds over the grace in which a dead wrapper's command must be gone
LONG = 4.0  # seconds that a command may last: longer than that, or it proves nothing
LAST = 1000  # characters of what a call printed
# A call ends so: well; as its command failed, was refused its mark, or was killed (9 and 15 as
# setsid says it); its guardian killed before or after the command was there; timed out; by us.
EXPECTED = {0, 3, 9, 15, 137, 143, 75, 126, 124, -signal.SIGKILL, -signal.SIGTERM}

SHAPES: dict[str, tuple[str, ...]] = {
    "simple": (),
    "shell": ("sh", "-c", '"$@"; exit $?', "sh"),
    "background": ("sh", "-c", '"$@" & wait $!', "sh"),
    # -f: without it bash ends as soon as its job is stopped, and leaves it behind.
    "job-control": ("bash", "-c", 'set -m; "$@" & wait -f $!', "bash"),
    "session": ("setsid", "--wait"),
}


class Called:
    """A call that lives, or whose tree may."""

    def __init__(self, order: Order, job: str, grace: float) -> None:
        self.order = order
        self.job = job
        self.grace = grace
        self.guardian_hurt = False  # then what it guards may go on for longer
        self.alive = True
        self.pid = kill_calls.start(order)

    @property
    def phase(self) -> str:
        if self.order.cold:
            return "cold"
        return "alone" if self.order.slot.get("alone") else self.order.slot.phase

    def pids(self, target: str) -> list[int]:
        """Who may be hit as this."""
        if target == WRAPPER:
            return [self.pid] if self.alive else []
        if target == GUARDIAN:
            pid = self.order.slot.get("guardian")
        elif found := kill_strikes.commands_of(self.order.number):
            return found
        else:
            pid = self.order.slot.get("command")  # before exec
        return [pid] if pid else []


class Agenda:
    """What is to be done later."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def add(self, seconds: float, act: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._count, act))

    def do_what_is_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def do_all(self) -> None:
        """At once, in order."""
        while self._due:
            heapq.heappop(self._due)[2]()


class Tally:
    """What was done, for the summary."""

    def __init__(self) -> None:
        self.kills = 0
        self.calls = 0
        self.strikes: dict[str, Counter[str]] = {strike.name: Counter() for strike in STRIKES}
        self.statuses: Counter[int] = Counter()

    def note(self, strike: Strike, *where: str) -> None:
        self.kills += strike.is_kill
        self.strikes[strike.name].update(("times", *where))

    def lines(self) -> Iterator[str]:
        for name, count in self.strikes.items():
            where = (f"{place} {n}" for place in (*PHASES, *BESIDES) if (n := count[place]))
            yield f"{name:23}{count['times']:5}: {', '.join(where)}"
        statuses = (f"{status}: {times}" for status, times in sorted(self.statuses.items()))
        yield f"{self.calls} calls, exit codes {', '.join(statuses)}"


CATCH_UP, CONTENDED = "in a catch-up", "while another waits"
BESIDES = ("alone", "cold", CATCH_UP, CONTENDED)


class Harness:
    def __init__(
        self, folder: str, seed: int, jobs: int, mutant: str, overlap: bool = False
    ) -> None:
        self.folder = folder
        self.tally = Tally()
        self.violations: list[str] = []
        self._seed = seed
        self._mutant = mutant
        self._overlap = overlap
        self._random = Random(seed)
        self._clocks = {job: Clock(FIRST + MINUTE) for job in list(JOBS)[:jobs]}
        self._calls: dict[int, Called] = {}  # by number, also for a while after they ended
        self._excused: set[int] = set()  # pids of wrappers whose commands may be met as orphans
        self._agenda = Agenda()
        self._after = Agenda()  # of a strike: what must be put right or looked at, come what may

    # -- calls ------------------------------------------------------------------------------------

    def _call_again_and_again(self, job: str) -> None:
        self._call(job)
        mean = CALLED_EVERY * len(self._clocks)
        self._agenda.add(
            self._random.expovariate(1 / mean), partial(self._call_again_and_again, job)
        )

    def _call(self, job: str) -> None:
        clock, random = self._clocks[job], self._random
        if clock.backlog < 10 * MINUTE:
            clock.set(int(clock.now()) + random.choice((0, 1, 20, 60, 90)))
        grace = random.choice((0, 1, 1))
        options = [*JOBS[job], "--stop-after", "2", "-k", str(grace)]
        if random.random() < 0.25:
            options += ["-w", "2"]
        if random.random() < 0.1:
            options += ["--timeout", "1"]
        flags = [flag for flag in ("fails", "deaf", "marks") if random.random() < 0.2]
        if self._overlap and random.random() < ALLOWED:
            options += ["--overlap", "allow"]
        lasting = random.choice((0.02, 0.02, 0.1, 0.1, 0.3, 0.3, 0.8, LONG))
        shape = random.choice(list(SHAPES.values()))
        command = [*shape, *self._command(lasting, *flags)]
        self._start(job, [*options, "--", *command], grace, cold=random.random() < 0.03)

    def _command(self, lasting: float, *flags: str) -> list[str]:
        script = str(Path(__file__).with_name("kill_command.py"))
        beside = ["beside"] if self._overlap else []
        return [PYTHON, "-I", "-S", "-B", script, self.folder, str(lasting), *flags, *beside]

    def _start(
        self, job: str, rest: list[str], grace: float, cold: bool = False, calm: bool = False
    ) -> None:
        self.tally.calls += 1
        number = self.tally.calls
        order = Order(
            number=number,
            folder=self.folder,
            argv=[*self._head(job), *rest],
            clock=self._clocks[job],
            slot=Slot(),
            seed=f"{self._seed}-{number}",
            mutant=self._mutant,
            cold=cold and not self._mutant,
            calm=calm,
        )
        self._calls[number] = Called(order, job, grace)

    def _head(self, job: str) -> list[str]:
        return ["run", job, "--every", "1m", "--first", iso(FIRST), "--retry-delay", "1"]

    def _of(self, job: str) -> list[Called]:
        return [called for called in self._calls.values() if called.alive and called.job == job]

    def _collect(self) -> None:
        alive = {called.pid: called for called in self._calls.values() if called.alive}
        for pid, status in kill_strikes.collect():
            called = alive.get(pid)
            if called is None:
                continue  # an orphan that we adopted
            called.alive = False
            self.tally.statuses[status] += 1
            self._judge(called, status)
            self._after.add(called.grace + MARGIN, partial(self._outlived, called))

    def _judge(self, called: Called, status: int) -> None:
        err = Path(called.order.err)
        text = err.read_text(errors="backslashreplace") if err.exists() else ""
        if status not in EXPECTED or "Traceback" in text or " FENCED " in text:
            number, text = called.order.number, text[-LAST:]
            self._wrong(f"{called.job}: call {number} ended with {status}: {text}")
        err.unlink(missing_ok=True)

    def _outlived(self, called: Called) -> None:
        """Its guardian has had the time to end what it left."""
        del self._calls[called.order.number]
        if called.guardian_hurt:
            return
        for pid in kill_strikes.commands_of(called.order.number):
            self._wrong(f"{called.job}: a command outlived its wrapper: {kill_strikes.told(pid)}")

    def _wrong(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)

    # -- strikes ----------------------------------------------------------------------------------

    def _hunt(self) -> None:
        """Choose a strike and a phase; strike as soon as some call is there."""
        strike = self._random.choices(STRIKES, [strike.weight for strike in STRIKES])[0]
        phase = self._random.choice((*strike.phases, "any"))
        self._look_for(strike, phase, time.monotonic() + HUNT)

    def _look_for(self, strike: Strike, phase: str, deadline: float) -> None:
        if time.monotonic() > deadline:
            phase = "any"
        found = [
            called
            for called in self._calls.values()
            if phase in (called.phase, "any") and (called.alive or phase == "alone")
        ]
        if not found:
            self._agenda.add(0.001, partial(self._look_for, strike, phase, deadline))
            return
        # At once, or a little later: then it may be in another phase, which is noted.
        later = self._random.choice((0, 0.01)) * self._random.random()
        self._agenda.add(later, partial(self._strike, strike, self._random.choice(found)))
        self._agenda.add(self._random.expovariate(1 / STRUCK_EVERY), self._hunt)

    def _strike(self, strike: Strike, called: Called) -> None:
        where = [called.phase]
        if called.order.slot.get("ended"):
            where.append(CATCH_UP)
        if any(other.phase == "waiting" for other in self._of(called.job) if other is not called):
            where.append(CONTENDED)
        first, *others = self._random.sample(strike.targets, len(strike.targets))
        if not self._hit(strike, called, first):
            return
        self.tally.note(strike, *where)
        for target in others:
            later = self._random.random() * 0.02
            self._after.add(later, partial(self._hit, strike, called, target))

    def _hit(self, strike: Strike, called: Called, target: str) -> bool:
        pids = called.pids(target)
        if not pids:
            return False
        pid = self._random.choice(pids)
        if target == GUARDIAN and strike.first != signal.SIGTERM:
            called.guardian_hurt = True
        if target == GUARDIAN and strike.first == signal.SIGKILL:
            self._excused.add(called.pid)  # before: what follows from it may be met at once
        if not kill_strikes.hit(pid, strike.first):
            return False
        if strike.what == "unlock":
            self._remove_lock_file(called.job)
        if strike.then is not None:
            later = self._random.random() * 0.6
            self._after.add(later, partial(kill_strikes.hit, pid, strike.then))
        return True

    def _remove_lock_file(self, job: str) -> None:
        """From now on none of the job's calls that live can be kept apart by their lock."""
        self._excused.update(called.pid for called in self._calls.values() if called.job == job)
        folder = places.locks_folder(f"{self.folder}/jobrun.db")
        Path(folder, f"{places.slug(job)}.lock").unlink(missing_ok=True)
        self._call(job)  # finds a lock of its own

    # -- rounds -----------------------------------------------------------------------------------

    def round(self, kills: int, deadline: float) -> None:
        """So many kills, then silence, one undisturbed call of each job, and the look."""
        goal = self.tally.kills + kills
        for job in self._clocks:
            self._call_again_and_again(job)
        for _ in range(HUNTS):
            self._hunt()
        while self.tally.kills < goal and time.monotonic() < deadline:
            self._turn()
        self._agenda = Agenda()
        self._settle("after the kills")
        for job, clock in self._clocks.items():
            clock.set(int(clock.now()) + 2 * MINUTE)  # what failed is due again
            self._start(job, ["--max-windows", "1000", "--", *self._command(0)], 1, calm=True)
        self._settle("after the undisturbed calls")
        self._look()

    def _turn(self) -> None:
        self._collect()
        self._agenda.do_what_is_due()
        self._after.do_what_is_due()
        select.select([], [], [], 0.001)

    def _settle(self, when: str) -> None:
        """Wait until all that was started is gone by itself."""
        deadline = time.monotonic() + PATIENCE
        while left := kill_strikes.descendants():
            if time.monotonic() > deadline:
                for pid in left:
                    self._wrong(f"left {when}: {kill_strikes.told(pid)}")
                self.end()
            self._turn()
        self._after.do_all()

    def _look(self) -> None:
        nows = {job: int(clock.now()) for job, clock in self._clocks.items()}
        for line in kill_record.wrong(self.folder, nows, FIRST):
            self._wrong(line)
        for run, wrapper, key in kill_record.orphans(self.folder):
            if wrapper not in self._excused:
                self._wrong(f"run {run} of {key}: its lock was free before its command had ended")

    def end(self) -> None:
        """Nothing of ours is left behind."""
        deadline = time.monotonic() + PATIENCE
        while kill_strikes.descendants() and time.monotonic() < deadline:
            kill_strikes.end_all()
            self._collect()
            select.select([], [], [], 0.01)
