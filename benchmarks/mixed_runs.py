"""Measured runs on unlike machines against what they are predicted to take.

Nine runs of OPT-350M on RTX 3090, RTX 2080 and Titan RTX machines, of eight cards each (two in the first two runs), as
eth-easl/sailor publishes them; one is a copy of another and is left out. Every run is priced as it was cut: pipelines
stage by stage with the layers that each held, evenly many micro-batches, gradients reduced between the machines.

Told step by step: what a catalog says if nothing is known of the software; the software as its authors' code and
profiles show it (`--precision fp32`, attention scores stored); the network (the machine with the RTX 3090 sends at 1
Gbit/s: the repository's own probe found 115 MB/s to it and 2.86 GB/s between the others, the catalog's 25 Gbit/s; and
inside each machine, what its probe found); and measured layer times in place of modelled ones.

    python benchmarks/mixed_runs.py [--json] [--tiny]
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from planner.axes.values import NO_RECOMPUTE
from planner.catalog import load
from planner.figures.profiles import importing, overlay
from planner.mixed import batch_shares, layer_split, pipelines, prepared_pools, stages
from planner.mixed.prepared_pools import PreparedPools
from planner.question.job_pools import Pools
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request

DATA = Path(__file__).with_name("data")
NODES = {"RTX-3090": "ws-8xrtx3090", "RTX-2080": "ws-8xrtx2080", "Titan-RTX": "ws-8xtitan"}
LINKS = tuple(f"ws-8xrtx3090/{other}=1 Gbit/s,50 us" for other in ("ws-8xrtx2080", "ws-8xtitan"))
INSIDE = {
    8: {"RTX-3090": 5.3269e9 / 4, "RTX-2080": 24.5517e9 / 4, "Titan-RTX": 24.3043e9 / 4},
    2: {"RTX-3090": 49.7692e9, "RTX-2080": 10.7556e9, "Titan-RTX": 10.8244e9},
}
"""B/s from card to card in a machine when all its cards (8, or the 2 used) send in pairs at once, large messages: the
repository's probe (sailor/providers/intra_node_bandwidths.json), which adds up the pairs. The RTX 3090 copy through the
host, and two of them share a bridge."""


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run: the machine of every stage of every pipeline, and the layers of every stage."""

    name: str
    pipelines: tuple[tuple[str, ...], ...]
    layers: tuple[int, ...]
    tp: int
    micro: int
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Known:
    """What a prediction is told beside the catalog."""

    name: str
    software: bool = False
    network: bool = False
    inside: bool = False
    both_ways: bool = False
    """Activations and gradients pass a link at once, each way at its full rate; else one after the other."""
    profiles: bool = False


WAYS = (
    Known("catalog alone"),
    Known("and the software", software=True),
    Known("and the network", software=True, network=True),
    Known("and links inside", software=True, network=True, inside=True),
    Known("links inside, both ways at once", software=True, network=True, inside=True, both_ways=True),
    Known("and measured layers instead", software=True, network=True, profiles=True),
    Known("measured layers, both ways at once", software=True, network=True, profiles=True, both_ways=True),
)


def runs(path: Path = DATA / "sailor_mixed_runs.csv") -> list[Run]:
    """The runs of the table, less copies. Layers there count the embedding and the head as one each."""
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if "copy" in row["note"]:
                continue
            every = [stage.strip().split("+") for stage in row["stage_gpus"].split("|")]
            machines = tuple(tuple(each.rpartition("x")[0] for each in chain) for chain in zip(*every, strict=True))
            layers = [int(n) for n in row["layers_per_stage"].split("/")]
            layers[0] -= 1
            layers[-1] -= 1
            name = Path(row["source"]).stem.removeprefix("plan_config_")
            found.append(Run(name, machines, tuple(layers), int(row["tp"]), int(row["micro_batch"]),
                             int(row["global_batch"]), float(row["measured_iter_s"])))  # fmt: skip
    return found


def prepared(run: Run, known: Known, folder: Path) -> PreparedPools:
    """The question that a run answers, with what is known of it."""
    kinds = sorted({machine for chain in run.pipelines for machine in chain})
    counts = {kind: sum(chain.count(kind) for chain in run.pipelines) for kind in kinds}
    links = [link for link in LINKS if known.network and all(f in [NODES[k] for k in kinds] for f in _ends(link))]
    asked = PlanOptions(
        batch=str(run.batch),
        runtime="megatron-core@2022" if known.software else None,
        precision="fp32" if known.software else "fp16",
        link=tuple(links),
        pin=(f"tp={run.tp}",),
        catalog=folder if known.profiles else None,
    )
    catalog, wanted, pools = pooled_request("opt-350m", [f"{NODES[k]}:{counts[k]}" for k in kinds], asked)
    if run.tp < 8:
        # Machines of these runs held as many cards as a stage used.
        every = tuple(
            replace(p, cluster=replace(p.cluster, node=replace(p.cluster.node, accelerators=run.tp))) for p in pools.all
        )
        pools = Pools(every, pools.given)
    return prepared_pools.prepare(catalog, wanted, pools, run.batch, few=True)


def probed(of: PreparedPools, tp: int) -> PreparedPools:
    """The same with links inside machines as the probe found them."""
    figures = []
    for f, pool in zip(of.figures, of.pools.all, strict=True):
        rate = INSIDE[tp][pool.cluster.accelerator.id]
        figures.append(replace(f, network=replace(f.network, scaleup=rate, scaleup_reduce=rate, pair=rate)))
    tables = tuple(
        stages.priced(f, t.configs, of.options, of.precision, (NO_RECOMPUTE,), t.max_layers.shape[-1], np.inf)
        for f, t in zip(figures, of.tables, strict=True)
    )
    return replace(of, figures=tuple(figures), tables=tables)


def _ends(link: str) -> list[str]:
    return link.partition("=")[0].split("/")


def predicted(run: Run, of: PreparedPools) -> dict[str, float]:
    """Seconds of a step, and the slowest pipeline's parts: layers, transfers, the pipeline's fill, reductions, rest."""
    order = [p.cluster.accelerator.id for p in of.pools.all]
    parts = []
    for machines in run.pipelines:
        chain = tuple((order.index(m), 1) for m in machines)
        rows = []
        for pool, _ in chain:
            w = of.tables[pool].configs
            fits = (w.tp == run.tp) & (w.micro == run.micro) & (w.cp == 1) & (w.width == 1)
            rows.append(np.flatnonzero(fits)[:1])
        unlike = pipelines.chain_costs(chain, rows, of.tables, of.links)
        unlike = replace(unlike, max_layers=np.full_like(unlike.max_layers, np.inf))
        layers = np.array([run.layers])
        times, _ = layer_split.stage_times(unlike, layers)
        policy = np.zeros_like(layers)
        dealt = layer_split.LayerSplit(layers, policy, times.max(-1), times.sum(-1))
        usage = np.zeros((1, len(order)), dtype=np.int64)
        for pool, _ in chain:
            usage[0, pool] += run.tp
        kind = pipelines.columns(0, chain, rows, usage, of.tables, dealt)
        bare = pipelines.chain_costs(chain, rows, of.tables, {pair: replace(n, nic=np.inf, nic_latency=0.0)
                                                         for pair, n in of.links.items()})  # fmt: skip
        own, _ = layer_split.stage_times(replace(bare, max_layers=unlike.max_layers), layers)
        parts.append((kind, float(own.max())))
    used = sorted({order.index(m) for chain in run.pipelines for m in chain})
    replicas, steps = float(len(run.pipelines)), run.batch / (len(run.pipelines) * run.micro)
    straggler_factor = batch_shares.straggler_factor_on(of.setting, of.setting.network_of(used))
    found = []
    for kind, own in parts:
        spans_pools = replicas > 1
        shown = batch_shares.reductions(of.setting, kind, used, replicas, 1.0, spans_pools=spans_pools)
        step = float(batch_shares.kind_time(of.setting, kind, straggler_factor, np.array([steps]), shown)[0])
        slowest, total = float(kind.slowest[0]), float(kind.total[0])
        named = {"layers": own * steps, "transfers": (slowest - own) * steps, "fill": total - slowest,
                 "reductions": float(shown[0]), "update": float(kind.update[0])}  # fmt: skip
        found.append({"step": step, **named, "rest": step - sum(named.values())})
    return max(found, key=lambda each: each["step"])


def main(argv: Sequence[str] | None = None) -> None:
    """Predicts every run in every way and prints the errors."""
    options = measure.arguments(__doc__, argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        known = load()
        for part in NODES:
            read = importing.imported(DATA / "sailor_profiles.csv", known, "opt-350m", part, "fp32")
            for each in read.profiles:
                overlay.write(Path(folder), each)
        for run in runs()[: 1 if options.tiny else None]:
            for way in WAYS:
                of = prepared(run, way, Path(folder))
                of = probed(of, run.tp) if way.inside else of
                if way.both_ways:
                    of = replace(of, links={pair: replace(n, nic=2 * n.nic) for pair, n in of.links.items()})
                found = predicted(run, of)
                error = found["step"] / run.seconds - 1.0
                rows.append({"run": run.name, "told": way.name, "measured_s": run.seconds, "error": error, **found})
    by_way = {w.name: float(np.mean([abs(r["error"]) for r in rows if r["told"] == w.name])) for w in WAYS}
    measure.show({"runs": rows, "mape": by_way, "machine": measure.machine()}, rows, options.json)
    if not options.json:
        print("\n" + ", ".join(f"{name}: {100 * error:.1f} %" for name, error in by_way.items()))


if __name__ == "__main__":
    main()
