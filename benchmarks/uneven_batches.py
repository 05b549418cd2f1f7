"""Cannikin's experiment on measured step times: node models, and training to a target on an unlike mixture.

    python benchmarks/uneven_batches.py [TABLE.csv] [--json] [--tiny] [--write]

With a table (columns app, gpu_pool, placement_gpus_per_node, local_bsz, step_time_s, sync_time_s; the measured steps
that siasosp23/artifacts publishes, without a licence, so not shipped) it fits a node model to every other batch size,
says how far the others are from it, and with ``--write`` writes the models. Without, it uses those shipped.

Then 16 nodes (4 of pool dgx, 4 quad, 8 rtx; remembered, unverified, as A100, Quadro RTX 6000 and RTX 2080 Ti) train
until as many samples of the reference batch's worth are done, by (a) an even split of a fixed batch, (b) an even split
of an adaptive batch, (c) uneven batches learned online and an adaptive batch. Assumed: two thirds of a node's time are
the backward pass, a fifth of it before the first bucket; a tenth of the synchronisation is the last bucket's; the noise
scale grows from the reference batch to 30 times that. Times deviate by 5 %, seeded.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from planner.base.errors import WrongQuestion
from planner.rebalancing import NodeModel, Nodes, batch_choice, nodes, step_time
from planner.rebalancing.node_models import Epoch, line

MODELS = Path(__file__).with_name("data") / "uneven_nodes.json"
MIXTURE = {"dgx": 4, "quad": 4, "rtx": 8}
POOLS = (*MIXTURE, "aws")
APPS = {
    "bert": (64, 1024),
    "cifar10": (100, 4000),
    "deepspeech2": (160, 1280),
    "imagenet": (320, 3200),
    "ncf": (512, 8192),
    "yolov3": (64, 128),
}
"""Reference and largest batch, samples: CIFAR-10 and the largest of NCF as in the scripts of hetero_adaptdl, else what
the measured local batches of 16 nodes span. Assumed."""
BACKWARD, READY, LAST = 2 / 3, 0.2, 0.1
COLUMNS = ("app", "gpu_pool", "local_bsz", "step_time_s", "sync_time_s")
LEAST = 3
"""Batch sizes that a node model is fitted to and tried on."""
GROWTH, DEVIATION, STEPS = 30.0, 0.05, 40
EPOCHS = 30


def steps_of(path: Path) -> dict[tuple[str, str], dict[int, list[tuple[float, float]]]]:
    """(app, pool) -> local batch -> (compute, synchronisation) of every placement, less rows that sync longer than they
    step.
    """
    found: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                step, sync = float(row["step_time_s"]), float(row["sync_time_s"])
                if row["app"] in APPS and row["gpu_pool"] in POOLS and sync < step:
                    found[row["app"], row["gpu_pool"]][int(row["local_bsz"])].append((step - sync, sync))
    except OSError as error:
        raise WrongQuestion(f"{path}: {error.strerror or error}; give the table of measured steps, or none") from None
    except (KeyError, TypeError, ValueError) as error:
        raise WrongQuestion(
            f"{path}: not the table of measured steps ({error}); {', '.join(COLUMNS)} are read"
        ) from None
    missing = [f"{app} on {pool}" for app in APPS for pool in MIXTURE if len(found[app, pool]) < LEAST]
    if missing:
        raise WrongQuestion(f"{path}: fewer than {LEAST} batch sizes of {', '.join(missing[:4])}")
    return found


def fitted(measured: dict[int, list[tuple[float, float]]]) -> tuple[dict[str, float], list[float]]:
    """A node model of one pool, and the relative errors on the batch sizes that it was not fitted on."""
    sizes = np.array(sorted(measured), dtype=float)
    times = np.array([statistics.median(t for t, _ in measured[int(b)]) for b in sizes])
    slope, intercept = line(sizes[::2], times[::2])
    errors = np.abs((slope * sizes[1::2] + intercept) / times[1::2] - 1)
    several = [sync for pairs in measured.values() for _, sync in pairs]
    model = {"per_sample_s": slope, "fixed_s": intercept, "cap": float(sizes[-1]), "sync_s": statistics.median(several)}
    return model, [float(e) for e in errors]


def mixture(models: dict[str, dict[str, float]]) -> Nodes:
    """The 16 nodes; the slowest pool's synchronisation holds for all."""
    order = [name for name, count in MIXTURE.items() for _ in range(count)]
    per_sample, fixed, cap = (np.array([models[n][f] for n in order]) for f in ("per_sample_s", "fixed_s", "cap"))
    sync = max(models[n]["sync_s"] for n in MIXTURE)
    ahead = 1 - BACKWARD
    return nodes(per_sample * ahead, fixed * ahead, per_sample * BACKWARD, fixed * BACKWARD, gamma=READY,
                 overlapped=sync * (1 - LAST), last=sync * LAST, cap=cap)  # fmt: skip


def epoch_of(of: Nodes, batches: np.ndarray, rng: np.random.Generator) -> tuple[float, Epoch]:
    """Mean step time of an epoch whose every step deviates, and what the nodes measured."""
    factor = 1 + DEVIATION * rng.standard_normal((STEPS, 2, of.n))
    load = (of.q * batches + of.s) * factor[:, 0]
    back = (of.k * batches + of.m) * factor[:, 1]
    ready, ends = load + of.gamma * back, load + back
    returned = np.maximum(ready.max(1) + of.overlapped, ends.max(1)) + of.last
    epoch = Epoch(
        batches=batches,
        load=load.mean(0),
        backward=back.mean(0),
        ready=(of.gamma * back).mean(0),
        ready_deviation=np.full(of.n, DEVIATION / np.sqrt(STEPS)),
        synchronising=(returned[:, None] - ready).mean(0),
        waiting=np.maximum(returned[:, None] - ends, of.last).mean(0),
    )
    return float(returned.mean()), epoch


def trained(of: Nodes, reference: int, largest: int, way: str) -> float:
    """Seconds until :data:`EPOCHS` epochs' worth of samples of the reference batch are done."""
    rng = np.random.default_rng(0)
    size = 100 * reference
    learned = NodeModel(n=of.n, cap=of.cap)
    done, seconds, batch = 0.0, 0.0, reference
    while done < EPOCHS * size:
        scale = reference * GROWTH ** (done / (EPOCHS * size))
        if way != "fixed":
            known = learned.fitted() if learned.epochs else of
            batch = batch_choice.choose(known, reference, largest, scale, current=batch, split=way == "ours").batch
        alike = nodes(np.ones(of.n), 0.0, 0.0, 0.0, cap=of.cap)
        batches = learned.split(batch) if way == "ours" else NodeModel(n=of.n, cap=alike.cap).split(batch)
        step, epoch = epoch_of(of, batches, rng)
        learned = learned.seen(epoch)
        worth = size * float(batch_choice.efficiency(batch, reference, scale))
        part = min(1.0, (EPOCHS * size - done) / worth)
        seconds += part * step * size / batch
        done += part * worth
    return seconds


def compared(app: str, models: dict[str, dict[str, float]]) -> dict[str, object]:
    """One workload: what each way takes, and by how much less ours does."""
    of = mixture(models)
    reference, largest = APPS[app]
    fixed, even, ours = (trained(of, reference, largest, way) for way in ("fixed", "even", "ours"))
    best = batch_choice.choose(of, reference, largest, reference * GROWTH**0.5)
    return {
        "app": app,
        "even_fixed_s": fixed,
        "even_adaptive_s": even,
        "ours_s": ours,
        "below_even_fixed": 1 - ours / fixed,
        "below_even_adaptive": 1 - ours / even,
        "step_ideal_s": float(step_time(of, best.batches)),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Fits, predicts and simulates."""
    words = list(sys.argv[1:] if argv is None else argv)
    table = next((Path(word) for word in words if not word.startswith("-")), None)
    write = "--write" in words
    options = measure.arguments(__doc__, [w for w in words if w.startswith("-") and w != "--write"])
    errors: dict[str, list[float]] = {}
    if table is None:
        models: dict[str, Any] = json.loads(MODELS.read_text(encoding="utf-8"))
    else:
        models, steps = {}, steps_of(table)
        for (app, pool), measured in sorted(steps.items()):
            model, off = fitted(measured)
            models.setdefault(app, {})[pool] = model
            errors.setdefault(app, []).extend(off)
        if write:
            MODELS.write_text(json.dumps(models, indent=1) + "\n", encoding="utf-8")
    apps = list(APPS)[:1] if options.tiny else list(APPS)
    rows = [compared(app, models[app]) for app in apps]
    every = [e for off in errors.values() for e in off]
    document = {
        "mape": sum(every) / len(every) if every else None,
        "held_out": len(every),
        "mape_by_app": {app: sum(off) / len(off) for app, off in errors.items()},
        "workloads": rows,
        "machine": measure.machine(),
    }
    measure.show(document, rows, options.json)
    if every and not options.json:
        told = ", ".join(f"{app} {100 * sum(off) / len(off):.1f} %" for app, off in errors.items())
        print(f"\n{len(every)} batch sizes not fitted: {100 * sum(every) / len(every):.1f} % ({told})")


if __name__ == "__main__":
    try:
        main()
    except WrongQuestion as error:
        print(f"uneven_batches: {error}", file=sys.stderr)
        sys.exit(2)
