"""Old kept output goes, a little after each run."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from jobrun.errors import LedgerError
from jobrun.retention import retain

NOW = 1_788_500_000  # 2026-09-04


def run_files(folder: Path, month: str, *run_ids: int) -> None:
    (folder / month).mkdir(parents=True, exist_ok=True)
    for run_id in run_ids:
        for suffix in (".out", ".err"):
            (folder / month / f"{run_id}{suffix}").touch()


def runs_left(folder: Path) -> list[int]:
    return sorted({int(path.stem) for path in folder.rglob("*.out")})


def no_failure(run_id: int) -> bool:
    return False


def test_last_hundred_runs_stay(tmp_path: Path) -> None:
    """Called after each run, it removes the one that is the hundred-and-first by then."""
    for run_id in range(1, 131):
        run_files(tmp_path, "2026-09", run_id)
        retain(str(tmp_path), NOW, no_failure)
        assert runs_left(tmp_path) == list(range(max(1, run_id - 99), run_id + 1))


def test_failures_stay_for_thirty_days(tmp_path: Path) -> None:
    """A failure among many successes is still there, until its month is old enough."""
    run_files(tmp_path, "2026-07", *range(1, 11))
    run_files(tmp_path, "2026-08", *range(11, 60))
    run_files(tmp_path, "2026-09", *range(60, 160))
    for _ in range(60):
        retain(str(tmp_path), NOW, lambda run_id: run_id % 10 == 0)
    assert [run for run in runs_left(tmp_path) if run < 60] == [20, 30, 40, 50]


def test_rare_job_keeps_its_hundred_for_years(tmp_path: Path) -> None:
    """Age alone removes nothing of the last hundred runs."""
    for number in range(100):
        run_files(tmp_path, f"{2018 + number // 12}-{number % 12 + 1:02}", number)
    retain(str(tmp_path), NOW, no_failure)
    assert len(runs_left(tmp_path)) == 100


def test_emptied_months_go_and_strangers_stay(tmp_path: Path) -> None:
    """A folder that became empty is removed; a file that is not ours is not touched."""
    (tmp_path / "2020-01").mkdir()
    (tmp_path / "notes").mkdir()
    run_files(tmp_path, "2026-09", *range(1, 140))
    (tmp_path / "2026-09" / "read me").touch()
    retain(str(tmp_path), NOW, no_failure)
    assert sorted(os.listdir(tmp_path)) == ["2026-09", "notes"]
    assert (tmp_path / "2026-09" / "read me").exists()


def test_no_folder_is_no_error(tmp_path: Path) -> None:
    """A job that has never printed anything."""
    retain(str(tmp_path / "nowhere"), NOW, no_failure)


def test_ledger_that_is_busy_is_no_error(tmp_path: Path) -> None:
    """Whether a run failed can't be told now: it stays, and the next call asks again."""

    def failed(run_id: int) -> bool:
        raise LedgerError("ledger j.db: busy for 30 s", "try again")

    run_files(tmp_path, "2026-09", *range(1, 140))
    retain(str(tmp_path), NOW, failed)
    assert len(runs_left(tmp_path)) == 139


def test_job_that_always_fails_is_bounded_and_cheap(tmp_path: Path) -> None:
    """A failure every minute: at most a thousand are kept, each call within a few milliseconds."""
    run_files(tmp_path, "2026-09", *range(1, 1100))
    took = []
    for _ in range(5):
        began = time.process_time()
        retain(str(tmp_path), NOW, lambda run_id: True)
        took.append(time.process_time() - began)
    assert len(runs_left(tmp_path)) == 1000
    assert min(took) < 0.02
    shutil.rmtree(tmp_path)
