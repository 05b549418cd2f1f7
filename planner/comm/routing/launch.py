"""How the processes of a job find each other: by the environment that torchrun sets, or through MPI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from planner.comm.routing.router import Router
from planner.comm.routing.rules import EITHER_MPI, RoutingRule, of_plan, pools_of_plan


def start(
    plan: str | Path | Sequence[RoutingRule],
    backends: Sequence[str] | None = None,
    *,
    seconds: float = 60.0,
    rank: int = 1,
) -> Router:
    """A router for this job; PyTorch's default process group (Gloo) is made if there is none.

    Args:
        plan: A file that ``clusterwright comm choose -o`` wrote, or rules.
        backends: What to load; by default those that the rules name, after ``gloo``.
        seconds: After which a rank that never came is given up.
        rank: Which plan of a set.

    Raises:
        RuntimeError: PyTorch or mpi4py is missing, or the job was not started by MPI and needs it.
    """
    rules = of_plan(plan, rank) if isinstance(plan, str | Path) else tuple(plan)
    names = tuple(backends) if backends else tuple(dict.fromkeys(("gloo", *(rule.backend for rule in rules))))
    rendezvous(any(name in EITHER_MPI for name in names), seconds)
    pools: tuple[int, ...] = ()
    if isinstance(plan, str | Path) and any(rule.pools is not None for rule in rules):
        pools = pools_of_plan(plan, rank)
    return Router(rules, names, seconds=seconds, pools=pools)


def rendezvous(with_mpi: bool, seconds: float = 60.0) -> None:
    """Makes PyTorch's default process group, by ``RANK`` and ``MASTER_ADDR``, or by what MPI knows.

    Raises:
        RuntimeError: see :func:`start`.
    """
    try:
        import torch.distributed as dist
    except ModuleNotFoundError:
        raise RuntimeError("a router needs PyTorch: pip install 'clusterwright[runtime]'") from None
    world = _mpi() if with_mpi else None
    if not dist.is_initialized():
        limit = timedelta(seconds=seconds)
        if world is not None:
            dist.init_process_group(
                "gloo", f"tcp://{_meeting(world)}", timeout=limit, rank=world.rank, world_size=world.size
            )
        elif "RANK" in os.environ:
            dist.init_process_group("gloo", timeout=limit)
        else:
            raise RuntimeError("started neither by torchrun nor by MPI: there are no other ranks to talk to")
    if world is not None and (world.rank, world.size) != (dist.get_rank(), dist.get_world_size()):
        raise RuntimeError(
            f"MPI counts this process as {world.rank} of {world.size}, PyTorch as {dist.get_rank()} of "
            f"{dist.get_world_size()}: start the job with mpiexec -n {dist.get_world_size()} instead of torchrun"
        )


def _mpi() -> Any:
    """All ranks of the job."""
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise RuntimeError("MPI needs mpi4py and a library: pip install 'clusterwright[mpi]'") from None
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(f"mpi4py is installed but finds no MPI library: {error}") from None
    return MPI.COMM_WORLD


def _meeting(world: Any) -> str:
    """``host:port`` where all ranks meet: a free port of rank 0's host."""
    import socket

    mine = socket.gethostname()
    port = 0
    hosts = set(world.allgather(mine))
    if world.rank == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    return str(world.bcast(f"{'127.0.0.1' if len(hosts) == 1 else mine}:{port}", 0))
