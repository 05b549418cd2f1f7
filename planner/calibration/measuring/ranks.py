"""Times collectives between the devices of one machine: a process for each, NCCL between GPUs, Gloo between CPUs."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planner.calibration.measuring.kernel_times import ELEMENT, EXCHANGE, GATHER, REDUCE, SCATTER, Kernel
from planner.calibration.measuring.timing import Refused, torch_module, trimmed_mean

WARM, SAMPLES, REPEATS = 3, 7, 10
PATIENCE = 0.1
"""Seconds between two looks at the processes."""
GIVE_UP = 300.0
"""Seconds without a result after which the processes are taken to hang."""

Found = Callable[[Kernel, float], None]


def time_collectives(kernels: Sequence[Kernel], device: str, report: Found) -> None:
    """Times collectives of one group size, handing over each as it is known.

    Raises:
        Refused: the processes cannot be started, or one of them failed or hangs.
    """
    torch_module()
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        results = processes.get_context("spawn").SimpleQueue()
        arguments = (list(kernels), device, str(Path(folder) / "store"), results)
        running = processes.spawn(_rank, args=arguments, nprocs=kernels[0].ranks, join=False)
        try:
            _collect(running, results, kernels, report)
        finally:
            for process in running.processes:
                process.kill() if process.is_alive() else None


def _collect(running: Any, results: Any, kernels: Sequence[Kernel], report: Found) -> None:
    heard = time.monotonic()
    done = False
    while not done:
        try:
            done = running.join(timeout=PATIENCE)
        except Exception as error:  # torch.multiprocessing raises what a rank raised, as one of its own
            raise Refused(str(error).strip().rsplit("\n", 1)[-1][:200]) from None
        while not results.empty():
            index, seconds = results.get()
            report(kernels[index], seconds)
            heard = time.monotonic()
        if time.monotonic() - heard > GIVE_UP:
            raise Refused(f"collectives between {kernels[0].ranks} ranks gave no result in {GIVE_UP:.0f} s")


def _rank(rank: int, kernels: list[Kernel], device: str, store: str, results: Any) -> None:
    """What one process does: every kernel in turn; the first hands over the slowest rank's time."""
    torch = torch_module()
    import torch.distributed as distributed

    warnings.simplefilter("ignore")  # newer releases rename these collectives; the old names are the ones that all have
    gpu = device.startswith("cuda")
    place = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(place)
    distributed.init_process_group(
        "nccl" if gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=kernels[0].ranks
    )
    try:
        for index, kernel in enumerate(kernels):
            seconds = _seconds(torch, distributed, kernel, place)
            if rank == 0:
                results.put((index, seconds))
    finally:
        distributed.destroy_process_group()


def _seconds(torch: Any, distributed: Any, kernel: Kernel, place: Any) -> float:
    work = _work(torch, distributed, kernel, place)
    synchronise = torch.cuda.synchronize if place.type == "cuda" else lambda: None
    samples = []
    for number in range(WARM + SAMPLES):
        distributed.barrier()
        synchronise()
        started = time.perf_counter()
        for _ in range(REPEATS):
            work()
        synchronise()
        if number >= WARM:
            samples.append((time.perf_counter() - started) / REPEATS)
    slowest = torch.tensor([trimmed_mean(samples)], device=place, dtype=torch.float32)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    return float(slowest.item())


def _work(torch: Any, distributed: Any, kernel: Kernel, place: Any) -> Callable[[], object]:
    """The collective over a vector of the kernel's size; a rank's share is a ranks-th of it."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kernel.dtype, torch.float32)
    whole = torch.zeros(kernel.size // ELEMENT[kernel.dtype], device=place, dtype=dtype)
    part = torch.zeros(len(whole) // kernel.ranks, device=place, dtype=dtype)
    made: dict[str, Callable[[], object]] = {
        REDUCE: lambda: distributed.all_reduce(whole),
        GATHER: lambda: distributed.all_gather_into_tensor(whole, part),
        SCATTER: lambda: distributed.reduce_scatter_tensor(part, whole),
        EXCHANGE: lambda: distributed.all_to_all_single(torch.empty_like(whole), whole),
    }
    return made[kernel.kind]
