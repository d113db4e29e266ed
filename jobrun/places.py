"""Where things lie: the ledger, and beside it the locks and the kept output.

Nothing here makes or changes a file but `make_folder`.
"""

from __future__ import annotations

import os
import sys

from jobrun.errors import UnsafePlace, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb2",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "fuse.sshfs",
    "afs",
    "ceph",
)
SERVERS = ("postgresql://", "postgres://")
MAX_NAMESPACE = 40  # PostgreSQL cuts what is longer than 63
EPHEMERAL = ("tmpfs", "ramfs", "overlay", "aufs")
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Where:
    """A ledger, and what of this machine lies beside it.

    `name` is what a person calls it: the real path of a file, or an address without its password.
    `address` is what is opened. The locks, the kept output and what commands leave lie in the
    folder `beside` + `.d`, and belong to whoever `owner` (a path) belongs to.

    `namespace` is a server's schema, and part of each name on a server of locks; None where none
    was asked for. `base` is what `--ledger` is beside `--namespace`. A name space has another
    `name`, `beside` and tables, or another file, so that nothing of it meets what is of another.
    """

    __slots__ = ("address", "base", "beside", "is_file", "name", "namespace", "owner")

    def __init__(
        self,
        name: str,
        address: str,
        beside: str,
        owner: str,
        base: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.beside = beside
        self.owner = owner
        self.base = base or name
        self.namespace = namespace
        self.is_file = name == beside


def find(option: str | None, environ: Mapping[str, str], namespace: str | None = None) -> Where:
    """The ledger that is named, or the default one, and of it what is of the name space.

    Raises UsageError for a name space that is none, and as `ledger_path` does.
    """
    if namespace is not None:
        check_namespace(namespace)
    given = option or environ.get("JOBRUN_LEDGER") or ""
    if not given.startswith(SERVERS):
        base = ledger_path(option, environ)
        path = base if namespace is None else os.path.realpath(_file_of(base, namespace))
        return Where(path, path, path, path, base, namespace)
    from jobrun import address as addresses

    addresses.check("--ledger" if option else "JOBRUN_LEDGER", given)
    address, named = _apart(given)
    base, namespace = addresses.hidden(address), namespace or named
    name = name_of(base, namespace)
    folder = os.path.realpath(state_folder(environ))
    return Where(name, address, os.path.join(folder, slug(name)), folder, base, namespace)


def check_namespace(name: str) -> None:
    """1 to 40 lower-case letters, digits, `_`; a letter first; no schema of PostgreSQL's own.

    Raises UsageError.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    if not name or name[0] not in letters or set(name) - {*letters, *"0123456789_"}:
        reason = "lower-case letters, digits and _, a letter first"
    elif len(name) > MAX_NAMESPACE:
        reason = f"{len(name)} characters, at most {MAX_NAMESPACE}"
    elif name.startswith("pg_") or name == "information_schema":
        reason = "a schema of PostgreSQL's own"
    else:
        return
    raise UsageError(f'--namespace "{name}": {reason}', "--namespace staging")


def name_of(address: str, namespace: str | None) -> str:
    """What a person calls the ledger of a server: JOBRUN_LEDGER and --ledger take it as it is."""
    if namespace is None:
        return address
    return f"{address}{'&' if '?' in address else '?'}namespace={namespace}"


def _apart(address: str) -> tuple[str, str | None]:
    """An address as libpq takes it, and the name space in it."""
    place, _, query = address.partition("?")
    parts = query.split("&")
    named = next((part for part in parts if part.startswith("namespace=")), None)
    if named is None:
        return address, None
    parts.remove(named)
    namespace = named.removeprefix("namespace=")
    check_namespace(namespace)
    return f"{place}?{'&'.join(parts)}".rstrip("?&"), namespace


def _file_of(path: str, namespace: str) -> str:
    """jobrun.staging.db of jobrun.db; one that is it already stays, since a command that is of a
    name space gets the ledger's path, and may itself name the same one."""
    stem, suffix = os.path.splitext(path)
    return path if stem.endswith(f".{namespace}") else f"{stem}.{namespace}{suffix}"


def ledger_path(option: str | None, environ: Mapping[str, str]) -> str:
    """The absolute, real path of the ledger: the option, $JOBRUN_LEDGER, or the state folder's.

    Raises UsageError for an address that is no path, UnsafePlace (73) without a usable home.
    """
    given = option or environ.get("JOBRUN_LEDGER")
    if given and not os.path.isabs(given):
        _refuse_address("--ledger" if option else "JOBRUN_LEDGER", given)
    if given and given.startswith(("\\\\", "//")) and sys.platform == "win32":
        raise UnsafePlace(
            f'the ledger "{given}" is on a network share: its locks are not to be trusted',
            "a path on a local disk",
        )
    return os.path.realpath(_absolute(given or os.path.join(state_folder(environ), "jobrun.db")))


def _refuse_address(option: str, given: str) -> None:
    from jobrun import address

    if "://" in given or address.is_askew(given):
        raise UsageError(
            f'{option} "{address.hidden(given)}": neither a path of a file nor an address of'
            " PostgreSQL",
            "--ledger ./jobrun.db, --ledger postgresql://user@host/database",
        )


def may_be_there(path: str) -> bool:
    """False where there is no such file. Where that can't be seen, who opens it is told why."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _absolute(path: str) -> str:
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except OSError:
        raise UnsafePlace(
            f'the ledger "{path}" is relative, and the working directory is gone',
            "an absolute path for --ledger or JOBRUN_LEDGER",
        ) from None


def state_folder(environ: Mapping[str, str]) -> str:
    """The folder of the default ledger, by user and platform."""
    home = environ.get("JOBRUN_HOME")
    if home:
        return home
    if sys.platform == "win32":
        return _windows_state_folder(environ)
    if os.geteuid() == 0:
        return "/var/lib/jobrun"
    if environ.get("XDG_STATE_HOME", "").startswith("/"):
        return environ["XDG_STATE_HOME"] + "/jobrun"
    return _home(environ) + "/.local/state/jobrun"


def _home(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        home = _home_on_record()
    if not os.path.isdir(home):
        raise UnsafePlace(
            f'no usable home ("{home}") to keep the ledger in',
            "--ledger PATH, or JOBRUN_HOME=/a/folder above this crontab line",
        )
    return home


def _home_on_record() -> str:
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _windows_state_folder(environ: Mapping[str, str]) -> str:
    # The SYSTEM account's %LOCALAPPDATA% lies inside the system folder, where nobody looks.
    system = environ.get("USERNAME", "").endswith("$") or environ.get("USERNAME") == "SYSTEM"
    base = environ.get("ProgramData" if system else "LOCALAPPDATA") or environ.get(
        "PROGRAMDATA", ""
    )
    if not base:
        raise UnsafePlace(
            "neither %LOCALAPPDATA% nor %ProgramData% is set: no place for the ledger",
            "--ledger PATH, or JOBRUN_HOME",
        )
    return os.path.join(base, "jobrun")


def working_folder() -> str | None:
    """Where we are; None where that folder has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def make_state_folder(where: Where, option: str | None, environ: Mapping[str, str]) -> None:
    """Make the folder of the default ledger, or for what is beside a server's; one that was named
    must be there.

    A path that was given may lie on a disk that is not mounted: a new ledger in the empty mount
    point would know nothing of what is done.
    """
    if not where.is_file or not (option or environ.get("JOBRUN_LEDGER")):
        make_folder(os.path.realpath(state_folder(environ)))


def locks_folder(beside: str) -> str:
    return os.path.join(f"{beside}.d", "locks")


def output_folder(beside: str) -> str:
    return os.path.join(f"{beside}.d", "output")


def job_output(beside: str, job: str) -> str:
    """The folder of a job's kept output."""
    return os.path.join(output_folder(beside), slug(job))


def run_output(beside: str, job: str, run_id: int, started: int) -> str:
    """The path of a run's kept output, without the `.out` or `.err`."""
    from jobrun.instants import iso

    return os.path.join(job_output(beside, job), iso(started)[:7], str(run_id))


def values_file(beside: str, run_id: int) -> str:
    """$JOBRUN_VALUES of a run."""
    return os.path.join(f"{beside}.d", "values", str(run_id))


def outbox_folder(beside: str) -> str:
    """Of runs that have ended, until a server has been told (outbox.py)."""
    return os.path.join(f"{beside}.d", "outbox")


def has_outbox(beside: str) -> bool:
    """Whether anything lies in it, half written or whole: asked at every call."""
    try:
        names = os.listdir(outbox_folder(beside))
        return any(name.endswith((".json", ".json.new")) for name in names)
    except OSError:
        return False


def slug(name: str) -> str:
    """A short file name of its own for each job name, on any filesystem.

    40 ASCII-safe characters and 16 hex digits of the SHA-256 of the name's bytes, so that `Sales`
    and `sales`, both compositions of an accent, `CON` and a hundred CJK letters stay apart.
    """
    safe = "".join(c if c in _SAFE else "_" for c in name)[:40]
    return f"{safe}-{_sha256(name.encode('utf-8', 'surrogateescape'))[:16]}"


def _sha256(data: bytes) -> str:
    # hashlib loads OpenSSL, 6 ms of a call's 50; the interpreter's own module is there in 0.2 ms.
    # Asked for by its name: to look for one that is not there takes longer than to load it.
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
        else:
            from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from hashlib import sha256
    return str(sha256(data).hexdigest())


def other_owner(ledger: os.stat_result) -> tuple[int, int] | None:
    """(uid, gid) of the ledger's owner where we are root and he is not; else None.

    What root makes beside another's ledger must be his, or he is locked out of his own jobs.
    """
    if sys.platform == "win32" or os.geteuid() != 0 or ledger.st_uid == 0:
        return None
    return ledger.st_uid, ledger.st_gid


def make_folder(path: str, owner: tuple[int, int] | None = None) -> None:
    """Make the folder and its parents, 0700; root hands what it made to the ledger's owner.

    `owner` is (uid, gid) of the ledger, None where it is ours. Raises UnsafePlace (73).
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent != path:
        make_folder(parent, owner)
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # whatever the umask took from it
        if owner is not None and sys.platform != "win32":
            os.chown(path, *owner)
    except FileExistsError:
        if not os.path.isdir(path):
            raise UnsafePlace(f"{path} is no folder", "move it away, or another --ledger") from None
    except OSError as error:
        raise cant_write(path, error) from None


def cant_write(path: str, error: OSError) -> UnsafePlace:
    """The error for a place that can't be written, with who we are and whose it is."""
    place = path
    while not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    reason = (error.strerror or str(error)).lower()
    return UnsafePlace(
        f"can't write {path}: {reason}{_whose(place)}",
        "a folder of your own: JOBRUN_HOME=/a/folder, or --ledger /a/folder/jobrun.db",
    )


def _whose(place: str) -> str:
    if sys.platform == "win32":
        return ""
    try:
        status = os.stat(place)
    except OSError:
        return ""
    if status.st_uid == os.geteuid():
        return ""
    mode = f"{status.st_mode & 0o7777:04o}"
    return f" (you are {user_name(os.geteuid())}; {place} is {user_name(status.st_uid)}'s, {mode})"


def user_name(uid: int) -> str:
    """The name of a user, or the number where it has none."""
    if sys.platform == "win32":
        return str(uid)
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def is_read_only(path: str) -> bool:
    """Whether the filesystem of what is there can't be written by anybody. POSIX only."""
    if sys.platform == "win32":
        return False
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def filesystem_of(where: Where) -> str:
    """That of the ledger; empty on a server."""
    return filesystem(where.address) if where.is_file else ""


def filesystem(path: str) -> str:
    """The kind of the filesystem that holds `path` (ext4, nfs4, tmpfs, …); empty where unknown.

    Linux only: elsewhere the standard library tells nothing, and a wrong warning is worse.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [line.split() for line in lines]
    except OSError:
        return ""
    best, kind = "", ""
    for fields in mounts:
        point = fields[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point covers the earlier
            best, kind = point, fields[fields.index("-") + 1]
    return kind
