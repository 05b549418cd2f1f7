"""Kernels of a trace by the accelerator that they ran on, and the share of its time that each cause takes.

What a kernel does is known by its name, and which ranks a collective joins by what the profiler says of its process
group. Every instant belongs to exactly one cause, so that the causes add up to the step.

Kernels are named as in their sources: NCCL src/device/generate.py and RCCL
(``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``), DeepEP csrc/kernels (``deep_ep::``), Transformer Engine
common/comm_gemm_overlap (``userbuffers_``) and fused_attn (cuDNN's ``sdpa``), FlashAttention csrc (``flash::``,
``flash_fwd_kernel``), AOTriton (``attn_fwd``, ``bwd_kernel_dk_dv``), CUTLASS, cuBLAS (``nvjet_``, ``xmma_gemm``,
``s16816gemm``), TensorRT-LLM's ``bmm_``, rocBLAS and hipBLASLt (Tensile's ``Cijk_``), cuDNN's convolutions
(``scudnn``, ``dgrad_engine``),
PyTorch aten/src/ATen/native/cuda/ForeachFunctors.cuh and Apex csrc (``multi_tensor_apply``). FBGEMM's own
(``fbgemm_gpu::``) look embeddings up.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from planner.schema.plan import Parallelism

Kind = Literal[
    "attention", "matrix", "optimizer", "vector", "copy", "tp", "cp", "ep", "p2p", "dp", "other communication"
]
COMPUTE: tuple[Kind, ...] = ("attention", "matrix", "optimizer", "vector", "copy")
COMMUNICATION: tuple[Kind, ...] = ("tp", "cp", "ep", "p2p", "dp", "other communication")
KINDS = (*COMPUTE, *COMMUNICATION)
"""In the order in which an instant belongs to one of those that run in it: what computes hides what communicates."""

_COLLECTIVE = re.compile(r"^(?:void )?(?:nccl(?:Dev)?Kernel|mscclKernel)|nvshmem", re.IGNORECASE)
_OF_EXPERTS = re.compile(r"\bdeep_ep::|\bhybrid_ep::")
_OF_TENSORS = re.compile(r"userbuffers_|\bmultimem_|(?:one|two)_shot_all_reduce")
_COMPUTES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"multi_tensor_apply|FusedAdam|FusedOptimizer|\badamw?_kernel", re.IGNORECASE)),
    ("attention", re.compile(r"flash_(?:fwd|bwd)|\bflash::|FlashAttn|fmha|sdpa|fused_attn|\battn_(?:fwd|bwd)|"
                             r"bwd_kernel_d[kq]", re.IGNORECASE)),
    ("matrix", re.compile(r"(?<!fb)gemm|nvjet_|\bCijk_|cutlass(?!::\w+_t\b)|splitKreduce|\bmatmul|(?:^|_)bmm_|wgmma|"
                          r"scudnn|[dw]grad_engine|implicit_convolve", re.IGNORECASE)),
)  # fmt: skip
GROUPS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("dp", re.compile(r"data_parallel|expert_data|(?:^|_)(?:dp|fsdp|hsdp|edp|efsdp)(?:_|$)|replicate|shard")),
    ("ep", re.compile(r"expert|(?:^|_)ep(?:_|$)")),
    ("cp", re.compile(r"context_parallel|(?:^|_)cp(?:_|$)")),
    ("p2p", re.compile(r"pipeline|(?:^|_)pp(?:_|$)")),
    ("tp", re.compile(r"tensor|(?:^|_)tp(?:_|$)")),
)
"""Words of ``Process Group Description`` (PyTorch libkineto/src/output_json.cpp): Megatron Core's ``group_desc``
(megatron/core/parallel_state.py: TENSOR_MODEL_PARALLEL_GROUP, EXPERT_DATA_PARALLEL_GROUP, ...) and the
``mesh_dp_shard_cp`` of torch.distributed's device meshes. A group of replicas is one whatever else it spans."""
_ORDER: tuple[tuple[Kind, str], ...] = (("tp", "tp"), ("cp", "cp"), ("dp", "dp"), ("p2p", "pp"))
"""Degrees from the innermost out, as ranks are numbered (tp-cp-ep-dp-pp)."""


def kind(name: str, args: Mapping[str, Any], cut: Parallelism) -> Kind:
    """What a kernel is of.

    Arguments:
        name: Of the kernel, mangled or not.
        args: What the profiler says of it: collective, process group, its ranks.
        cut: The plan's degrees: a group of nobody's name is known by its size and stride.
    """
    if _OF_EXPERTS.search(name):
        return "ep"
    if _OF_TENSORS.search(name):
        return "tp"
    if _COLLECTIVE.search(name):
        return collective(name, args, cut)
    return next((what for what, pattern in _COMPUTES if pattern.search(name)), "vector")


def collective(name: str, args: Mapping[str, Any], cut: Parallelism) -> Kind:
    """The axis that a collective is of: by its group's description, its kind, its ranks, else the only one possible."""
    described = str(args.get("Process Group Description", "")).lower()
    if group := next((what for what, pattern in GROUPS if pattern.search(described)), None):
        return group
    called = str(args.get("Collective name", "")).lower()
    if "all_to_all" in called and cut.ep > 1:
        return "ep"
    if called in ("send", "recv") and cut.pp > 1:
        return "p2p"
    candidates = set(_by_ranks(_ranks(args.get("Process Group Ranks")), cut)) or set(_possible(name, cut))
    return candidates.pop() if len(candidates) == 1 else "other communication"


def _ranks(given: object) -> Sequence[int]:
    """``[0, 8, 16]``, or the same as a text; nothing where the profiler has cut the list short."""
    numbers = re.findall(r"\d{1,18}", given) if isinstance(given, str) and "..." not in given else given
    return [int(number) for number in numbers] if isinstance(numbers, list) and len(numbers) < 1 << 16 else []


def _by_ranks(ranks: Sequence[int], cut: Parallelism) -> Iterator[Kind]:
    """The axes whose groups are of this size and stride."""
    if len(ranks) < 2:
        return
    size = len(ranks)
    stride = ranks[1] - ranks[0]
    if any(later - earlier != stride for earlier, later in pairwise(ranks)):
        return
    degrees = [getattr(cut, axis) for _, axis in _ORDER]
    for place, (what, _) in enumerate(_ORDER):
        if degrees[place] == size and math.prod(degrees[:place]) == stride:
            yield what
    if cut.cp > 1 and size == cut.cp * cut.dp and stride == cut.tp:
        yield "dp"


def _possible(name: str, cut: Parallelism) -> Iterator[Kind]:
    """The axes that have a collective of this kind at all."""
    if "SendRecv" in name:
        degrees: tuple[tuple[Kind, int], ...] = (("p2p", cut.pp), ("ep", cut.ep), ("cp", cut.cp))
    else:
        degrees = (("tp", cut.tp), ("cp", cut.cp), ("dp", cut.dp))
    yield from (what for what, degree in degrees if degree > 1)


MOST_KERNELS = 8_000_000
"""Most kernels of one file: 140 MB, and some ten times as much while instants are shared out. Ten steps of a large
model have a tenth of it."""
LATEST = 1 << 63
"""Profilers count times in 64 bits."""
APART = 600.0
"""Seconds that no kernel runs for, and that no two kernels of one trace lie apart: a collective that waits so long has
ended its job (torch/distributed/constants.py, default_pg_nccl_timeout)."""
FEW = 0.01
"""Share of the kernels of a file's fullest accelerator below which another one was not trained on: processes leave some
on the first accelerator that they see."""


@dataclass(slots=True)
class RankTrace:
    """What ran on one accelerator: seconds from some instant, and the kind of each kernel."""

    path: Path
    device: int | None = None
    """Its number, where the file is of several accelerators."""
    rank: int | None = None
    steps: set[int] = field(default_factory=set)
    """Numbers of the steps that the profiler marked."""
    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    kinds: array[int] = field(default_factory=lambda: array("b"))
    """Places in :data:`planner.site.trace.ranks.KINDS`."""
    marked: tuple[float, float] | None = None
    """When the first marked step begins and the last one ends, where that bounds them rather than their kernels."""
    apart: int = 0
    """Kernels that lie or last longer than :data:`APART`, which do not count."""


@dataclass(slots=True)
class TraceFile:
    """What one file says."""

    path: Path
    rank: int | None = None
    steps: set[int] = field(default_factory=set)
    on: dict[tuple[int, int], RankTrace] = field(default_factory=dict)
    """Process and device -> what ran on it; a process may see one device alone, and call it 0."""
    kernels: int = 0
    left_out: int = 0
    """Kernels whose times are none."""
    cut_off: bool = False
    """Whether the file ends in the middle."""
    on_host: int = 0
    """Events of the host: of a trace without kernels they say why."""
    accelerated: bool = False
    """Whether it names an accelerator, kernels or not."""
    is_host: bool = False
    """Whether what counts as kernels are operators that a CPU ran."""

    def add(self, where: tuple[int, int], start: object, duration: object, what: int, unit: float) -> None:
        """Notes a kernel; `unit` is seconds of one of its figures."""
        if not (is_time(start) and is_time(duration)) or self.kernels >= MOST_KERNELS:
            self.left_out += 1
            return
        trace = self.on.get(where) or self.on.setdefault(where, RankTrace(self.path))
        first = float(start) * unit
        trace.starts.append(first)
        trace.ends.append(first + float(duration) * unit)
        trace.kinds.append(what)
        self.kernels += 1

    def ranks(self) -> Iterator[RankTrace]:
        """Each accelerator that was trained on, in the order of processes and devices."""
        most = max((len(trace.kinds) for trace in self.on.values()), default=0)
        used = [where for where in sorted(self.on) if len(self.on[where].kinds) >= FEW * most]
        one_process_each = len({device for _, device in used}) == len(used)
        for place, where in enumerate(used):
            trace = self.on[where]
            trace.steps = self.steps
            trace.rank = self.rank if len(used) == 1 else None
            trace.device = (where[1] if one_process_each else place) if len(used) > 1 else None
            yield _together(trace)


def is_time(value: object) -> TypeGuard[float]:
    """Whether a figure is a time that a profiler can count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST


def _together(trace: RankTrace) -> RankTrace:
    """The trace without kernels that last longer than :data:`APART`, or lie so far from most of the others."""
    starts, ends = np.frombuffer(trace.starts), np.frombuffer(trace.ends)
    kept = ends - starts <= APART
    if kept.any() and (starts.max() - starts.min() > APART or not kept.all()):
        kept[kept] = _densest(starts[kept], ends[kept])
    trace.apart = int((~kept).sum())
    if trace.apart:
        kinds = np.frombuffer(trace.kinds, dtype=np.int8)
        trace.starts, trace.ends = array("d", starts[kept].tobytes()), array("d", ends[kept].tobytes())
        trace.kinds = array("b", kinds[kept].tobytes())
    return trace


def _densest(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which kernels are of the largest group that no gap of :data:`APART` divides."""
    order = np.argsort(starts, kind="stable")
    gaps = starts[order][1:] - np.maximum.accumulate(ends[order])[:-1] > APART
    groups = np.concatenate(([0], np.cumsum(gaps)))
    chosen = np.empty(len(order), dtype=np.bool_)
    chosen[order] = groups == np.bincount(groups).argmax()
    return chosen


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds between the first kernel's start and the last one's end, or of the marked steps."""

    total: float
    alone: Mapping[Kind, float]
    """Seconds of each kind: the instants that nothing before it in :data:`planner.site.trace.ranks.KINDS` fills."""
    hidden: Mapping[Kind, float]
    """Seconds of each kind of communication under what computes, or other communication."""
    idle: float
    """In which nothing runs: the host is late."""

    @property
    def computing(self) -> float:
        """Seconds in which something computes."""
        return sum(seconds for what, seconds in self.alone.items() if what not in COMMUNICATION)


def shares(trace: RankTrace) -> Shares:
    """Shares out the time of a rank.

    Where several kernels run at once, the instant belongs to the first of their kinds in the order of
    :data:`planner.site.trace.ranks.KINDS`: what computes hides what communicates.
    """
    starts, ends = np.frombuffer(trace.starts), np.frombuffer(trace.ends)
    kinds = np.frombuffer(trace.kinds, dtype=np.int8)
    instants = np.unique(np.concatenate((starts, ends, trace.marked or ())))
    lengths = np.diff(instants)
    taken = np.zeros(len(lengths), dtype=np.bool_)
    alone: dict[Kind, float] = {}
    hidden: dict[Kind, float] = {}
    for place, what in enumerate(KINDS):
        of_kind = kinds == place
        running = _running(
            np.searchsorted(instants, starts[of_kind]), np.searchsorted(instants, ends[of_kind]), len(lengths)
        )
        alone[what] = float(lengths[running & ~taken].sum())
        if what in COMMUNICATION:
            hidden[what] = float(lengths[running & taken].sum())
        taken |= running
    return Shares(float(instants[-1] - instants[0]), alone, hidden, float(lengths[~taken].sum()))


def _running(first: NDArray[np.intp], behind: NDArray[np.intp], count: int) -> Flags:
    """In which of `count` intervals any kernel runs, given the intervals at which each begins and has ended."""
    change = np.bincount(first, minlength=count + 1).astype(np.int64) - np.bincount(behind, minlength=count + 1)
    return np.asarray(np.cumsum(change[:count]) > 0)
