"""What the folder listing promises: who may import whom, and that the tree is what it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "jobrun"

# The groups from the ground up: which modules, and which groups below they may know. Within a group
# a module imports those that stand before it. A new module wants a place here; a new word in the
# last column wants a reason.
GROUPS = (
    ("words", "errors instants value rows streams weigh boottime address", ""),
    ("time", "walls expression windows schedule", "words"),
    (
        "options",
        "options manual condition links placeholders job overrides lastcall",
        "words time",
    ),
    (
        "planning",
        "plans stock upstream backlog inputs consent changes unclosed asked asked_again fate policy"
        " breaker",
        "words time options",
    ),
    ("places", "places", "words"),
    ("lines", "lines", "words"),
    # Four that are there to be replaced, each by another of its kind: they don't know each other.
    (
        "ledger",
        "ledger gaps database ledger_skip ledger_values ledger_reads ledger_windows ledger_runs"
        " ledger_end ledger_hosts"
        " ledger_pause ledger_care exported ledger_export ledger_import ledger_sql sqlite_errors"
        " sqlite_database sqlite_schema"
        " sqlite_file ledger_sqlite postgres_errors postgres_address postgres_database"
        " postgres_schema ledger_postgres ledgers mark_postgres mark",
        "words places",
    ),
    (
        "lock",
        "lock lock_file postgres_keeper lock_postgres lock_lease redis_address redis_wire"
        " lock_redis",
        "words places",
    ),
    (
        "process",
        "wire ended ladder stopping signals workers terminal tree_group tree_proc tree hold"
        " guardian poller pump keeping vigil process_posix command_line job_object"
        " process_windows process",
        "words",
    ),
    ("output", "kept retention output printed values_file outbox", "words places"),
    ("idle", "idle", "words ledger"),
    ("tables", "screen tables progress", "words"),
    (
        "call",
        "call machines locks episodes skips key_file command report handed_in replay attempt"
        " attempts living outwait turn by_hand setting overlap parallel foreseen unrecorded outage"
        " run lead halt",
        "words time options planning places lines ledger lock process output idle tables",
    ),
    (
        "screens",
        "screens.outbox standing strip picture story network screens screens.guide"
        " screens.runs screens.skips screens.events screens.status screens.failures screens.history"
        " screens.windows screens.show screens.origin screens.explain screens.logs screens.plan"
        " screens.graph screens.hosts checks screens.doctor",
        "words time options planning places ledger lock output tables",
    ),
    (
        "cli",
        "cli.look cli.target cli.acts cli.guide cli.status cli.history cli.windows cli.logs"
        " cli.show cli.explain cli.failures cli.resolve cli.skips cli.events cli.plan cli.graph"
        " cli.hosts cli.doctor cli.flush cli.skip cli.watermark cli.forget cli.pauses cli.pause"
        " cli.resume"
        " cli.stop cli.set_option cli.unset_option cli.transfer cli.export cli.import_file cli",
        "words time options planning places lines ledger lock process output tables call screens",
    ),
    ("main", "__main__", "words options places lines process idle call cli"),
)
GROUP = {module: group for group, modules, _ in GROUPS for module in modules.split()}
KNOWS = {group: set(known.split()) for group, _, known in GROUPS}
ORDER = list(GROUP)

# Read at every call, also where there is nothing to do: they import what a bare interpreter has,
# and SQLite, which it takes to know that.
IDLE_WAY = (
    "__main__", "options", "job", "places", "instants", "errors", "schedule", "idle", "lines",
    "placeholders", "streams", "database", "sqlite_file", "sqlite_database",
    "ledger_skip",
)  # fmt: skip
BARE = {"__future__", "os", "sys", "time", "sqlite3"}

TOP_LEVEL = {"pyproject.toml", "jobrun", "tests", "examples", "README.md", "LICENSE"}
MADE_BY_TOOLS = {"build", "dist"}

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def name_of(path: Path) -> str:
    """`cli.plan` of jobrun/cli/plan.py, `cli` of jobrun/cli/__init__.py."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    name_of(path): ast.parse(path.read_text(encoding="utf-8"), str(path))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere in the tree, by its full name.

    Not what only the type checker reads: at run time that import does not exist.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("jobrun.") in MODULES else str(node.module)
        elif not is_for_the_type_checker(node):
            yield from imported(node)


def is_for_the_type_checker(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported_from_jobrun(name: str) -> set[str]:
    """Without the package itself, which holds no more than its version and `done`."""
    found = {module for module in imported(MODULES[name]) if module.startswith("jobrun.")}
    return {module.removeprefix("jobrun.") for module in found}


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Imports that happen as soon as the module is loaded: those outside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imported(ast.Module([node], []))
        elif not isinstance(node, FUNCTION) and not is_for_the_type_checker(node):
            yield from imported_at_once(node)


def test_every_module_has_its_place() -> None:
    """The table names each module of the package once, and no other."""
    placed = [module for _, modules, _ in GROUPS for module in modules.split()]
    assert sorted(MODULES.keys() - {"__init__"}) == sorted(placed)


def test_groups_know_only_what_is_below_them() -> None:
    """The table itself points downwards, and the four mechanisms stand beside each other."""
    below: set[str] = set()
    for group, _, known in GROUPS:
        assert set(known.split()) <= below, group
        below.add(group)
    mechanisms = {"ledger", "lock", "process", "output"}
    for mechanism in mechanisms:
        assert KNOWS[mechanism] & mechanisms == set()


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_imports_point_downwards(name: str) -> None:
    """A module imports what its group may know and what stands before it; lazy imports too."""
    wrong = {
        other
        for other in imported_from_jobrun(name)
        if GROUP[other] not in KNOWS[GROUP[name]]
        and not (GROUP[other] == GROUP[name] and ORDER.index(other) < ORDER.index(name))
    }
    assert wrong == set()


@pytest.mark.parametrize("name", IDLE_WAY)
def test_idle_modules_load_nothing_that_a_bare_interpreter_has_not(name: str) -> None:
    """Their imports at module level are each other and what Python has loaded anyhow."""
    loaded = set(imported_at_once(MODULES[name]))
    foreign = {module for module in loaded if not module.startswith("jobrun")}
    ours = {module.removeprefix("jobrun.") for module in loaded - foreign} - {"jobrun"}
    assert foreign <= BARE
    assert ours <= set(IDLE_WAY)


def test_the_top_level_is_what_it_says() -> None:
    """Package, tests, examples, README, licence, pyproject.toml, and hidden files: no more."""
    seen = {path.name for path in ROOT.iterdir() if not path.name.startswith((".", "__"))}
    assert {name for name in seen if not name.endswith(".egg-info")} - MADE_BY_TOOLS == TOP_LEVEL


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the project, but this one."""
    tops = [ROOT / top for top in (*TOP_LEVEL, ".ci", ".github", ".pre-commit-config.yaml")]
    files = [file for top in tops for file in ([top] if top.is_file() else top.rglob("*"))]
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts and file != Path(__file__):
            try:
                yield file.relative_to(ROOT), file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # the task file, which is UTF-16


FORBIDDEN = re.compile(
    r"\b(TODO|FIXME|XXX)\b"  # left open
    r"|/work/|/\.pyenv/"  # a path of somebody's machine
    r"|\bpypi\.org|pythonhosted|registry\."  # where packages come from is the user's choice
)


def test_nothing_is_left_open_and_no_machine_is_named() -> None:
    """No reminders to come back, no paths of a developer's machine, no hosts of a registry."""
    found = {
        f"{file}: {match[0]}"
        for file, text in texts()
        for match in [FORBIDDEN.search(text)]
        if match
    }
    assert found == set()


def test_each_test_says_what_must_hold() -> None:
    """A test's docstring is one sentence; a test waits for a sign, it never sleeps."""
    silent, sleeping = set(), set()
    for file in (ROOT / "tests").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                silent |= set() if ast.get_docstring(node) else {f"{file.name}: {node.name}"}
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
                sleeping.add(f"{file.name}:{node.lineno}")
    assert silent == set()
    assert sleeping == set()
