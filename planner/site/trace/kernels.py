"""What a kernel does, by its name; which ranks a collective joins, by what the profiler says of its process group.

Names are those of the sources: NCCL src/device/generate.py and RCCL (``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``),
DeepEP csrc/kernels (``deep_ep::``), Transformer Engine common/comm_gemm_overlap (``userbuffers_``) and fused_attn
(cuDNN's ``sdpa``), FlashAttention csrc (``flash::``, ``flash_fwd_kernel``), AOTriton (``attn_fwd``,
``bwd_kernel_dk_dv``), CUTLASS, cuBLAS (``nvjet_``, ``xmma_gemm``, ``s16816gemm``), rocBLAS and hipBLASLt (Tensile's
``Cijk_``), cuDNN's convolutions (``scudnn``, ``dgrad_engine``), PyTorch aten/src/ATen/native/cuda/ForeachFunctors.cuh
and Apex csrc (``multi_tensor_apply``). FBGEMM's own (``fbgemm_gpu::``) look embeddings up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

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
    ("matrix", re.compile(r"(?<!fb)gemm|nvjet_|\bCijk_|cutlass|splitKreduce|\bmatmul|_bmm_|wgmma|"
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
        return _collective(name, args, cut)
    return next((what for what, pattern in _COMPUTES if pattern.search(name)), "vector")


def _collective(name: str, args: Mapping[str, Any], cut: Parallelism) -> Kind:
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
