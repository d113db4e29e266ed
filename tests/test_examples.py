"""The examples are run, planned and compared: what people copy must be right."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from jobrun import places
from tests import crontabs, manifests
from tests.conftest import PYTHON, ROOT, Jobrun, Result, clean_environment

EXAMPLES = ROOT / "examples"
ROLLUP = EXAMPLES / "rollup"
CRONTAB = (EXAMPLES / "crontab").read_text(encoding="utf-8")
LINES = crontabs.read(CRONTAB)
SERVERS = (EXAMPLES / "two-servers.crontab").read_text(encoding="utf-8")
MANIFEST = (EXAMPLES / "kubernetes-cronjob.yaml").read_text(encoding="utf-8")
NOW = "2026-09-04T12:05:00+00:00"

posix = pytest.mark.skipif(os.name == "nt", reason="crontab lines are for cron's shell: POSIX only")


class Shell:
    """/bin/sh as cron starts it, where `jobrun` is the real program, planning only (--dry-run)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        program = folder / "bin" / "jobrun"
        program.parent.mkdir()
        program.write_text(PLANNER.format(python=PYTHON, root=ROOT, calls=self.calls))
        program.chmod(0o755)

    def __call__(
        self, entry: crontabs.Entry, settings: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{settings['PATH']}"
        environment = {
            **settings, "PATH": path, "HOME": str(self.folder), "SHELL": "/bin/sh",
            "JOBRUN_HOME": str(self.folder / "state"),
        }  # fmt: skip
        return subprocess.run(
            ["/bin/sh", "-c", entry.command], input=entry.stdin, env=environment, cwd=self.folder,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def knows(self, job: str) -> None:
        """Another line has been called before, of a job that has windows."""
        environment = clean_environment(JOBRUN_HOME=str(self.folder / "state"))
        argv = [PYTHON, "-m", "jobrun", "run", job, "--every", "1day", "--", "true"]
        subprocess.run(argv, env=environment, capture_output=True, check=True)


# Puts --dry-run before the bare `--`, and the folders of the example where the test has them.
PLANNER = """\
#!/bin/sh
echo "$@" >> {calls}
n=$#
while [ "$n" -gt 0 ]; do
    word=$1; shift; n=$((n - 1))
    [ "$word" = -- ] && [ -z "$seen" ] && {{ set -- "$@" --dry-run; seen=1; }}
    set -- "$@" "$word"
done
PYTHONPATH={root} exec {python} -m jobrun "$@"
"""


def name(entry: crontabs.Entry) -> str:
    found = re.search(r"jobrun run (\S+)", entry.command)
    return found[1] if found else entry.command


@posix
@pytest.mark.parametrize("entry", LINES.entries, ids=name)
def test_each_line_of_the_crontab_is_planned(entry: crontabs.Entry, tmp_path: Path) -> None:
    """cron reads the line, the shell takes it apart, and the program plans it without a word."""
    shell = Shell(tmp_path)
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "orders 1.csv").write_text("1;2\n")
    line = entry._replace(command=re.sub(r"/srv/in\b", str(inbox), entry.command))
    line = line._replace(command=re.sub(r"-C /opt/\w+", f"-C {tmp_path}", line.command))
    for job in re.findall(r"--after (\w+)", line.command):
        shell.knows(job)
    result = shell(line, LINES.settings)
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr
    assert shell.calls.read_text().count("run ") >= 1


@posix
def test_each_line_of_the_crontab_says_what_it_is_for() -> None:
    """Every line has a comment above it, and every name is there once."""
    lines = CRONTAB.splitlines()
    for entry in LINES.entries:
        above = next(line for line in reversed(lines[: entry.number - 1]) if line.strip())
        assert above.startswith("# "), entry.command
    names = [name(entry) for entry in LINES.entries]
    assert sorted(set(names)) == sorted(names)
    assert LINES.settings["JOBRUN_QUIET"] == "1"
    assert "PATH" in LINES.settings
    assert "MAILTO" in LINES.settings


def test_the_splitter_does_as_cron_does() -> None:
    """Settings, comments, five fields, and the % that cron takes for a line end."""
    text = "A = 'b c'\n# no\n*/5 0-6/2 1,15 jan mon-fri date +\\%F > x%one%two\n"
    crontab = crontabs.read(text)
    assert crontab.settings == {"A": "b c"}
    entry = crontabs.Entry(3, "*/5 0-6/2 1,15 jan mon-fri", "date +%F > x", "one\ntwo")
    assert crontab.entries == [entry]
    for bad in ("* * * *", "60 * * * * x", "*/0 * * * * x", "5-1 * * * * x", "@often x"):
        with pytest.raises(ValueError, match="line 1"):
            crontabs.read(bad)


def test_what_the_crontab_shows_by_hand_works(jobrun: Jobrun) -> None:
    """The commands in its last comment, on jobs with the options of its lines."""
    stand_in = {
        "sales": "--every 1hour --lag 10m",
        "report": "--every 1day --tz Europe/Istanbul",
        "export": "--every 1day --retries 4 --retry-delay 5m",
    }
    for job, options in stand_in.items():
        call = jobrun("run", job, *options.split(), "--", PYTHON, "-c", "", now=NOW)
        assert call.status == 0, call.stderr
    shown = list(crontabs.comments(CRONTAB))
    assert len(shown) >= 5
    for number, command in shown:
        result = jobrun(*shlex.split(command)[1:], now=NOW)
        assert result.status == 0, f"line {number}: {command}\n{result.stderr}"


# -- several machines ------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("entry", crontabs.read(SERVERS).entries, ids=name)
def test_each_line_of_two_servers_is_planned(
    entry: crontabs.Entry, tmp_path: Path, on_postgres: Jobrun
) -> None:
    """On a server of the tests; each has a comment that says what it guarantees."""
    above = SERVERS.splitlines()[entry.number - 2]
    assert above.startswith("# ")
    own = entry.command.replace("/var/lib/jobrun/", f"{tmp_path}/")
    settings = crontabs.read(SERVERS).settings
    assert "password" not in settings["JOBRUN_LEDGER"]
    places.find(settings["JOBRUN_LEDGER"], {"JOBRUN_HOME": str(tmp_path)})
    ledger = {"JOBRUN_LEDGER": on_postgres.environment["JOBRUN_LEDGER"]}
    result = Shell(tmp_path)(entry._replace(command=own), {**settings, **ledger})
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr
    assert ("--ledger" in own) != ("--namespace production" in own)


def test_what_two_servers_show_by_hand_works(on_postgres: Jobrun) -> None:
    """The commands in the last comment, once a line of it has been called."""
    space = ("--namespace", "production")
    first = on_postgres("run", "sales", *space, "--every", "1hour", "--", PYTHON, "-c", "")
    assert first.status == 0, first.stderr
    shown = list(crontabs.comments(SERVERS))
    assert len(shown) >= 4
    for number, command in shown:
        result = on_postgres(*shlex.split(command)[1:])
        assert result.status == 0, f"line {number}: {command}\n{result.stderr}"


def test_a_ledger_of_a_service_file(on_postgres: Jobrun) -> None:
    """As the head of the crontab says: nothing of it is in the address."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    (shown,) = re.findall(r"JOBRUN_LEDGER=(\S*service=jobs)", SERVERS)
    address = on_postgres.environment["JOBRUN_LEDGER"]
    services = on_postgres.folder / "services.conf"
    given = (f"{name}={value}" for name, value in conninfo_to_dict(address).items())
    services.write_text("\n".join(["[jobs]", *given]))
    found = on_postgres(
        "run", "sales", "--", "sh", "-c", "echo $JOBRUN_LEDGER",
        env={"JOBRUN_LEDGER": shown, "PGSERVICEFILE": str(services)},
    )  # fmt: skip
    assert (found.status, found.stdout) == (0, f"{shown}\n")
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT name FROM jobrun_job").fetchall() == [("sales",)]


# What the manifest may say; a field that is misspelt is not among it.
FIELDS = {
    "apiVersion", "kind", "metadata.name", "spec.schedule", "spec.concurrencyPolicy",
    "spec.startingDeadlineSeconds", "spec.successfulJobsHistoryLimit",
    "spec.failedJobsHistoryLimit", "spec.jobTemplate.spec.backoffLimit",
    "spec.jobTemplate.spec.ttlSecondsAfterFinished",
}  # fmt: skip
POD = {
    "restartPolicy", "terminationGracePeriodSeconds", "securityContext.runAsNonRoot",
    "securityContext.runAsUser", "securityContext.fsGroup", "containers.name", "containers.image",
    "containers.command", "containers.args", "containers.env.name", "containers.env.value",
    "containers.env.valueFrom.secretKeyRef.name", "containers.env.valueFrom.secretKeyRef.key",
    "containers.volumeMounts.name", "containers.volumeMounts.mountPath", "volumes.name",
    "volumes.emptyDir.sizeLimit",
}  # fmt: skip


def fields(value: object, place: str = "") -> set[str]:
    """Where there is a value; all items of a list are in one place."""
    if isinstance(value, dict):
        return {found for key, each in value.items() for found in fields(each, f"{place}.{key}")}
    if isinstance(value, list) and isinstance(value[0], dict):
        return {found for each in value for found in fields(each, place)}
    return {place.lstrip(".")}


def test_the_cron_job_of_kubernetes_keeps_to_what_is_documented() -> None:
    """Known fields in their places, names that meet, a schedule that cron reads, too."""
    secret, cron_job = manifests.documents(MANIFEST)
    inside = "spec.jobTemplate.spec.template.spec"
    assert fields(cron_job) <= {*FIELDS, *(f"{inside}.{field}" for field in POD)}
    assert (cron_job["apiVersion"], cron_job["kind"]) == ("batch/v1", "CronJob")
    crontabs.read(f"{cron_job['spec']['schedule']} x")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {entry["name"]: entry for entry in container["env"]}
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount == {"name": volume["name"], "mountPath": environment["JOBRUN_HOME"]["value"]}
    wanted = environment["JOBRUN_LEDGER"]["valueFrom"]["secretKeyRef"]
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", wanted["name"])
    address = secret["stringData"][wanted["key"]]
    found = places.find(address, {"JOBRUN_HOME": "/state"})
    assert (found.address, "change-me" in found.name) == (address, False)


def test_the_cron_job_of_kubernetes_leaves_decisions_to_jobrun(on_postgres: Jobrun) -> None:
    """No second start but jobrun's, no shell before it, time to end; and its call is planned."""
    spec = manifests.documents(MANIFEST)[1]["spec"]
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    argv = [*container["command"], *container["args"]]
    assert (spec["concurrencyPolicy"], pod["restartPolicy"], job["backoffLimit"]) == (
        "Allow", "Never", 0,
    )  # fmt: skip
    assert argv[0] == "jobrun"
    kill_after = int(argv[argv.index("--kill-after") + 1].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] >= 2 * kill_after
    argv.insert(argv.index("--"), "--dry-run")
    result = on_postgres(*argv[1:], now=NOW)
    assert result.status == 0, result.stderr
    assert "2026-09-04T10:00:00+00:00" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "text",
    ["a: 1\na: 2\n", "a:\n  b: 1\n c: 2\n", "a:\n", "a: {b: 1}\n", "- a\nb: 1\n", "\ta: 1\n",
     "a: b: c\n", "a: 'b'\n"],
)  # fmt: skip
def test_the_reader_of_manifests_takes_nothing_that_it_does_not_know(text: str) -> None:
    """Nor a key twice, nor an indentation that fits nothing."""
    with pytest.raises(ValueError, match=r"line [123]"):
        manifests.documents(text)


def test_the_reader_of_manifests_does_as_yaml_does() -> None:
    """Items that are mappings, flags that begin with dashes, quotes, numbers, a list in a line."""
    text = (
        'a:\n  - b: "1 {x}"\n    c:\n      - --\n      - -m\n  - b: x y\nd: ["e", "f"]\n---\ng: 2\n'
    )
    assert manifests.documents(text) == [
        {"a": [{"b": "1 {x}", "c": ["--", "-m"]}, {"b": "x y"}], "d": ["e", "f"]},
        {"g": 2},
    ]


# -- Task Scheduler --------------------------------------------------------------------------------

TASK_NAMESPACE = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"
TASK_BYTES = (EXAMPLES / "windows-task.xml").read_bytes()

Check = Callable[[str], bool]


def _flag(text: str) -> bool:
    return text in ("true", "false")


def _duration(text: str) -> bool:
    return bool(re.fullmatch(r"P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?", text))


def _date(text: str) -> bool:
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)?", text))


def _path(text: str) -> bool:
    return 0 < len(text) <= 260 and '"' not in text


# The elements that the file may use, by their place, with what the documented schema wants of
# their text. What is not here is not in the file: a misspelt element fails.
DOCUMENTED: dict[str, Check] = {
    "RegistrationInfo/URI": lambda text: text.startswith("\\"),
    "RegistrationInfo/Description": bool,
    "Triggers/TimeTrigger/StartBoundary": _date,
    "Triggers/TimeTrigger/Repetition/Interval": _duration,
    "Principals/Principal/UserId": bool,
    "Principals/Principal/RunLevel": lambda text: text in ("LeastPrivilege", "HighestAvailable"),
    "Settings/MultipleInstancesPolicy": lambda text: text in ("Parallel", "Queue", "IgnoreNew"),
    "Settings/StartWhenAvailable": _flag,
    "Settings/DisallowStartIfOnBatteries": _flag,
    "Settings/StopIfGoingOnBatteries": _flag,
    "Settings/ExecutionTimeLimit": _duration,
    "Settings/RunOnlyIfIdle": _flag,
    "Settings/IdleSettings/StopOnIdleEnd": _flag,
    "Settings/IdleSettings/RestartOnIdle": _flag,
    "Actions/Exec/Command": _path,
    "Actions/Exec/Arguments": bool,
    "Actions/Exec/WorkingDirectory": _path,
}


def task() -> ET.Element:
    """The task as the service reads it: UTF-16 with a mark, and declared so."""
    assert TASK_BYTES.startswith(b"\xff\xfe")
    text = TASK_BYTES.decode("utf-16")
    declaration, _, body = text.partition("?>")
    assert 'encoding="UTF-16"' in declaration
    return ET.fromstring(body)


def leaves(element: ET.Element, where: str = "") -> dict[str, str]:
    """The text of each element without children, by its place; each place once."""
    found: dict[str, str] = {}
    for child in element:
        assert child.tag.startswith(TASK_NAMESPACE)
        place = f"{where}{child.tag.removeprefix(TASK_NAMESPACE)}"
        inner = leaves(child, f"{place}/") if len(child) else {place: child.text or ""}
        assert not found.keys() & inner.keys()
        found |= inner
    return found


def test_the_task_keeps_to_the_documented_schema() -> None:
    """Right encoding, known elements in their places, each with a value of its kind."""
    root = task()
    assert root.tag == f"{TASK_NAMESPACE}Task"
    assert root.get("version") == "1.2"
    for place, text in leaves(root).items():
        assert DOCUMENTED[place](text.strip()), f"{place}: {text!r}"
    context = next(root.iter(f"{TASK_NAMESPACE}Actions")).get("Context")
    assert context in [p.get("id") for p in root.iter(f"{TASK_NAMESPACE}Principal")]


def test_the_task_leaves_decisions_to_jobrun() -> None:
    """Missed starts are made up, nothing is cut short, and the lock decides about a second copy."""
    settings = leaves(task())
    assert settings["Settings/StartWhenAvailable"] == "true"
    assert settings["Settings/DisallowStartIfOnBatteries"] == "false"
    assert settings["Settings/StopIfGoingOnBatteries"] == "false"
    assert settings["Settings/ExecutionTimeLimit"] == "PT0S"
    assert settings["Settings/MultipleInstancesPolicy"] == "Parallel"
    assert settings["Triggers/TimeTrigger/Repetition/Interval"] == "PT15M"


def windows_words(line: str) -> list[str]:
    """A line without backslashes before quotes, taken apart as the C runtime does."""
    return [word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line)]


def test_the_arguments_of_the_task_are_planned(jobrun: Jobrun) -> None:
    """What Task Scheduler hands to jobrun.exe is a call that the program understands."""
    argv = windows_words(leaves(task())["Actions/Exec/Arguments"])
    argv.insert(argv.index("--"), "--dry-run")
    result = jobrun(*argv, now=NOW)
    assert result.status == 0, result.stderr
    assert "2026-09-03" in result.stdout + result.stderr


# -- the roll-up ---------------------------------------------------------------------------------


class Shop:
    """A shop's database, the orders of the last minutes in it, and the ledger in the same file."""

    def __init__(self, jobrun: Jobrun) -> None:
        self.jobrun = jobrun
        self.database = jobrun.folder / "shop.db"
        self.script("orders.py", "--minutes", "6")

    def script(self, name: str, *arguments: str) -> Result:
        command = [PYTHON, str(ROLLUP / name), str(self.database), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
        return Result(done.returncode, done.stdout, done.stderr)

    def roll_up(self, *command: str, first: str | None = None, ledger: str = "shop.db") -> Result:
        since = first or self.minutes_ago(5)
        options = [
            "--every",
            "1minute",
            "--first",
            since,
            "--ledger",
            str(self.jobrun.folder / ledger),
        ]
        return self.jobrun("run", "turnover", *options, "--", *command)

    def minutes_ago(self, minutes: int) -> str:
        sql = "SELECT strftime('%Y-%m-%dT%H:%M:00Z', 'now', ?)"
        return str(self.query(sql, f"-{minutes} minutes")[0][0])

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.database)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()


@pytest.fixture
def shop(jobrun: Jobrun) -> Shop:
    """A shop with six minutes of orders."""
    return Shop(jobrun)


ONCE = (PYTHON, str(ROLLUP / "rollup_once.py"), "shop.db", "{start}", "{end}")
AGAIN = (PYTHON, str(ROLLUP / "rollup.py"), "shop.db", "{start}", "{end}")
IN_SHELL = ("sh", str(ROLLUP / "rollup_once.sh"), "shop.db")

with_sqlite3 = pytest.mark.skipif(
    shutil.which("sqlite3") is None, reason="no sqlite3 shell here: apt install sqlite3"
)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(AGAIN, id="rollup.py"),
        pytest.param(ONCE, id="rollup_once.py"),
        pytest.param(IN_SHELL, id="rollup_once.sh", marks=[posix, with_sqlite3]),
    ],
)
def test_the_roll_up_is_right_to_the_cent(shop: Shop, command: tuple[str, ...]) -> None:
    """Each variant catches up five windows, and the check finds nothing wrong."""
    result = shop.roll_up(*command)
    assert result.status == 0, result.stderr
    check = shop.script("check.py")
    assert check.stdout.startswith(("5 windows, ", "6 windows, "))
    assert check.stdout.endswith(", 0 wrong\n")
    assert check.status == 0


def test_the_check_finds_a_cent(shop: Shop) -> None:
    """A check that can't fail would prove nothing."""
    assert shop.roll_up(*ONCE).status == 0
    connection = sqlite3.connect(shop.database)
    with connection:
        connection.execute("UPDATE summary SET cents = cents + 1 WHERE rowid = 2")
    connection.close()
    check = shop.script("check.py")
    assert check.status == 1
    assert "wrong: " in check.stdout


def test_a_window_may_be_rolled_up_again(shop: Shop) -> None:
    """The plain variant needs nothing from jobrun but the window: a rerun changes nothing."""
    assert shop.roll_up(*AGAIN, ledger="jobrun.db").status == 0
    before = shop.query("SELECT * FROM summary ORDER BY start")
    again = shop.jobrun("rerun", "turnover", str(before[0][0]))
    assert again.status == 0, again.stderr
    assert before == shop.query("SELECT * FROM summary ORDER BY start")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(ONCE, id="rollup_once.py"),
        pytest.param(IN_SHELL, id="rollup_once.sh", marks=[posix, with_sqlite3]),
    ],
)
def test_a_window_is_added_once(shop: Shop, command: tuple[str, ...]) -> None:
    """Run by hand outside jobrun's turn, with the environment of a past run, it adds nothing."""
    assert shop.roll_up(*command).status == 0
    before = shop.query("SELECT * FROM turnover ORDER BY product")
    ((key, start, end),) = shop.query(
        "SELECT key, start, end FROM jobrun_window ORDER BY start LIMIT 1"
    )
    environment = clean_environment(
        JOBRUN_JOB="turnover", JOBRUN_KEY=str(key), JOBRUN_TOKEN="1",
        JOBRUN_WINDOW_START=str(start), JOBRUN_WINDOW_END=str(end), JOBRUN_LEDGER="shop.db",
    )  # fmt: skip
    argv = [word.format(start=start, end=end) for word in command]
    late = subprocess.run(argv, env={**environment, "JOBRUN_TOKEN": "999"}, cwd=shop.jobrun.folder)
    assert late.returncode != 0
    assert before == shop.query("SELECT * FROM turnover ORDER BY product")
    assert shop.script("check.py").status == 0


@pytest.mark.long
def test_the_main_job_under_a_real_cron_is_right_to_the_cent() -> None:
    """Debian's cron, a kill -9 in the middle, cron away for a minute: all in once."""
    command = [PYTHON, str(ROOT / "tests" / "bench" / "main_job.py"), "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(", 0 wrong\n")
