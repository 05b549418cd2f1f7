"""The picture of ``planner/``: which packages there are, on which levels, and that data flows one way through them.

``docs/design.md`` draws :data:`LAYERS`; ``make docs`` refreshes the drawing. One test a rule: what breaks it is listed.
"""

import ast
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.sources import syntax

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "planner").rglob("*.py"))

LAYERS = [
    ["base"],
    ["schema"],
    ["axes", "catalog", "cost", "models", "verify"],
    ["figures"],
    ["space"],
    ["calibration", "search"],
    ["question"],
    ["planning", "rebalancing"],
    ["mixed", "report", "rl", "site"],
    ["comm", "procurement", "study"],
    ["launchers"],
    ["api"],
    ["commands"],
]
"""Packages and modules at the top of ``planner``, level by level; each imports only from levels before its own."""
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}
MOST_LEVELS, MOST_UNITS = 13, 24
"""What one can still hold in mind; before a further one comes, two others become one."""
MOST_LINES = 600
"""Of a file. Most have a quarter of it; CONTRIBUTING.md says what is aimed at."""
USUAL_LINES = 300
"""At most one file in nine has more, as CONTRIBUTING.md says."""

ONLY_IN = {
    "rich": {"commands"},
    "click": {"commands"},
    "pulp": {"base"},
    "highspy": {"base"},
    "numpy": {
        "space",
        "cost",
        "figures",
        "search",
        "calibration",
        "question",
        "planning",
        "mixed",
        "rebalancing",
        "rl",
        "comm",
        "study",
        "site",
    },
}
"""Library -> the packages that may import it at all."""
NEVER_AT_THE_TOP = {"pandas", "optuna", "pulp", "highspy", "rich", "jsonschema", "torch", "mpi4py", "distributed"}
"""Libraries too slow to import before they are needed."""
LIGHT = {"base", "commands", ""}
"""Packages that ``--help`` loads; they import no library but click at module top."""
SURFACE = "planner.api"
"""Names and where each is: it loads nothing until one is asked for."""
LIGHT_LIBRARIES = {"click"}


class Import(NamedTuple):
    """One imported module, where, and whether it is loaded together with the module that names it."""

    module: str
    where: str
    at_top: bool


def name_of(path: Path) -> str:
    """``planner/cost/stage_memory.py`` is ``planner.cost.stage_memory``; a package's ``__init__.py`` is the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


KNOWN = {name_of(path): path for path in MODULES}


def unit(module: str) -> str:
    """``planner.cost.stage_memory`` is in unit ``cost``; the package itself is unit ``""``."""
    return module.partition(".")[2].partition(".")[0]


@cache
def imports(path: Path, *, for_type_checkers: bool = False) -> tuple[Import, ...]:
    """Every import of a file. Imports for type checkers cost nothing at run time and are left out unless asked for."""
    named = _imports(syntax(path), True, for_type_checkers)
    return tuple(Import(module, f"{path.relative_to(ROOT)}:{line}", top) for module, line, top in named)


def _imports(parent: ast.AST, at_top: bool, for_type_checkers: bool) -> Iterator[tuple[str, int, bool]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from planner import cost` names a module just as `import planner.cost` does.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            named = {name if name in KNOWN or node.module == "planner" else node.module or "" for name in inner}
            yield from ((name, node.lineno, at_top) for name in sorted(named))
        elif isinstance(node, ast.expr):
            continue  # holds no statement
        elif for_type_checkers or not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inside = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(node, inside, for_type_checkers)


def units_imported(path: Path) -> Iterator[tuple[str, str]]:
    """``(unit, where)`` for every import of another part of ``planner``."""
    for found in imports(path):
        if found.module.startswith("planner.") and not unit(found.module).startswith("__"):
            yield unit(found.module), found.where


def is_package_or_module(path: Path) -> bool:
    """Whether it can be imported as ``planner.NAME``; folders of data can't."""
    return path.suffix == ".py" if path.is_file() else any(path.glob("*.py"))


def test_every_unit_has_its_place() -> None:
    top = [path for path in (ROOT / "planner").iterdir() if is_package_or_module(path)]
    assert {path.stem for path in top} - {"__init__", "__main__"} == LEVEL.keys(), "LAYERS says otherwise"


def defined(path: Path) -> set[str]:
    """Functions, classes and constants at the top of a module."""
    body = syntax(path).body
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    return named | {target.id for target in targets if isinstance(target, ast.Name)}


def test_what_the_page_says_stands_where_it_says() -> None:
    """The table "Where is what": each file is there, and each name stands in one of the files beside it."""
    section = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").split("## Where is what")[1].split("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 30
    for _, question, files, names, _ in rows:
        paths = [ROOT / "planner" / name for name in re.findall(r"`(.+?)`", files)]
        wanted = re.findall(r"`(.+?)`", names)
        assert paths and wanted, question
        there = [defined(path) for path in paths]
        assert set(wanted) <= set().union(*there) and all(set(wanted) & names for names in there), question


def test_the_picture_stays_small() -> None:
    assert len(LAYERS) <= MOST_LEVELS
    assert len(LEVEL) == sum(map(len, LAYERS)) <= MOST_UNITS


def test_files_stay_readable() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in KNOWN.items()}
    assert not {module: count for module, count in lines.items() if count > MOST_LINES}
    assert sum(count > USUAL_LINES for count in lines.values()) <= len(lines) / 9


def test_data_flows_one_way() -> None:
    """Levels are strict, so that no circle of packages is left either. The front door may hand out any, lazily."""
    climbing = [
        f"{where}: {own} imports {target}, which stands no level before it"
        for module, path in KNOWN.items()
        if (own := unit(module))
        for target, where in units_imported(path)
        if target != own and not LEVEL.get(target, len(LAYERS)) < LEVEL[own]
    ]
    assert not climbing


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even with imports inside functions or for type checkers, which only hide a circle from the interpreter."""
    edges = {
        module: ({named.module for named in imports(path, for_type_checkers=True)} & KNOWN.keys()) - {module}
        for module, path in KNOWN.items()
    }
    graphlib.TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_libraries_stay_where_they_belong() -> None:
    astray = [
        f"{found.where}: {library} does not belong in {unit(module) or 'planner'}"
        for module, path in KNOWN.items()
        for found in imports(path)
        if unit(module) not in ONLY_IN.get(library := found.module.split(".")[0], {unit(module)})
    ]
    assert not astray


def test_slow_libraries_are_imported_where_they_are_used() -> None:
    found = [found for path in MODULES for found in imports(path) if found.at_top]
    assert not [f"{f.where}: {f.module}" for f in found if f.module.split(".")[0] in NEVER_AT_THE_TOP]


def loaded_by_help() -> Iterable[Path]:
    """What ``--help`` loads: the light packages, but for the commands themselves."""
    commands = ["__init__.py", "lazy.py", *(f"screen/{name}.py" for name in ("__init__", "render", "typeset"))]
    yield KNOWN[SURFACE]
    yield from (path for module, path in KNOWN.items() if unit(module) in LIGHT - {"commands"})
    yield from (ROOT / "planner" / "commands" / name for name in commands)


def is_light(module: str) -> bool:
    """Whether ``--help`` can afford it."""
    library = module.split(".")[0]
    if library == "planner":
        return unit(module).startswith("__") or unit(module) in LIGHT or module == SURFACE
    return library in sys.stdlib_module_names or library in LIGHT_LIBRARIES


def test_help_stays_light() -> None:
    heavy = [
        found for path in loaded_by_help() for found in imports(path) if found.at_top and not is_light(found.module)
    ]
    assert not heavy


def test_one_module_knows_the_solver() -> None:
    """Tests, too, ask it in the project's words: PuLP's own differ between its releases."""
    files = [path for folder in ("planner", "tests", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    files = [path for path in files if re.search("pulp|highspy", path.read_text(encoding="utf-8"))]
    knowing = {path for path in files for found in imports(path) if found.module.split(".")[0] in ("pulp", "highspy")}
    assert knowing == {ROOT / "planner" / "base" / "solver.py"}


def test_verify_shares_no_code_with_the_search() -> None:
    files = [path for module, path in KNOWN.items() if unit(module) == "verify"]
    assert files
    assert {target for path in files for target, _ in units_imported(path)} <= {"verify", "schema", "base"}


def test_the_data_folders_hold_data_only() -> None:
    for folder in ("hardware_catalog", "models"):
        assert not list((ROOT / folder).rglob("*.py"))


def test_the_core_asks_every_unit() -> None:
    """``make check`` runs one file of tests a package, each of which names what it asks."""
    files = [ROOT / line for line in (ROOT / "tests" / "core.txt").read_text(encoding="utf-8").split()]
    asked = {target for path in files for target, _ in units_imported(path)}
    assert LEVEL.keys() <= asked
