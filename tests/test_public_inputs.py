"""Crontab lines as people have them, with jobrun in front (inputs K01-K15).

Each line goes the way that cron takes it: read by tests/crontabs.py, then `/bin/sh -c` with cron's
environment, where the programs are harmless stand-ins (tests/hosts.py).
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime

import pytest

from jobrun import schedule
from tests import crontabs
from tests.conftest import Jobrun, is_alive, until
from tests.hosts import NOW, Host
from tests.scenes import Held, at, begin, linux, needs, posix, watermark

pytestmark = posix


@pytest.fixture
def host(jobrun: Jobrun) -> Host:
    return Host(jobrun)


def boundaries(expression: str, first: str, last: str, zone: str | None = None) -> list[str]:
    """The instants of an expression in [first, last)."""
    grid = schedule.parse(schedule.canonical(None, expression, None, zone))
    t, end = (int(datetime.fromisoformat(text).timestamp()) for text in (first, last))
    found, t = [], t - 1
    while (t := grid.next(t)) < end:
        found.append(datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%MZ"))
    return found


@needs("bash", "bash")
@pytest.mark.parametrize("code", [0, 5])
def test_K01_a_bash_chain_goes_in_as_one_command(host: Host, code: int) -> None:
    """18F/fbopen's crontab: `source`, `&&` and `&>>` of bash; a lock in front would cover the first
    link only, so the whole chain is the command, and its exit code the chain's."""
    (host.home / ".bash_profile").write_text(f"ROOT={host.folder}\n")
    (host.folder / ".env").write_text("export WHAT=tonight\n")
    script = f"#!/bin/sh\necho nightly $WHAT; echo oops >&2; exit {code}\n"
    host.install("/loader/nightly.sh", script)
    (host.folder / "log").mkdir()
    found = host.cron(
        "15 6 * * * {JOBRUN} run nightly -- bash -c 'source ~/.bash_profile && source $ROOT/.env &&"
        " cd $ROOT/loader && ./nightly.sh &>> {HERE}/log/x.log'"
    )
    assert (found.status, found.stdout) == (code, "")
    assert (host.folder / "log" / "x.log").read_text() == "nightly tonight\noops\n"
    assert host.runs() == [("succeeded" if not code else "failed", code)]


@needs("bash", "bash")
def test_K01_a_link_that_fails_stops_the_chain(host: Host) -> None:
    """18F/fbopen's crontab: without its .env nothing of the rest may run, and that is a failure."""
    (host.home / ".bash_profile").write_text(f"ROOT={host.folder}\n")
    found = host.cron(
        "15 6 * * * {JOBRUN} run nightly -- bash -c 'source ~/.bash_profile && source $ROOT/.env &&"
        " touch {HERE}/ran'"
    )
    assert found.status == 1
    assert not (host.folder / "ran").exists()
    assert host.runs() == [("failed", 1)]


@pytest.mark.parametrize(
    ("one", "other"),
    [("0\t3\t*\t*\t6", "0 3 * * 6"), ("*/1 * * * *", "* * * * *"), ("0 5 1 * *", "00 05 01 * *")],
)
def test_K02_tabs_and_steps_of_one(host: Host, one: str, other: str) -> None:
    """0xDAFE/rclone-supercronic's crontab: tabs between the fields, `*/1` beside them; both are the
    schedule that they look like."""
    host.install("run-parts")
    start = boundaries(other, "2026-08-01T00Z", NOW)[-1]
    begin(host.jobrun, "weekly", start, "--cron", other)
    line = f'{one}\t{{JOBRUN}} run weekly --cron "{one}" -v -- run-parts /etc/periodic/weekly'
    found = host.cron(line, now=start)
    assert (found.status, " reason=no-closed-window " in found.stderr) == (0, True)
    after = boundaries(other, start, "2026-12-01T00Z")[1]
    ran = host.cron(line, now=after)
    assert (ran.status, ran.stdout) == (0, "run-parts </etc/periodic/weekly>\n")


def test_K03_the_user_column_is_not_the_command(host: Host) -> None:
    """99designs/awsmonitors' crontab, of the system's format: taken over with its user column, the
    line names a program that is not there, and that is said, not run as something else."""
    host.install("/usr/bin/python")
    rest = "{HERE}/usr/bin/python {HERE}/home/svc/mon/logger.py > /dev/null"
    wrong = host.cron(f"*/5 * * * * {{JOBRUN}} run monitor -- svc {rest}")
    assert wrong.status == 127
    assert 'error: not found: "svc"; searched PATH=' in wrong.stderr
    right = host.cron(f"*/5 * * * * {{JOBRUN}} run monitor -q -- {rest}")
    # stderr is not redirected there: cron mails it, so the end of the trouble is told once.
    assert (right.status, right.stdout) == (0, "")
    assert [line.split()[1] for line in right.lines] == ["PROCESSED"]
    assert host.cron(f"*/5 * * * * {{JOBRUN}} run monitor -q -- {rest}") == (0, "", "")


def test_K04_every_minute_but_one(host: Host) -> None:
    """4ernogoria/maria_backup_thin's crontab, `1-59`: windows of a minute, and one of two minutes
    across the hour."""
    host.install("script", '#!/bin/sh\necho "$JOBRUN_WINDOW_START $JOBRUN_WINDOW_END"\n')
    begin(host.jobrun, "thin", "2026-09-04T10:58Z", "--cron", "1-59 * * * *")
    line = '1-59 * * * * {JOBRUN} run thin --cron "1-59 * * * *" -- /bin/sh {HERE}/bin/script'
    found = host.cron(line, now="2026-09-04T11:02:10Z")
    times = [at(f"2026-09-04T{time}Z") for time in ("10:58", "10:59", "11:01", "11:02")]
    assert [line.split() for line in found.stdout.splitlines()] == [
        times[0:2],
        times[1:3],
        times[2:4],
    ]


# Like `su - app -c LINE`: a session of its own, a login environment, the home as folder.
SU = """#!/bin/sh
[ "$1 $2 $3" = "- app -c" ] || exit 64
cd / && exec setsid --wait env -i PATH="$PATH" HOME=/ sh -c "$4"
"""


@linux
@needs("setsid", "util-linux")
def test_K05_a_command_in_a_session_of_its_own_ends_at_the_timeout(host: Host) -> None:
    """ADWilkinson/barbossa-dev's crontab: `su` changes session, folder and environment; the signal
    reaches it first, and what it started must end all the same."""
    host.install("su", SU)
    host.install("python3", "#!/bin/sh\necho $$ >pid; trap '' TERM; exec sleep 300\n")
    (host.folder / "app").mkdir()
    (host.folder / "logs").mkdir()
    found = host.cron(
        "0 */2 * * * {JOBRUN} run lead --timeout 2 -k 1 --"
        ' su - app -c "cd {HERE}/app && python3 lead.py" >> {HERE}/logs/lead.log 2>&1'
    )
    assert (found.status, found.stdout, found.stderr) == (124, "", "")
    assert (
        " FAILED job=lead exit=124 outcome=timed-out "
        in (host.folder / "logs" / "lead.log").read_text()
    )
    assert not is_alive((host.folder / "app" / "pid").read_text().strip())
    assert host.cron("0 1 * * * {JOBRUN} run lead -q -- true").status == 0


@pytest.mark.parametrize(("port", "words"), [({}, 4), ({"HTTP_PORT": "8888"}, 5)])
def test_K06_a_variable_that_cron_has_not_is_seen_in_what_is_recorded(
    host: Host, port: dict[str, str], words: int
) -> None:
    """AGhost-7/certbot-docker's crontab: `$HTTP_PORT` came from the container; under cron it is
    nothing, the option loses its value, and `show` is where one sees it."""
    host.install("/usr/local/bin/certbot")
    found = host.cron(
        "30 2 * * * {JOBRUN} run certbot -- {HERE}/usr/local/bin/certbot renew --renew-hook"
        " /hook.sh --http-01-port $HTTP_PORT",
        **port,
    )
    arguments = ["renew", "--renew-hook", "/hook.sh", "--http-01-port", *port.values()]
    assert len(arguments) == words
    assert found.stdout == "certbot " + " ".join(f"<{word}>" for word in arguments) + "\n"
    command = f"{host.folder}/usr/local/bin/certbot {' '.join(arguments)}"
    assert f"command        {command}\n" in host.jobrun("show", "certbot").stdout


def test_K06_half_past_two_exists_on_the_night_without_it() -> None:
    """AGhost-7/certbot-docker's crontab: 02:30 is in the hour that is missing once a year; that day
    has its window too."""
    found = boundaries("30 2 * * *", "2026-03-28T12Z", "2026-03-31T12Z", "Europe/Berlin")
    assert found == ["2026-03-29T01:00Z", "2026-03-30T00:30Z", "2026-03-31T00:30Z"]


@needs("timeout", "coreutils")
@pytest.mark.parametrize(
    ("inner", "outer", "outcome", "code"),
    [("0.2", "30m", "failed", 124), ("30m", "1", "timed-out", None)],
)
def test_K07_124_of_timeout_inside_is_the_commands_own(
    host: Host, inner: str, outer: str, outcome: str, code: int | None
) -> None:
    """aptible/supercronic#88: a run that never ends, in timeout(1) already; 124 comes from two
    layers, and the record tells which."""
    host.install("/usr/local/bin/php", "#!/bin/sh\nexec sleep 300\n")
    found = host.cron(
        f"* * * * * {{JOBRUN}} run magento --timeout {outer} -- timeout {inner}"
        " {HERE}/usr/local/bin/php -d memory_limit=-1 /var/www/html/bin/magento cron:run 2>&1"
    )
    assert found.status == 124
    assert f" exit=124 outcome={outcome} " in found.stdout + found.stderr
    ((was, exit_code),) = host.runs()
    assert was == outcome
    assert code is None or exit_code == code


def test_K08_leading_zeros_and_a_zone_line(host: Host) -> None:
    """cronie-crond/cronie#124: `30 01` is `30 1`, and the CRON_TZ line above is a setting of
    cron's: no job, and not the zone of the windows."""
    crontab = crontabs.read('CRON_TZ=UTC\n30 01 * * * echo "2) $(date)" >> /home/u/log.txt\n')
    assert crontab.settings == {"CRON_TZ": "UTC"}
    assert [entry.when for entry in crontab.entries] == ["30 01 * * *"]
    days = boundaries("30 01 * * *", "2026-05-01T00Z", "2026-05-04T00Z")
    assert days == [f"2026-05-0{day}T01:30Z" for day in (1, 2, 3)]
    assert days == boundaries("30 1 * * *", "2026-05-01T00Z", "2026-05-04T00Z")
    begin(host.jobrun, "echo", "2026-09-03T01:30Z", "--cron", "30 1 * * *")
    found = host.cron(
        '30 01 * * * {JOBRUN} run echo --cron "30 01 * * *" -- sh -c \'echo "2) $(date)"\''
        " >> {HERE}/log.txt",
        CRON_TZ="Asia/Jerusalem", TZ="Asia/Jerusalem",
    )  # fmt: skip
    assert (found.status, watermark(host.jobrun, "echo")) == (0, at("2026-09-04T01:30Z"))
    assert (host.folder / "log.txt").read_text().startswith("2) ")


DATE = '{JOBRUN} run k -- date "+%H:%M" >> {HERE}/date.log'
LAST_DAY = "{JOBRUN} run k -- /usr/bin/test $( date -d '+1 day' +%d ) -eq 1 && echo last day"


@pytest.mark.parametrize(
    ("command", "rest"),
    [(DATE, 'H:\nM" >> {HERE}/date.log'), (LAST_DAY, "d ) -eq 1 && echo last day")],
    ids=["K09", "K12"],
)
def test_K09_K12_a_line_cut_at_its_percent_sign_runs_nothing(
    host: Host, command: str, rest: str
) -> None:
    """cronie-crond/cronie#195, pekepeke/dotfiles: cut at the first unescaped %, the shell sees an
    unclosed quote or bracket; jobrun is never started, so nothing is recorded as done."""
    (entry,) = crontabs.read(f"55 23 28-31 * * {command}").entries
    assert entry.stdin == rest
    found = host.cron(f"55 23 28-31 * * {command}")
    assert (found.status, found.stdout) == (2, "")
    assert not host.jobrun.ledger.exists()
    assert not (host.folder / "date.log").exists()


@pytest.mark.parametrize(
    ("command", "out"),
    [(r'date -u -d @0 "+\%H:\%M"', "00:00\n"), ("echo {start_hour}", "11\n")],
    ids=["escaped", "placeholder"],
)
def test_K09_without_a_bare_percent_sign_it_works(host: Host, command: str, out: str) -> None:
    """cronie-crond/cronie#195: the sign escaped, or a placeholder, which needs none."""
    line = f"*/1 * * * * {{JOBRUN}} run k -q --every 1h -- {command} >> {{HERE}}/date.log"
    assert host.cron(line).status == 0
    assert (host.folder / "date.log").read_text() == out


def test_K10_saturday_to_sunday(host: Host) -> None:
    """cronie-crond/cronie#200: `sat-sun` ends in Sunday; 104 instants in 2026."""
    assert len(boundaries("0 0 * * sat-sun", "2026-01-01T00Z", "2027-01-01T00Z")) == 104
    host.install("/usr/bin/echo")
    begin(host.jobrun, "echo", "2026-08-30T00Z", "--cron", "0 0 * * 6,0")
    # Debian's cron refuses the range in its own field; jobrun takes it.
    line = '0 0 * * 6,0 {JOBRUN} run echo --cron "0 0 * * sat-sun" --'
    found = host.cron(f"{line} {{HERE}}/usr/bin/echo test", now="2026-09-05T00:00:00Z")
    assert (found.status, found.stdout) == (0, "echo <test>\n")


@pytest.mark.parametrize(("day", "status", "out"), [("5", 0, "script.sh\n"), ("4", 1, "")])
def test_K11_a_guard_that_says_no_stays_outside(
    host: Host, day: str, status: int, out: str
) -> None:
    """BeLZeL/scripts: "the first Friday" by a test in the shell; on six days of seven it fails,
    which is no failure of the job, and nothing is recorded."""
    host.install("date", f'#!/bin/sh\n[ "$*" = +%w ] && echo {day}\n')
    host.install("/path/script.sh")
    guard = "[ \"$(date '+\\%w')\" -eq 5 ]"
    script = "{HERE}/path/script.sh"
    found = host.cron(f"00 20 1-7 * * {guard} && {{JOBRUN}} run friday -q -- {script}")
    assert (found.status, found.stdout) == (status, out)
    assert host.jobrun.ledger.exists() is (status == 0)
    # Its broken twin, `1-7 * 5`, is every Friday and the first seven days.
    assert len(boundaries("00 20 1-7 * 5", "2026-09-01T00Z", "2026-10-01T00Z")) == 7 + 3


def test_K13_seven_is_sunday_and_reboot_has_no_window(host: Host) -> None:
    """ex/utils: `7` for Sunday, a log that is overwritten each time, and an @reboot line, which is
    a plain job."""
    year = ("2026-01-01T00Z", "2027-01-01T00Z")
    assert boundaries("0 23 * * 7", *year) == boundaries("0 23 * * 0", *year)
    host.install("/usr/svn/backfull.pl")
    host.install("/usr/svn/mail.pl")
    for _ in range(2):
        line = "0 23 * * 7 {JOBRUN} run svn -q -- {HERE}/usr/svn/backfull.pl > {HERE}/full.log 2>&1"
        assert host.cron(line).status == 0
    assert (host.folder / "full.log").read_text() == "backfull.pl\n"
    found = host.cron("@reboot {JOBRUN} run mail -- {HERE}/usr/svn/mail.pl")
    assert (found.status, found.stdout) == (0, "mail.pl\n")
    wrong = host.cron("@reboot {JOBRUN} run mail2 --cron @reboot -- {HERE}/usr/svn/mail.pl")
    assert (wrong.status, "@reboot has no window" in wrong.stderr) == (2, True)


@needs("flock", "util-linux")
@pytest.mark.parametrize("lock", ["x.lock", "no/such/folder/x.lock"])
def test_K14_flock_inside_stays_what_it_is(host: Host, lock: str) -> None:
    """A crontab with `flock -n` already in front: its 1 for a held lock is the command's own code,
    and so is its complaint about a folder that it can't write."""
    host.install("/opt/x/run.sh")
    path = host.folder / lock
    line = (
        f"0 8,18 * * * {{JOBRUN}} run x -- flock -n {path} {{HERE}}/opt/x/run.sh >> {{HERE}}/x.log"
    )
    if "no/such" in lock:
        found = host.cron(line)
        assert found.status == 66
        assert host.runs() == [("failed", 66)]
        return
    assert host.cron(line).status == 0
    with subprocess.Popen(["flock", path, "cat"], stdin=subprocess.PIPE) as other:
        until(lambda: subprocess.run(["flock", "-n", path, "true"]).returncode, "the other's lock")
        assert host.cron(line).status == 1
        other.communicate()
    assert host.runs() == [("succeeded", 0), ("failed", 1)]


def test_K14_jobrun_instead_of_flock_is_as_silent(host: Host) -> None:
    """The same line with jobrun for flock: a held lock is exit 0, on record, and silent under
    quiet; the hours are those of the zone."""
    host.install("/opt/x/run.sh")
    held = Held(host.jobrun, "x")
    assert host.cron("0 8,18 * * * {JOBRUN} run x -q -- {HERE}/opt/x/run.sh 2>&1") == (0, "", "")
    loud = host.cron("0 8,18 * * * {JOBRUN} run x --busy-exit 1 -- {HERE}/opt/x/run.sh 2>&1")
    assert (loud.status, " reason=lock-held " in loud.stdout) == (1, True)
    assert held.release().status == 0
    assert boundaries("0 8,18 * * *", "2026-01-01T12Z", "2026-01-02T12Z", "Asia/Jerusalem") == [
        "2026-01-01T16:00Z",
        "2026-01-02T06:00Z",
    ]


@needs("flock", "util-linux")
@pytest.mark.parametrize("code", [0, 2, 75])
def test_K15_three_wrappers_a_comment_and_a_code_with_a_meaning(host: Host, code: int) -> None:
    """A crontab with flock, env and bash in a row, and a note after `#` with an `=` in it: 2 means
    "read the queue" there, and can be told from our own usage error by its outcome."""
    script = '#!/bin/sh\necho "$FLOOR_M $*"; shift 2; exec "$@"\n'
    host.install("/home/app/bin/floor.sh", script)
    host.install("/home/app/w/run.sh", f"exit {code}\n")
    found = host.cron(
        "40 7 * * * {JOBRUN} run w -- flock -n {HERE}/w.lock env FLOOR_M=512 $HOME/bin/floor.sh w"
        " $HOME/logs/w.log bash $HOME/w/run.sh >{HERE}/out 2>{HERE}/err   # note: rc=2 = read queue"
    )
    assert found == (code, "", "")
    home = host.home
    assert (host.folder / "out").read_text() == f"512 w {home}/logs/w.log bash {home}/w/run.sh\n"
    assert host.runs() == [("failed" if code else "succeeded", code)]
    said = (host.folder / "err").read_text()
    assert (f" exit={code} outcome=failed " in said) is bool(code)
    usage = host.cron("40 7 * * * {JOBRUN} run w --nonsense -- true")
    assert (usage.status, "outcome=" in usage.stderr) == (2, False)
