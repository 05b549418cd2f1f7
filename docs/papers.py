"""Write ``papers.md``: published gains from communication, held against what the cost model says of such workloads.

``python -m docs.papers``; some seconds.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner import api, catalog
from planner.base import writing
from planner.catalog.cluster import cluster
from planner.cost import convolution, dlrm, nccl_algorithms
from planner.cost.collective_times import group, speedup_needed, throughput_gain
from planner.cost.figures import Network
from planner.cost.nccl_algorithms import OPERATIONS, CollectiveLibrary, Protocol
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.models import families
from planner.models import files as model_files
from planner.schema.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "papers.md"
CASES = ROOT / "docs" / "papers.toml"
TIMED = ROOT / "benchmarks" / "data" / "measured_collectives.csv"
COMMUNICATION = ("tp", "dp", "cp", "ep", "p2p")
"""Parts of a step that are communication."""
CLASSES = ((2**10, 2**16, "1 to 64 KiB"), (2**17, 2**20, "128 KiB to 1 MiB"), (2**21, 2**24, "2 to 16 MiB"))
CLASSES = (*CLASSES, (2**25, 2**30, "32 MiB and more"))


def percent(value: float, places: int = 0) -> str:
    """A fraction as per cent."""
    return f"{100 * value:.{places}f} %"


def times(value: float) -> str:
    """A speed-up."""
    return f"{value:.2f}" if np.isfinite(value) else "none is enough"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


# ---- shares ----------------------------------------------------------------------------------------------------------


def share(case: Mapping[str, Any], folder: Path, own: Path | None = None) -> tuple[float, float, str]:
    """Step time in seconds, the share of it that is communication and shows, and its largest kinds."""
    if case["model"] in families.recommenders():
        return _recommender(case)
    files = {key: folder / f"{case[key]}.toml" for key in ("model", "cluster")}
    model, where = (str(path) if path.exists() else str(case[key]) for key, path in files.items())
    found = api.estimate(model, where, case["set"], batch=str(case["batch"]), catalog=own)
    plan: Plan = found.plans[0]
    parts = {name: seconds for name, seconds in plan.prediction.breakdown.items() if name in COMMUNICATION}
    step = plan.prediction.step_time_s
    largest = sorted((name for name in parts if parts[name] > 0.005 * step), key=lambda name: -parts[name])
    return step, sum(parts.values()) / step, ", ".join(f"{name} {percent(parts[name] / step)}" for name in largest)


def nothing_hidden(folder: Path) -> Path:
    """A catalog under which no communication hides behind compute, as in the frameworks of the papers' years."""
    path = folder / "own" / "runtime_efficiencies" / "none.toml"
    writing.make_folder(path.parent)
    overlaps = dict.fromkeys(("tp_overlap", "dp_overlap", "p2p_overlap", "cp_overlap", "ep_overlap"), 0.0)
    entries = catalog.load().runtime_efficiencies.values()
    writing.write(path, "\n".join(model_files.dump(replace(entry, **overlaps)) for entry in entries))
    return folder / "own"


def _recommender(case: Mapping[str, Any]) -> tuple[float, float, str]:
    """The step with its links, and with links that take no time."""
    known = catalog.load()
    node, count = case["cluster"].split(":")
    made = cluster(known, node, int(count))
    using = Efficiencies.of(known)
    reached = using.accelerator(made.accelerator)
    device = cost_inputs.device(made.accelerator, reached, "fp16")
    links = cost_inputs.network(made, reached)
    software = cost_inputs.software(using.runtime(("hugectr",), "", "", made.accelerator.generation), "fp16")
    model = families.recommender(case["model"])
    ranks = float(made.accelerators)
    step, still = (
        float(dlrm.step_time(model, device, network, software, float(case["batch"]), dlrm.TableCut(ranks)))
        for network in (links, free(links))
    )
    return step, 1.0 - still / step, "all-to-all of embedding vectors, all-reduce of MLPs"


def free(network: Network) -> Network:
    """Links that take no time."""
    names = ("scaleup", "scaleup_reduce", "pair", "nic")
    fast = {name: getattr(network, name) * 1e9 for name in names}
    still = dict.fromkeys(("base", "scaleup_latency", "nic_latency", "pipelining"), 0.0)
    return type(network)(**{name: {**fast, **still}.get(name, getattr(network, name)) for name in Network.__slots__})


def gains() -> str:
    """One row a case."""
    written = tomllib.loads(CASES.read_text(encoding="utf-8"))
    rows = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        _files(written, folder)
        bare = nothing_hidden(folder)
        for paper in written["gain"]:
            for case in paper["cases"]:
                _, shows, _ = share(case, folder)
                step, part, largest = share(case, folder, bare)
                name = f"{case['model']}, batch {case['batch']:,}, {' '.join(case.get('set', ()))}".rstrip(", ")
                reach = " · ".join(percent(float(throughput_gain(part, r))) for r in (1.25, 1.5, 2.0))
                wanted = times(float(speedup_needed(part, paper["gain"])))
                told = [f"{1e3 * step:,.0f} ms", percent(part), largest, wanted, reach, percent(shows)]
                rows.append([paper["title"], percent(paper["gain"]), name, *told])
    heads = ["published", "gain", "workload (assumed)", "step", "communication", "of which", "speed-up needed"]
    return table([*heads, "gain at 1.25, 1.5, 2 times", "shows with today's overlap"], rows)


def _files(written: Mapping[str, Any], folder: Path) -> None:
    """The models and clusters of the cases as files of their own."""
    text = CASES.read_text(encoding="utf-8")
    start = text.index("[lassen]")
    models = text.index("[moe-350m-128]")
    writing.write(folder / "lassen.toml", text[start:models].replace("[lassen]\n", "").replace("[lassen.", "["))
    for name, entry in written.items():
        if name.startswith("moe-"):
            fields = {**written.get(entry.get("extends", ""), {}), **entry}
            lines = [f"{key} = {_toml(value)}" for key, value in fields.items() if key != "extends"]
            writing.write(folder / f"{name}.toml", "\n".join([f'["{name}"]', *lines]) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


# ---- what tables say -------------------------------------------------------------------------------------------------


def measured() -> str:
    """All-reduce of eight accelerators: the fastest of other kernels over NCCL, by size; geometric mean and most."""
    import pandas

    rows = pandas.read_csv(TIMED, keep_default_na=False)
    rows = rows[(rows.source == "aiconfigurator") & (rows.op == "all-reduce") & (rows.gpus == 8)]
    told = []
    for hardware in ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"):
        mine = rows[rows.hardware == hardware]
        library = mine[mine.backend.str.startswith("NCCL")].groupby("message_bytes").time_us.min()
        others = mine[mine.backend.str.startswith("custom")].groupby("message_bytes").time_us.min()
        ratio = (library / others).dropna()
        cells = []
        for low, high, _ in CLASSES:
            at = ratio[(ratio.index >= low) & (ratio.index <= high)].clip(lower=1.0)
            cells.append(f"{np.exp(np.log(at).mean()):.2f} ({at.max():.1f})" if len(at) else "-")
        told.append([hardware, *cells])
    return table(["system", *(name for _, _, name in CLASSES)], told)


def mixture() -> tuple[float, float]:
    """Three libraries on two cores: total time of the best single one over the best of each cell, seen and unseen.

    Seen: every cell's best in the same run. Unseen: chosen in one run, tried in the other; the mean of both ways.
    """
    import pandas

    rows = pandas.read_csv(TIMED, keep_default_na=False)
    rows = rows[rows.source == "project CPU benchmark"].copy()
    rows["round"] = rows.groupby(["backend", "op", "gpus", "message_bytes"]).cumcount()
    seen, unseen = [], []
    wide = [
        rows[rows["round"] == turn].pivot_table(
            index=["op", "gpus", "message_bytes"], columns="backend", values="time_us"
        )
        for turn in (0, 1)
    ]
    for learnt, tried in (wide, wide[::-1]):
        single = tried[learnt.sum().idxmin()].sum()
        seen.append(tried.sum().min() / tried.min(axis=1).sum())
        picked = learnt.idxmin(axis=1)
        unseen.append(single / sum(tried.loc[cell, backend] for cell, backend in picked.items()))
    return float(np.mean(seen)), float(np.mean(unseen))


def reordered() -> str:
    """What other algorithms take of the time of those that NCCL has, on the cases' fabrics."""
    known = catalog.load()
    rows = []
    for title, node, count, op, ranks, stride, size in (
        ("expert all-to-all, 128 ranks of 256 V100", "dgx-v100", 32, "all-to-all", 128.0, 1.0, 8 * 2.0**20),
        ("gradients of 350M, 256 V100", "dgx-v100", 32, "all-reduce", 256.0, 1.0, 0.7e9),
        ("tensor-parallel all-reduce, 8 A100 of a node", "dgx-a100-40gb", 4, "all-reduce", 8.0, 1.0, 20e6),
        ("gradients of 1.3B, 32 A100", "dgx-a100-40gb", 4, "all-reduce", 32.0, 1.0, 2.6e9),
        ("embedding vectors, 32 A100", "dgx-a100-40gb", 4, "all-to-all", 32.0, 1.0, 13.6e6),
    ):
        made = cluster(known, node, count)
        network = cost_inputs.network(made, known.accelerator_efficiencies[made.accelerator.generation])
        library = cost_inputs.library(made, known.collective_efficiencies, known.fabric_efficiencies)
        found = nccl_algorithms.times(network, op, size, group(network, ranks, stride), library)
        best = {key: float(value) for key, value in found.items()}
        own = {key: value for key, value in best.items() if key[0] in (*nccl_algorithms.NCCL_ALGORITHMS, "direct")}
        theirs, ours = min(own, key=lambda key: own[key]), min(best, key=lambda key: best[key])
        rows.append(
            [
                title,
                f"{size / 1e6:,.0f} MB",
                f"{theirs[0]}, {1e3 * own[theirs]:.2f} ms",
                f"{ours[0]}, {1e3 * best[ours]:.2f} ms",
                times(own[theirs] / best[ours]),
            ]
        )
    return table(["call", "size", "fastest that NCCL has", "fastest of all modelled", "ratio"], rows)


# ---- GDRAA -----------------------------------------------------------------------------------------------------------

STEP, RATE = 20e-6, 10e9
NAMES = ("direct_two_phase", "ring", "tree", "halving_doubling", "parameter_server")


def reductions(size: float, ranks: int) -> dict[str, float]:
    """Seconds of an all-reduce of P100s, one an endpoint, 20 us a step and 10 GB/s."""
    network = Network(
        **{
            **{each.name: 0.0 for each in fields(Network) if each.default is MISSING},
            **dict.fromkeys(("scaleup", "scaleup_reduce", "pair", "nic"), RATE),
            **{"accelerators": ranks, "domain": 1.0, "leaf": 1e6, "spine": 1.0, "nic_latency": STEP},
        }
    )
    plain = Protocol(name="Simple", base=0.0, step=0.0, hop=STEP, rate=RATE)
    library = CollectiveLibrary(protocols=dict.fromkeys(OPERATIONS, (plain,)))
    found = nccl_algorithms.times(network, "all-reduce", size, group(network, float(ranks), 1.0), library, NAMES)
    return {name: float(value) for (name, _), value in found.items()}


def manoa() -> str:
    """ResNet-50 and 101 on 8 to 128 P100: the all-reduce alone, and the images per second that are left."""
    known = catalog.load()
    part = known.accelerators["P100-PCIE-16GB"]
    using = Efficiencies.of(known)
    device = cost_inputs.device(part, using.accelerator(part), "fp32")
    software = cost_inputs.software(using.runtime(("pytorch-ddp",), "", "", part.generation), "fp32")
    alone = cost_inputs.network(cluster(known, "p100-pcie-4", 1), using.accelerator(part))
    rows = []
    for name in ("resnet50", "resnet101"):
        layers = convolution.layers(families.network(name))
        size = float(np.squeeze(convolution.gradient_bytes(layers, software)))
        compute = float(np.squeeze(convolution.step_time(layers, device, alone, software, 64.0, 1.0)))
        for ranks in (8, 16, 32, 64, 128):
            found = reductions(size, ranks)
            kept = [compute / (compute + found[each]) for each in NAMES]
            rows.append(
                [
                    name,
                    f"{size / 1e6:.2f}",
                    f"{ranks}",
                    *(f"{1e3 * found[each]:.2f}" for each in NAMES),
                    " · ".join(percent(x) for x in kept),
                ]
            )
    heads = [
        "model",
        "MB",
        "P100",
        "direct (GDRAA)",
        "ring",
        "tree",
        "halving-doubling",
        "one server",
        "of linear scaling, in that order",
    ]
    return table(heads, rows)


VERDICT = """So, case by case:

- **DLRM, 25 %: plausible.** Three quarters of a step are its all-to-all, so that 1.35 times is enough. No table here
  has all-to-alls by other libraries; all-reduces of such sizes (some ten megabytes) are on record with 1.0 to 1.6.
- **DeepSpeed-MoE, 31 %: plausible only if the library's all-to-all was far below its links.** Half of a step would have
  to get twice as fast, and most of that half are gradients of hundreds of megabytes, where tables show 1.0 to 1.1. With
  those as they are, all-to-alls of a fifth of the step that took no time at all would give 27 %. Users did report
  all-to-alls between V100 nodes far below what links carry (benchmarks/data, "problem case"): then their share is
  larger than here, and so is what another back end gains.
- **Dense, 20 %: not by what tables show.** At 13B on eight tensor-parallel ranks 39 % of the step is communication, two
  thirds of it in calls of twenty megabytes, and 1.7 times would be needed on all of it; from 16 MiB on A100s
  the tables show 1.0. Where mostly gradients are sent, the speed-up needed is 3 to 6.

Under today's overlap the gains of the dense model and the mixture are further out of reach: less communication shows.
"""


def page() -> str:
    """The whole page."""
    seen, unseen = mixture()
    return f"""# What papers say of communication, and what this model says

<!-- Generated by docs/papers.py from papers.toml and benchmarks/data. Do not edit: run `python -m docs.papers`. -->

## Mixing back ends (MCR-DL, arXiv 2303.08374)

If communication is a share c of a step and gets r times as fast, throughput gains `1 / (1 - c + c / r) - 1`
(`planner.cost.collective_times`). The abstract gives three gains; which back end won where, and by how much, is not
public. So the question is turned round: what share would such workloads have, and what speed-up would the gains take?

{gains()}
Communication is counted with nothing hidden behind compute, as in the frameworks of that time; the last column is what
shows with the overlap of today's. Models, batches and layouts are assumed, for the abstract states none. Only five runs
of a transformer on V100s were ever compared, so their share is the least sure; a recommender's all-to-all is not hidden
in either.

**Are those speed-ups plausible?** Other kernels against NCCL, all-reduce of eight, as published (aiconfigurator): how
many times as fast the best of TensorRT-LLM, vLLM and SGLang is, geometric mean over sizes (most). Part of the gap at
small sizes is how calls were launched; NCCL counts as 1 where it wins.

{measured()}
Other algorithms than the library's own, by this model (alone on the links):

{reordered()}
On two CPU cores with Gloo, MPICH and Open MPI (six operations, 1 KiB to 64 MiB) the best back end of every cell, known
from the same run, is {seen:.2f} times as fast in total as the best single one; chosen in one run and tried in the
other, {unseen:.2f} times.

{VERDICT}
## Direct two-phase all-reduce (GDRAA, arXiv 1802.02326)

Every GPU writes its piece of each shard to the shard's owner; owners add and write the sums to all: two
synchronisations, whatever the number of GPUs is. The paper's steps and fabric are not public; this is a reconstruction
from the abstract's claims, at 20 microseconds a step and 10 GB/s an endpoint. Milliseconds for the fp32 gradients, and
how much of linear scaling is left at 64 images a P100 if nothing is hidden:

{manoa()}
Its bandwidth is the ring's, and so is its time for large messages. What it saves is the ring's `2 (n - 1)` steps less
two: 5 ms of 25 at 128 GPUs, and next to nothing over halving-doubling (0.2 ms). Behind one parameter server everything
waits. It asks of the fabric what the others do not: n - 1 senders to one port at once. Tests hold the reconstruction to
what follows from the claims: latency independent of n, as fast as a ring without latency, never slower than it.
"""


def main() -> int:
    """Write the page."""
    writing.write(PAGE, page(), replace=True)
    print("wrote: docs/papers.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
