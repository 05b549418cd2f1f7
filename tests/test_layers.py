"""Data flows one way: no module imports from a later room, and heavy libraries are imported only where needed."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "planner").rglob("*.py"))

LAYERS = [
    ["errors", "units", "typeset", "solver"],
    ["schema"],
    ["resources"],
    ["config_reader", "derived", "architectures", "huggingface", "model_files", "model_rules", "parameters"],
    ["families"],
    ["catalog", "workload"],
    ["tables"],
    ["cost"],
    ["binding", "efficiency", "profiles"],
    ["space"],
    ["search", "accuracy"],
    ["question"],
    ["document"],
    ["comparison", "explain", "verify"],
    ["by_layer"],
    ["planning"],
    ["mixed"],
    ["runtime"],
    ["batches"],
    ["comm"],
    ["pooled"],
    ["api"],
    ["procure"],
    ["design"],
    ["export"],
    ["render"],
    ["commands"],
]
"""Rooms of ``planner`` from the first to the last; a room may import its own layer and those above it."""
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

ONLY_IN = {
    "rich": {"render"},
    "click": {"commands"},
    "pulp": {"solver"},
    "highspy": {"solver"},
    "numpy": {"space", "cost", "search", "accuracy", "question", "document", "mixed", "comm", "runtime", "design"},
}
"""Library -> the rooms that may import it at all."""
NEVER_AT_THE_TOP = {"pandas", "optuna", "pulp", "highspy", "rich", "jsonschema", "torch", "mpi4py"}
"""Libraries too slow to import before they are needed."""
LIGHT = {"errors", "units", "typeset", "render", "commands", ""}
"""Rooms that ``--help`` loads; they import no library but click at module top."""
LIGHT_LIBRARIES = {"click"}


def room(path: Path) -> str:
    """``planner/cost/memory.py`` is in room ``cost``; the package itself is room ``""``."""
    parts = path.relative_to(ROOT / "planner").with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """``(module, line, at module top)`` for every import in a file; those for type checkers cost nothing."""
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")), at_top=True)


def _imports(parent: ast.AST, *, at_top: bool) -> Iterator[tuple[str, int, bool]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from planner import cost` names a room just as `import planner.cost` does.
            for alias in node.names:
                yield (f"planner.{alias.name}" if node.module == "planner" else node.module or "", node.lineno, at_top)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inside = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(node, at_top=inside)


def _rooms_imported(path: Path) -> Iterator[tuple[str, int]]:
    for module, line, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "planner" and len(parts) > 1 and not parts[1].startswith("__"):
            yield parts[1], line


def test_every_module_has_a_room() -> None:
    unknown = {room(path) for path in MODULES} - RANK.keys() - {""}
    assert not unknown, f"give {unknown} a place in LAYERS and in docs/design.md"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_data_flows_one_way(path: Path) -> None:
    if not room(path):
        return  # the package's front door may hand out any room, lazily
    for target, line in _rooms_imported(path):
        assert target in RANK, f"{path.name}:{line}: planner.{target} has no place in LAYERS"
        assert RANK[target] <= RANK[room(path)], f"{path.name}:{line}: {room(path)} imports {target}, a later room"
        if target == "render":
            assert room(path) in ("render", "commands"), f"{path.name}:{line}: only commands print"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_libraries_stay_where_they_belong(path: Path) -> None:
    for module, line, at_top in imports(path):
        library = module.split(".")[0]
        where = f"{path.relative_to(ROOT)}:{line}"
        assert room(path) in ONLY_IN.get(library, {room(path)}), f"{where}: {library} does not belong in {room(path)}"
        assert not (at_top and library in NEVER_AT_THE_TOP), f"{where}: import {library} where it is used"


def _loaded_by_help() -> list[Path]:
    """What ``--help`` loads: the light rooms, but for the commands themselves."""
    shell = [ROOT / "planner" / "commands" / name for name in ("__init__.py", "lazy.py")]
    return [path for path in MODULES if room(path) in LIGHT - {"commands"}] + shell


@pytest.mark.parametrize("path", _loaded_by_help(), ids=lambda path: str(path.relative_to(ROOT)))
def test_help_stays_light(path: Path) -> None:
    import sys

    for module, line, at_top in imports(path):
        library = module.split(".")[0]
        known = library in sys.stdlib_module_names or library in LIGHT_LIBRARIES
        where = f"{path.relative_to(ROOT)}:{line}"
        if library == "planner":
            inner = module.split(".")[1] if "." in module else ""
            assert not at_top or inner.startswith("__") or inner in LIGHT, f"{where}: {module} is not light"
        else:
            assert not at_top or known, f"{where}: {library} is not light"


def test_one_module_knows_the_solver() -> None:
    """Tests, too, ask it in the project's words: PuLP's own differ between its releases."""
    files = [path for folder in ("planner", "tests", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert {path for path in files for module, *_ in imports(path) if module.split(".")[0] in ("pulp", "highspy")} == {
        ROOT / "planner" / "solver.py"
    }


def test_verify_shares_no_code_with_the_search() -> None:
    files = sorted((ROOT / "planner" / "verify").glob("*.py"))
    assert files
    shared = {target for path in files for target, _ in _rooms_imported(path)}
    assert shared <= {"verify", "schema", "errors", "units"}


def test_the_data_folders_hold_data_only() -> None:
    for folder in ("hardware_catalog", "models"):
        assert not list((ROOT / folder).rglob("*.py"))
