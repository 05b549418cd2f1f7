"""How sure a prediction is: 80 % intervals from cross-validated residuals of comparable runs (split conformal).

Comparable runs share the accelerator's generation and the kind of model (dense, mixture). Where too few were
measured, the next wider set stands in, and the interval widens: on a generation that nothing was measured on, to what
predictions of whole generations miss when a fit has seen none of their runs. The half-width of a set of n residuals
``r = |log(predicted / measured)|`` is its ``ceil(0.8 (n + 1)) / n`` quantile; residuals come from
fits that left the run's source out.

Fits see no run of fine-tuning, and none of sequences beyond `LONGEST`: those are no surer than fine-tuning runs were
predicted, or half as wide again.

Peak memory has sets of its own: runs are comparable that share the runtime, whatever the accelerator and the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost.figures import Array

LEVEL = 0.8
FEWEST = 8
"""Residuals that make a set of its own."""
UNKNOWN = 1.5
"""Factor on a wider set's half-width where nothing under the same runtime, or nothing comparable, was measured."""
LONGEST = 262_144
"""Tokens of the longest sequence among the runs fitted."""
PRETRAINING = ("pretrain", "mlperf-pretrain")
"""Tasks of runs, and methods, that fits see runs of."""
TRANSFORMERS = ("dense", "moe")
"""Kinds of model whose runs show what a generation's kernels reach."""


@dataclass(frozen=True, slots=True)
class Width:
    """Half-width of a set, on a log scale, and how many residuals it rests on."""

    half: float
    runs: int


def width(residuals: Array) -> Width:
    """The conformal quantile of some absolute log residuals."""
    n = len(residuals)
    rank = min(math.ceil(LEVEL * (n + 1)), n)
    return Width(float(np.sort(residuals)[rank - 1]), n)


def keys(generation: str, kind: str, runtime: str) -> tuple[str, ...]:
    """Sets that a prediction belongs to, the narrowest first."""
    return (f"{generation}/{kind}/{runtime}", f"{generation}/{kind}", kind, "all")


def widths(residuals: Array, described: Sequence[tuple[str, str, str]], sources: Sequence[str]) -> dict[str, Width]:
    """Every set's width; `described` gives (generation, kind, runtime) of each residual.

    One source's machines and habits are alike: a set that only one measured is no narrower than the two next wider.
    """
    sets: dict[str, list[float]] = {}
    by: dict[str, set[str]] = {}
    wider: dict[str, tuple[str, ...]] = {}
    for residual, what, source in zip(np.abs(residuals), described, sources, strict=True):
        names = keys(*what)
        for place, key in enumerate(names):
            sets.setdefault(key, []).append(float(residual))
            by.setdefault(key, set()).add(source)
            wider[key] = names[place + 1 :]
    narrow = {key: width(np.array(wide)) for key, wide in sets.items() if len(wide) >= FEWEST or key == "all"}
    width_by_key = {}
    for key, half in narrow.items():
        least = [narrow[name].half for name in wider[key] if name in narrow][:2] if len(by[key]) < 2 else []
        width_by_key[key] = Width(max([half.half, *least]), half.runs)
    return width_by_key


def found(known: Mapping[str, Width], generation: str, kind: str, runtime: str) -> tuple[float, str]:
    """Half-width for a prediction, and the set that it comes from; wider where nothing comparable was measured."""
    narrowest, *wider = keys(generation, kind, runtime)
    if narrowest in known:
        return known[narrowest].half, narrowest
    for name in wider:
        if name in known:
            return known[name].half * UNKNOWN, name
    return 0.5, "nothing"


def measured(known: Mapping[str, Width], generation: str) -> bool:
    """Whether whole training steps of transformers were measured on a generation."""
    return any(key.startswith(f"transformers/measured/{generation}/") for key in known)


def memory_widths(residuals: Array, runtimes: Sequence[str], labs: Sequence[str]) -> dict[str, Width]:
    """As :func:`widths`, of peak memory: by runtime, and all together, where every lab counts alike.

    One lab's machines and habits are alike: a runtime that only one measured is no surer than all are.
    """
    if not len(residuals):
        return {}
    size = np.abs(residuals)
    names = np.array(labs)
    weight = np.array([1.0 / np.sum(names == name) for name in labs])
    everything = Width(quantile(size, weight, LEVEL), len(size))
    by_runtime = {"all": everything}
    for runtime in sorted(set(runtimes)):
        is_runtime = np.array([name == runtime for name in runtimes])
        if is_runtime.sum() >= FEWEST:
            half = quantile(size[is_runtime], weight[is_runtime], LEVEL)
            alone = len(set(names[is_runtime])) < 2
            by_runtime[runtime] = Width(max(half, everything.half) if alone else half, int(is_runtime.sum()))
    return by_runtime


def quantile(values: Array, weight: Array, level: float) -> float:
    """The value that a share `level` of the weight does not exceed."""
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / np.sum(weight)
    return float(values[order][min(int(np.searchsorted(share, level)), len(values) - 1)])


def found_memory(known: Mapping[str, Width], runtime: str) -> tuple[float, str]:
    """As :func:`found`, of peak memory: wider where no run under the runtime was measured."""
    if runtime in known:
        return known[runtime].half, runtime
    return (known["all"].half * UNKNOWN, "all") if "all" in known else (0.5, "nothing")


FOLDER = "intervals"
TIME, MEMORY = "time", "memory"
"""What intervals are of. The names of files of memory begin so; all others are of step times."""
COLUMNS = ("set", "half_width", "runs", "source")


def read(catalog: Catalog, what: str = TIME) -> dict[str, Width]:
    """The widths of every catalog layer, later ones over earlier ones; of step times or of peak memory.

    Raises:
        WrongQuestion: a file whose rows are not such widths.
    """
    known: dict[str, Width] = {}
    for layer in catalog.layers:
        for path in sorted((layer.folder / FOLDER).glob("*.csv")):
            if path.name.startswith(MEMORY) != (what == MEMORY):
                continue
            for number, row in enumerate(csv_rows.table(path, "a file of widths"), 2):
                try:
                    half = float(row["half_width"])
                    runs = int(row["runs"])
                except (KeyError, TypeError, ValueError):
                    raise WrongQuestion(f"{path}:{number}: expected columns {', '.join(COLUMNS)}") from None
                if not 0 <= half < math.inf:
                    raise WrongQuestion(f"{path}:{number}: half_width must be finite and at least 0")
                known[row["set"]] = Width(half, runs)
    return known


def memory_width(catalog: Catalog, runtime: str) -> tuple[float, str]:
    """Half-width of peak memory under a runtime by a catalog, and the set that it comes from."""
    return found_memory(read(catalog, MEMORY), runtime)


def write(folder: Path, known: Mapping[str, Width], source: str, name: str = "time.csv") -> Path:
    """Writes widths below a catalog folder."""
    rows = ([key, f"{measured.half:.4f}", measured.runs, source] for key, measured in sorted(known.items()))
    return csv_rows.write(folder / FOLDER / name, COLUMNS, rows)
