"""Parameters of the model, and the bytes that the fullest accelerator holds.

Parameters, gradients and optimizer states follow exactly from the document. Activations and buffers depend on fitted
factors that it does not carry, so they are held between bounds. Whether they fit is
:func:`planner.verify.money.limits_hold`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan_layout import StageMemory
from planner.verify.finding import TOLERANCE, Check, Claim, same, unless_same
from planner.verify.model import (
    LayerShape,
    StageBytes,
    active_parameters,
    adapters,
    decoder_parameters,
    first_end,
    largest_tensors,
    last_end,
    layers,
    magnitudes,
    parameters,
    recurrence_matrices,
)
from planner.verify.ranks import dense_shards, expert_shards

FRAGMENTATION = 1.5
"""Most that live memory is taken to exceed the sum of its tensors by."""
SIXTEEN_BIT = 2.0
REFERENCE = 4.0
"""Bytes of a parameter of DPO's reference model, which adapters do without (trl 1.16.0, trainer/dpo_trainer.py)."""
IMBALANCE = 2.0
"""Most tokens that the busiest expert rank is taken to get, over the mean."""


def parameters_are_counted(c: Claim) -> Iterator[str]:
    """Both counts follow from the shape, to the last parameter."""
    w = c.plan.workload
    for what, stated, derived in (
        ("parameters", w.parameters, parameters(c.model)),
        ("active_parameters", w.active_parameters, active_parameters(c.model)),
    ):
        if stated != derived:
            yield f"{what} is {stated:,}; the shape has {derived:,}"


def memory_adds_up(c: Claim) -> Iterator[str]:
    """``total = parameters + gradients + optimizer + activations + buffers + resident``."""
    m = c.plan.prediction.memory
    parts = (m.parameters_bytes, m.gradients_bytes, m.optimizer_bytes)
    live = (m.activations_bytes, m.buffers_bytes, m.resident_bytes)
    yield from unless_same("total_bytes", m.total_bytes, sum(parts) + sum(live))


def capacity_is_the_accelerators(c: Claim) -> Iterator[str]:
    """The capacity is that of the pool's accelerator on which the fullest stage stands."""
    p = c.plan.parallelism
    m = c.plan.prediction.memory
    if not 0 <= m.stage < len(p.stages):
        yield f"stage {m.stage} of {len(p.stages)} is reported as the fullest"
        return
    pools = c.plan.cluster.pools
    index = p.stages[m.stage].pool
    if 0 <= index < len(pools):
        yield from unless_same("capacity_bytes", m.capacity_bytes, pools[index].accelerator_memory_bytes)


# ---- states ----------------------------------------------------------------------------------------------------------


def stage_parameters(c: Claim, stage: int) -> StageBytes:
    """Parameters of one stage over all its tensor- and expert-parallel ranks."""
    held = sum((layer.held for layer in c.placed[stage]), StageBytes(0, 0))
    return held + StageBytes(ends_of(c, stage), 0)


def ends_of(c: Claim, stage: int) -> int:
    """Parameters of a stage outside blocks."""
    ends = first_end(c.model) if stage == 0 else 0
    return ends + (last_end(c.model, alone=c.head_stage == 0) if stage == c.head_stage else 0)


def trained(c: Claim) -> float:
    """Share of the parameters that is trained: 1, or of adapters, their magnitudes and a head that scores, or of the
    last blocks.
    """
    method = c.plan.workload.method
    model = c.model
    if method["kind"] == "freeze":
        last = sum(layer.held.dense + layer.held.experts for layer in layers(model)[-method["layers"] :])
        return last / decoder_parameters(model)
    if method["kind"] != "lora":
        return 1.0
    targets = frozenset(method["targets"])
    scales = magnitudes(model, targets) if method.get("magnitude") else 0
    return (adapters(model, int(method["rank"]), targets) + scales + model.labels * model.hidden) / decoder_parameters(
        model
    )


def frozen_follows_from_base(c: Claim) -> Iterator[str]:
    """A frozen parameter takes 4 bits and ``8 / 64 + 32 / (64 256)`` of scales (nf4: arXiv 2305.14314), 8 and 32 a row
    (int8) or a square of 128 (fp8), or 16 where trained ones would be sharded fp32.
    """
    method = c.plan.workload.method
    stated = c.plan.runtime.bytes_per_parameter.get("frozen", 0.0)
    nf4 = 0.5 + (8 / 64 + 32 / (64 * 256)) / 8
    int8 = 1.0 + 4.0 / c.model.hidden
    sharded = c.plan.runtime.bytes_per_parameter["gathers_working_copy"] > 0 and method["kind"] == "lora"
    expected = {"nf4": nf4, "int8": int8, "fp8": 1.0 + 4.0 / 128**2}.get(str(method.get("base")), SIXTEEN_BIT * sharded)
    yield from unless_same("bytes of a frozen parameter", stated, expected)


def states(c: Claim, stage: int) -> tuple[float, float, float]:
    """Bytes of parameters, gradients and optimizer states on one rank of a stage.

    Each is ``bytes (dense / (tp shards) + experts / (ep etp expert_shards))``; optimizer states are sharded from ZeRO 1
    on, gradients from 2, parameters from 3 (Rajbhandari et al. 2020, arXiv 1910.02054). Weights that adapters freeze
    are kept as `frozen` says, those outside blocks in 16 bit, and have no fp32 copy. DPO holds its reference, too, and
    the first stage a tower, whole: frozen in 16 bit, trained like other parameters.
    """
    p = c.plan.parallelism
    per_parameter = c.plan.runtime.bytes_per_parameter
    optimizer = c.plan.workload.optimizer
    held = stage_parameters(c, stage)
    share = trained(c)
    tower = c.model.tower if stage == 0 else None
    dense = held.dense / p.tp
    experts = held.experts / (p.ep * p.etp)
    if optimizer.get("iterations") and p.zero_stage:
        dense, experts = uncut(c, stage)
    tower_parameters = tower.parameters if tower and tower.trained else 0
    dense += tower_parameters
    whole = dense + experts
    cut = dense / dense_shards(c.plan) + experts / expert_shards(c.plan)
    working = per_parameter["gathers_working_copy"] > 0
    resident = 0.0 if working and p.zero_stage == 3 else per_parameter["parameters"]
    outside = 0.0
    if (frozen := per_parameter.get("frozen", 0.0)) > 0:
        working = False
        resident = frozen
        outside = (SIXTEEN_BIT - frozen) * ends_of(c, stage) / p.tp
        outside /= dense_shards(c.plan) if p.zero_stage >= 3 else 1
    ends_more = optimizer.get("outside_state_bytes", optimizer["state_bytes"]) - optimizer["state_bytes"]
    ends_more *= (ends_of(c, stage) / p.tp + tower_parameters) / dense_shards(c.plan)
    if c.plan.workload.task == "dpo" and c.plan.workload.method["kind"] != "lora":
        resident += REFERENCE
    if tower and not tower.trained:
        outside += SIXTEEN_BIT * tower.parameters
    kept = 0.0 if c.plan.offload.get("weights") else 1.0
    return (
        kept * resident * (cut if p.zero_stage >= 3 else whole) + outside,
        kept * per_parameter["gradients"] * share * (cut if p.zero_stage >= 2 else whole),
        (1.0 - offloaded_share(c)) * state_bytes(c) * (cut if p.zero_stage >= 1 else whole) + ends_more,
    )


def state_bytes(c: Claim) -> float:
    """Bytes of a parameter's optimizer states and fp32 copy, on average over a shard's parameters."""
    per_parameter = c.plan.runtime.bytes_per_parameter
    share = trained(c)
    working = per_parameter["gathers_working_copy"] > 0 and per_parameter.get("frozen", 0.0) <= 0
    return float(c.plan.workload.optimizer["state_bytes"] * share + c.master_bytes * (1.0 if working else share))


def shard(c: Claim, stage: int) -> float:
    """Parameters of one stage whose optimizer states a rank has: all that it holds, or its shard from ZeRO 1 on."""
    p = c.plan.parallelism
    held = stage_parameters(c, stage)
    tower = c.model.tower if stage == 0 else None
    dense = held.dense / p.tp + (tower.parameters if tower and tower.trained else 0)
    experts = held.experts
    shards = (dense_shards(c.plan), expert_shards(c.plan)) if p.zero_stage else (1, 1)
    return dense / shards[0] + experts / (p.ep * p.etp) / shards[1]


def offloaded_share(c: Claim) -> float:
    """Share of the optimizer states that is said to lie in host memory."""
    away = c.plan.offload.get("optimizer", False)
    return c.plan.offloaded.optimizer_share if c.plan.offloaded else float(away)


def uncut(c: Claim, stage: int) -> tuple[float, float]:
    """Parameters on one rank where shards are of whole matrices: ``max(held, shards largest)``, dense and experts'
    (Megatron-LM core_v0.18.0, core/optimizer/layer_wise_optimizer.py).
    """
    p = c.plan.parallelism
    held = stage_parameters(c, stage)
    ends = ends_of(c, stage)
    (dense, expert), blocks = largest_tensors(c.model), held.dense - ends
    whole_dense = max(blocks / p.tp, dense_shards(c.plan) * dense / p.tp) if blocks else 0.0
    spread = max(held.experts / (p.ep * p.etp), expert_shards(c.plan) * expert / p.etp) if held.experts else 0.0
    return ends / p.tp + whole_dense, spread


def shares(c: Claim) -> dict[str, float]:
    """Shares of optimizer, weights and activations that are said to lie in expanded memory; 0 where nothing is."""
    return {"optimizer": 0.0, "weights": 0.0, "activations": 0.0} | (c.plan.placement or {})


def states_follow_from_sharding(c: Claim) -> Iterator[str]:
    """Bytes of parameters, gradients and optimizer of the stage that is said to be the fullest; see :func:`states`.

    A share f lies in expanded memory and ``1 - f`` in the accelerator's own.
    """
    m = c.plan.prediction.memory
    away = shares(c)
    if not 0 <= m.stage < len(c.placed):
        return
    kinds = ("weights", "weights", "optimizer")
    for what, kind, whole in zip(("parameters", "gradients", "optimizer"), kinds, states(c, m.stage), strict=True):
        name = f"{what}_bytes"
        f = away[kind]
        yield from unless_same(f"{name} (stage {m.stage})", getattr(m, name), whole * (1.0 - f))
        if m.expanded is not None:
            yield from unless_same(f"expanded {name} (stage {m.stage})", getattr(m.expanded, name), whole * f)


def expanded_memory_is_one(c: Claim) -> Iterator[str]:
    """Stated with the pool's unit, its section and a placement, or none of them; shares are known and at most 1.

    Its parts add up; of activations kept, a share f is there: ``expanded (1 - f) = local f``. An accelerator has its
    unit's bytes over those that share it, and what is there fits.
    """
    plan = c.plan
    m = c.plan.prediction.memory
    pool = plan.cluster.pools[0]
    given = (pool.expanded is not None, m.expanded is not None, plan.placement is not None)
    if any(given) and not all(given):
        yield "of the pool's expanded memory, what lies in it and the placement, some are missing"
    if pool.expanded is None or m.expanded is None or plan.placement is None:
        return
    wrong = [k for k, share in plan.placement.items() if k not in ("optimizer", "weights", "activations") or share > 1]
    yield from (f"placement.{kind} is {plan.placement[kind]:g}" for kind in wrong)
    expanded = m.expanded
    away = shares(c)
    parts = expanded.parameters_bytes + expanded.gradients_bytes + expanded.optimizer_bytes + expanded.activations_bytes
    yield from unless_same("expanded total_bytes", expanded.total_bytes, parts)
    f = away["activations"]
    yield from unless_same(
        "expanded activations_bytes x (1 - share)", expanded.activations_bytes * (1 - f), m.activations_bytes * f
    )
    sharing = {"accelerator": 1, "node": pool.accelerators_per_node, "pool": plan.cluster.accelerators}
    unit_bytes = pool.expanded.bytes / min(sharing[pool.expanded.scope], plan.cluster.accelerators)
    yield from unless_same("expanded capacity_bytes", expanded.capacity_bytes, unit_bytes)
    if expanded.total_bytes > unit_bytes * (1 + TOLERANCE):
        yield f"{expanded.total_bytes:.6g} B do not fit into {unit_bytes:.6g} B of expanded memory"


def no_stage_is_fuller(c: Claim) -> Iterator[str]:
    """No stage's states and least activations exceed the total."""
    m = c.plan.prediction.memory
    away = shares(c)
    for stage in range(len(c.placed)):
        weights, gradients, optimizer = states(c, stage)
        held = (weights + gradients) * (1 - away["weights"]) + optimizer * (1 - away["optimizer"])
        least = held + least_activations(c, stage) * (1 - away["activations"]) + m.resident_bytes
        if least > m.total_bytes * (1 + TOLERANCE):
            yield f"stage {stage} needs at least {least:.6g} B, but the fullest is reported with {m.total_bytes:.6g} B"


def stages_are_those_of_the_plan(c: Claim) -> Iterator[str]:
    """What every stage holds adds up, to no more than the fullest, which is told twice alike; its states follow from
    the sharding (:func:`states`), and it keeps the inputs of its layers at least.
    """
    m = c.plan.prediction.memory
    away = shares(c)
    if m.by_stage is None:
        return
    if len(m.by_stage) != len(c.placed):
        yield f"the memory of {len(m.by_stage)} stages is stated, and there are {len(c.placed)}"
        return
    for stage, stated in enumerate(m.by_stage):
        yield from parts_add_up(f"stage {stage}", stated)
        if stated.total_bytes > m.total_bytes * (1 + TOLERANCE):
            yield f"stage {stage} holds {stated.total_bytes:.6g} B, and the fullest {m.total_bytes:.6g} B"
        if stated.activations_bytes < least_activations(c, stage) * (1 - away["activations"]) * (1 - TOLERANCE):
            yield f"activations_bytes of stage {stage} is less than the inputs of its layers"
        kept = [1.0 - away[kind] for kind in ("weights", "weights", "optimizer")]
        given = (stated.parameters_bytes, stated.gradients_bytes, stated.optimizer_bytes)
        for one, other, share in zip(given, states(c, stage), kept, strict=True):
            yield from unless_same(f"states of stage {stage}", one, other * share)
    if 0 <= m.stage < len(m.by_stage):
        for part in PARTS:
            yield from unless_same(f"{part} of the fullest", getattr(m.by_stage[m.stage], part), getattr(m, part))


PARTS = (
    "parameters_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "activations_bytes",
    "buffers_bytes",
    "resident_bytes",
)


def parts_add_up(which: str, stated: StageMemory) -> Iterator[str]:
    """``total = parameters + gradients + optimizer + activations + buffers + resident`` of one stage."""
    yield from unless_same(f"total_bytes of {which}", stated.total_bytes, sum(getattr(stated, part) for part in PARTS))


# ---- activations -----------------------------------------------------------------------------------------------------


def _outer_shard(c: Claim) -> int:
    """Ranks that share a token's hidden vector outside tensor-parallel regions."""
    return c.plan.parallelism.tp if c.plan.parallelism.sequence_parallel else 1


def least_activations(c: Claim, stage: int) -> float:
    """The input of every layer of every micro-batch in flight, ``e t h`` bytes: ``min(M, pp - i)`` on stage i, pp where
    weight gradients are apart; of those that are trained where the last are alone; none where activations are
    offloaded.
    """
    return 0.0 if c.plan.offloaded and c.plan.offloaded.activations else least_inputs(c, stage)


def least_inputs(c: Claim, stage: int) -> float:
    """Bytes of the inputs of :func:`least_activations`, in whichever memory they are."""
    apart = c.plan.parallelism.schedule in SPLIT_SCHEDULES
    flying = min(c.micro_batches, c.plan.parallelism.pp - stage * (not apart))
    method = c.plan.workload.method
    kept = int(method["layers"]) if method["kind"] == "freeze" else len(c.placed[stage])
    wide = (c.model.streams or 1) * c.model.hidden
    return flying * kept * c.element * c.tokens * wide / _outer_shard(c)


def _most_of_layer(c: Claim, layer: LayerShape) -> float:
    """Bytes a layer stores if nothing is recomputed and no kernel fused.

    Korthikanti et al. 2022 (arXiv 2205.05198), ``s b h (34 + 5 a s / h)`` for their block, over this model's widths;
    twice as much in 32 bit.
    """
    return _most_in_16_bit(c, layer) * c.element / 2.0


def _most_in_16_bit(c: Claim, layer: LayerShape) -> float:
    m = c.model
    tp = c.plan.parallelism.tp
    t = c.tokens
    latent = m.latent
    head_dim = m.full.head_dim if m.full and layer.whole else m.head_dim
    width = max(latent.nope_dim + latent.rope_dim, latent.value_dim) if latent else head_dim
    outer = (10.0 + (4.0 * m.streams + 4.0 if m.streams else 0.0)) * t * m.hidden / _outer_shard(c)
    if m.compressed:
        outer += 2.0 * t * (4.0 * m.head_dim + m.compressed.output_groups * m.compressed.output_rank)
    heads = 2.0 * t * width * ((2.0 + 2.0 * m.attention_gate) * m.heads / tp + 2.0 * max(m.kv_heads / tp, 1.0))
    scores = 5.0 * t * c.plan.workload.sequence * m.heads / tp
    inner = 4.0 + 2.0 * m.gated
    outer += _most_of_recurrence(c) * layer.recurrent
    if not layer.dense and not layer.mixture:
        return outer + layer.attentions * (heads + scores)
    if not layer.mixture or m.moe is None:
        return outer + layer.attentions * (heads + scores) + inner * t * m.ffn / tp
    copies = (
        max(IMBALANCE, c.plan.workload.imbalance or 1.0) * t * m.moe.experts_per_token * c.plan.parallelism.etp / tp
    )
    routed = copies * (2.0 * m.hidden + inner * m.moe.ffn / c.plan.parallelism.etp)
    return outer + layer.attentions * (heads + scores) + inner * t * m.moe.shared_ffn / tp + routed


def _most_of_recurrence(c: Claim) -> float:
    """Four times its products' outputs, and a chunk's scores a head: convolved, normed, gated, and as they came."""
    r = c.model.recurrence
    if r is None:
        return 0.0
    width = sum(outputs for _, _, outputs in recurrence_matrices(c.model, r)) - c.model.hidden
    return 2.0 * c.tokens * (4.0 * width + r.heads * r.chunk) / c.plan.parallelism.tp


def activations_are_possible(c: Claim) -> Iterator[str]:
    """Between the stored inputs alone and everything, of at most ``pp + (pp - 1) / vpp`` micro-batches in flight, and
    one layer more where experts' exchanges overlap; with weight gradients apart, see :func:`flying_apart`.
    """
    m = c.plan.prediction.memory
    if not 0 <= m.stage < len(c.placed):
        return
    least = least_activations(c, m.stage)
    layers = [_most_of_layer(c, layer) for layer in c.placed[m.stage]]
    most = most_in_flight(c, m.stage) * (sum(layers) + most_beside_layers(c, m.stage))
    most = FRAGMENTATION * (most + bool(c.plan.overlap.ep) * max(layers, default=0.0))
    held = m.activations_bytes + (m.expanded.activations_bytes if m.expanded else 0.0)
    held += c.plan.offloaded.activations_bytes if c.plan.offloaded else 0.0
    if not least * (1 - TOLERANCE) <= held <= most:
        yield f"activations_bytes is {held:.6g}, outside {least:.6g}..{most:.6g} (inputs alone .. everything)"


def flying_apart(schedule: str, pp: int, vpp: int, stage: int) -> float:
    """Micro-batches that a rank holds at most where weight gradients are apart, one whose W is put off counted twice.

    As simulated (tests/test_schedules.py): ``pp + r / vpp`` on rank r (ZB-H1), ``max(pp, (pp + r) / 2 + r)`` (ZB-V),
    ``pp + 1 / 2`` (DualPipeV).
    """
    if schedule == "zbv":
        return max(pp, 0.5 * (pp + stage) + stage)
    return pp + 0.5 if schedule == "dualpipe-v" else pp + stage / vpp


def most_in_flight(c: Claim, stage: int) -> float:
    """Micro-batches whose activations a stage holds at most: ``pp + (pp - 1) / vpp``; with weight gradients apart, see
    :func:`flying_apart`.
    """
    p = c.plan.parallelism
    if p.schedule in SPLIT_SCHEDULES:
        return flying_apart(p.schedule, p.pp, p.vpp, stage)
    return min(c.micro_batches, p.pp + (p.pp - 1) / p.vpp)


def most_beside_layers(c: Claim, stage: int) -> float:
    """Bytes of a micro-batch's mask of dropout, of what a trained tower keeps, and of logits' gradients that wait."""
    most = c.tokens * c.model.hidden
    tower = c.model.tower
    if c.plan.parallelism.schedule in SPLIT_SCHEDULES:
        most += c.element * c.tokens * c.model.vocab / c.plan.parallelism.tp
    if stage == 0 and tower and tower.trained:
        inner = 8.0 * tower.hidden + (3.0 if tower.gated else 2.0) * tower.ffn
        most += c.element * c.plan.batch.micro * tower.images * tower.patches * tower.layers * inner
    return most


def graphs_hold_their_inputs(c: Claim) -> Iterator[str]:
    """Graphs of modules hold a copy of every layer's input; one of the whole step holds none."""
    stated = c.plan.prediction.memory.graph_inputs_bytes
    graphs = c.plan.graphs
    m = c.plan.prediction.memory
    if (stated is None) != (graphs is None):
        yield f"graph_inputs_bytes is {stated}, where CUDA graphs launch {graphs or 'nothing'}"
    if stated is None or graphs is None or not 0 <= m.stage < len(c.placed):
        return
    p = c.plan.parallelism
    least = least_activations(c, m.stage)
    flying = most_in_flight(c, m.stage) + bool(c.plan.overlap.ep)
    most = FRAGMENTATION * flying / max(min(c.micro_batches, p.pp - m.stage), 1) * least
    low, high = (0.0, 0.0) if graphs == "full" else (least, min(most, m.activations_bytes))
    if not low * (1 - TOLERANCE) <= stated <= high * (1 + TOLERANCE):
        yield f"graph_inputs_bytes is {stated:.6g}, outside {low:.6g}..{high:.6g} of graphs={graphs}"


def buffers_are_possible(c: Claim) -> Iterator[str]:
    """Between a copy of the logits (last stage) and all that one layer, the loss and the update can need.

    At most 20 bytes a logit (22 in 32 bit; 4 more for each module of multi-token prediction), two gathered copies and
    two casts of the largest layer, its gradients as they are computed and as they are reduced, its activations, the
    whole hidden state and its gradient, the head gathered, a layer of a tower, and copies for the update.
    """
    p = c.plan.parallelism
    m = c.plan.prediction.memory
    if not 0 <= m.stage < len(c.placed) or not c.placed[m.stage]:
        return
    logits = c.tokens * (c.model.labels or c.model.vocab) / p.tp if m.stage == c.head_stage else 0.0
    sizes = [x.held.dense / p.tp + x.held.experts / (p.ep * p.etp) for stage in c.placed for x in stage]
    per_parameter = c.plan.runtime.bytes_per_parameter
    gathered = per_parameter["parameter_wire"] if p.zero_stage == 3 else 0.0
    least = 0.0 if c.plan.runtime.chunked_loss else c.element * logits
    largest = max(_most_of_layer(c, layer) for stage in c.placed for layer in stage)
    largest += 2.0 * c.element * c.tokens * c.model.hidden * (1 + (c.plan.dispatcher == "allgather") * p.ep)
    weights = (
        2.0 * gathered + 2.0 * bool(per_parameter.get("frozen")) + 4.0 + c.element + per_parameter["gradient_wire"]
    ) * max(sizes) + gathered * last_end(c.model, alone=False) / p.tp
    held = stage_parameters(c, m.stage)
    copied = held.dense / p.tp / dense_shards(c.plan) + held.experts / (p.ep * p.etp) / expert_shards(c.plan)
    if m.stage == 0 and (tower := c.model.tower):
        wide = 6.0 * tower.hidden + (3.0 if tower.gated else 2.0) * tower.ffn
        largest += SIXTEEN_BIT * c.plan.batch.micro * tower.images * tower.patches * wide
        copied += tower.trained * tower.parameters / dense_shards(c.plan)
    modules = 4.0 * (c.plan.workload.mtp_layers or 0)
    most = (
        FRAGMENTATION * ((18.0 + c.element + modules) * logits + weights + largest)
        + per_parameter.get("update", 0.0) * copied
    )
    if not least * (1 - TOLERANCE) <= m.buffers_bytes <= most:
        yield f"buffers_bytes is {m.buffers_bytes:.6g}, outside {least:.6g}..{most:.6g}"


def _spread(c: Claim) -> float:
    """Log of the upper end of the total's 80 % interval over the total; 0 without an interval."""
    interval = c.plan.prediction.intervals.get("memory_bytes")
    ends = (interval.high, c.plan.prediction.memory.total_bytes) if interval else (0.0, 0.0)
    return math.log(ends[0]) - math.log(ends[1]) if all(end > 0 for end in ends) else 0.0


def usable(c: Claim, capacity: float) -> float:
    """``capacity (r / (1 - r))^(log9(high / total))`` bytes: what a risk r leaves; all of it where none was asked."""
    m = c.plan.prediction.memory
    if m.oom_risk is None or not 0.0 < m.oom_risk < 1.0:
        return capacity
    return float(capacity * (m.oom_risk / (1.0 - m.oom_risk)) ** (_spread(c) / math.log(9.0)))


def risk_is_one(c: Claim) -> Iterator[str]:
    """``0 < risk <= 1 / 2``, stated with its chance and the interval that both rest on, or none of them."""
    m = c.plan.prediction.memory
    given = (m.oom_risk is not None, m.oom_chance is not None, "memory_bytes" in c.plan.prediction.intervals)
    if any(given) and not all(given):
        yield "of oom_risk, oom_chance and the interval memory_bytes, some are missing"
    if m.oom_risk is not None and not 0.0 < m.oom_risk <= 0.5:
        yield f"oom_risk is {m.oom_risk:g}; it must be more than 0 and at most 0.5"


def memory_interval_is_even(c: Claim) -> Iterator[str]:
    """``low high = total^2``: as far below as above, on a log scale."""
    m = c.plan.prediction.memory
    interval = c.plan.prediction.intervals.get("memory_bytes")
    if interval is not None and interval.low > 0:
        yield from unless_same("low x high of memory_bytes", interval.low * interval.high, m.total_bytes**2)


def chance_follows_from_interval(c: Claim) -> Iterator[str]:
    """``chance / (1 - chance) = (total / capacity)^(ln 9 / ln(high / total))``: logistic, a tenth beyond each end."""
    m = c.plan.prediction.memory
    spread = _spread(c)
    if m.oom_chance is None or spread <= 0:
        return
    over = (math.log(m.total_bytes) - math.log(m.capacity_bytes)) * math.log(9.0) / spread
    derived = 1.0 / (1.0 + math.exp(-over)) if over > -700.0 else 0.0
    if not math.isclose(m.oom_chance, derived, rel_tol=1e-6, abs_tol=1e-300):
        yield f"oom_chance is {m.oom_chance:.9g}, and {derived:.9g} follows from the interval"


def offload_takes_states_away(c: Claim) -> Iterator[str]:
    """Optimizer states in host memory leave none on the accelerator."""
    if offloaded_share(c) >= 1 and not same(c.plan.prediction.memory.optimizer_bytes, 0.0):
        yield "optimizer states are offloaded and still take memory"


def offload_goes_with_shards(c: Claim) -> Iterator[str]:
    """An optimizer is offloaded with the ZeRO stages alone that its runtime offloads."""
    needed = c.plan.runtime.offload_needs_zero
    zero = c.plan.parallelism.zero_stage
    if c.plan.offload.get("optimizer") and needed is not None and zero not in needed:
        yield f"{c.plan.runtime.name} offloads the optimizer with zero {'/'.join(map(str, needed))}, not {zero}"


CHECKS: tuple[Check, ...] = (
    parameters_are_counted,
    memory_adds_up,
    capacity_is_the_accelerators,
    frozen_follows_from_base,
    states_follow_from_sharding,
    expanded_memory_is_one,
    no_stage_is_fuller,
    stages_are_those_of_the_plan,
    activations_are_possible,
    graphs_hold_their_inputs,
    buffers_are_possible,
    offload_takes_states_away,
    offload_goes_with_shards,
    risk_is_one,
    memory_interval_is_even,
    chance_follows_from_interval,
)
