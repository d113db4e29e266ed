"""What is used of portalocker: its lock functions alone."""

from __future__ import annotations

import subprocess

from tests.conftest import PYTHON, ROOT


def modules_after(code: str) -> set[str]:
    """What is loaded after some code in a fresh interpreter."""
    show = f"{code}\nimport sys\nprint(*sys.modules)"
    found = subprocess.run(
        [PYTHON, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def test_only_the_lock_functions_are_loaded() -> None:
    """The package around them needs 50 ms in front of every command."""
    loaded = modules_after("from jobrun import lock_file\nlock_file.primitive()")
    slow = {"logging", "tempfile", "random", "json", "redis", "importlib.metadata", "asyncio"}
    slow |= {"pathlib", "urllib", "urllib.parse"}
    assert slow & loaded == set()
    assert {name for name in loaded if name.startswith("portalocker")} == set()


def test_the_whole_package_can_be_loaded_afterwards() -> None:
    """Nothing of the stand-in is left."""
    code = (
        "from jobrun import lock_file\nlock_file.primitive()\nimport portalocker\nportalocker.Lock"
    )
    assert "portalocker.utils" in modules_after(code)


def test_a_package_that_is_loaded_already_is_used() -> None:
    """Its classes are then the ones that others catch."""
    code = """
import portalocker
from jobrun import lock_file
assert lock_file.primitive() is portalocker.portalocker
"""
    assert "portalocker.utils" in modules_after(code)
