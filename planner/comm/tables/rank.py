"""What one rank of a measuring job does: every call by every back end in turn, a line of JSON for each on rank 0.

Started by :mod:`planner.comm.tables.measuring` with the file of the job's description. Calls go through the back ends
that the router of :mod:`planner.comm.routing` uses, so that what is measured is what a plan will get.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.calibration.measuring.timing import trimmed_mean
from planner.comm.routing import Router
from planner.comm.routing.launch import rendezvous
from planner.comm.routing.rules import EITHER_MPI

WARM = 2
"""Calls before the first that counts, in every round."""
BUDGET = 0.03
"""Seconds that the calls of one cell may take together in a round, beyond the least."""
LEAST, MOST = 2, 40
"""Calls in a round."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """One call: prepared, made (this is timed), and checked."""

    prepare: Callable[[], None]
    make: Callable[[], None]
    right: Callable[[], bool]
    shared: float = 1.0
    """What the timed part is divided by: 2 for there and back."""


def main() -> None:
    """Runs a rank of the job in the JSON file of argument 1: backends, ops, sizes in bytes, rounds, done, seed."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rendezvous(any(name in EITHER_MPI for name in job["backends"]))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if "nccl" in job["backends"]:
        device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    routers = {_named(name): Router([], [name]) for name in job["backends"]}
    done = {tuple(entry) for entry in job["done"]}
    for number in job["rounds"]:
        cells = [(op, size) for size in job["sizes"] for op in job["ops"]]
        for index, (op, size) in enumerate(cells):
            # Interleaved: who comes first changes from cell to cell, alike on all ranks.
            order = list(routers)
            random.Random(f"{job['seed']} {number} {index}").shuffle(order)
            for name in order:
                if (name, op, size, number) in done:
                    continue
                seconds = seconds_of(torch, routers[name], op, size, device)
                if dist.get_rank() == 0:
                    row = {"backend": name, "op": op, "bytes": size, "round": number, "seconds": seconds}
                    print(json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _named(name: str) -> str:
    """MPI by the library that is loaded."""
    if name not in EITHER_MPI:
        return name
    from mpi4py import MPI

    text = str(MPI.Get_library_version()).lower()
    return next((known for word, known in (("open mpi", "openmpi"), ("mpich", "mpich")) if word in text), "mpi")


def seconds_of(torch: Any, router: Router, op: str, size: int, device: Any, most: int = MOST) -> float:
    """Seconds of one call of `size` bytes: the slowest rank's trimmed mean of at most `most` calls."""
    dist = torch.distributed
    once = call(torch, router, op, size, device)
    first = max(once() for _ in range(WARM))
    agreed = torch.tensor([first], dtype=torch.float64)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    calls = min(max(int(BUDGET / float(agreed)), LEAST), most)
    dist.barrier()
    slowest = torch.tensor([trimmed_mean([once() for _ in range(calls)])], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def call(torch: Any, router: Router, op: str, size: int, device: Any) -> Callable[[], float]:
    """A function that makes the call once, checks its result, and returns its seconds on this rank."""
    work = _work(torch, router, op, size, device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def once() -> float:
        work.prepare()
        wait()
        started = time.perf_counter()
        work.make()
        wait()
        seconds = time.perf_counter() - started
        if not work.right():
            raise SystemExit(f"{list(router.backends)}: a wrong result of {op} of {size} bytes on rank {router.rank}")
        return seconds / work.shared

    return once


def _work(torch: Any, router: Router, op: str, size: int, device: Any) -> RankWork:
    """A call of so many bytes of float32; every result can be told from what was there before."""
    n = router.world.size
    rank = router.rank
    share = max(size // 4 // n, 1)
    whole = torch.zeros(share * n, device=device)
    part = torch.zeros(share, device=device)
    total = n * (n + 1) / 2

    def filled(tensor: Any, value: float) -> Callable[[], None]:
        def fill() -> None:
            tensor.fill_(value)

        return fill

    def holds(tensor: Any, value: float) -> Callable[[], bool]:
        return lambda: bool((tensor == value).all())

    def ordered() -> bool:
        return bool((whole.view(n, share) == torch.arange(1.0, n + 1, device=device)[:, None]).all())

    sent = torch.full((share * n,), float(rank + 1), device=device)

    def cleared() -> None:
        whole.zero_()
        part.zero_()

    if op == "all-reduce":
        return RankWork(filled(whole, rank + 1.0), lambda: router.all_reduce(whole), holds(whole, total))
    if op == "all-gather":
        mine = sent[:share].clone()
        return RankWork(cleared, lambda: router.all_gather_into_tensor(whole, mine), ordered)
    if op == "reduce-scatter":
        return RankWork(cleared, lambda: router.reduce_scatter_tensor(part, sent), holds(part, total))
    if op == "all-to-all":
        return RankWork(cleared, lambda: router.all_to_all_single(whole, sent), ordered)
    if op == "broadcast":
        return RankWork(filled(whole, rank + 1.0), lambda: router.broadcast(whole, 0), holds(whole, 1.0))
    return _ping_pong(router, whole, sent, cleared, holds)


def _ping_pong(
    router: Router, whole: Any, sent: Any, cleared: Callable[[], None], holds: Callable[[Any, float], Any]
) -> RankWork:
    """From rank 0 to rank 1 and back; the others look on."""

    def make() -> None:
        if router.rank == 0:
            router.send(sent, 1)
            router.recv(whole, 1)
        elif router.rank == 1:
            router.recv(whole, 0)
            router.send(sent, 0)

    return RankWork(cleared, make, holds(whole, {0: 2.0, 1: 1.0}.get(router.rank, 0.0)), shared=2.0)


if __name__ == "__main__":
    main()
