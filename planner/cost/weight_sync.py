"""Seconds in which rollout replicas get new weights, and in which states move to host memory and back.

Trainers give weights in the names and shapes of a checkpoint, tensor by tensor: each costs :data:`TENSOR_S` beside its
bytes, so that a mixture with thousands of expert matrices takes longer than its bytes say. verl reports 0.12 s for a
dense model of 7 B, 15.8 s for a mixture of 30 B (18,700 tensors) and 58.6 s for one of 235 B (36,500) over NCCL, and
4.4 s and 23.7 s with its checkpoint engine, which sends buckets (verl-project/verl@1dda039,
docs/advance/fully_async.md).
"""

from __future__ import annotations

import math

from planner.cost.figures import Network, Shape

TENSOR_S = 0.2e-3
"""Seconds of one tensor in a bucket, as trainers send them now: 4.4 s over 18,700 of them, less their bytes."""
OFFLOADED = 2.2e9
"""Bytes a second that one trainer's rank copies to host memory and registers for RDMA, anew in every step: verl reports
7 s of a model of 30 B on 4 ranks (its checkpoint_engine/README.md, Ascend 910C; of GPUs nothing is published).
"""
WAKE_S = 1.0
"""Seconds in which an engine on the same accelerators sleeps and wakes: captured graphs and workspace are kept, the
cache is mapped anew (vLLM, sleep mode: below one second a side)."""
LAYER_TENSORS = 9.0
"""Tensors of a layer outside experts: two norms, four of attention, three of an MLP (Hugging Face checkpoints)."""


def tensor_seconds(shape: Shape) -> float:
    """Seconds of handling all tensors of a checkpoint, whatever their bytes."""
    layers = float(shape.layers)
    mixtures = float((shape.layers - shape.leading_dense) * shape.moe_share)
    experts = mixtures * float(shape.experts) * (2.0 + float(shape.gated))
    return TENSOR_S * (LAYER_TENSORS * layers + experts)


def between(
    weight_bytes: float, shape: Shape, trainer: Network, rollout: Network, accelerators: tuple[int, int]
) -> float:
    """Seconds of a broadcast from trainers to replicas on other accelerators.

    Every replica's node takes in all weights, over all its NICs; trainers send each tensor once, a broadcast passes it
    on from node to node. All ranks of the sending node take part, as in verl since ``multi_sender`` and in NeMo-RL.
    """
    sending = float(trainer.nic) * min(float(trainer.domain), accelerators[0])
    taking = float(rollout.nic) * min(float(rollout.domain), accelerators[1])
    return weight_bytes / min(sending, taking) + tensor_seconds(shape)


def by_checkpoint_engine(
    weight_bytes: float, shape: Shape, trainer: Network, rollout: Network, accelerators: tuple[int, int]
) -> float:
    """Seconds in which replicas on other accelerators fetch weights from the trainers' host memory.

    One after the other, as in verl's ``kimi_ckpt_engine`` (verl-project/verl@1dda039, kimi_checkpoint_engine.py): every
    trainer copies its part to host memory, every rank of the replicas fetches its part of that by RDMA, and each
    broadcasts its part to all others in turns, for which no trainer is needed.
    """
    trains, takes = accelerators
    offload_s = weight_bytes / (trains * OFFLOADED)
    fetched = min(trains * float(trainer.nic), takes * float(rollout.nic))
    return offload_s + from_host(weight_bytes, shape, rollout, takes, fetched)


def from_host(weight_bytes: float, shape: Shape, network: Network, ranks: int, fetched: float) -> float:
    """Seconds in which ranks fetch their parts of all weights, `fetched` bytes a second together, and broadcast them in
    turns.
    """
    return weight_bytes / fetched + weight_bytes / _everywhere(network, ranks) + tensor_seconds(shape)


def in_place(weight_bytes: float, shape: Shape, network: Network, accelerators: int) -> float:
    """Seconds of resharding on the same accelerators: an all-gather of all weights, of which each keeps its part."""
    return weight_bytes / _everywhere(network, accelerators) + tensor_seconds(shape) + WAKE_S


def _everywhere(network: Network, accelerators: int) -> float:
    """Bytes a second of a collective whose result every rank has whole, over all links of its nodes."""
    inside = min(float(network.domain), accelerators)
    nodes = math.ceil(accelerators / max(inside, 1.0))
    return float(network.scaleup) if nodes == 1 else min(float(network.scaleup), inside * float(network.nic))


def offload(state_bytes: float, host_rate: float) -> float:
    """Seconds in which a trainer's states leave for host memory before a rollout, and come back after it."""
    return 2.0 * state_bytes / host_rate
