"""Output: what people reported of other tools, each as a test of its own (family O)."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobrun import places
from tests.conftest import PYTHON, Jobrun, until
from tests.scenes import (
    HOURLY,
    at,
    begin,
    fill,
    linux,
    posix,
    small_disk,
    watermark,
)

pytestmark = posix

NOW = "2026-09-04T12:05:00Z"
KEPT = 2 * 256 * 1024  # bytes of a stream that are kept at most: a head and a tail
STREAMS = pytest.mark.parametrize("stream", [1, 2], ids=["stdout", "stderr"])


def raw(jobrun: Jobrun, *argv: str, env: dict[str, str] | None = None) -> tuple[int, bytes, bytes]:
    process = jobrun.start(*argv, env=env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def writes(data: bytes, stream: int) -> tuple[str, ...]:
    code = f"import os; data = bytes.fromhex('{data.hex()}'); os.write({stream}, data)"
    return (PYTHON, "-c", code)


def kept(jobrun: Jobrun, run: int, stream: int) -> bytes | None:
    return jobrun.kept(run, "out" if stream == 1 else "err")


@STREAMS
@pytest.mark.parametrize("lang", ["C", "en_US.UTF-8", "C.UTF-8", "", "tr_TR.ISO-8859-9"])
def test_O01_bytes_that_are_no_text_pass_unchanged(jobrun: Jobrun, lang: str, stream: int) -> None:
    """boutiques/boutiques#456, pyinvoke/invoke#71: one byte that is no UTF-8 crashed the runner;
    all 256 here, in both streams."""
    data = b"ok\xff\xfe\n" + bytes(range(256)) + b"\xe2\x82"
    environment = {"LANG": lang, "LC_ALL": lang}
    status, out, err = raw(jobrun, "run", "a", "-q", "--", *writes(data, stream), env=environment)
    assert status == 0
    assert (out == data) if stream == 1 else (data in err)
    assert kept(jobrun, 1, stream) == data
    assert jobrun.query("select output_bytes from jobrun_run") == [(len(data),)]
    for screen in (["logs", "a"], ["logs", "a", "--raw"], ["history"], ["show", "1"]):
        status, out, err = raw(jobrun, *screen, env=environment)
        assert (status, b"Traceback" in err) == (0, False)


FLOODS = """
import os, sys
stream, megabytes, block = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
for _ in range(megabytes):
    data = block * (1048576 // len(block))
    while data:
        data = data[os.write(stream, data):]
open("flooded", "w").close()
sys.stdin.read()
"""


@linux
@STREAMS
@pytest.mark.parametrize(
    ("megabytes", "block"),
    [(20, "x"), (20, "0123456789abcde\n"), (350, "x")],
)
def test_O03_a_giant_line_does_not_grow_the_memory(
    jobrun: Jobrun, megabytes: int, block: str, stream: int
) -> None:
    """gocd/gocd#11100: a single line of 350 MB took the server out of memory."""
    command = (PYTHON, "-c", FLOODS, str(stream), str(megabytes), block)
    with open(os.devnull, "wb") as sink:
        process = jobrun.start(
            "run", "a", "--", *command, stdin=subprocess.PIPE, stdout=sink, stderr=sink
        )
        until((jobrun.folder / "flooded").exists, "the flood", 120)
        memory = Path(f"/proc/{process.pid}/status").read_text()
        process.communicate(timeout=60)
    assert process.returncode == 0
    (peak,) = (line.split()[1] for line in memory.splitlines() if line.startswith("VmHWM:"))
    assert int(peak) * 1024 < 60_000_000
    assert jobrun.query("select output_bytes from jobrun_run") == [(megabytes * 1_048_576,)]
    found = kept(jobrun, 1, stream)
    assert found is not None
    assert KEPT <= len(found) < KEPT + 1000
    assert jobrun.ledger.stat().st_size < 500_000


@STREAMS
@pytest.mark.parametrize("text", ["working...", "\x1b[1mworking", "50%\r", "\u0131"])
def test_O05_what_has_no_newline_is_seen_at_once(jobrun: Jobrun, text: str, stream: int) -> None:
    """datachain-ai/datachain#326: the reader waited for a newline, and nothing was seen for hours;
    what was said is kept when the call is stopped, too."""
    code = f"import os, sys; os.write({stream}, {text!r}.encode()); sys.stdin.read()"
    process = jobrun.start("run", "a", "-q", "--", PYTHON, "-c", code, stdin=subprocess.PIPE)
    pipe = process.stdout if stream == 1 else process.stderr
    assert pipe is not None
    seen = b""
    while not seen.endswith(text.encode()):
        more = os.read(pipe.fileno(), 4096)
        assert more
        seen += more
    until(lambda: kept(jobrun, 1, stream) == text.encode(), "it to be kept")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert kept(jobrun, 1, stream) == text.encode()


@STREAMS
@pytest.mark.parametrize("updates", [1000, 100_000])
def test_O06_progress_bars_fill_no_log(jobrun: Jobrun, updates: int, stream: int) -> None:
    """girder/girder#2694, NiltonVolpato/python-progressbar#55: a bar drawn with carriage returns
    filled the log with one giant line."""
    data = b"".join(b"\r%6d of %d" % (n, updates) for n in range(updates)) + b"\n"
    code = (
        f"import os; n = {updates}\n"
        "data = b''.join(b'\\r%6d of %d' % (i, n) for i in range(n)) + b'\\n'\n"
        f"while data: data = data[os.write({stream}, data):]"
    )
    status, out, err = raw(jobrun, "run", "a", "-q", "--", PYTHON, "-c", code)
    assert status == 0
    assert (out if stream == 1 else err).endswith(data)
    found = kept(jobrun, 1, stream)
    assert found is not None
    assert len(found) <= KEPT + 1000
    assert (found == data) is (len(data) <= KEPT)
    assert found[-100:] == data[-100:]
    rows = [line for line in jobrun("history", "a").stdout.splitlines() if line[:1] == "1"]
    assert len(rows) == 1


CONTROLS = [*range(0x09), *range(0x0B, 0x20), 0x7F]
HOSTILE = b"\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\x1bP+q\x1b\\\x1b[?1049h\x9b2J\n"


def on_terminal(jobrun: Jobrun, *argv: str) -> bytes:
    """What a terminal is sent."""
    master, terminal = pty.openpty()
    process = jobrun.start(*argv, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    screen = b""
    try:
        while more := os.read(master, 65_536):
            screen += more
    except OSError:  # EIO: the other side has closed
        pass
    os.close(master)
    process.wait(60)
    return screen


@STREAMS
def test_O07_a_log_does_not_disturb_who_reads_it(jobrun: Jobrun, stream: int) -> None:
    """alan-turing-institute/autocast#413, determined-ai/determined#3542: colours, cursor moves and
    titles made the stored log useless, or changed the reader's terminal."""
    data = HOSTILE + bytes(CONTROLS) + "\u0085\u009b31m\u202e\n".encode()
    jobrun("run", "a", "-q", "--output", "on-failure", "--", *writes(data, stream))
    assert kept(jobrun, 1, stream) == data
    which = ("--stdout",) if stream == 1 else ("--stderr",)
    piped = raw(jobrun, "logs", "a", *which)[1]
    shown = on_terminal(jobrun, "logs", "a", *which)
    assert b"\\x1b[31mred\\x1b[0m\\x1b[2J\\x1b]0;title\\x07" in piped
    for text in (piped, shown.replace(b"\r\n", b"\n")):
        assert set(text) & {*CONTROLS} == set()
        assert "\u009b".encode() not in text
        assert "\u0085".encode() not in text
    assert raw(jobrun, "logs", "a", "--raw", *which)[1] == data


def test_O07_the_command_sees_no_terminal(jobrun: Jobrun) -> None:
    """determined-ai/determined#3542: on a terminal the command coloured what was to be kept."""
    code = "import os; print([os.isatty(n) for n in (0, 1, 2)])"
    assert b"[False, False, False]" in on_terminal(jobrun, "run", "a", "--", PYTHON, "-c", code)


@pytest.mark.parametrize("verb", ["show", "history", "status", "plan", "logs"])
def test_O07_names_and_arguments_are_as_harmless(jobrun: Jobrun, verb: str) -> None:
    """alan-turing-institute/autocast#413: what a screen repeats of a command line is shown, never
    carried out."""
    text = HOSTILE.decode("latin-1").replace("\n", "\t")
    jobrun("run", "a", "--cwd", "/", "--", f"./no{text}", text)
    jobrun("run", "a", "--", PYTHON, "-c", "raise SystemExit(3)", text)
    for argv in (
        (verb, "a"),
        ("run", "a", "--", f"./no{text}"),
        ("run", "a", "-C", text, "--", "x"),
    ):
        for screen in (on_terminal(jobrun, *argv), b"".join(raw(jobrun, *argv)[1:])):
            assert b"\x1b[2J" not in screen
            assert b"\x1b]0;" not in screen
            assert b"\x1b[?1049h" not in screen
            assert b"\x07" not in screen


@pytest.mark.parametrize("output", ["live", "on-failure"])
@pytest.mark.parametrize("code", [0, 3])
def test_O08_the_streams_stay_apart(jobrun: Jobrun, output: str, code: int) -> None:
    """rundeck/rundeck#6660: text on stderr without a newline was glued to the next line of stdout,
    and the result in it was missed."""
    script = f'printf "no newline" >&2; echo RESULT=1; printf "tail" >&2; exit {code}'
    begin(jobrun, "b", "2026-09-04T11Z", *HOURLY)
    out_path, err_path = jobrun.folder / "out", jobrun.folder / "err"
    with out_path.open("wb") as out, err_path.open("wb") as err:
        found = jobrun(
            "run", "a", "--output", output, "--", "sh", "-c", script, stdout=out, stderr=err
        )
    assert found.status == code
    shown = output == "live" or code
    assert out_path.read_text() == ("RESULT=1\n" if shown else "")
    text = err_path.read_text()
    assert ("no newlinetail" in text) is bool(shown)
    if output == "live":
        assert text.split("jobrun: ")[0].startswith("no newlinetail")
    lines = [line for line in text.splitlines() if "no newline" not in line and line]
    assert all(line.startswith(("jobrun: ", "tail")) for line in lines)
    assert (kept(jobrun, 1, 1), kept(jobrun, 1, 2)) == (b"RESULT=1\n", b"no newlinetail")


@linux
@pytest.mark.parametrize("when", ["before", "during"])
def test_O10_a_full_disk_for_output_takes_no_job_with_it(jobrun: Jobrun, when: str) -> None:
    """coreybutler/node-linux#17, jhuckaby/Cronicle#877: the disk of the logs was full; the wrapper
    died, and took the job with it."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    with small_disk(Path(places.output_folder(str(jobrun.ledger))), "64k") as disk:
        if when == "before":
            fill(disk)
        script = "head -c 200000 /dev/zero | tr '\\0' x; echo hi >&2; exit 0"
        found = jobrun("run", "a", *HOURLY, "--", "sh", "-c", script, now=NOW)
        assert (found.status, found.stdout) == (0, "x" * 200_000)
        warnings = [line for line in found.lines if " WARNING " in line]
        assert len(warnings) == 1
        assert " what=output-lost " in warnings[0]
        assert "No space left on device" in warnings[0]
        assert jobrun("logs", "a").status == 0
    assert watermark(jobrun) == at("2026-09-04T12Z")
    assert jobrun.query("select outcome, output_bytes from jobrun_run") == [("succeeded", 200_003)]


def test_O10_an_output_folder_that_is_none_takes_no_job_with_it(jobrun: Jobrun) -> None:
    """jhuckaby/Cronicle#877: whatever is wrong with the place of the logs, the job runs and counts;
    without root, too."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    folder = Path(places.output_folder(str(jobrun.ledger)))
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file in its place")
    found = jobrun("run", "a", *HOURLY, "-q", "--", "echo", "hi", now=NOW)
    assert (found.status, found.stdout) == (0, "hi\n")
    (warning,) = (line for line in found.lines if " WARNING " in line)
    assert " what=output-lost " in warning
    assert watermark(jobrun) == at("2026-09-04T12Z")
    assert folder.read_text() == "a file in its place"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("full", ["stdout", "stderr", "both"])
def test_O10_where_our_own_output_goes_may_be_full(jobrun: Jobrun, full: str, code: int) -> None:
    """coreybutler/node-linux#17: `>> /var/log/x.log` on a full disk; the exit code is the
    command's, and what it did counts."""
    begin(jobrun, "a", "2026-09-04T11Z", *HOURLY)
    script = f"echo out; echo err >&2; touch ran; exit {code}"
    with open("/dev/full", "wb") as sink:
        names = ("stdout", "stderr") if full == "both" else (full,)
        streams: dict[str, Any] = dict.fromkeys(names, sink)
        found = jobrun("run", "a", *HOURLY, "--", "sh", "-c", script, now=NOW, **streams)
    assert found.status == code
    assert (jobrun.folder / "ran").exists()
    assert watermark(jobrun) == at("2026-09-04T11Z" if code else "2026-09-04T12Z")
    assert (kept(jobrun, 1, 1), kept(jobrun, 1, 2)) == (b"out\n", b"err\n")
