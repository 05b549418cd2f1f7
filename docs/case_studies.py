"""Makes ``case-studies.md`` and its figures: clusters designed around Transformer-1T and a recommender (COMET's cases).

Run by ``make case-studies``. Every figure and every number of the page is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from docs import accuracy_plots, case_study_plots
from planner import binding, catalog, families
from planner.by_layer import FAMILY_RUNTIME
from planner.cost import memory, pipeline, recommendation
from planner.cost.hierarchy import Far
from planner.cost.recommendation import Sharding
from planner.efficiency import reached, runtime_keys
from planner.question import Request, prepare, problem
from planner.schema.families import Recommender
from planner.schema.hardware import Cluster
from planner.search.bounded import Bounded
from planner.search.problem import Candidate
from planner.space.axes import parse_pins
from planner.space.grid import single_grid
from planner.workload import workload

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "case-studies.md"
FOLDER = ROOT / "docs" / accuracy_plots.FOLDER
GB = 1e9
ACCELERATORS, POD, BATCH = 1024, 8, 1024
DEGREES = tuple(2**k for k in range(11))
WAIVED = frozenset({"heads_divide", "kv_heads_divide", "hidden_divides", "tp_in_domain"})
"""COMET's model parallelism is a plain split: 160 heads need not divide."""
ZERO_2, ANY_ZERO = "zero=2", "zero=0|1|2|3"
CATALOG = catalog.load()


@cache
def pods(node: str = "dgx-a100-80gb", memory: float = 80 * GB, **changed: float | str) -> Cluster:
    """1,024 accelerators with that much memory; `changed`: figures of theirs, ``nic``, ``scaleup``, ``compute``."""
    each = CATALOG.node(node).accelerators
    on = catalog.cluster(CATALOG, node, ACCELERATORS // each)
    nic, scaleup, compute = (changed.pop(name, None) for name in ("nic", "scaleup", "compute"))
    part = replace(on.accelerator, memory=memory, **changed)  # type: ignore[arg-type]
    if scaleup is not None:
        part = replace(part, scaleup=replace(part.scaleup, bandwidth=float(scaleup), pair_bandwidth=None))
    if compute is not None:
        part = replace(part, peak={dtype: rate * float(compute) for dtype, rate in part.peak.items()})
    if nic is not None:
        on = replace(on, node=replace(on.node, nics=each, nic_bandwidth=float(nic)))
    return replace(on, accelerator=part, node=replace(on.node, scaleup=None if scaleup else on.node.scaleup))


def best(on: Cluster, pins: str = ZERO_2, *, unlimited: bool = False) -> Candidate | None:
    """The fastest plan of Transformer-1T without stages: model- and data-parallel ranks alone."""
    runtime = CATALOG.runtime("deepspeed")
    asked = Request(
        workload=replace(workload("megatron-1t"), batch=BATCH),
        cluster=on,
        counts=(on.count,),
        batches=(BATCH,),
        runtime=runtime,
        release=runtime.releases[-1],
        pins=parse_pins([f"pp=1 cp=1 {pins}"]),
        waived=WAIVED,
        oom_risk=0.5,
    )
    ready = prepare(CATALOG, asked)
    found = Bounded().search(problem(ready, 1, capacity=math.inf if unlimited else None)).best
    return found[0] if found else None


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def told(found: Candidate | None) -> str:
    """A plan in few words."""
    if found is None:
        return "nothing fits"
    o = found.options
    placed = "" if o.placement.name == "none" else f", {o.placement.name} expanded"
    return (
        f"MP{found.layout['tp']} DP{found.layout['dp']}, micro-batch {found.layout['micro']}, "
        f"ZeRO {o.sharding.zero}, recompute {o.recompute.name}{placed}"
    )


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
    held = memory.stages(grid, pipeline.split(s, grid.layout))[0]
    return float(held.parameters + held.gradients + held.optimizer) / GB


RATES = (32, 64, 128, 256, 512, 1024, 2048)
SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400)


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


FACTORS = (0.25, 0.5, 1, 2, 4, 8)


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


INTRA, INTER = (75, 150, 300, 600, 1200), (6.25, 12.5, 25, 50, 100)


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


# ---- a recommender ---------------------------------------------------------------------------------------------------

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WAYS: tuple[Sharding, ...] = ("even", "table", "row")
TIMES_LARGER = 32
SAMPLES = 4096
RESERVED = 4.0
"""GB that dense layers and the runtime take. Assumed."""


@dataclass(frozen=True)
class Served:
    """A recommender on some ranks."""

    per_rank: float
    """GB of tables on the fullest rank."""
    time: float


def large() -> Recommender:
    """DLRM of MLPerf with tables of 32 times as many rows."""
    model = families.recommender("dlrm-criteo1tb")
    return replace(model, id="dlrm-large", tables=tuple(rows * TIMES_LARGER for rows in model.tables))


def served(
    ranks: int,
    by: Sharding = "even",
    spilt: float = 0.0,
    rate: float = 512,
    *,
    concurrent: bool = False,
    scaleup: float | None = None,
    nic: float | None = None,
    compute: float = 1.0,
) -> Served:
    """A step of 4,096 samples a rank, a share of the tables in expanded memory."""
    more: dict[str, float] = {"compute": compute}
    more |= {"scaleup": scaleup * GB} if scaleup else {}
    more |= {"nic": nic * GB} if nic else {}
    on = pods(**more)
    model, fitted = large(), reached(CATALOG, on.accelerator, CATALOG.runtime("deepspeed"), "")
    entries = CATALOG.runtime_efficiencies
    keys = runtime_keys(FAMILY_RUNTIME["dlrm"], "", "", on.accelerator.generation)
    software = binding.software(next(entries[key] for key in keys if key in entries), "fp16")
    network = replace(binding.network(on, fitted.accelerator), accelerators=float(ranks))
    device = binding.device(on.accelerator, fitted.accelerator, "fp16")
    reach = float(fitted.accelerator.memory) * float(software.gather)
    far = Far(spilt, 0.0, rate * GB * reach, float(concurrent)) if spilt else None
    time = recommendation.step_time(model, device, network, software, float(ranks * SAMPLES), float(ranks), by, far)
    return Served(recommendation.rank_bytes(model, ranks, by) / GB, float(time))


def recommender() -> tuple[str, dict[str, Any]]:
    """A recommender whose tables are larger than one accelerator's memory."""
    rows = []
    series: dict[str, Any] = {"ranks": RANKS, "ways": {by: [] for by in WAYS}, "memory": {by: [] for by in WAYS}}
    for ranks in RANKS:
        found = {by: served(ranks, by) for by in WAYS}
        for by in WAYS:
            series["ways"][by].append(SAMPLES / found[by].time)
            series["memory"][by].append(found[by].per_rank)
        rows.append(
            [
                f"{ranks:,}",
                *(f"{found[by].per_rank:,.1f}" for by in WAYS),
                *(f"{SAMPLES / found[by].time / 1e3:,.0f} k" for by in WAYS),
            ]
        )
    headers = ["ranks", *(f"{by}, GB a rank" for by in WAYS), *(f"{by}, samples/s a rank" for by in WAYS)]
    return table(headers, rows), series


def least_ranks(room: float) -> int:
    """Ranks from which the tables fit into so many GB each."""
    return next(n for n in RANKS if served(n).per_rank + RESERVED <= room)


def recommender_expansion() -> tuple[str, dict[str, Any]]:
    """Throughput of one accelerator where expanded memory lets fewer of them hold the tables."""
    alone = least_ranks(80)
    base = SAMPLES / served(alone).time
    rows, series = [], {"rates": RATES, "lines": {}, "alone": alone}
    for ranks in (n for n in RANKS if n <= alone):
        spilt = max(0.0, 1 - (80 - RESERVED) / served(ranks).per_rank)
        need = served(ranks).per_rank * spilt
        gains = [SAMPLES / served(ranks, spilt=spilt, rate=rate).time / base for rate in RATES]
        at_once = SAMPLES / served(ranks, spilt=spilt, concurrent=True).time / base
        series["lines"][ranks] = gains
        rows.append([ranks, f"{need:,.0f} GB", *(f"{gain:.2f}" for gain in gains), f"{at_once:.2f}"])
    headers = ["ranks", "expanded, a rank", *(f"{rate} GB/s" for rate in RATES), "512 GB/s, at once"]
    return table(headers, rows), series


def recommender_scaling() -> str:
    """What else would help: compute and bandwidth, at 64 ranks."""
    base = served(64).time
    rows = [
        ["twice the compute", f"{base / served(64, compute=2).time:.2f}"],
        ["twice the bandwidth inside pods", f"{base / served(64, scaleup=600).time:.2f}"],
        ["twice the bandwidth between pods", f"{base / served(64, nic=50).time:.2f}"],
    ]
    return table(["of 64 ranks", "faster by"], rows)


def main() -> None:
    """Writes the page and its figures."""
    plots = case_study_plots
    parts: dict[str, str] = {}
    parts["sweep"], sweeping = sweep()
    parts["expansion"], expanding = expansion()
    parts["compute"], computing = compute()
    parts["heat"], heating = heat()
    parts["clusters"], comparing = clusters()
    parts["recommender"], serving = recommender()
    parts["recommender_expansion"], spilling = recommender_expansion()
    parts["recommender_scaling"] = recommender_scaling()
    accuracy_plots.save(FOLDER, "case-sweep", lambda: plots.sweep(sweeping))
    accuracy_plots.save(FOLDER, "case-expansion", lambda: plots.expansion(expanding))
    accuracy_plots.save(FOLDER, "case-compute", lambda: plots.compute(computing))
    accuracy_plots.save(FOLDER, "case-heat", lambda: plots.heat(heating))
    accuracy_plots.save(FOLDER, "case-clusters", lambda: plots.clusters(comparing))
    accuracy_plots.save(FOLDER, "case-recommender", lambda: plots.recommender(serving, spilling))
    facts = {
        "free_mp": DEGREES[min(range(len(DEGREES)), key=lambda i: sweeping["free"][i])],
        "fit_mp": _least(sweeping["fits"]),
        "any_mp": _least(sweeping["any"]),
        "spread": _spread(comparing),
        "alone": spilling["alone"],
        "tables": served(1).per_rank,
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
