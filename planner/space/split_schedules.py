"""Which layouts go with pipeline schedules that compute weight gradients apart (:mod:`planner.cost.split_schedules`).

Zero-bubble, ZB-V and DualPipeV ask for so many chunks on a rank, enough micro-batches to fill the pipeline, stages of
equally many layers, and products whose two gradients can be computed one without the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from planner.axes.values import FOLDED, SPLIT_SCHEDULES
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import pipeline
from planner.cost.figures import Layout
from planner.figures import cost_inputs
from planner.schema.hardware import Runtime
from planner.schema.workload import Workload
from planner.space.pins import Bound, Pins
from planner.space.rules import Columns

WIDE = ("bf16", "fp16", "fp32")
"""Precisions whose products compute one gradient without the other: those in 8 bit are one function with both
(pytorch/ao, float8/float8_linear.py, matmul_with_hp_or_float8_args)."""


def offered(workload: Workload, runtime: Runtime, pins: Pins) -> list[str]:
    """Those that the runtime has and the pins allow, where all weights are trained, on texts.

    Nothing may be recomputed: it would be kept until W, and torch computes it again for that (pytorch issue 136766).
    """
    whole = workload.method.kind in ("pretrain", "finetune") and workload.task == "sft"
    able = whole and pins.allow("recompute", "none")
    return [name for name in SPLIT_SCHEDULES if able and name in runtime.schedules and pins.allow("schedule", name)]


def refuse_missing(known: Catalog, runtime: Runtime, pins: Pins) -> None:
    """Refuses pinned ones where the runtime has none of them.

    Raises:
        WrongQuestion: which runtimes have them, or since when this one has.
    """
    pinned = set(pins.bounds["schedule"].values) if "schedule" in pins else set()
    if not pinned or pinned - set(SPLIT_SCHEDULES) or pinned & set(runtime.schedules):
        return
    whole, names = known.runtime(runtime.id), "|".join(sorted(pinned))
    if late := [whole.schedules[name] for name in pinned if name in whole.schedules]:
        raise WrongQuestion(
            f"schedule={names}: {runtime.id} has it since {max(late)}; ask for a newer release (--runtime)"
        )
    able = [each.id for each in known.runtimes.values() if pinned & set(each.schedules)]
    raise WrongQuestion(f"schedule={names}: {runtime.id} has no such schedule; these have it: {', '.join(able)}")


def neutral(bounds: Mapping[str, Bound], waits: bool) -> dict[str, str]:
    """What a configuration that states no more has: the plain schedule of its stages and chunks, or as many chunks as a
    pinned one needs, and no overlap with data-parallel communication where that can wait.
    """
    one_stage, one_chunk = (bounds.get(axis, Bound(("1",))).values == ("1",) for axis in ("pp", "vpp"))
    found = {"schedule": "none" if one_stage else "1f1b" if one_chunk else "interleaved-1f1b"}
    named = bounds["schedule"].values if "schedule" in bounds else ()
    if any(name in SPLIT_SCHEDULES for name in named):
        found |= {"vpp": "1" if named == ("zero-bubble",) else "2", "dp_overlap": "off" if waits else "on"}
    return found


def fits(name: str, rows: Columns, workload: Workload, runtime: Runtime) -> NDArray[np.bool_]:
    """Layouts that one goes with."""
    return np.asarray(filled(name, rows) & even(name, rows, workload, runtime))


def filled(name: str, rows: Columns) -> NDArray[np.bool_]:
    """Layouts that one goes with: so many chunks, and micro-batches that fill its pipeline: one a stage, in a V one for
    each of a rank's two; in rounds of pp where chunks follow each other.
    """
    pp, vpp, steps = rows["pp"], rows["vpp"], rows["batch"] // (rows["dp"] * rows["micro"])
    if name in FOLDED:
        return np.asarray((pp > 1) & (vpp == 2) & (steps >= 2 * pp))
    if name == "zero-bubble":
        return np.asarray((pp > 1) & (vpp == 1) & (steps >= pp))
    return np.asarray((pp > 1) & (vpp > 1) & (steps % pp == 0))


def even(name: str, rows: Columns, workload: Workload, runtime: Runtime) -> NDArray[np.bool_]:
    """Layouts whose stages between first and last hold equally many layers, leading dense ones in the first chunk; none
    where layers are of several kinds. In a V, whose first and last chunk are of one rank, just these may be a layer
    short.
    """
    uncut = dict.fromkeys(("tp", "cp", "ep", "etp", "dp"), 1.0)
    cut = {axis: rows[axis].astype(float) for axis in ("pp", "vpp", "micro", "batch")}
    layout = Layout(**uncut, **cut, looped=float(name not in FOLDED))
    shape = cost_inputs.shape(workload, runtime)
    if shape.pattern is not None:
        return np.zeros(rows["pp"].shape, dtype=bool)
    dealt = pipeline.split(shape, layout)
    between = np.maximum(layout.pp - 2.0, 0.0) * dealt.middle
    whole = dealt.first + between + dealt.last == shape.layers
    short = (name not in FOLDED) | (-workload.layers % (2 * rows["pp"]) <= 2)
    return np.asarray(whole & short & (shape.leading_dense <= np.floor(dealt.first / layout.vpp)))
