"""Real training steps on one GPU: time and peak memory, as rows to validate predictions with.

Transformers of the library (some with fewer layers) train with PyTorch FSDP2 on one device: bf16 compute, fp32
gradients and AdamW states, random tokens, each shape at two sequence lengths, with nothing and with every block
recomputed. Prints one JSON object a line, with the columns of ``benchmarks/data/measured_runs.csv``; ``-o`` also adds
them to a CSV that ``clusterwright validate`` reads, and leaves out what that file holds already. Needs PyTorch
(``pip install 'clusterwright[measure]'``).

    python benchmarks/measured_steps.py -o my_steps.csv [--compile] [--tiny --device cpu]
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import transformer
from planner.models.parameters import parameters
from planner.models.workload import library
from planner.schema.workload import Model

COLUMNS = Path(__file__).resolve().parent / "data" / "measured_runs.csv"
SOURCE = "measured-steps"
SHAPES = {
    "mpt-760m": 24,
    "mpt-1b": 24,
    "mpt-3b": 32,
    "llama3.2-1b": 16,
    "llama3.2-3b": 28,
    "llama2-7b": 12,
    "llama3-70b": 2,
}
"""Model -> layers: small and large hidden sizes, plain and gated MLPs, all within 80 GB unless a run says otherwise."""
SEQUENCES = (2048, 8192)
TOKENS = 8192
"""Per micro-batch."""
ACCUMULATION = 2
WARM, STEPS = 3, 8


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    model: Model
    sequence: int
    micro: int
    recompute: bool
    compiled: bool = False
    """Whether every block is compiled."""

    @property
    def id(self) -> str:
        """What tells it from the others."""
        recompute = "full" if self.recompute else "none"
        mode = "-compiled" if self.compiled else ""
        return f"{SOURCE}-{self.model.id}-{self.model.layers}L-{self.sequence}-{recompute}{mode}"


def cases(tiny: bool, compiled: bool = False) -> Iterator[Case]:
    """Every shape at every length, without and with recomputation."""
    for name, layers in SHAPES.items():
        model = replace(library()[name], layers=layers)
        if tiny:
            model = replace(model, layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16, vocab=256)
        for sequence in (16, 32) if tiny else SEQUENCES:
            fitted = replace(model, learned_positions=sequence if model.learned_positions else 0)
            for recompute in (False, True):
                yield Case(fitted, sequence, max(1, (32 if tiny else TOKENS) // sequence), recompute, compiled)


def measured(case: Case, device: Any, tiny: bool) -> dict[str, Any]:
    """Seconds of a step (median) and the most bytes that the allocator held; both None where memory ran out."""
    import torch

    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        seconds = _steps(torch, case, device, 1 if tiny else WARM, 2 if tiny else STEPS)
    except torch.OutOfMemoryError:
        seconds = None
    reserved = torch.cuda.max_memory_reserved() if gpu and seconds else None
    allocated = torch.cuda.max_memory_allocated() if gpu and seconds else None
    gc.collect()
    return {"seconds": seconds, "reserved": reserved, "allocated": allocated}


def _steps(torch: Any, case: Case, device: Any, warm: int, steps: int) -> float:
    network = transformer.sharded(case.model, case.sequence, case.recompute, device, case.compiled)
    update = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=device.type == "cuda")
    shape = (case.micro, case.sequence + 1)
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    taken = []
    for _ in range(warm + steps):
        batches = [torch.randint(case.model.vocab, shape, device=device) for _ in range(ACCUMULATION)]
        synchronise()
        started = time.perf_counter()
        for batch in batches:
            (network(batch[:, :-1], batch[:, 1:]) / ACCUMULATION).backward()
        update.step()
        update.zero_grad(set_to_none=True)
        synchronise()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[warm:])


def row(case: Case, found: Mapping[str, Any], accelerator: str, version: str) -> dict[str, object]:
    """A run in the columns of the runs file; a cell that does not apply is empty."""
    model, batch, seconds = case.model, case.micro * ACCUMULATION, found["seconds"]
    mode = "compiled blocks" if case.compiled else "eager"
    allocated = f"; {found['allocated'] / 1e9:.2f} GB allocated at most" if found["allocated"] else ""
    cells = {
        "id": case.id,
        "source": SOURCE,
        "source_ref": "benchmarks/measured_steps.py",
        "model": model.id,
        "family": "dense",
        "params_b": parameters(model).total / 1e9,
        "layers": model.layers,
        "hidden": model.hidden,
        "ffn_hidden": model.ffn,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocab,
        "gated_mlp": int(model.gated),
        "seq_len": case.sequence,
        "accelerator": accelerator,
        "accelerators_per_node": 1,
        "num_accelerators": 1,
        **dict.fromkeys(("tp", "pp", "vpp", "dp", "cp"), 1),
        "micro_batch": case.micro,
        "global_batch_seqs": batch,
        "zero_stage": 3,
        "sharding": "FSDP2",
        "activation_recompute": "full" if case.recompute else "none",
        "sequence_parallel": 0,
        "precision": "bf16",
        "metric": "iter_time_s" if seconds else "oom",
        "value": seconds,
        "memory_gb_per_gpu": found["reserved"] / 1e9 if found["reserved"] else None,
        "memory_kind": "peak reserved" if found["reserved"] else "",
        "notes": f"torch {version}; {mode}; AdamW; one device{allocated}",
        "tokens_per_s_per_gpu": batch * case.sequence / seconds if seconds else None,
        "step_time_s": seconds,
        "task": "pretrain",
        "evidence": "measured",
        "grade": "A",
        "source_group": SOURCE,
        "model_base": model.id,
        "release": f"{datetime.date.today():%Y%m}",
    }
    cells = {name: "" if value is None else value for name, value in cells.items()}
    return {name: _short(cells.get(name, "")) for name in columns()}


def columns() -> list[str]:
    """The columns of the runs file."""
    with COLUMNS.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def _short(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _done(path: Path | None) -> set[str]:
    if path is None or not path.exists():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {line["id"] for line in csv.DictReader(file)}


def _add(path: Path, cells: Mapping[str, object]) -> None:
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns(), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(cells)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, cpu")
    parser.add_argument("--accelerator", help="what to call it; the device's own name if left out")
    parser.add_argument("--compile", action="store_true", dest="compiled", help="compile every block")
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose id contains this")
    parser.add_argument("--tiny", action="store_true", help="the same at a size that only shows that it runs")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.csv", help="add the rows to this file as well")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs every case and prints its row."""
    options = arguments(argv)
    try:
        import torch
    except ModuleNotFoundError:
        raise SystemExit("measured_steps needs PyTorch: pip install 'clusterwright[measure]'") from None
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"PyTorch {torch.__version__} sees no GPU; --tiny --device cpu shows that the script runs")
    name = options.accelerator or (torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU")
    done = _done(options.output)
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        backend = "nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        torch.distributed.init_process_group(backend, init_method=store, rank=0, world_size=1)
        try:
            for case in cases(options.tiny, options.compiled):
                if case.id not in done and options.only in case.id:
                    found = measured(case, device, options.tiny)
                    cells = row(case, found, name, torch.__version__)
                    print(json.dumps(cells), flush=True)
                    if options.output:
                        _add(options.output, cells)
        finally:
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
