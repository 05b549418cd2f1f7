"""Source files: their syntax trees, each parsed once a process; scripts that make pages, as modules; and some runs."""

import ast
import csv
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

from planner.calibration.runs import reading
from planner.calibration.runs.measured_run import Run
from planner.catalog import Catalog


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def page_script(name: str) -> ModuleType:
    """A script of ``docs/``, imported."""
    path = Path(__file__).resolve().parent.parent / "docs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"docs_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runs_of(path: Path, known: Catalog, chosen: Callable[[dict[str, str]], bool]) -> list[Run]:
    """The runs of those rows of a CSV file that are chosen: to read all of the shipped ones takes four seconds."""
    with path.open(encoding="utf-8", newline="") as file:
        return [reading.run_of(row, known) for row in csv.DictReader(file, restval="") if chosen(row)]
