"""A job of many processes that makes random calls through a router, and says what it saw as JSON on rank 0.

``mpiexec -n 2 python tests/routed_calls.py WHAT``: calls, corners, training, planted-rules, planted-choice.
"""

import hashlib
import json
import random
import sys
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from planner.comm import routing
from planner.comm.routing.launch import rendezvous
from planner.comm.routing.rules import OPERATIONS, RoutingRule

CALLS = 1000
SIZES = (1, 3, 64, 1000, 4096, 30_000, 300_000)
"""Elements of a rank's share."""
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.uint8)


def rules(seed: int, names: list[str]) -> list[RoutingRule]:
    """Every operation and group size, in four classes of size, each with a back end drawn at random."""
    draw, edges = random.Random(seed), (0, 512, 16_384, 400_000, 1 << 40)
    return [
        RoutingRule(op, ranks, low, high - 1, draw.choice(names))
        for op in OPERATIONS
        for ranks in (2, 4)
        for low, high in pairwise(edges)
    ]


class Program:
    """The same calls in the same order whatever they are sent by; handles are waited for in any order."""

    def __init__(self, router: routing.Router, seed: int) -> None:
        self.router, self.draw = router, random.Random(seed)
        self.rank, self.world = router.rank, router.world.size
        self.own = random.Random(seed * 1000 + self.rank)  # when a rank waits is its own affair
        halves = [(0, 1), (2, 3)] if self.world == 4 else []
        made = [router.new_group(ranks) for ranks in halves]
        self.groups = [router.world, router.world, *[g for g in made if self.rank in g.ranks][:1]]
        self.pending: list[tuple[Any, torch.Tensor]] = []
        self.seen = hashlib.sha256()
        self.results: list[torch.Tensor] = []
        self.made: dict[str, int] = dict.fromkeys(OPERATIONS, 0)

    def tensor(self, rows: int, dtype: torch.dtype) -> torch.Tensor:
        """Small whole numbers, other ones on every rank: their sums are exact in every type."""
        start = self.draw.randrange(5)
        return ((torch.arange(rows) * 7 + start + 3 * self.rank) % 5).to(dtype)

    def run(self, calls: int) -> str:
        for number in range(calls):
            op = self.draw.choice(OPERATIONS)
            getattr(self, op.replace("-", "_"))(number)
            self.made[op] += 1
            while self.pending and self.own.random() < 0.4:
                self.finish(self.own.randrange(len(self.pending)))
        while self.pending:
            self.finish(self.own.randrange(len(self.pending)))
        self.router.synchronize()
        for tensor in self.results:
            self.seen.update(tensor.view(torch.uint8).numpy().tobytes())
        return self.seen.hexdigest()

    def finish(self, index: int) -> None:
        handle, _ = self.pending.pop(index)
        if self.own.random() < 0.3:
            handle.is_completed()
        handle.wait()

    def keep(self, result: torch.Tensor, handle: Any, held: torch.Tensor) -> None:
        self.results.append(result)
        if handle is not None:
            self.pending.append((handle, held))

    def drawn(self) -> tuple[Any, int, torch.dtype, bool]:
        group = self.groups[self.draw.randrange(len(self.groups))]
        size, dtype = self.draw.choice(SIZES), self.draw.choice(DTYPES)
        return group, size if self.draw.random() < 0.3 else min(size, 4096), dtype, self.draw.random() < 0.5

    def all_reduce(self, number: int) -> None:
        group, size, dtype, later = self.drawn()
        tensor, how = self.tensor(size, dtype), self.draw.choice(("sum", "min", "max"))
        self.keep(tensor, self.router.all_reduce(tensor, how, group, later), tensor)

    def all_gather(self, number: int) -> None:
        group, size, dtype, later = self.drawn()
        tensor = self.tensor(size, dtype)
        output = torch.zeros(size * group.size, dtype=dtype)
        self.keep(output, self.router.all_gather_into_tensor(output, tensor, group, later), tensor)

    def reduce_scatter(self, number: int) -> None:
        group, size, dtype, later = self.drawn()
        tensor = self.tensor(size * group.size, dtype)
        output = torch.zeros(size, dtype=dtype)
        self.keep(output, self.router.reduce_scatter_tensor(output, tensor, "sum", group, later), tensor)

    def all_to_all(self, number: int) -> None:
        group, size, dtype, later = self.drawn()
        if self.draw.random() < 0.5:
            tensor, output = self.tensor(size * group.size, dtype), torch.zeros(size * group.size, dtype=dtype)
            handle = self.router.all_to_all_single(output, tensor, group=group, async_op=later)
        else:  # rank a sends a + 2 b + 1 rows to rank b: other bytes on every rank
            mine = group.ranks.index(self.rank)
            sent = [mine + 2 * other + 1 for other in range(group.size)]
            received = [other + 2 * mine + 1 for other in range(group.size)]
            tensor = self.tensor(sum(sent) * 5, dtype).view(-1, 5)
            output = torch.zeros(sum(received), 5, dtype=dtype)
            handle = self.router.all_to_all_single(output, tensor, received, sent, group, later)
        self.keep(output, handle, tensor)

    def broadcast(self, number: int) -> None:
        group, size, dtype, later = self.drawn()
        tensor, source = self.tensor(size, dtype), group.ranks[self.draw.randrange(group.size)]
        self.keep(tensor, self.router.broadcast(tensor, source, group, later), tensor)

    def send_recv(self, number: int) -> None:
        """Round a ring: begun on all ranks and waited for at any time, or blocking with even ranks first."""
        _, size, dtype, later = self.drawn()
        tensor, output = self.tensor(size, dtype), torch.zeros(size, dtype=dtype)
        to, source = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        self.results.append(output)
        if later:
            self.pending.append((self.router.irecv(output, source, tag=number), output))
            self.pending.append((self.router.isend(tensor, to, tag=number), tensor))
        elif self.rank % 2 == 0:
            self.router.send(tensor, to, tag=number)
            self.router.recv(output, source, tag=number)
        else:
            self.router.recv(output, source, tag=number)
            self.router.send(tensor, to, tag=number)


def calls(seeds: int = 1) -> dict[str, Any]:
    """The program by each back end alone and by mixtures."""
    found: dict[str, Any] = {"alone": {}, "mixed": [], "counts": [], "made": []}
    for seed in range(seeds):
        for name in ("gloo", "mpi"):
            other = "mpi" if name == "gloo" else "gloo"  # for sums of bfloat16, which MPI has not
            router = routing.Router(rules(seed, [name]), [name, other])
            found["alone"][f"{name} {seed}"] = Program(router, seed).run(CALLS)
        router = routing.Router(rules(seed, ["gloo", "mpi"]), ["gloo", "mpi"])
        program = Program(router, seed)
        found["mixed"].append(program.run(CALLS))
        found["counts"].append(router.counts)
        found["made"].append(program.made)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, found)
    return {"ranks": every}


def corners() -> dict[str, Any]:
    """Programs that are right on one library and stand still on two, unless who waits for one moves the other."""
    large, seen = 2_000_000, []
    for transfers, sums in (("mpi", "gloo"), ("gloo", "mpi"), ("mpi", "mpi")):
        by = [
            RoutingRule("send-recv", None, 0, 1 << 40, transfers),
            RoutingRule("all-reduce", None, 0, 999, sums),
            RoutingRule("all-reduce", None, 1000, 1 << 40, transfers),
        ]
        router = routing.Router(by, ["gloo", "mpi"], seconds=30)
        mine, theirs = torch.full((large,), 1.0 + router.rank), torch.zeros(large)
        one = torch.ones(10)
        # A sum of several rounds that one rank waits for while the other waits in the other library.
        for _ in range(5):
            whole = torch.full((large,), 1.0 + router.rank)
            handle = router.all_reduce(whole, async_op=True)
            if router.rank == 1:
                handle.wait()
            router.all_reduce(torch.ones(10))
            handle.wait()
            seen.append(bool((whole == 3).all()))
        # A send that is under way while its sender waits in the other library for who has not received it yet.
        if router.rank == 0:
            handle = router.isend(mine, 1)
            router.all_reduce(one)
            handle.wait()
        elif router.rank == 1:
            router.recv(theirs, 0)
            router.all_reduce(one)
        seen.append(router.rank == 0 or bool((theirs == 1).all()))
        # A receive that was started first and is completed only by what follows the wait for the second.
        if router.rank == 0:
            first, second = router.irecv(theirs, 1), router.isend(mine, 1)
            second.wait()
            router.all_reduce(one)
            first.wait()
        elif router.rank == 1:
            router.recv(theirs, 0)
            router.all_reduce(one)
            router.send(mine, 0)
        seen.append(bool((theirs == (2 if router.rank == 0 else 1)).all()) and float(one[0]) == 4.0)
    return {"right": seen}


def planned() -> dict[str, Any]:
    """Rules from a plan's file, as a training script starts a router."""
    router = routing.start(sys.argv[2])
    found = []
    for size in (8, 9, 10, 5000, 5001):
        tensor = torch.full((size,), 1.0 + router.rank)
        router.all_reduce(tensor)
        found.append(float(tensor[0]))
    router.barrier()
    return {"sums": found, "counts": router.counts, "compared": len(router._agreed)}


def pooled() -> dict[str, Any]:
    """Rules that differ by pool, from a plan's file: ranks 0 and 1 stand on one pool, 2 and 3 on the other."""
    router = routing.start(sys.argv[2])
    groups = {
        name: router.new_group(ranks) for name, ranks in (("first", (0, 1)), ("second", (2, 3)), ("both", (1, 2)))
    }
    sums: dict[str, list[float]] = {}
    made: dict[str, dict[str, int]] = {}
    for name, group in groups.items():
        before = dict(router.counts)
        for size in (8, 5000) if router.rank in group.ranks else ():
            tensor = torch.full((size,), 1.0 + router.rank)
            router.all_reduce(tensor, group=group)
            sums.setdefault(name, []).append(float(tensor.sum() / size))
        if router.rank in group.ranks:
            made[name] = {who: n - before.get(who, 0) for who, n in router.counts.items() if n - before.get(who, 0)}
    router.barrier()
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, {"sums": sums, "made": made})
    return {"pools": every}


def training() -> dict[str, Any]:
    """DistributedDataParallel by itself and through a router: losses and parameters."""
    by_size = [
        RoutingRule("all-reduce", None, 0, 20_000, "mpi"),
        RoutingRule("all-reduce", None, 20_001, 1 << 40, "gloo"),
    ]
    router = routing.Router(by_size, ["gloo", "mpi"])
    found = {}
    for name in ("plain", "routed"):
        torch.manual_seed(0)
        sides = (64, 16, 1000, 64)  # the last bucket, of the first layer alone, is small
        linear = [torch.nn.Linear(a, b) for a, b in pairwise(sides)]
        net = torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2])
        model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.03)
        if name == "routed":
            model.register_comm_hook(None, router.hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.Generator().manual_seed(dist.get_rank())
        losses = []
        for _ in range(12):
            x, y = torch.randn(16, 64, generator=data), torch.randn(16, 64, generator=data)
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        found[name] = {"losses": losses, "parameters": [float(p.detach().double().sum()) for p in net.parameters()]}
    return {**found, "counts": router.counts}


def planted_rules() -> dict[str, Any]:
    """Rank 1 has another rule."""
    name = "mpi" if dist.get_rank() == 1 else "gloo"
    try:
        routing.Router([RoutingRule("all-reduce", None, 0, 1 << 40, name)], ["gloo", "mpi"], seconds=20)
    except routing.Disagreement as error:
        return {"refused": str(error)}
    return {"refused": ""}


def planted_choice() -> dict[str, Any]:
    """Rank 1 decides otherwise, for one size that no probe asks about."""

    def decide(op: str, ranks: int, size: float) -> str:
        return "mpi" if dist.get_rank() == 1 and size == 4 * 777 else "gloo"

    router = routing.Router([], ["gloo", "mpi"], decide=decide, seconds=20)
    router.all_reduce(torch.ones(10))
    told = []
    for _ in range(2):
        try:
            router.all_reduce(torch.ones(777))
        except routing.Disagreement as error:
            told.append(str(error))
    router.all_reduce(torch.ones(10))
    return {"refused": told}


def main() -> None:
    torch.set_num_threads(1)
    what = sys.argv[1]
    if what not in ("planned", "pooled"):
        rendezvous(with_mpi=True)
    made = {
        "calls": calls,
        "training": training,
        "corners": corners,
        "planned": planned,
        "pooled": pooled,
        "planted-rules": planted_rules,
        "planted-choice": planted_choice,
    }
    found = made[what]()
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, found.get("refused"))
    if dist.get_rank() == 0:
        print(json.dumps({**found, "every": every}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
