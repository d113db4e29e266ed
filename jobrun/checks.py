"""What `doctor` looks at, one check a function: the places, the lock, the ledger, the host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from tempfile import TemporaryDirectory
from typing import NamedTuple

from jobrun import lastcall, ledgers, outbox, places
from jobrun.address import hidden
from jobrun.consent import YEAR_2000
from jobrun.errors import JobrunError
from jobrun.instants import DAY, MINUTE, iso
from jobrun.ledger import Ledger
from jobrun.lock_file import FileLock
from jobrun.options import typed
from jobrun.places import Where
from jobrun.rows import FAR, HostRow, Server
from jobrun.screen import plural
from jobrun.screens.hosts import ahead, versions
from jobrun.screens.outbox import step, summary

OK, WARN, FAIL = "ok", "WARN", "FAIL"
PACKAGES = ("typer", "rich", "croniter", "portalocker")
FIRST_VERSION = 140_000  # of PostgreSQL, that ends a session of which it hears nothing
RECENT = 7 * DAY  # a host that was seen before that says nothing of now
# Where cron looks where the crontab has no PATH line.
CRON_PATH = "/usr/bin:/bin"
RECOVER = "keep a copy; sqlite3 FILE .recover saves what can be read of a damaged file"


class Check(NamedTuple):
    grade: str
    name: str
    found: str
    hint: str | None = None


class Patient(NamedTuple):
    """What is looked at. `ledger` is None where there is none yet, or it can't be opened."""

    where: Where
    ledger: Ledger | None
    trouble: JobrunError | None  # why it could not be opened
    environ: Mapping[str, str]
    now: int
    host: str


def examine(patient: Patient) -> Iterator[Check]:
    for check in CHECKS:
        yield from check(patient)


# -- places ---------------------------------------------------------------------------------------


def _folder(patient: Patient) -> Iterator[Check]:
    folder = os.path.dirname(patient.where.beside)
    if not os.path.isdir(folder):
        yield Check(OK, "folder", f"{folder} is not there yet; the first run makes it, 0700")
        return
    if not os.access(folder, os.W_OK):
        yield Check(FAIL, "folder", f"{folder} can't be written", "its owner's call, or --ledger")
        return
    mode = os.stat(folder).st_mode & 0o777
    if sys.platform != "win32" and mode & 0o022:
        yield Check(WARN, "folder", f"{folder} can be written by others ({mode:04o})", "chmod go-w")
    else:
        yield Check(OK, "folder", folder)


def _filesystem(patient: Patient) -> Iterator[Check]:
    kind = places.filesystem(patient.where.beside)
    if kind in places.NETWORK:
        hint = "a ledger on a local disk: locks of a network filesystem are not to be trusted"
        yield Check(WARN, "filesystem", f"{kind}, a network filesystem", hint)
    elif kind in places.EPHEMERAL:
        hint = "a ledger on a volume: this one is gone with the container or the next boot"
        yield Check(WARN, "filesystem", f"{kind}, which does not last", hint)
    elif kind:
        yield Check(OK, "filesystem", kind)


_TRY_LOCK = """
import sys
from jobrun.lock_file import FileLock
from jobrun.places import Where
print(FileLock(*sys.argv[1:]).acquire())
"""


def _lock(patient: Patient) -> Iterator[Check]:
    """A lock beside the ledger, asked for by another process while held, and once it is free."""
    folder = os.path.dirname(patient.where.beside)
    place = folder if os.path.isdir(folder) else None
    try:
        with TemporaryDirectory(prefix=".doctor-", dir=place) as own:
            lock = FileLock(own, "doctor", own)
            lock.acquire()
            held = _other_gets_it(own)
            lock.release()
            free = _other_gets_it(own)
    except (JobrunError, OSError) as error:
        yield Check(FAIL, "lock", str(error))
        return
    if (held, free) == ("False", "True"):
        yield Check(OK, "lock", "held: a second process is refused; free: it gets it")
    else:
        found = f"while it was held a second process got {held}, afterwards {free}"
        yield Check(FAIL, "lock", found, "a ledger on a local disk")


def _other_gets_it(folder: str) -> str:
    argv = [sys.executable, "-c", _TRY_LOCK, folder, "doctor", folder]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return result.stdout.strip() or (result.stderr.strip().splitlines() or ["nothing"])[-1]


def _redis(patient: Patient) -> Iterator[Check]:
    """The servers of `--lock redis://...`, as the jobs were last called or $JOBRUN_LOCK says."""
    for text in _lock_addresses(patient):
        from jobrun import redis_address
        from jobrun.lock_redis import settings

        try:
            address = redis_address.read(text, patient.environ)
            found = settings(address)
        except JobrunError as error:
            yield Check(FAIL, "redis", error.message, error.hint)
            continue
        wrong = [
            Check(grade, "redis", f"{address.name}: {what}", hint)
            for name, right, grade, what, hint in _REDIS
            if found[name] not in (None, right)
        ]
        untold = [name for name, value in found.items() if value is None]
        if untold:
            what = f"{address.name} does not tell {', '.join(untold)}"
            wrong.append(Check(WARN, "redis", what, "a user who may CONFIG GET, or look yourself"))
        yield from wrong or [Check(OK, "redis", address.name)]


_REDIS = (  # what, the right value, how bad another one is, why, what to do
    ("role", "master", FAIL, "a replica, where nothing can be locked", "the master's address"),
    (
        "cluster",
        "0",
        WARN,
        "a cluster, where a dead holder is missed late",
        "a server that is none",
    ),
    (
        "appendonly",
        "yes",
        WARN,
        "appendonly is off: a restart forgets who holds which lock",
        "redis-cli CONFIG SET appendonly yes, CONFIG REWRITE; a ledger that all machines share"
        " refuses the second result in any case",
    ),
    (
        "maxmemory-policy",
        "noeviction",
        WARN,
        "where memory is short locks are thrown away: maxmemory-policy",
        "redis-cli CONFIG SET maxmemory-policy noeviction, CONFIG REWRITE",
    ),
)


def _lock_addresses(patient: Patient) -> list[str]:
    jobs = patient.ledger.jobs() if patient.ledger is not None else []
    given = {lastcall.read(job.spec).options.get("--lock", "") for job in jobs}
    own = patient.environ.get("JOBRUN_LOCK", "")
    given = given - {hidden(own)} | {own}
    return sorted(text for text in given if "://" in text)


def _other_ledgers(patient: Patient) -> Iterator[Check]:
    """A job that seems to have vanished is often in the ledger of another user."""
    likely, ours = _likely(patient.environ), patient.where.name
    found = [path for path in likely if os.path.realpath(path) != ours]
    others = [path for path in dict.fromkeys(found) if os.access(path, os.R_OK)]
    if others:
        hint = typed("status", "--ledger", others[0])
        yield Check(OK, "others", f"{', '.join(others)} can be read, too", hint)


def _likely(environ: Mapping[str, str]) -> Iterator[str]:
    yield "/var/lib/jobrun/jobrun.db"
    for name, rest in (("XDG_STATE_HOME", "jobrun"), ("HOME", ".local/state/jobrun")):
        if environ.get(name):
            yield os.path.join(environ[name], rest, "jobrun.db")
    for home in sorted(_homes()):
        yield os.path.join(home, ".local/state/jobrun/jobrun.db")


def _homes() -> list[str]:
    if sys.platform == "win32":
        return []
    import pwd

    return [user.pw_dir for user in pwd.getpwall()]


# -- the ledger -----------------------------------------------------------------------------------


def _ledger(patient: Patient) -> Iterator[Check]:
    if patient.trouble is not None:
        yield Check(FAIL, "ledger", patient.trouble.message, patient.trouble.hint)
    elif patient.ledger is None:
        yield _no_ledger_yet(patient.where)
    else:
        problems = patient.ledger.problems()
        for problem in problems:
            yield Check(FAIL, "ledger", problem, RECOVER if patient.where.is_file else None)
        if not problems:
            jobs = plural(len(patient.ledger.jobs()), "job")
            yield Check(OK, "ledger", f"{patient.where.name}: whole, {jobs}")


def _no_ledger_yet(where: Where) -> Check:
    try:
        ledgers.try_to_make(where)
    except JobrunError as error:
        return Check(FAIL, "ledger", error.message, error.hint)
    return Check(OK, "ledger", f"no ledger at {where.name} yet")


def _outbox(patient: Patient) -> Iterator[Check]:
    """What this machine has kept for a server that was out of reach."""
    if patient.where.is_file:
        return
    found = tuple(outbox.look(places.outbox_folder(patient.where.beside)))
    if not found:
        yield Check(OK, "outbox", "nothing is kept for the server")
        return
    grade = FAIL if any(each.parcel is None for each in found) else WARN
    yield Check(grade, "outbox", summary(found, patient.now), step(found))


def _server(patient: Patient) -> Iterator[Check]:
    server = patient.ledger.server() if patient.ledger is not None else None
    if server is None:
        return
    if server.number < FIRST_VERSION:
        hint = "--lock lease; or PostgreSQL 14 and later"
        yield Check(WARN, "server", f"PostgreSQL {server.version}: no lock of a session", hint)
    else:
        yield Check(OK, "server", f"PostgreSQL {server.version}")
    if not server.is_direct:
        found = "a connection pooler is in between: it hands a session's lock to other clients"
        yield Check(WARN, "server", found, "the server's own port in the address; or --lock lease")
    if server.fsync == "off":
        found = "fsync is off: where its machine crashes what is on record may be gone"
        yield Check(WARN, "server", found, "fsync = on in postgresql.conf")
    yield from _role(server)


def _role(server: Server) -> Iterator[Check]:
    role = server.role
    if server.missing:
        found = f"{role} may not {server.missing} in all of the tables"
        yield Check(FAIL, "role", found, server.rights)
    elif not server.may_change:
        found = f"{role}; the tables are {server.owner}'s, who alone can change them"
        hint = f"a new version is first called as {server.owner}; or GRANT {server.owner} TO {role}"
        yield Check(WARN, "role", found, hint)
    elif server.is_superuser:
        hint = "CREATE ROLE jobrun LOGIN; CREATE SCHEMA jobrun AUTHORIZATION jobrun"
        yield Check(WARN, "role", f"{role} is a superuser: more than jobrun needs", hint)
    else:
        yield Check(OK, "role", role)
    if server.synchronous_commit == "off":
        found = "synchronous_commit is off: jobrun's own transactions turn it on, a command's not"
        yield Check(WARN, "role", found, f"ALTER ROLE {role} SET synchronous_commit = on")


def _hosts(patient: Patient) -> Iterator[Check]:
    rows = patient.ledger.hosts() if patient.ledger is not None else []
    rows = [row for row in rows if row.last_seen > patient.now - RECENT]
    yield from _skew(patient, rows)
    found = versions(rows)
    if len(found) > 1:
        each = "; ".join(f"{version} on {_some(names)}" for version, names in found.items())
        hint = "pip install --upgrade jobrun, on every machine"
        yield Check(WARN, "hosts", f"jobrun's versions differ: {each}", hint)
    elif len(rows) > 1:
        yield Check(OK, "hosts", _some([row.host for row in rows]), typed("hosts"))


def _skew(patient: Patient, rows: Sequence[HostRow]) -> Iterator[Check]:
    """Of this host as it is, of the others as they were."""
    hint = "windows close by a host's own clock: set it by NTP (timedatectl, chronyc tracking)"
    this = None if patient.ledger is None else patient.ledger.skew
    if this is not None:
        grade = OK if abs(this) <= FAR else WARN
        found = f"this host's clock is {ahead(this)} the server's"
        yield Check(grade, "skew", found, None if grade == OK else hint)
    for row in rows:
        if row.is_far and row.host != patient.host:
            yield Check(WARN, "skew", f"{row.host}'s is {ahead(row.skew)} the server's", hint)


def _some(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def _clock(patient: Patient) -> Iterator[Check]:
    jobs = patient.ledger.jobs() if patient.ledger is not None else []
    seen = max((job.largest_now for job in jobs), default=0)
    if patient.now < YEAR_2000:
        yield Check(FAIL, "clock", f"{iso(patient.now)}: it is not set", "set it; use NTP")
    elif seen > patient.now + 5 * MINUTE:
        found = f"{iso(patient.now)}, but a call has seen {iso(seen)}"
        yield Check(WARN, "clock", found, "one of the two is wrong: jobrun watermark JOB --set")
    else:
        yield Check(OK, "clock", iso(patient.now))


# -- the host -------------------------------------------------------------------------------------


def _zones(patient: Patient) -> Iterator[Check]:
    from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo("Europe/Istanbul")
    except ZoneInfoNotFoundError:
        yield Check(FAIL, "zones", "no zone database: --tz can't be used", "pip install tzdata")
        return
    system = [path for path in TZPATH if os.path.isdir(path)]
    yield Check(OK, "zones", system[0] if system else f"tzdata {_version('tzdata')}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions(patient: Patient) -> Iterator[Check]:
    import sqlite3

    python = ".".join(map(str, sys.version_info[:3]))
    found = [f"python {python} ({sys.executable})", f"sqlite {sqlite3.sqlite_version}"]
    wanted = PACKAGES if patient.where.is_file else (*PACKAGES, "psycopg")
    installed = {package: _version(package) for package in wanted}
    found += [f"{package} {version}" for package, version in installed.items() if version]
    yield Check(OK, "versions", ", ".join(found))
    for package in (package for package, version in installed.items() if version is None):
        hint = "pip install 'psycopg[binary]'" if package == "psycopg" else f"pip install {package}"
        yield Check(FAIL, "versions", f"{package} is missing", hint)
    if sqlite3.sqlite_version_info < (3, 34):
        yield Check(FAIL, "versions", f"sqlite {sqlite3.sqlite_version}: 3.34 is needed")


def program() -> str | None:
    """The absolute path of `jobrun`: beside the interpreter of its venv, else on the PATH."""
    name = "jobrun.exe" if sys.platform == "win32" else "jobrun"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else shutil.which("jobrun")


def _program(patient: Patient) -> Iterator[Check]:
    path = program()
    if path is None:
        yield Check(
            WARN, "program", "no `jobrun` beside this Python or on the PATH", "pip install ."
        )
    elif sys.platform == "win32" or os.path.dirname(path) in CRON_PATH.split(":"):
        yield Check(OK, "program", path)
    else:
        folder = os.path.dirname(path)
        hint = f"for the crontab: PATH={folder}:/usr/local/bin:{CRON_PATH}"
        yield Check(OK, "program", path, hint)


def _cron(patient: Patient) -> Iterator[Check]:
    """Linux only: elsewhere the system starts it without a process of that name."""
    if not os.path.isdir("/proc/self"):
        return
    names = {_process_name(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    running = sorted(names & {"cron", "crond", "fcron", "dcron", "supercronic", "yacron"})
    if running:
        yield Check(OK, "cron", f"{running[0]} is running")
    else:
        hint = "fine where another host, a timer or a scheduler calls; else: systemctl start cron"
        yield Check(WARN, "cron", "no cron is running here", hint)


def _process_name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _mailer(patient: Patient) -> Iterator[Check]:
    if sys.platform == "win32":
        return
    places_of_it = f"{patient.environ.get('PATH', '')}:/usr/sbin:/usr/lib"
    path = shutil.which("sendmail", path=places_of_it)
    if path is not None:
        yield Check(OK, "mail", path)
    else:
        hint = "without a mailer cron drops all output: apt install msmtp-mta, or look at status"
        yield Check(WARN, "mail", "no sendmail: cron can't mail what fails", hint)


CHECKS: tuple[Callable[[Patient], Iterator[Check]], ...] = (
    _folder,
    _filesystem,
    _lock,
    _redis,
    _ledger,
    _server,
    _hosts,
    _outbox,
    _other_ledgers,
    _clock,
    _zones,
    _program,
    _cron,
    _mailer,
    _versions,
)
