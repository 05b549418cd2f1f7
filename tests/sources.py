"""Syntax trees of source files, each parsed once a process: what tests of layers, style, words and pages look at."""

import ast
from functools import cache
from pathlib import Path


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
