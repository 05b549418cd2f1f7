"""Source files: their syntax trees, each parsed once a process, and the scripts that make pages, as modules."""

import ast
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType


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
