"""Makes ``case-studies.md`` and its figures: clusters designed around Transformer-1T and a recommender (COMET's cases).

Run by ``make case-studies``. Every figure and every number of the page is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from docs import accuracy_plots, case_study_plots
from docs import case_study_networks as networks
from docs import case_study_recommender as recommender
from docs.case_study_compared import compared
from docs.case_study_ground import (
    ACCELERATORS,
    ANY_ZERO,
    BATCH,
    CATALOG,
    DEGREES,
    FACTORS,
    GB,
    INTER,
    INTRA,
    POD,
    RATES,
    SIZES,
    WAIVED,
    ZERO_2,
    best,
    pods,
    table,
    told,
)
from planner.cost import pipeline, stage_memory
from planner.models.workload import workload
from planner.question.request import Request
from planner.question.search_problem import prepare
from planner.schema.hardware import Cluster
from planner.search.problem import Candidate
from planner.space.cost_grid import single_grid
from planner.space.pins import parse_pins

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "case-studies.md"
FOLDER = ROOT / "docs" / accuracy_plots.FOLDER


# ---- Transformer-1T --------------------------------------------------------------------------------------------------


def sweep() -> tuple[str, dict[str, Any]]:
    """Model- against data-parallel ranks."""
    rows, series = [], {"degrees": DEGREES, "free": [], "fits": [], "any": []}
    for mp in DEGREES:
        free = best(pods(), f"tp={mp} {ZERO_2}", unlimited=True)
        fits, some = best(pods(), f"tp={mp} {ZERO_2}"), best(pods(), f"tp={mp} {ANY_ZERO}")
        assert free is not None
        for name, found in (("free", free), ("fits", fits), ("any", some)):
            series[name].append(found.time if found else math.nan)
        rows.append(
            [
                f"{mp}, {ACCELERATORS // mp}",
                *(f"{states(mp, zero):.1f}" for zero in range(4)),
                f"{free.time:.1f} s",
                *(f"{x.time:.1f} s" if x else "-" for x in (fits, some)),
            ]
        )
    headers = ["MP, DP", *(f"Z{z}, GB" for z in range(4)), "memory free", "80 GB, ZeRO 2", "80 GB, any ZeRO"]
    return table(headers, rows), series


@cache
def states(mp: int, zero: int) -> float:
    """GB of model states on a device, by the memory model, for 1e12 parameters in one matrix."""
    ready = prepare(
        CATALOG,
        Request(
            workload=replace(workload("megatron-1t"), batch=BATCH),
            cluster=pods(),
            counts=(pods().count,),
            batches=(BATCH,),
            runtime=CATALOG.runtime("deepspeed"),
            release=CATALOG.runtime("deepspeed").releases[-1],
            pins=parse_pins([f"tp={mp} pp=1 cp=1 micro=1 recompute=none zero={zero} dp_overlap=off offload=none"]),
            waived=WAIVED,
        ),
    )
    block = ready.blocks[0]
    options = block.axes.at([0] * len(block.axes.shape))
    grid = single_grid(ready.figures, {axis: int(column[0]) for axis, column in block.rows.items()}, options)
    s = replace(
        grid.shape,
        layers=1.0,
        attention_parameters=1e12,
        mlp_parameters=0.0,
        embedding_parameters=0.0,
        head_parameters=0.0,
        final_parameters=0.0,
        tied=0.0,
        leading_dense=0.0,
    )
    grid = replace(grid, shape=s)
    held = stage_memory.stages(grid, pipeline.split(s, grid.layout))[0]
    return float(held.parameters + held.gradients + held.optimizer) / GB


def expansion() -> tuple[str, dict[str, Any]]:
    """Gain from expanded memory, against its bandwidth and its size."""
    series: dict[str, Any] = {"rates": RATES, "sizes": SIZES}
    rows = []
    for pins, name in ((ZERO_2, "ZeRO 2"), (ANY_ZERO, "any ZeRO")):
        base = best(pods(), pins)
        assert base is not None
        for access in ("serial", "concurrent"):
            series[f"{name}, {access}"] = (
                [_gain(base, pins, 1600, rate, access) for rate in RATES],
                [_gain(base, pins, size, 512, access) for size in SIZES],
            )
        found = best(pods(expanded_memory=1600 * GB, expanded_bandwidth=512 * GB), pins)
        assert found is not None
        rows.append(
            [
                name,
                f"{base.time:.1f} s",
                told(base),
                f"{found.time:.1f} s",
                told(found),
                f"{base.time / found.time:.2f}",
            ]
        )
    headers = ["sharding", "80 GB", "plan", "with 1.6 TB at 512 GB/s", "plan", "gain"]
    return table(headers, rows), series


def _gain(base: Candidate, pins: str, size: float, rate: float, access: str) -> float:
    on = pods(expanded_memory=size * GB, expanded_bandwidth=rate * GB, expanded_access=access)
    found = best(on, pins)
    assert found is not None
    return base.time / found.time


def compute() -> tuple[str, dict[str, Any]]:
    """Step time against the accelerator's peak, with and without expanded memory."""
    series: dict[str, Any] = {"factors": FACTORS, "80 GB": [], "with expanded memory": []}
    for factor in FACTORS:
        plain, more = pods(compute=factor), pods(compute=factor, expanded_memory=1600 * GB, expanded_bandwidth=512 * GB)
        for name, on in (("80 GB", plain), ("with expanded memory", more)):
            found = best(on, ANY_ZERO)
            assert found is not None
            series[name].append(found.time)
    rows = [[name, *(f"{x:.1f} s" for x in series[name])] for name in ("80 GB", "with expanded memory")]
    return table(["peak, times an A100's", *(f"{f:g}" for f in FACTORS)], rows), series


def heat() -> tuple[str, dict[str, Any]]:
    """Step time against bandwidth inside pods and between them, at two model-parallel degrees and at the best."""
    maps = {}
    for name, pins in (("MP8", "tp=8 zero=1"), ("MP64", f"tp=64 {ZERO_2}"), ("best MP", ZERO_2)):
        maps[name] = [
            [best(pods(scaleup=a * GB, nic=b * GB), pins, unlimited=True).time for a in INTRA]  # type: ignore[union-attr]
            for b in INTER
        ]
    rows = []
    for name, values in maps.items():
        middle = values[2]
        rows.append([name, f"{middle[2]:.1f} s", f"{middle[1] / middle[3]:.2f}", f"{values[1][2] / values[3][2]:.2f}"])
    headers = ["", "300 and 25 GB/s", "from 150 to 600 GB/s inside", "from 12.5 to 50 GB/s between"]
    return table(headers, rows), {"maps": maps, "intra": INTRA, "inter": INTER}


# ---- clusters --------------------------------------------------------------------------------------------------------

KINDS = {
    "V100": ("dgx2-v100", 32),
    "A100": ("dgx-a100-80gb", 80),
    "H100": ("dgx-h100", 80),
    "TPU v4": ("tpu-v4-4", 32),
    "TPU v5p": ("tpu-v5p-4", 95),
    "MI300X": ("mi300x-8", 192),
}
EXPANDED = {"expanded_memory": 480 * GB, "expanded_bandwidth": 512 * GB}


DIES = 16
"""D1 dies of an assumed tile."""


def dojo_like(**expanded: float) -> Cluster:
    """64 tiles of 16 dies, each die as the catalog has it and with as much expanded memory as the others' accelerators.

    What joins tiles is assumed: eight of them in a pod at the die's edge bandwidth, 800 GB/s between pods.
    """
    die = CATALOG.accelerators["Dojo-D1"]
    base = pods("dgx-a100-80gb")
    tile = replace(
        die,
        name="tile of 16 D1 (assumed)",
        peak={dtype: DIES * rate for dtype, rate in die.peak.items()},
        memory=DIES * die.memory,
        memory_bandwidth=DIES * die.memory_bandwidth,
        compute_units=DIES * (die.compute_units or 1),
        scaleup=replace(die.scaleup, topology="switch"),
        **{key: DIES * value for key, value in expanded.items()},
    )
    node = replace(base.node, id="dojo-like", accelerators=POD, nics=POD, nic_bandwidth=800 * GB, scaleup=None)
    return replace(base, node=node, accelerator=tile, count=ACCELERATORS // DIES // POD)


def clusters() -> tuple[str, dict[str, Any]]:
    """1,024 accelerators of each kind, with and without expanded memory."""
    times: dict[str, tuple[float, float]] = {}
    rows = []
    for name in (*KINDS, "Dojo-like"):
        on = [
            dojo_like(**more) if name == "Dojo-like" else pods(KINDS[name][0], KINDS[name][1] * GB, **more)
            for more in ({}, EXPANDED)
        ]
        found = [best(x, ANY_ZERO) for x in on]
        times[name] = tuple(x.time if x else math.nan for x in found)  # type: ignore[assignment]
        cells = [cell for x in found for cell in (f"{x.time:.1f} s" if x else "-", told(x))]
        gain = f"{times[name][0] / times[name][1]:.2f}" if found[0] and found[1] else "opens it" if found[1] else "-"
        rows.append([name, *cells, gain])
    headers = ["accelerator", "alone", "plan", "with 480 GB at 512 GB/s", "plan", "gain"]
    return table(headers, rows), {"times": times}


def main() -> None:
    """Writes the page and its figures."""
    plots = case_study_plots
    parts: dict[str, str] = {}
    parts["sweep"], sweeping = sweep()
    parts["expansion"], expanding = expansion()
    parts["compute"], computing = compute()
    parts["heat"], heating = heat()
    parts["clusters"], comparing = clusters()
    parts["recommender"], serving = recommender.sharding()
    parts["recommender_expansion"], spilling = recommender.expansion()
    parts["recommender_sizes"] = recommender.sizes()
    parts["recommender_compute"], speeding = recommender.compute()
    parts["recommender_heat"], warming = recommender.heat()
    parts["closed_forms"], parts["exchanges"] = networks.cases(), networks.exchanges()
    parts["topologies"] = networks.topologies()
    parts["compared"] = compared(sweeping, expanding, computing, heating, comparing, spilling)
    accuracy_plots.save(FOLDER, "case-sweep", lambda: plots.sweep(sweeping))
    accuracy_plots.save(FOLDER, "case-expansion", lambda: plots.expansion(expanding))
    accuracy_plots.save(FOLDER, "case-compute", lambda: plots.compute(computing))
    of = "step time over that at 300 and 25 GB/s, memory free"
    accuracy_plots.save(FOLDER, "case-heat", lambda: plots.heat(heating, of))
    accuracy_plots.save(FOLDER, "case-clusters", lambda: plots.clusters(comparing))
    accuracy_plots.save(FOLDER, "case-recommender", lambda: plots.recommender(serving, spilling))
    accuracy_plots.save(FOLDER, "case-recommender-compute", lambda: plots.recommender_compute(speeding))
    accuracy_plots.save(FOLDER, "case-recommender-heat", lambda: plots.heat(warming, f"DLRM: {of}"))
    facts = {
        "free_mp": DEGREES[min(range(len(DEGREES)), key=lambda i: sweeping["free"][i])],
        "fit_mp": _least(sweeping["fits"]),
        "any_mp": _least(sweeping["any"]),
        "spread": _spread(comparing),
        "alone": spilling["alone"],
        "tables": recommender.served(1).per_rank,
        "expansion_spread": _span(expanding),
    }
    text = (ROOT / "docs" / "case-studies.template.md").read_text(encoding="utf-8")
    PAGE.write_text(text.format(**parts, **facts), encoding="utf-8")
    print(f"wrote: {PAGE.relative_to(ROOT)}")


def _least(times: Sequence[float]) -> int:
    known = [i for i in range(len(times)) if not math.isnan(times[i])]
    return DEGREES[min(known, key=lambda i: times[i])]


def _spread(comparing: dict[str, Any]) -> float:
    """Slowest over fastest cluster, with expanded memory."""
    known = [t for _, t in comparing["times"].values() if not math.isnan(t)]
    return max(known) / min(known)


def _span(expanding: dict[str, Any]) -> str:
    every = [x for name, value in expanding.items() if isinstance(value, tuple) and "," in name for x in value[0]]
    return f"{min(every):.2f} to {max(every):.2f}"


if __name__ == "__main__":
    main()
