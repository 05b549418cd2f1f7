"""The front: calls as ``torch.distributed`` takes them, each sent to the back end that the rules name.

Why no mixture can deadlock that does not deadlock on one library:

1. Every rank takes the same decision. It depends on the operation, the group's size, the bytes and the element only;
   it is taken once for each of these, and the ranks of the group compare it the first time (:class:`Disagreement`).
   An uneven all-to-all has other bytes on every rank, so its back end does not depend on them.
2. Calls are handed to the libraries in the order in which the program makes them: each library sees, of its
   communicator, the same order on all ranks.
3. Whoever waits for one library keeps the others moving. Gloo and NCCL move by themselves; MPI moves only inside its
   own calls, so a wait for Gloo while MPI has work under way polls both. (To complete handles in the order of issue
   instead would itself deadlock: a receive that was started first may be completed by what comes after a wait.)
4. Libraries have communicators of their own, and the comparison of decisions has one, too.
5. A tensor on a GPU is complete before a library that runs on the host reads it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.comm.routing.backends import Mpi, Pending, Torch
from planner.comm.routing.rules import EITHER_MPI, OPERATIONS, RoutingRule, checked, choose, matched

SPINS = 200
"""Looks at a handle in a row before the processor is left to others for a while."""
NAP = 5e-5
"""Seconds of that while."""
TAG = 0
REMEMBERED = 4096
"""Kinds of calls whose back end a group remembers."""


class Disagreement(RuntimeError):
    """Ranks would use different back ends for one call, or make different calls."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that talk to each other, with a communicator in every back end."""

    ranks: tuple[int, ...]
    backends: dict[str, Any]
    control: Any
    known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    """Operation, bytes, element and reduction -> back end, of calls that were decided before."""

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)


class Handle:
    """An operation under way; :meth:`wait` as PyTorch's."""

    def __init__(self, router: Router, pending: Pending) -> None:
        self._router, self._pending, self._over = router, pending, False

    def is_completed(self) -> bool:
        """Whether the result is there; other libraries are kept moving."""
        self._router._poke()
        return self._over or self._pending.done()

    def wait(self) -> bool:
        """Waits for the result."""
        if not self._over:
            self._router._wait(self._pending)
            self._over = True
        return True


class Router:
    """Sends calls to back ends by rules.

    Args:
        rules: From :func:`planner.comm.routing.rules.of_plan`.
        backends: To load, the first for whatever no rule names: ``gloo``, ``nccl``, and one of ``mpi``, ``mpich``,
            ``openmpi`` (whichever mpi4py finds; the job has to be started by that library's ``mpiexec``).
        seconds: After which a rank that never came is given up.
        decide: In place of the rules: ``(op, ranks, bytes) -> back end``. It has to say the same on every rank.
        pools: The pool of every rank, for rules that hold on some pools only.

    Raises:
        ValueError: rules that cannot be followed.
        Disagreement: the ranks have different rules or back ends.
    """

    def __init__(
        self,
        rules: Sequence[RoutingRule],
        backends: Sequence[str],
        *,
        seconds: float = 60.0,
        decide: Callable[[str, int, float], str] | None = None,
        pools: Sequence[int] = (),
    ) -> None:
        import torch.distributed as dist

        self._dist, self.backends, self._seconds = dist, tuple(backends), seconds
        if not self.backends or sum(name in EITHER_MPI for name in self.backends) > 1:
            raise ValueError(f"back ends {list(backends)}: at least one, and a process loads one MPI library at most")
        self.rules, self._decide = checked(rules, self.backends), decide
        self._pools = tuple(pools) if any(rule.pools is not None for rule in rules) else ()
        if self._pools and len(self._pools) != dist.get_world_size():
            raise ValueError(
                f"rules by pool, of {len(self._pools)} ranks in all; this job has {dist.get_world_size()}: start it as "
                "the plan states, with ranks numbered pool by pool"
            )
        self._agreed: dict[tuple[Any, ...], str] = {}
        self._open: list[Pending] = []  # of MPI
        self.rank = dist.get_rank()
        self.counts: dict[str, int] = dict.fromkeys(self.backends, 0)
        self._control = Torch("gloo", range(dist.get_world_size()), seconds)
        self._compare_rules()
        self.world = self.new_group(range(dist.get_world_size()))

    def new_group(self, ranks: Sequence[int]) -> RankGroup:
        """Communicators of a group in every back end. All ranks of the job call it, in one order."""
        members = tuple(ranks)
        made: dict[str, Any] = {}
        for name in self.backends:
            made[name] = Mpi(members) if name in EITHER_MPI else Torch(name, members, self._seconds)
        return RankGroup(members, made, Torch("gloo", members, self._seconds))

    # ---- operations --------------------------------------------------------------------------------------------------

    def all_reduce(self, tensor: Any, op: Any = "sum", group: RankGroup | None = None, async_op: bool = False) -> Any:
        """Sums (or multiplies, or takes the least or largest of) a tensor over the group, in place."""
        call = {"tensor": tensor, "reduction": _reduction(op)}
        return self._go("all-reduce", call, group, _bytes(tensor), async_op)

    def all_gather_into_tensor(
        self, output: Any, tensor: Any, group: RankGroup | None = None, async_op: bool = False
    ) -> Any:
        """Concatenates every rank's `tensor`, in the order of ranks, into `output` (size x as many elements)."""
        return self._go("all-gather", {"output": output, "tensor": tensor}, group, _bytes(output), async_op)

    def reduce_scatter_tensor(
        self, output: Any, tensor: Any, op: Any = "sum", group: RankGroup | None = None, async_op: bool = False
    ) -> Any:
        """Sums `tensor` over the group and writes this rank's equal share of it to `output`."""
        call = {"output": output, "tensor": tensor, "reduction": _reduction(op)}
        return self._go("reduce-scatter", call, group, _bytes(tensor), async_op)

    def all_to_all_single(
        self,
        output: Any,
        tensor: Any,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: RankGroup | None = None,
        async_op: bool = False,
    ) -> Any:
        """Sends every rank a share of `tensor` and receives theirs in `output`; splits: rows by rank, else equal."""
        even = output_split_sizes is None and input_split_sizes is None
        lists = [list(sizes) if sizes else None for sizes in (output_split_sizes, input_split_sizes)]
        call = {"output": output, "tensor": tensor, "received": lists[0], "sent": lists[1]}
        return self._go("all-to-all", call, group, _bytes(tensor) if even else None, async_op)

    def broadcast(self, tensor: Any, src: int, group: RankGroup | None = None, async_op: bool = False) -> Any:
        """Copies the tensor of rank `src` (of the job) to all ranks of the group, in place."""
        call = {"tensor": tensor, "root": (group or self.world).ranks.index(src)}
        return self._go("broadcast", call, group, _bytes(tensor), async_op)

    def isend(self, tensor: Any, dst: int, group: RankGroup | None = None, tag: int = TAG) -> Handle:
        """Starts to send to rank `dst` (of the job)."""
        return self._transfer(tensor, dst, group, tag, sends=True)

    def irecv(self, tensor: Any, src: int, group: RankGroup | None = None, tag: int = TAG) -> Handle:
        """Starts to receive from rank `src`, a tensor of the same size as is sent."""
        return self._transfer(tensor, src, group, tag, sends=False)

    def send(self, tensor: Any, dst: int, group: RankGroup | None = None, tag: int = TAG) -> None:
        """Sends, and waits until the tensor may change again."""
        self.isend(tensor, dst, group, tag).wait()

    def recv(self, tensor: Any, src: int, group: RankGroup | None = None, tag: int = TAG) -> None:
        """Receives from rank `src` (of the job), and waits until the tensor is filled."""
        self.irecv(tensor, src, group, tag).wait()

    def barrier(self, group: RankGroup | None = None) -> None:
        """Waits for all ranks of the group, and for all that this one has under way in MPI."""
        import torch

        self.all_reduce(torch.zeros(1), group=group)
        self.synchronize()

    def synchronize(self) -> None:
        """Waits for all that is under way, in every back end."""
        import torch

        for pending in list(self._open):
            self._wait(pending)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    @property
    def hook(self) -> Callable[[Any, Any], Any]:
        """For DistributedDataParallel's ``register_comm_hook(None, router.hook)``: the mean of a bucket's gradients."""
        return lambda state, bucket: self._mean(bucket)  # a lambda: PyTorch refuses hooks whose annotations are text

    def _mean(self, bucket: Any) -> Any:
        import torch

        buffer = bucket.buffer()
        self.all_reduce(buffer.div_(self.world.size))
        future: Any = torch.futures.Future()
        future.set_result(buffer)
        return future

    # ---- routing -----------------------------------------------------------------------------------------------------

    def _go(self, op: str, call: dict[str, Any], group: RankGroup | None, size: float | None, async_op: bool) -> Any:
        group = group or self.world
        name = self._choice(op, call["tensor"], call.get("reduction", ""), group, size)
        backend = group.backends[name]
        self.counts[name] += 1
        if not async_op and isinstance(backend, Mpi):
            backend.run(op, call)  # its calls move whatever else MPI has under way
            return None
        pending = backend.start(op, call)
        return self._begun(backend, pending) if async_op else self._wait(pending)

    def _transfer(self, tensor: Any, peer: int, group: RankGroup | None, tag: int, *, sends: bool) -> Handle:
        """Decided without a word to the others: the two ends know the same."""
        group = group or self.world
        size = _bytes(tensor)
        key = ("send-recv", size, tensor.dtype)
        name = group.known.get(key)
        if name is None:
            decided = self._decided("send-recv", group.ranks, size)
            name = self._kept(group, key, self._able(decided, "send-recv", tensor.dtype, "", group))
        self.counts[name] += 1
        call = {"tensor": tensor, "peer": group.ranks.index(peer), "tag": tag, "sends": sends}
        return self._begun(group.backends[name], group.backends[name].start("send-recv", call))

    def _begun(self, backend: Any, pending: Pending) -> Handle:
        if isinstance(backend, Mpi):
            self._open.append(pending)
        return Handle(self, pending)

    def _choice(self, op: str, tensor: Any, reduction: str, group: RankGroup, size: float | None) -> str:
        """The back end of a call: as before, if there was one like it."""
        key = (op, size, tensor.dtype, reduction)
        known = group.known.get(key)
        return known or self._kept(group, key, self._agreed_upon(op, tensor, reduction, group, size))

    @staticmethod
    def _kept(group: RankGroup, key: tuple[Any, ...], name: str) -> str:
        """Remembers a choice: finding its rule anew takes as long as a small call does."""
        if len(group.known) >= REMEMBERED:
            group.known.clear()
        group.known[key] = name
        return name

    def _agreed_upon(self, op: str, tensor: Any, reduction: str, group: RankGroup, size: float | None) -> str:
        """The back end of a call, agreed upon once for each kind of call in a group: a rule's, or by a decision of the
        caller's own each size.
        """
        # All sizes of one rule are one kind of call: training on ever new sizes compares no more than a few times.
        decides = self._decide is not None
        kind = size if decides or size is None else matched(self.rules, op, group.size, size, self._stand(group.ranks))
        agreed = (op, group.ranks, size is None, kind, tensor.dtype, reduction)
        if agreed not in self._agreed:
            # Uneven all-to-all: bytes differ from rank to rank, so they must not decide.
            name = self.backends[0] if size is None else self._decided(op, group.ranks, size)
            name = self._able(name, op, tensor.dtype, reduction, group)
            which = f"{size:.0f} bytes" if decides and size is not None else f"rule {kind}"
            self._compare(group, f"{op} ({which}) of {tensor.dtype} {reduction}".rstrip(), name)
            self._agreed[agreed] = name
        return self._agreed[agreed]

    def _decided(self, op: str, ranks: Sequence[int], size: float) -> str:
        """By the rules, or by a decision of the caller's own."""
        if self._decide is not None:
            return self._decide(op, len(ranks), size)
        return choose(self.rules, op, len(ranks), size, self.backends[0], self._stand(ranks))

    def _stand(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Pools of a group's ranks: all of them know these alike."""
        return tuple(sorted({self._pools[rank] for rank in ranks})) if self._pools else ()

    def _able(self, name: str, op: str, dtype: Any, reduction: str, group: RankGroup) -> str:
        """The back end, or the first that knows the element."""
        if name not in group.backends:
            raise ValueError(f"no back end {name!r} here; loaded are {', '.join(self.backends)}")
        for backend in (name, *self.backends):
            if group.backends[backend].supports(op, dtype, reduction):
                return backend
        raise ValueError(f"none of {', '.join(self.backends)} can do {op} on {dtype}")

    def _compare(self, group: RankGroup, what: str, name: str) -> None:
        """Refuses a call that the group's ranks make or route differently, on all of them."""
        digests = self._digests(group.control, group.size, f"{what}|{name}")
        if len(set(digests)) > 1:
            odd = [rank for rank, digest in zip(group.ranks, digests, strict=True) if digest != digests[0]]
            raise Disagreement(
                f"rank {self.rank} would do {what} by {name}; ranks {odd} do otherwise than rank {group.ranks[0]}. "
                "A back end may depend on operation, group size and bytes only"
            )

    def _compare_rules(self) -> None:
        """Refuses to start with other rules, back ends or decisions on some rank."""
        sizes = [0, *(2**power for power in range(36))]
        world = self._dist.get_world_size()
        groups = [range(n) for n in range(1, world + 1)]
        probed = [self._decided(op, ranks, size) for op in OPERATIONS for ranks in groups for size in sizes]
        state = (self.rules, self.backends, self._pools, self._library(), probed)
        digests = self._digests(self._control, world, repr(state))
        odd = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if odd:
            raise Disagreement(
                f"ranks {odd} have other rules, back ends or libraries than rank 0, or decide otherwise by them; "
                "give every rank the same plan, and decide by operation, group size and bytes only"
            )

    def _library(self) -> str:
        if not any(name in EITHER_MPI for name in self.backends):
            return ""
        from mpi4py import MPI

        return str(MPI.Get_library_version())

    def _digests(self, control: Torch, size: int, text: str) -> list[bytes]:
        """A digest of what every rank of a group says."""
        import torch

        mine = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        every = torch.empty(size * len(mine), dtype=torch.uint8)
        self._wait(control.gathered(mine, every))
        return [bytes(part.tolist()) for part in every.view(size, -1)]

    # ---- waiting -----------------------------------------------------------------------------------------------------

    def _poke(self) -> None:
        """Keeps MPI moving, and forgets what is done."""
        self._open = [pending for pending in self._open if not pending.done()]

    def _wait(self, pending: Pending) -> None:
        """Waits for one operation while everything else goes on."""
        spins = 0
        given_up = time.monotonic() + self._seconds
        others = [handle for handle in self._open if handle is not pending]
        while others and not pending.done():
            others = [other for other in others if not other.done()]
            spins += 1
            if spins > SPINS:
                time.sleep(NAP)
            else:
                os.sched_yield()
            if time.monotonic() > given_up:
                raise TimeoutError(f"rank {self.rank} waited {self._seconds:g} s for a call that others did not make")
        pending.finish()
        self._open = [handle for handle in self._open if handle is not pending]


def _bytes(tensor: Any) -> float:
    return float(tensor.numel() * tensor.element_size())


def _reduction(op: Any) -> str:
    """``sum`` for itself and for ``ReduceOp.SUM``."""
    text = str(op).rpartition(".")[2].lower().replace("product", "prod")
    if text not in ("sum", "prod", "min", "max"):
        raise ValueError(f"{op}: can be sum, prod, min, max")
    return text
