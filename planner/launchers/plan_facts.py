"""What several exporters ask a plan: its pools, the layers of every chunk, values by axis, losses that all share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from planner.axes import AXES
from planner.axes.values import FOLDED
from planner.launchers.target import Loss, Values
from planner.schema.model_reading import read
from planner.schema.plan import Plan, Pool
from planner.schema.workload import Method

FACTS = ("stages", "pools", "method", "task", "optimizer", "family")
"""What exporters declare besides the axes of plans."""


UNPACKED = Loss(
    "workload.texts", "its data are not packed text by text: attention runs across them, or batches are padded"
)
"""Of trainers that do not pack, where lengths of texts are stated."""


def complete(plan: Plan) -> Plan:
    """The plan with every field of its model's shape: one edited by hand may leave out what is at its default."""
    return replace(plan, workload=replace(plan.workload, shape=asdict(read(plan.workload.shape))))


def method(plan: Plan) -> str:
    """The plan's method as exporters declare it: qlora for both of bitsandbytes' bases, freeze for any number."""
    found = Method(**{**plan.workload.method, "targets": tuple(plan.workload.method.get("targets", ()))}).name
    return "qlora" if found == "qlora:int8" else found.partition(":")[0] if found.startswith("freeze") else found


def sequences_per_example(plan: Plan) -> int:
    """Of a step, for each of a trainer's examples: a pair of answers is two."""
    return 2 if plan.workload.task else 1


def values(plan: Plan) -> dict[str, object]:
    """The plan's value on every axis as exporters tell them apart, and its :data:`FACTS`."""
    facts = (
        "even" if len(set(chunks(plan))) == 1 else "uneven",
        len(plan.cluster.pools),
        method(plan),
        plan.workload.task or "sft",
        str(plan.workload.optimizer.get("id")),
        str(plan.workload.shape.get("family")),
    )
    return {name: row.exported(row.of(plan)) for name, row in AXES.items()} | dict(zip(FACTS, facts, strict=True))


def offloaded_share(plan: Plan) -> float:
    """Share of the optimizer states in host memory."""
    return plan.offloaded.optimizer_share if plan.offloaded else float(plan.offload.get("optimizer", False))


def nodes(plan: Plan) -> int:
    """Hosts of all pools."""
    return sum(hosts(pool)[0] for pool in plan.cluster.pools)


TRAYS = {"GB200": 4, "GB300": 4, "VR200": 4}
"""Accelerators of a host in racks that are one node to a plan: 18 trays of an NVL72 (stas00/ml-engineering 744d01e)."""
RACK = 72


def hosts(pool: Pool) -> tuple[int, int]:
    """(hosts of a pool, accelerators of one): a rack that is one node to a plan is its trays to what starts jobs."""
    whole = pool.accelerators_per_node
    tray = TRAYS.get(pool.accelerator, whole) if whole == RACK else whole
    return pool.count * (whole // tray), tray


def trays(pool: Pool) -> int | None:
    """Hosts of a rack, which share NVLink; None where a node is a host itself."""
    count, _ = hosts(pool)
    return count // pool.count if count > pool.count else None


def pool_names(plan: Plan) -> tuple[str, ...]:
    """What pools are called in settings: their node, with its zone, numbered where that is still the same.

    Other characters than a name's become ``-``: the name stands in files.
    """
    pools = plan.cluster.pools
    plain = [re.sub(r"[^A-Za-z0-9@._-]", "-", f"{pool.node}{'@' + pool.zone if pool.zone else ''}") for pool in pools]
    return tuple(
        name if plain.count(name) == 1 else f"{name}#{plain[: at + 1].count(name)}" for at, name in enumerate(plain)
    )


def per_node(plan: Plan) -> int | None:
    """Accelerators of a host, where all pools have as many."""
    counts = {hosts(pool)[1] for pool in plan.cluster.pools}
    return counts.pop() if len(counts) == 1 else None


RESOURCES = {"AMD": "amd.com/gpu", "Intel": "habana.ai/gaudi", "NVIDIA": "nvidia.com/gpu"}
"""Maker of an accelerator -> Kubernetes resource of its device plugin."""
MAKERS = ("amd", "aws", "google", "intel", "nvidia")
"""Makers that launchers tell apart."""


def runs_on(plan: Plan, *makers: str) -> Iterator[str]:
    """A launcher whose kernels are of other makers cannot start there; what nobody knows is let through."""
    for index, pool in enumerate(plan.cluster.pools):
        maker = pool.vendor.lower()
        if maker in MAKERS and maker not in makers:
            yield f"{pool.accelerator} (pool {index}): it runs on accelerators of {' and '.join(makers)}"


def vendor_resource(pool: Pool) -> str | None:
    """The Kubernetes resource that a pool's accelerators are; None where no device plugin is known."""
    return RESOURCES.get(pool.vendor)


def resources_are_known(plan: Plan) -> Iterator[str]:
    """Asked for another vendor's resource, pods would wait for ever."""
    for index, pool in enumerate(plan.cluster.pools):
        if vendor_resource(pool) is None:
            yield f"no Kubernetes resource is known for {pool.accelerator} (pool {index})"


def chunks(plan: Plan) -> list[int]:
    """Layers of every pipeline chunk in the order of the layers: all stages' first chunks, then all second ones.

    A stage's short chunks are its first on the first stage (beside the embedding), its last elsewhere (the head). In a
    V second chunks go backwards, and the last is the first to be short.
    """
    p = plan.parallelism
    folded = p.schedule in FOLDED
    dealt = []
    for index, stage in enumerate(p.stages):
        each, more = divmod(stage.layers, p.vpp)
        sizes = [each + 1] * more + [each] * (p.vpp - more)
        dealt.append(stage.chunks or (sizes[::-1] if index == 0 and not folded else sizes))
    return [sizes[chunk] for chunk in range(p.vpp) for sizes in (dealt[::-1] if folded and chunk else dealt)]


def replicas(plan: Plan) -> int:
    """Copies of the sharded states: ``dp cp / dp_shard``."""
    p = plan.parallelism
    return p.dp * p.cp // p.dp_shard


def mesh(plan: Plan) -> tuple[int, int]:
    """(replicate, shard) degrees of the data-parallel ranks alone, for launchers whose shards always span cp."""
    p = plan.parallelism
    shard = max(p.dp_shard // p.cp, 1) if p.zero_stage else 1
    return p.dp // shard, shard


def mesh_is_whole(plan: Plan) -> Iterator[str]:
    """Shards that span part of the context-parallel ranks have no name where cp always joins the shards."""
    p = plan.parallelism
    if p.zero_stage and p.dp_shard % p.cp:
        yield f"states are sharded over {p.dp_shard} of dp x cp ranks, which is no multiple of cp {p.cp}"


def steps(plan: Plan) -> int:
    """Steps until all tokens are seen."""
    return math.ceil(plan.workload.tokens / (plan.batch.global_ * plan.workload.sequence))


def steps_between_checkpoints(plan: Plan) -> int:
    """The interval with which the plan's goodput was predicted, in steps; no longer than a quarter of the run."""
    interval = round(plan.money.goodput.checkpoint_interval_s / plan.prediction.step_time_s)
    return min(max(interval, 1), -(-steps(plan) // 4))


def window(shape: Mapping[str, Any], sequence: int) -> dict[str, Any] | None:
    """The model's attention window, if the sequence is longer than it: else every layer sees all of it."""
    found: dict[str, Any] | None = shape["window"]
    return found if found and found["size"] < sequence else None


UNKNOWN_BASE = 500_000.0
"""Base of rotary angles where nothing says it: Llama 3's."""


def rotary(shape: Mapping[str, Any]) -> dict[str, Any] | None:
    """The model's rotary positions, where they are known."""
    positions: dict[str, Any] | None = shape.get("rotary")
    return positions


def rotary_base(shape: Mapping[str, Any], values: Values) -> float:
    """Base of the rotary angles: as set, the model's own, or :data:`UNKNOWN_BASE`."""
    known = rotary(shape)
    return float(values["rotary-base"] or (known["base"] if known else UNKNOWN_BASE))


def unknown_norms_and_positions(shape: Mapping[str, Any], epsilon: str) -> Iterator[Loss]:
    """What no source said of the model, so that the launcher's own holds; `epsilon` is that of its norms."""
    if shape.get("norm_epsilon") is None:
        yield Loss("workload.shape.norm_epsilon", f"not known of this model: the launcher's {epsilon} holds")
    if rotary(shape) is None and not shape["learned_positions"]:
        assumed = f"unscaled, in every layer, base {UNKNOWN_BASE:.0f} unless --set rotary-base= overrides it"
        yield Loss("workload.shape.rotary", f"not known of this model: {assumed}")


def blocks_are_attention(shape: Mapping[str, Any]) -> Iterator[str]:
    """Trainers' decoders are blocks of attention and an MLP or mixture; other kinds would be left out in silence."""
    mixers, feeds = shape.get("mixers") or (), shape.get("feeds") or ()
    if not shape.get("compressed") and set(mixers) - {"attention", "window"}:
        carried = shape.get("recurrence")
        what = f"with a recurrence ({carried['kind']})" if carried else "without attention"
        yield f"blocks {what} have no flag"
    if feeds:
        yield "blocks whose MLPs follow a pattern of their own have no flag"
    if shape["moe"] and shape["moe"].get("latent"):
        yield "experts on a latent have no flag"
    yield from parts_have_flags(shape)


def parts_have_flags(shape: Mapping[str, Any]) -> Iterator[str]:
    """What blocks of any kind may have, and no trainer's do."""
    if shape.get("compressed"):
        yield "attention on compressed entries has no flag"
    if shape.get("full"):
        yield "other heads where everything is seen than in the window have no flag"
    if shape.get("indexer"):
        yield "sparse attention's index has no flag"
    if shape.get("attention_gate"):
        yield "a gate on attention's output has no flag"
    if shape.get("streams"):
        yield f"{shape['streams']} residual streams have no flag"
    if shape.get("scaled"):
        yield "constants on embeddings, residuals or logits have no flag"
    if not shape.get("norm_weight", True):
        yield "norms without weights have no flag"


def stages_fill_pools(plan: Plan) -> Iterator[str]:
    """Launchers number ranks node after node: stages have to lie pool after pool, whole, and be cut alike."""
    p, pools = plan.parallelism, plan.cluster.pools
    yield from _groups_are_alike(plan)
    if any((stage.tp, stage.dp) != (p.tp, p.dp) for stage in p.stages):
        yield "stages have different tensor- or data-parallel degrees"
        return
    if len(pools) == 1 and not p.groups:
        return
    order = [stage.pool for stage in p.stages]
    if order != sorted(order):
        yield f"stages lie on pools {order}: ranks are numbered pool after pool"
    if len(pools) > 1 and p.rank_order == "tp-cp-ep-pp-dp" and p.pp > 1 and p.dp > 1:
        placed = "puts all stages of a replica on adjacent ranks; several pools need tp-cp-ep-dp-pp"
        yield f"rank order {p.rank_order} {placed}"
    for index, pool in enumerate(pools):
        used = p.tp * p.cp * p.dp * order.count(index)
        owned = pool.count * pool.accelerators_per_node
        if used != owned:
            yield f"pool {index} has {owned:,} accelerators, its stages use {used:,}"


def _groups_are_alike(plan: Plan) -> Iterator[str]:
    """Of pipelines of several kinds (``parallelism.groups``) the largest degrees alone would reach a launcher.

    One kind is the plan without groups where each of its stages is cut alike and no micro-batch is smaller:
    ``sequences = copies width micro micro_batches``.
    """
    groups = plan.parallelism.groups
    if len(groups) > 1:
        yield f"it has {len(groups)} groups of heterogeneous pipelines; a launcher needs identical ones"
    for group in groups[:1] if len(groups) == 1 else ():
        for name in ("cp", "ep", "recompute"):
            found = [getattr(stage, name) for stage in group.stages]
            if len(set(found)) > 1:
                yield f"{name} differs from stage to stage ({', '.join(map(str, found))})"
        whole = group.copies * group.width * group.micro * group.micro_batches
        if group.sequences != whole:
            yield f"{group.sequences:,} sequences in micro-batches for {whole:,}: some are smaller than {group.micro}"


def other_runtime(plan: Plan, own: tuple[str, ...]) -> Iterator[Loss]:
    """A plan was priced for one framework; started with another it takes another time and other memory."""
    if plan.runtime.name not in own:
        yield Loss("runtime", f"predicted for {plan.runtime.name}: expect other times and memory, or plan for {own[0]}")


UNTUNED = Loss("communication", "add nccl-tuner to the targets (--to ...+nccl-tuner)")
"""Of a trainer alone, where the plan has rules."""


def shape_losses(plan: Plan) -> Iterator[Loss]:
    """Communication rules go to ``nccl-tuner``; trainers have no key for them."""
    if plan.communication:
        yield UNTUNED


def own_script_losses(plan: Plan) -> Iterator[Loss]:
    """What a script of one's own has to do."""
    yield from shape_losses(plan)
    if plan.workload.mtp_layers:
        yield Loss("workload.mtp_layers", "your script has to train the modules of multi-token prediction")
