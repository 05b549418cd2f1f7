"""A sample of mutants: what share of small wrong changes do the core tests of a package notice?

``python benchmarks/mutants_sample.py planner/cost -n 20 --seed 0 -o before.json`` copies the checkout, makes one change
at a time in the copy, and runs the package's tests until one fails: first those of ``make test``, then all.
``--again before.json`` tries the mutants of an earlier run in today's code, by the function and the text of the
expression that was changed, and fails where one that died lives. (For an older commit, copy this file into a checkout
of it.) `make mutants` tries all, in hours. ``benchmarks/data/mutants.json`` holds what became of the last sample.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CORE: dict[str, tuple[str, ...]] = {
    "planner/cost": (
        "golden",
        "memory",
        "by_layer",
        "oracle",
        "cost_properties",
        "comm_show",
        "elements",
        "compressed",
    ),
    "planner/space": ("space", "context", "offload", "dispatchers", "schedules", "search"),
    "planner/search": ("search", "best_per_size", "risk", "expanded_memory", "design_evaluation"),
    "planner/verify": ("verify", "procure_verify", "comm_verified", "offload", "mixed", "towers", "schedules"),
    "planner/procurement/program": (
        *("procure_exact", "procure_bounds", "procure_pruning", "procure_calendar", "procure_shadow", "procure_pauses"),
        *("procure_months", "procure_spot", "procure_survive", "procure_sold"),
    ),
}
"""Package -> names of the files of tests that ask it most directly."""

COPIED = ("planner", "clusterwright", "tests", "hardware_catalog", "models", "examples", "benchmarks", "docs")
FILES = ("pyproject.toml", "cli.py", "README.md", "Makefile")

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change: of the `index`-th expression with this text in a function."""

    file: str
    function: str
    text: str
    index: int
    becomes: str


def changed(node: ast.AST) -> ast.AST | None:
    """A small wrong variant of an expression, or None where there is none."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        return type(node)(**vars(node) | {"op": SWAPPED[type(node.op)]()})
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        return ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else name
    if isinstance(node, ast.Call) and name in CALLS:
        callee = ast.parse(ast.unparse(node.func).removesuffix(name) + CALLS[name], mode="eval").body
        return ast.Call(callee, node.args, node.keywords)
    return None


def sites(path: Path) -> Iterator[tuple[Mutant, ast.expr]]:
    """All mutants of a file, each with the expression that it replaces."""
    seen: dict[tuple[str, str], int] = {}
    name = path.relative_to(ROOT).as_posix()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            wrong = changed(node)
            if wrong is None or not isinstance(node, ast.expr):
                continue
            text = ast.unparse(node)
            index = seen[function.name, text] = seen.get((function.name, text), -1) + 1
            yield Mutant(name, function.name, text, index, ast.unparse(wrong)), node


def applied(source: str, node: ast.expr, becomes: str) -> str:
    """The source with an expression replaced; in brackets, so that nothing around it binds tighter."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    whole = source.encode()
    return (whole[:start] + f"({becomes})".encode() + whole[end:]).decode()


def verdict(copy: Path, package: str, mutant: Mutant, node: ast.expr, limit_s: float) -> dict[str, str]:
    """What became of a mutant: ``died``, ``lives`` or ``late``, and which test of which run noticed; the copy is as
    before.
    """
    path = copy / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(applied(source, node, mutant.becomes), encoding="utf-8")
    files = [f"tests/test_{name}.py" for name in CORE[package] if (copy / f"tests/test_{name}.py").exists()]
    line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    around = os.environ | {"PYTHONPATH": str(copy)}
    around.pop("PYTHONDONTWRITEBYTECODE", None)  # Compiling all anew takes longer than many of the tests.
    try:
        for run, marks in (("make test", ["-m", "not slow"]), ("make test-all", [])):
            done = subprocess.run(
                [*line, *marks], cwd=copy, env=around, capture_output=True, text=True, timeout=limit_s, check=False
            )
            if done.returncode:
                noticed = [text for text in done.stdout.splitlines() if text.startswith(("FAILED ", "ERROR "))]
                return {
                    "verdict": "died",
                    "run": run,
                    "test": noticed[0].split(" ")[1] if noticed else done.stdout[-200:],
                }
        return {"verdict": "lives", "run": "", "test": ""}
    except subprocess.TimeoutExpired:
        return {"verdict": "late", "run": "", "test": ""}
    finally:
        path.write_text(source, encoding="utf-8")


def chosen(
    package: str, count: int, seed: int, functions: list[str], again: list[Mutant]
) -> list[tuple[Mutant, ast.expr]]:
    """The mutants to try: a sample with a seed, or those of an earlier run that are still there."""
    found = [site for path in sorted((ROOT / package).glob("*.py")) for site in sites(path)]
    if again:
        found = [(mutant, node) for mutant, node in found if mutant in again]
        print(f"{len(again) - len(found)} of {len(again)} mutants of the earlier run are no longer there")
        return found
    found = [site for site in found if not functions or site[0].function in functions]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> int:
    """Try the mutants, print a line for each, write what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=CORE)
    parser.add_argument("-n", type=int, default=20, help="mutants to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--function", action="append", default=[], help="only mutants of functions of this name")
    parser.add_argument("--again", type=Path, help="the mutants of an earlier run, in place of a sample")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds until a run of the tests counts as late")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    earlier = json.loads(given.again.read_text(encoding="utf-8")) if given.again else []
    before = {Mutant(**each["mutant"]): each["verdict"] for each in earlier}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        for mutant, node in chosen(given.package, given.n, given.seed, given.function, list(before)):
            result = verdict(copy, given.package, mutant, node, given.limit)
            results.append({"mutant": asdict(mutant)} | result)
            change = f"{mutant.file}:{mutant.function}: {mutant.text} -> {mutant.becomes}"
            print(f"{result['verdict']:6} {change}  {result['run']} {result['test']}", flush=True)
    if given.output:
        given.output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    dead = sum(each["verdict"] != "lives" for each in results)
    print(f"{dead} of {len(results)} mutants of {given.package} are noticed")
    revived = [
        each for each in results if each["verdict"] == "lives" and before.get(Mutant(**each["mutant"])) == "died"
    ]
    print(*(f"died before, lives now: {each['mutant']}" for each in revived), sep="\n")
    return 1 if revived else 0


if __name__ == "__main__":
    sys.exit(main())
