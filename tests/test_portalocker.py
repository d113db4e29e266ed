"""What is used of portalocker: its lock functions alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.conftest import PYTHON, ROOT


def modules_after(code: str, *folders: Path) -> set[str]:
    """What is loaded after some code in a fresh interpreter that looks into the folders first."""
    show = f"{code}\nimport sys\nprint(*sys.modules)"
    path = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    found = subprocess.run(
        [PYTHON, "-c", show],
        cwd=ROOT,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_only_the_lock_functions_are_loaded() -> None:
    """The package around them needs 50 ms in front of every command."""
    loaded = modules_after("from jobrun import lock_file\nlock_file.primitive()")
    slow = {"logging", "tempfile", "random", "json", "redis", "importlib.metadata", "asyncio"}
    slow |= {"typing", "pathlib", "urllib", "urllib.parse"}
    assert slow & loaded == set()
    assert {name for name in loaded if name.startswith("portalocker")} == set()


def test_the_whole_package_can_be_loaded_afterwards() -> None:
    """Nothing of the stand-in is left."""
    code = (
        "from jobrun import lock_file\nlock_file.primitive()\nimport portalocker\nportalocker.Lock"
    )
    assert "portalocker.utils" in modules_after(code)


def test_a_version_that_needs_its_types_gets_them(tmp_path: Path) -> None:
    """One to come: slower, but no call fails for what is not there."""
    package = tmp_path / "portalocker"
    package.mkdir()
    (package / "__init__.py").write_text("WHOLE = True\n")
    (package / "portalocker.py").write_text(
        "import typing\n"
        "from portalocker import WHOLE\n"
        "FLAGS = typing.get_args(typing.Literal['shared', 'exclusive'])\n"
        "assert FLAGS == ('shared', 'exclusive')\n"
    )
    code = """
from jobrun import lock_file
assert lock_file.primitive().FLAGS == ("shared", "exclusive")
import typing
assert typing.get_args(typing.Literal[1]) == (1,)
"""
    assert "portalocker.portalocker" in modules_after(code, tmp_path)


def test_a_package_that_is_loaded_already_is_used() -> None:
    """Its classes are then the ones that others catch."""
    code = """
import portalocker
from jobrun import lock_file
assert lock_file.primitive() is portalocker.portalocker
"""
    assert "portalocker.utils" in modules_after(code)
