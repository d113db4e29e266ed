"""What the tests share: a ledger in a folder of its own, and jobrun as a real process."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import pytest

from jobrun import places, rows

if TYPE_CHECKING:
    from jobrun.ledger import Ledger
    from tests.ledger_calls import Again
    from tests.machines import Machine

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
# What a call in a container prints besides: its /tmp lies on an overlay.
EPHEMERAL = "what=ephemeral-ledger"
# Thousands of processes start in the tests: without its bytecode each would compile jobrun anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class Result(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stderr.splitlines()


def instant(text: str) -> float:
    """Seconds of `2026-09-04T12:05:00Z`."""
    return datetime.fromisoformat(text).timestamp()


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of this process without what jobrun reads or what would colour it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JOBRUN_", "JOURNAL_"))}
    kept["PYTHONPATH"] = str(ROOT)
    return {**kept, **more}


class Jobrun:
    """`jobrun("run", "sales", "--", "true", now="2026-09-04T12:05Z")`, as a real process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "jobrun.db"
        self.environment = clean_environment(JOBRUN_LEDGER=str(self.ledger))
        self.foreign_events: tuple[str, ...] = ()  # kinds that the test itself writes

    def argv(self, *argv: str, now: str | None = None) -> list[str]:
        if now is not None:
            return [PYTHON, "-m", "tests.frozen", str(instant(now)), *argv]
        return [PYTHON, "-m", "jobrun", *argv]

    def start(
        self,
        *argv: str,
        now: str | None = None,
        env: dict[str, str] | None = None,
        **options: object,
    ) -> subprocess.Popen[bytes]:
        """Start it and go on: the test acts while it runs."""
        streams: dict[str, object] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        settings = {"cwd": self.folder, "env": {**self.environment, **(env or {})}}
        return subprocess.Popen(self.argv(*argv, now=now), **{**streams, **settings, **options})  # type: ignore[call-overload,no-any-return]

    def __call__(
        self,
        *argv: str,
        now: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 60,
        input: bytes | None = None,
        **options: object,
    ) -> Result:
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*argv, now=now, env=env, **options)
        try:
            out, err = process.communicate(input, timeout=timeout)
        finally:
            process.kill()
        return Result(process.returncode, (out or b"").decode(), _without_ephemeral(err or b""))

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Rows of the ledger, read with SQLite itself."""
        connection = sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def change(self, sql: str, *values: object) -> None:
        """Write to the ledger behind jobrun's back."""
        connection = sqlite3.connect(self.ledger)
        try:
            connection.execute(sql, values)
            connection.commit()
        finally:
            connection.close()

    def kept(self, run: int, stream: str = "out") -> bytes | None:
        """The kept output of a run."""
        found = list(Path(places.output_folder(str(self.ledger))).rglob(f"{run}.{stream}"))
        return found[0].read_bytes() if found else None


def _without_ephemeral(err: bytes) -> str:
    text = err.decode("utf-8", "backslashreplace")
    return "".join(line for line in text.splitlines(keepends=True) if EPHEMERAL not in line)


@pytest.fixture
def jobrun(tmp_path: Path) -> Iterator[Jobrun]:
    """jobrun on a ledger of its own; of the events on it each is of the closed set."""
    made = Jobrun(tmp_path)
    yield made
    with contextlib.suppress(sqlite3.Error):  # some tests leave no ledger, or a broken one
        kinds = {str(kind) for (kind,) in made.query("SELECT DISTINCT kind FROM jobrun_event")}
        assert kinds <= {*rows.EVENTS, *made.foreign_events}


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can reach; those of pytest are for whoever runs it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server that all tests share; each makes a schema of its own."""
    from tests import servers

    with servers.postgres() as address:
        yield address


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The address of a Redis server that all tests share, of an age at which it gives something
    away; `redis` is it, empty."""
    from tests import servers
    from tests.redis_calls import is_settled

    with servers.valkey() as address:
        until(lambda: is_settled(address), "a server that gives something away")
        yield address


@pytest.fixture
def redis(redis_server: str) -> str:
    """The address of a server that holds nothing, and of which nobody holds anything."""
    from tests.redis_calls import ask

    ask(redis_server, "FLUSHALL")
    ask(redis_server, "CLIENT", "KILL", "TYPE", "pubsub")
    return redis_server


@pytest.fixture(params=["sqlite", "postgres"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Again]:
    """Opens one ledger as often as it is called, as so many processes would; of each kind."""
    from tests import ledger_calls

    if request.param == "postgres":
        with ledger_calls.in_a_schema(request.getfixturevalue("postgres")) as opening:
            yield opening
    else:
        with ledger_calls.in_a_file(tmp_path) as opening:
            yield opening


@pytest.fixture
def ledger(again: Again) -> Ledger:
    """A ledger without a row."""
    return again()


@pytest.fixture
def on_postgres(jobrun: Jobrun, postgres: str) -> Iterator[Jobrun]:
    """jobrun on a ledger of its own on a server; its locks and outputs lie in `folder`."""
    from tests.ledger_calls import schema_of

    with schema_of(postgres) as address:
        jobrun.environment |= {"JOBRUN_LEDGER": address, "JOBRUN_HOME": str(jobrun.folder)}
        yield jobrun


class Unwilling:
    """Whoever waits with it fails: what is asked for is to be answered at once."""

    received: int | None = None

    def pause(self, seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")


@pytest.fixture
def alpha(tmp_path: Path, postgres: str) -> Iterator[Machine]:
    """A machine whose ledger is on a server, and `beta` another one; the server has been there for
    a while: one that has just been started leaves a lock to its last holder for some seconds."""
    from jobrun.lock_postgres import SessionLock
    from jobrun.postgres_database import Database
    from tests.ledger_calls import schema_of
    from tests.machines import Machine

    with schema_of(postgres) as address:
        with contextlib.closing(Database(address)) as database:
            until(SessionLock(database, "j", "test:1", 30, 1).is_settled, "the server")
        alpha = Machine(tmp_path / "alpha", "alpha", address)
        yield alpha
        alpha.end()


@pytest.fixture
def beta(tmp_path: Path, alpha: Machine) -> Iterator[Machine]:
    from tests.machines import Machine

    beta = Machine(tmp_path / "beta", "beta", alpha.address)
    yield beta
    beta.end()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool], str], None]:
    """Wait until a condition holds, at most 20 seconds; what for is said if it does not."""
    return until


def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    import select
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        select.select([], [], [], 0.01)


def line_of(stream: IO[bytes], seconds: float = 20) -> bytes:
    """The next line of another process, which is awaited for so many seconds; b"": its end.

    Byte by byte, so that none lies unseen in a buffer when the next one is awaited.
    """
    import select

    line = b""
    while not line.endswith(b"\n"):
        assert select.select([stream], [], [], seconds)[0], f"waited {seconds} s after {line!r}"
        if not (byte := os.read(stream.fileno(), 1)):
            break
        line += byte
    return line


def is_alive(pid: int | str) -> bool:
    """Whether the process runs; a zombie that its parent has not collected does not."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int | str) -> str:
    """One letter, as ps shows it; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def open_files(pid: int | str) -> set[str]:
    """Where the process's descriptors lead to; what it closes meanwhile is left out."""
    found = set()
    with contextlib.suppress(FileNotFoundError):  # it is gone
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def make_end(pid: int | str) -> None:
    """kill -9; nothing where it is gone, or goes meanwhile: its guardian may be about to end it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)


def start_on_terminal(
    argv: list[str], folder: Path, environment: dict[str, str]
) -> tuple[int, int]:
    """Start a program on a terminal of its own; its pid, and our side of the terminal."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execve(argv[0], argv, environment)
        finally:  # a second test run must not go on here
            os._exit(127)
    return pid, terminal


def read_to_end(terminal: int) -> bytes:
    """All that comes on a terminal until the other side closes it."""
    data = b""
    try:
        while more := os.read(terminal, 4096):
            data += more
    except OSError:  # EIO: the other side has closed
        pass
    os.close(terminal)
    return data


def pytest_configure() -> None:
    from hypothesis import settings

    # How long an example takes is the machine's business. The same ones each time, so that what
    # fails is of the change; `JOBRUN_EXAMPLES=fresh python -m pytest` looks for others.
    same = os.environ.get("JOBRUN_EXAMPLES") != "fresh"
    settings.register_profile("jobrun", deadline=None, derandomize=same)
    settings.load_profile("jobrun")
    heed_signals()


def heed_signals() -> None:
    """What is ignored under nohup, or in the background of a shell, jobrun would leave ignored.

    A handler is no more than that here, and the default again in every program that we start.
    """
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"):
        number = getattr(signal, name, None)  # Windows has two of them
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def _real_windows(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("real_windows")
    if marker is not None and sys.platform != "win32":
        pytest.skip(f"on Windows only: {marker.args[0]}")
