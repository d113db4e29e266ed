"""The benchmarks run, with next to nothing to measure; no time is judged here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON, ROOT, clean_environment

SCRIPT = f"#!{PYTHON}\nfrom jobrun.__main__ import script\nscript()\n"
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="they read /proc"),
    pytest.mark.skipif(shutil.which("chronic") is None, reason="they want Debian's moreutils"),
]


def bench(folder: Path, name: str, *options: str) -> str:
    """What it prints, measuring the checkout."""
    script = folder / "jobrun"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    command = [PYTHON, str(ROOT / "tests" / "bench" / f"{name}.py"), "--quick", *options]
    found = subprocess.run(
        [*command, "--jobrun", str(script)],
        env=clean_environment(TMPDIR=str(folder)),
        capture_output=True,
        timeout=120,
    )
    assert (found.returncode, found.stderr.decode()) == (0, ""), found.stdout.decode()
    return found.stdout.decode()


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("overhead", ("jobrun: nothing to do", "imports: jobrun", "two forks", "The floor")),
        ("catchup", ("one call for 5 windows",)),
        ("output", ("jobrun run", "memory of jobrun")),
        ("scale", ("rerun", "jobrun history", "4 jobs, 1 times", "planned (--dry-run)")),
    ],
)
def test_a_benchmark_runs(tmp_path: Path, name: str, rows: tuple[str, ...]) -> None:
    """Each prints its tables, and names what was wanted."""
    printed = bench(tmp_path, name)
    assert all(row in printed for row in rows), printed


def test_every_row_of_the_battery_is_right(tmp_path: Path) -> None:
    """As Markdown; it exits 1 where something is not as wanted for jobrun."""
    printed = bench(tmp_path, "battery", "--markdown")
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 14
    assert all(row[1].startswith("yes: ") for row in rows[2:])
