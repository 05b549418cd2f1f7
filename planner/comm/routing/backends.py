"""Back ends that a router sends calls to: process groups of PyTorch (Gloo, NCCL), and MPI through mpi4py.

An MPI collective runs on the host, on the memory of the tensor (or a copy of it, for one on a GPU): what produces the
tensor has to be done before. MPI moves only while some call into it runs, so whoever waits for another library has to
keep it moving; Gloo and NCCL move by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

REDUCTIONS = ("sum", "prod", "min", "max")


class Pending:
    """An operation that was started."""

    def done(self) -> bool:
        """Whether it is complete, without waiting."""
        raise NotImplementedError

    def finish(self) -> None:
        """Waits, and makes the result readable."""
        raise NotImplementedError


class Torch:
    """A process group of PyTorch."""

    def __init__(self, name: str, ranks: Sequence[int], seconds: float) -> None:
        from datetime import timedelta

        import torch.distributed as dist

        self.name, self._dist = name, dist
        self._group = dist.new_group(list(ranks), backend=name, timeout=timedelta(seconds=seconds))

    def supports(self, op: str, dtype: Any, reduction: str) -> bool:
        """Whether it has an operation (``all-reduce``) for a torch dtype, with a reduction (``sum``) if it reduces."""
        return True

    def start(self, op: str, call: dict[str, Any]) -> Pending:
        """Begins an operation."""
        return _Work(getattr(self, "_" + op.replace("-", "_"))(**call), op == "send-recv")

    def _all_reduce(self, tensor: Any, reduction: str) -> Any:
        return self._dist.all_reduce(tensor, self._reduction(reduction), self._group, async_op=True)

    def _all_gather(self, output: Any, tensor: Any) -> Any:
        return self._dist.all_gather_into_tensor(output, tensor, self._group, async_op=True)

    def _reduce_scatter(self, output: Any, tensor: Any, reduction: str) -> Any:
        reduce = self._reduction(reduction)
        return self._dist.reduce_scatter_tensor(output, tensor, reduce, self._group, async_op=True)

    def _all_to_all(self, output: Any, tensor: Any, received: Any, sent: Any) -> Any:
        return self._dist.all_to_all_single(output, tensor, received, sent, self._group, async_op=True)

    def _broadcast(self, tensor: Any, root: int) -> Any:
        source = self._dist.get_global_rank(self._group, root)
        return self._dist.broadcast(tensor, source, self._group, async_op=True)

    def _send_recv(self, tensor: Any, peer: int, tag: int, sends: bool) -> Any:
        other = self._dist.get_global_rank(self._group, peer)
        return (self._dist.isend if sends else self._dist.irecv)(tensor, other, self._group, tag)

    def _reduction(self, name: str) -> Any:
        names = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
        return getattr(self._dist.ReduceOp, names[name])

    def gathered(self, tensor: Any, output: Any) -> Pending:
        """An all-gather for the router's own use."""
        return self.start("all-gather", {"output": output, "tensor": tensor})


class _Work(Pending):
    """PyTorch's handle. That of a Gloo transfer says it is complete only to who waits, so a thread does."""

    def __init__(self, work: Any, transfer: bool) -> None:
        self._work, self._transfer = work, transfer
        self._thread: Any = None
        self._failed: BaseException | None = None

    def done(self) -> bool:
        if not self._transfer:
            return bool(self._work.is_completed())
        if self._thread is None:
            import threading

            self._thread = threading.Thread(target=self._wait, daemon=True)
            self._thread.start()
        return not self._thread.is_alive()

    def _wait(self) -> None:
        try:
            self._work.wait()
        except BaseException as error:  # told by finish(), in the thread that asked
            self._failed = error

    def finish(self) -> None:
        if self._thread is None:
            self._work.wait()
            return
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class Mpi:
    """A communicator of the MPI library that mpi4py loaded."""

    def __init__(self, ranks: Sequence[int]) -> None:
        from mpi4py import MPI

        self.name, self._mpi = "mpi", MPI
        world = MPI.COMM_WORLD
        self._comm = world.Create_group(world.group.Incl(list(ranks))) if world.rank in ranks else MPI.COMM_NULL
        self._ops = dict(zip(REDUCTIONS, (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX), strict=True))

    def supports(self, op: str, dtype: Any, reduction: str) -> bool:
        """MPI moves anything and adds what numpy knows and MPI has a name for: no 16-bit floats."""
        if op not in ("all-reduce", "reduce-scatter"):
            return True
        return str(dtype).removeprefix("torch.") in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")

    def start(self, op: str, call: dict[str, Any]) -> Pending:
        """Begins an operation."""
        return self._begin(op, call, blocking=False)

    def run(self, op: str, call: dict[str, Any]) -> None:
        """Runs an operation to its end: libraries are faster at this than at starting and waiting."""
        self._begin(op, call, blocking=True).finish()

    def _begin(self, op: str, call: dict[str, Any], *, blocking: bool) -> Pending:
        adds = op in ("all-reduce", "reduce-scatter")
        names: list[str] = [name for name in ("tensor", "output") if name in call]
        buffers: dict[str, _Buffer] = {name: _Buffer(call[name], adds) for name in names}
        request = getattr(self, "_" + op.replace("-", "_"))(call, buffers, blocking)
        return _Request(request, [buffers[name] for name in self._written(op, call)], list(buffers.values()))

    @staticmethod
    def _written(op: str, call: dict[str, Any]) -> tuple[str, ...]:
        if op == "send-recv" and call["sends"]:
            return ()
        return ("output",) if "output" in call else ("tensor",)

    def _call(self, name: str, blocking: bool) -> Callable[..., Any]:
        return getattr(self._comm, name if blocking else f"I{name.lower()}")  # type: ignore[no-any-return]

    def _all_reduce(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        return self._call("Allreduce", blocking)(self._mpi.IN_PLACE, at["tensor"].array, self._ops[call["reduction"]])

    def _all_gather(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        return self._call("Allgather", blocking)(at["tensor"].array, at["output"].array)

    def _reduce_scatter(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        reduce = self._call("Reduce_scatter_block", blocking)
        return reduce(at["tensor"].array, at["output"].array, self._ops[call["reduction"]])

    def _all_to_all(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        if call["received"] is None and call["sent"] is None:
            return self._call("Alltoall", blocking)(at["tensor"].array, at["output"].array)
        sent, received = (
            [split * at[name].row for split in splits or self._even(call[name])]
            for name, splits in (("tensor", call["sent"]), ("output", call["received"]))
        )
        return self._call("Alltoallv", blocking)((at["tensor"].array, sent), (at["output"].array, received))

    def _even(self, tensor: Any) -> list[int]:
        return [tensor.shape[0] // self._comm.size] * self._comm.size

    def _broadcast(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        return self._call("Bcast", blocking)(at["tensor"].array, call["root"])

    def _send_recv(self, call: dict[str, Any], at: dict[str, _Buffer], blocking: bool) -> Any:
        # Blocking ones wait for the other side: begun and waited for, so that nothing else stands still meanwhile.
        move = self._comm.Isend if call["sends"] else self._comm.Irecv
        return move(at["tensor"].array, call["peer"], call["tag"])


class _Buffer:
    """A tensor's memory as an array, bytes where elements are only moved; for a GPU's a copy on the host."""

    def __init__(self, tensor: Any, adds: bool) -> None:
        import torch

        self.tensor = tensor
        if not tensor.is_contiguous():
            raise ValueError("MPI moves contiguous tensors; pass tensor.contiguous()")
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()  # MPI reads on the host: the producer has to be done
        flat = tensor.detach().cpu().reshape(-1)
        self.array = (flat if adds else flat.view(torch.uint8)).numpy()
        rows = tensor.shape[0] if tensor.dim() else 1
        self.row = self.array.size // rows if rows else 0

    def copied_back(self) -> None:
        """Brings a result to the GPU that it is for; on the host it is there."""
        import torch

        if self.tensor.is_cuda:
            host = torch.from_numpy(self.array).view(self.tensor.dtype)
            self.tensor.copy_(host.reshape(self.tensor.shape))


class _Request(Pending):
    """MPI's handle, or that of a call that is over; it keeps the arrays alive that the library reads."""

    def __init__(self, request: Any, written: list[_Buffer], held: list[_Buffer]) -> None:
        self._request, self._written, self._held = request, written, held
        self._over = request is None

    def done(self) -> bool:
        if not self._over:
            self._over = bool(self._request.Test())
        return self._over

    def finish(self) -> None:
        if not self._over:
            self._request.Wait()
            self._over = True
        for buffer in self._written:
            buffer.copied_back()
        self._written = []
