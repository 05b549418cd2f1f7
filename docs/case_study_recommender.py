"""A recommender whose tables are larger than one accelerator's memory: the case studies' second workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from docs.case_study_ground import CATALOG, FACTORS, GB, INTER, INTRA, RATES, SIZES, pods, table
from planner.cost import dlrm
from planner.cost.dlrm import Sharding
from planner.cost.expanded_memory import Far
from planner.figures import cost_inputs
from planner.figures.efficiency import reached, runtime_keys
from planner.models import families
from planner.planning.by_layer import FAMILY_RUNTIME
from planner.schema.workload import Recommender

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
    keys = runtime_keys((FAMILY_RUNTIME["dlrm"],), "", "", on.accelerator.generation)
    software = cost_inputs.software(next(entries[key] for key in keys if key in entries), "fp16")
    network = replace(cost_inputs.network(on, fitted.accelerator), accelerators=float(ranks))
    device = cost_inputs.device(on.accelerator, fitted.accelerator, "fp16")
    reach = float(fitted.accelerator.memory) * float(software.gather)
    far = Far(spilt, 0.0, rate * GB * reach, float(concurrent)) if spilt else None
    cut = dlrm.TableCut(float(ranks), by, far)
    time = dlrm.step_time(model, device, network, software, float(ranks * SAMPLES), cut)
    return Served(dlrm.rank_bytes(model, ranks, by) / GB, float(time))


def sharding() -> tuple[str, dict[str, Any]]:
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


def expansion() -> tuple[str, dict[str, Any]]:
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


def sizes() -> str:
    """Throughput of one accelerator by the size of its expanded memory: that says how few can hold the tables."""
    alone = least_ranks(80)
    base = served(alone).time
    rows = []
    for size in (0, *SIZES):
        ranks = least_ranks(80 + size)
        spilt = max(0.0, 1 - (80 - RESERVED) / served(ranks).per_rank)
        rows.append([f"{size:,} GB", ranks, f"{base / served(ranks, spilt=spilt).time:.2f}"])
    return table(["expanded, a rank", "fewest ranks", "times as fast at 512 GB/s"], rows)


SCALED = (8, 64, 1024)
"""Ranks: a pod, as few as hold the tables, all. Memory is free on 8."""


def compute() -> tuple[str, dict[str, Any]]:
    """Throughput of one accelerator against its peak, at three numbers of ranks."""
    series: dict[str, Any] = {"factors": FACTORS, "lines": {}}
    for ranks in SCALED:
        base = served(ranks).time
        series["lines"][ranks] = [base / served(ranks, compute=factor).time for factor in FACTORS]
    rows = [[f"{ranks:,} ranks", *(f"{x:.2f}" for x in found)] for ranks, found in series["lines"].items()]
    return table(["peak, times an A100's", *(f"{factor:g}" for factor in FACTORS)], rows), series


def heat() -> tuple[str, dict[str, Any]]:
    """Step time against bandwidth inside pods and between them, at three numbers of ranks."""
    maps = {
        f"{ranks:,} ranks": [[served(ranks, scaleup=a, nic=b).time for a in INTRA] for b in INTER] for ranks in SCALED
    }
    rows = []
    for name, values in maps.items():
        middle = values[2]
        inside, between = middle[1] / middle[3], values[1][2] / values[3][2]
        rows.append([name, f"{middle[2] * 1e3:.2f} ms", f"{inside:.2f}", f"{between:.2f}"])
    headers = ["", "300 and 25 GB/s", "from 150 to 600 GB/s inside", "from 12.5 to 50 GB/s between"]
    return table(headers, rows), {"maps": maps, "intra": INTRA, "inter": INTER}
