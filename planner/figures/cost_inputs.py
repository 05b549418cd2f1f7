"""From records to figures: what the cost functions read of a workload, an accelerator, a cluster and a runtime."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from planner.base.errors import WrongQuestion
from planner.cost import flops, frozen
from planner.cost.figures import Device, Dimensions, Figure, Network, NetworkDimension, Shape, Stack
from planner.cost.nccl_algorithms import HOPS, OPERATIONS, PROTOCOLS, CollectiveLibrary, Protocol
from planner.cost.other_families import Software
from planner.cost.second_memory import Expansion
from planner.figures import kinds_of_layers, muon_matrices
from planner.figures.matrix_formats import peak_of
from planner.models import blocks, compressed, recurrent, text_lengths
from planner.models.context import attended, in_texts, windowed
from planner.models.parameters import (
    Parameters,
    adapted_matrices,
    head_width,
    indexing,
    lora_parameters,
    parameters,
    trained,
)
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Cluster, Runtime, dated
from planner.schema.workload import FP8_RECIPES, LOW_PRECISION, Model, Workload

Found = TypeVar("Found")
WIDE = ("fp32", "tf32")
"""Precisions whose elements take four bytes."""

HOST_BANDWIDTH = 16e9
"""B/s to host memory where the catalog has no figure: PCIe 3."""

COMPUTE_UNITS = 100
"""Compute units where the catalog has no figure; only the rounding to whole waves depends on it."""


def shape(workload: Workload, runtime: Runtime | None, *, mean: bool = False) -> Shape:
    """The figures of a workload; of its pipeline stages as the runtime cuts them, or equal ones without a runtime.

    Layers of several kinds are told apart, unless there is no runtime or the `mean` of them is asked for.
    """
    model = workload.model
    counted = parameters(workload.model)
    moe = model.moe
    latent = model.latent
    ranks = _ranks(model)
    leading = blocks.leading(model)
    lora = workload.method.kind == "lora"
    adapters = lora_parameters(model, workload.method) if lora else 0
    width = head_width(model)
    qk = latent.nope_dim + latent.rope_dim if latent else width
    cross = model.layers / counted.layers if model.encoder_layers else 0.0
    made = Shape(
        layers=counted.layers + workload.mtp_layers,
        leading_dense=leading,
        moe_share=counted.moe_layers / max(counted.layers - leading, 1),
        hidden=model.hidden,
        ffn=model.ffn,
        gated=float(model.gated),
        heads=model.heads,
        kv_heads=_key_value_width(model, counted) / width if model.full else model.kv_heads,
        qk_dim=qk,
        v_dim=latent.value_dim if latent else width,
        query_rank=ranks[0],
        kv_rank=ranks[1],
        kv_latent=latent.kv_rank if latent else 0,
        kv_up=model.heads * (latent.nope_dim + latent.value_dim) if latent else 0,
        vocab=model.labels or model.vocab,
        losses=1.0 + workload.mtp_layers,
        sequence=workload.sequence,
        attended=in_texts(model, workload.texts) if workload.texts else attended(model, workload.sequence),
        text=text_lengths.around_token(workload.texts) if workload.texts else workload.sequence,
        attended_full=workload.sequence,
        windowed=windowed(model, text_lengths.around_token(workload.texts) if workload.texts else workload.sequence),
        head_layers=head_layers(model) if runtime and runtime.balances_head else 0.0,
        cross_share=cross,
        experts=moe.experts if moe else 0,
        experts_per_token=moe.experts_per_token if moe else 0,
        expert_ffn=moe.ffn if moe else 0,
        shared_ffn=moe.shared_ffn if moe else 0,
        imbalance=workload.imbalance or 0.0,
        expert_groups=moe.router.groups if moe and moe.router else 1,
        groups_per_token=moe.router.groups_per_token if moe and moe.router else 1,
        expert_hidden=moe.latent if moe else 0,
        **_mixers(model),
        clamped_experts=float(moe is not None and model.activation == "clamped-swiglu"),
        biased_experts=float(moe is not None and moe.expert_bias),
        dropout=float(model.dropout),
        ends_in_product=float(
            model.norm_place == "pre" and not model.dropout and not lora and (model.streams or 1) == 1
        ),
        embedding_parameters=counted.embedding + counted.positions + counted.extra,
        head_parameters=counted.head or counted.embedding,
        final_parameters=counted.final_norm,
        tied=float(model.tied),
        attention_parameters=_held(counted) + cross * counted.cross_attention_per_layer,
        mlp_parameters=counted.dense_mlp_per_layer,
        shared_parameters=counted.router_per_layer + counted.shared_expert_per_layer,
        expert_parameters=counted.expert,
        trained=trained(model, workload.method) / counted.decoder,
        weight_gradient=0.0 if lora else 1.0,
        **_frozen(workload, runtime),
        **_tuned(workload),
        **_tower(model),
        adapter_flops=1.5 * adapters / counted.active if lora else 0.0,
        state_bytes=workload.optimizer.state_bytes,
        master_bytes=workload.optimizer.master_bytes,
        step_bytes=workload.optimizer.step_bytes,
        **muon_matrices.orthogonal_figures(workload),
    )
    if runtime is not None and not mean and blocks.differ(model, workload.sequence):
        return replace(made, pattern=kinds_of_layers.pattern(workload, made, shape, cuts_anywhere(runtime)))
    return replace(made, placed_head=float(round(flops.head_share(made)))) if places_head(runtime, model) else made


def _ranks(model: Model) -> tuple[int, int]:
    """Widths that one product makes: the queries' latent, and that of keys and values with their rotary part, or the
    one key of compressed attention.
    """
    if model.compressed is not None:
        return model.compressed.query_rank, model.head_dim
    return (model.latent.query_rank, model.latent.kv_rank + model.latent.rope_dim) if model.latent else (0, 0)


def _compressed(model: Model) -> dict[str, float]:
    """Compressed attention's figures; entries and their index are made on every tensor-parallel rank."""
    if (attention := model.compressed) is None:
        return {}
    (csa, hca), (best, every) = compressed.shares(model), compressed.products(model, attention)
    return {
        "output_rank": attention.output_rank,
        "output_width": attention.output_groups * attention.output_rank,
        "entries_kept": (4.0 * csa + 2.0 * hca) * model.head_dim,
        "index_products": csa * best + hca * every,
        "index_width": csa * attention.index_heads * attention.index_head_dim / attention.csa_rate,
    }


def _key_value_width(model: Model, counted: Parameters) -> float:
    """Width of keys (and of values), mean over blocks: those of whole attention and those in the window."""
    narrow = model.kv_heads * model.head_dim
    wide = model.full.kv_heads * model.full.head_dim if model.full else narrow
    share = counted.full_layers / max(counted.attention_layers, 1)
    return share * wide + (1.0 - share) * narrow


def _reused_keys(model: Model) -> float:
    """Width of keys that are values, too, the mean over blocks with attention."""
    if model.full is None or not model.full.keys_are_values:
        return 0.0
    return blocks.attending_to_all(model) / blocks.attending(model) * model.full.kv_heads * model.full.head_dim


def _held(counted: Parameters) -> float:
    """Parameters of a layer without its MLP: of attention, recurrence and norms, the mean over layers."""
    only = counted.attention_only_per_layer
    every = counted.norms_per_layer + counted.extra_per_layer - only
    attention = counted.attention_layers * (counted.attention_per_layer + only)
    attention += counted.full_layers * counted.full_more_per_layer
    attention -= counted.indexless_layers * counted.index_per_layer
    attention += counted.compressors
    return every + (attention + counted.recurrent_layers * counted.recurrent_per_layer) / counted.layers


def _mixers(model: Model) -> dict[str, Figure]:
    """Shares of layers by what mixes tokens in them, and the work of a recurrence and of sparse attention's index."""
    recurrence = recurrent.block(model)
    every = blocks.blocks(model)
    body = blocks.blocks(model)[blocks.leading(model) :]
    index = model.indexer
    scoring = blocks.scoring(model) / max(blocks.attending(model), 1)
    shares = {
        "attention_share": blocks.attending(model) / len(every),
        "recurrent_share": blocks.recurring(model) / len(every),
        "mixing_share": sum(mixer != "none" for mixer, _ in every) / len(every),
        "idle_share": sum(feed == "none" for _, feed in body) / max(len(body), 1),
        "attention_gate": float(model.attention_gate),
        "reused_keys": _reused_keys(model),
        "index_products": indexing(model) * scoring,
        "index_width": index.heads * index.head_dim * scoring if index else 0.0,
    }
    shares |= _compressed(model) | {"streams": float(model.streams or 1)}
    if recurrence is None:
        return shares
    return shares | {
        "recurrent_first": float(recurrence.first),
        "recurrent_inner": float(recurrence.inner),
        "recurrent_between": float(recurrence.between),
        "recurrent_work": recurrence.recurrence,
        "recurrent_chunked": recurrence.chunked,
        "recurrent_moved": recurrence.moved,
        "recurrent_kept": float(recurrence.kept),
    }


def _tower(model: Model) -> dict[str, Figure]:
    """A frozen tower's figures."""
    if (tower := model.tower) is None:
        return {}
    return {
        "tower_layers": tower.layers,
        "tower_hidden": tower.hidden,
        "tower_inner": tower.ffn,
        "tower_gated": float(tower.gated),
        "tower_patches": tower.patches,
        "tower_attended": tower.attended,
        "tower_joining": tower.joining,
        "tower_parameters": tower.parameters,
        "tower_trained": float(tower.trained),
        "images": tower.images,
    }


def frozen_bytes(workload: Workload, runtime: Runtime | None) -> float:
    """Bytes of a frozen parameter of a block: quantised, or 16 bit where trained ones would be fp32 shards; 0 where
    nothing is frozen, or frozen ones are kept as trained ones are.
    """
    method = workload.method
    if method.base:
        return float(frozen.bytes_of(method.base, workload.model.hidden))
    return 2.0 if method.kind == "lora" and runtime is not None and runtime.gathers_working_copy else 0.0


def _frozen(workload: Workload, runtime: Runtime | None) -> dict[str, Figure]:
    """What of a block is read again in the backward pass, and how frozen weights are kept."""
    method = workload.method
    on = set(method.targets)
    whole = method.kind != "lora"
    return {
        "reads_input": float(whole or bool(on & {"q", "k", "v"})),
        "reads_mlp_input": float(whole or bool(on & {"up", "gate"})),
        "reads_inner": float(whole or "down" in on),
        "frozen_bytes": frozen_bytes(workload, runtime),
        "quantised": float(bool(method.base)),
    }


REFERENCE_BYTES = 4.0
"""Bytes of a parameter of the reference model: as wide as the trained ones are held (trl, trainer/dpo_trainer.py)."""


def _tuned(workload: Workload) -> dict[str, Figure]:
    """What fine-tuning adds to a layer, or leaves out of it. With adapters, the model as it was is the one without."""
    model, method = workload.model, workload.method
    figures = {
        "backward_share": method.layers / model.layers if method.kind == "freeze" else 1.0,
        "reference": float(workload.task == "dpo"),
        "reference_bytes": REFERENCE_BYTES * (workload.task == "dpo" and method.kind != "lora"),
    }
    if not method.magnitude:
        return figures
    matrices = [(count / parameters(model).layers, i, o) for count, i, o in adapted_matrices(model, method)]
    return figures | {
        "magnitude_elements": sum(count * i * o for count, i, o in matrices),
        "magnitude_inputs": sum(count * i * i for count, i, o in matrices),
        "magnitude_outputs": sum(count * o for count, _, o in matrices),
        "magnitude_flops": 2.0 * method.rank * sum(count * i * (i + o) for count, i, o in matrices),
    }


def cuts_anywhere(runtime: Runtime) -> bool:
    """Whether the runtime's stages can hold any number of layers, so that layers of several kinds are cut by work."""
    return runtime.places_head or runtime.lists_layers


def places_head(runtime: Runtime | None, model: Model) -> bool:
    """Whether the runtime's last stage gives up layers for the head: only where any stage can take any layer."""
    return runtime is not None and runtime.places_head and blocks.alike(model)


def head_layers(model: Model) -> float:
    """Layers that cost as much as the head: ``V / (4 a d + 3 f)``, every layer counted as full attention and a gated
    MLP (huggingface/nanotron, get_block_compute_costs).
    """
    return model.vocab / (4 * model.heads * model.head_dim + 3 * model.ffn)


def maturity(reached: AcceleratorEfficiency, release: str) -> float:
    """What a runtime's release reaches of the mature software's rates: ``exp(-drift (matured - release))``, at most
    1.
    """
    date = dated(release)
    if date is None:
        return 1.0
    return math.exp(-reached.drift * max(0.0, reached.matured - max(date, reached.drift_from)))


def element(precision: str) -> float:
    """Bytes of an element of activations."""
    return 4.0 if precision in WIDE else 2.0


def device(accelerator: Accelerator, reached: AcceleratorEfficiency, precision: str, release: str = "") -> Device:
    """The figures of an accelerator in one precision, under a runtime's release.

    Raises:
        KeyError: the accelerator has no peak in that precision (ask `can_train_in` first).
    """
    peak = accelerator.peak
    sixteen = max(peak.get("bf16", 0.0), peak.get("fp16", 0.0)) or peak["fp32"]
    wide = "fp16" if precision == "fp16" else "bf16"
    reach_16 = reached.matrix.get(wide, reached.matrix["bf16"])
    plain = "fp8" if precision in FP8_RECIPES else precision  # No measured run says which recipe it took.
    reach = reached.matrix.get(plain, reach_16)
    capped = reached.power_capped * maturity(reached, release)
    if accelerator.reachable is not None:
        reach_16 = reach = accelerator.reachable
        capped = 1.0
    whole = precision in WIDE
    rate = peak_of(accelerator, precision) * reach * capped
    return Device(
        **_copied(Device, reached, but=("inner_half", "memory")),
        matrix_rate=rate,
        matrix_rate_16=rate if whole else sixteen * reach_16 * capped,
        inner_half=reached.inner_half * rate / (sixteen * reach_16 * capped),
        compute_units=accelerator.compute_units or COMPUTE_UNITS,
        buffer=accelerator.l2 or math.inf,
        attention_rate=(peak_of(accelerator, precision) if whole else sixteen) * reached.attention * capped,
        **{kernel.replace("-", "_"): rate for kernel, rate in reached.attention_kernels.items()},
        memory_rate=accelerator.memory_bandwidth * reached.memory,
        memory=accelerator.memory,
        host_bandwidth=accelerator.host_bandwidth or HOST_BANDWIDTH,
        peak=peak_of(accelerator, precision),
        low_precision=float(precision in LOW_PRECISION),
        bf16=float(precision == "bf16"),
        element=element(precision),
    )


def software(reached: RuntimeEfficiency, precision: str) -> Software:
    """The figures of a framework's efficiencies in one precision."""
    return Software(
        **_copied(Software, reached),
        element=element(precision),
        transposed=float(precision == "tf32"),
    )


def _copied(figures: type, record: object, *, but: Collection[str] = ()) -> dict[str, Any]:
    """A record's fields that `figures` has by the same name, switches as 0 or 1; not those that are worked out."""
    values = {name: value for name, value in vars(record).items() if name not in but}
    names = [field.name for field in fields(figures) if field.name in values]
    return {name: float(value) if isinstance(value := values[name], bool) else value for name in names}


def matured(fresh: Device, reached: AcceleratorEfficiency, release: str) -> Device:
    """An accelerator under convolutional networks and recommenders: young software is slow in memory-bound kernels as
    in products (:func:`maturity`).
    """
    return replace(fresh, memory_rate=fresh.memory_rate * maturity(reached, release))


def expansion(accelerator: Accelerator, reached: AcceleratorEfficiency, per_node: int) -> Expansion | None:
    """The figures of an accelerator's expanded memory; None where it has none. Software is taken to reach as much of
    its bandwidth as of the accelerator's own memory's.

    Raises:
        WrongQuestion: a capacity without a bandwidth, or a bandwidth without a capacity.
    """
    size, rate = accelerator.expanded_memory, accelerator.expanded_bandwidth
    if (size is None) != (rate is None):
        lacks = "expanded_memory" if size is None else "expanded_bandwidth"
        raise WrongQuestion(f"{accelerator.id}: expanded memory needs {lacks} too")
    if size is None or rate is None:
        return None
    return Expansion(
        memory=size,
        rate=rate * reached.memory,
        latency=accelerator.expanded_latency,
        sharers={"accelerator": 1.0, "node": float(per_node), "pool": math.inf}[accelerator.expanded_scope],
        concurrent=float(accelerator.expanded_access == "concurrent"),
    )


def network(cluster: Cluster, reached: AcceleratorEfficiency) -> Network:
    """The figures of a cluster's links.

    TPU pods are one scale-up domain over many hosts; elsewhere the domain is the node. A node without NICs of its own
    record uses the fabric's port, one per node.
    """
    node, fabric, link = cluster.node, cluster.fabric, cluster.scaleup
    per_node = node.accelerators
    pod = fabric.kind == "ici"
    domain = min(per_node * fabric.leaf_nodes, cluster.accelerators) if pod else per_node
    bandwidth = link.bandwidth or HOST_BANDWIDTH
    return Network(
        accelerators=cluster.accelerators,
        domain=domain,
        scaleup=bandwidth * reached.scaleup,
        scaleup_reduce=bandwidth * reached.scaleup_reduce,
        pair=(link.pair_bandwidth or bandwidth) * reached.scaleup,
        mesh=float(link.topology == "mesh"),
        bridged=float(link.topology == "pairs"),
        scaleup_latency=reached.scaleup_latency,
        nic=_nics(cluster) * reached.nic,
        nic_latency=fabric.latency,
        dispatch=reached.dispatch / reached.scaleup if reached.dispatch else 1.0,
        dispatch_nic=reached.dispatch_nic / reached.nic if reached.dispatch_nic else 1.0,
        spine=1.0 / fabric.oversubscription,
        leaf=fabric.leaf_nodes * per_node,
        base=reached.collective_base,
        pipelining=reached.pipelining,
        host_memory=(node.host_memory or math.inf) / per_node,
        dimensions=_dimensions(cluster, reached),
    )


def library(
    cluster: Cluster, entries: Mapping[str, CollectiveEfficiency], fabrics: Mapping[str, FabricEfficiency]
) -> CollectiveLibrary:
    """The collective library on a cluster's links, alone on them, by what is fitted in a catalog.

    Arguments:
        cluster: whose accelerators, NICs and fabric.
        entries: a catalog's ``collective_efficiencies``: the accelerator's own, else its generation's if its link is a
            switch, else its topology's. What an operation lacks is taken from the all-gather.
        fabrics: its ``fabric_efficiencies``: the fabric's own, its kind's, or the default.

    Raises:
        KeyError: neither the accelerator's topology nor ``default`` is among them.
    """
    keys = collective_keys(cluster.accelerator)
    used = {op: _first(entries, [f"{key}/{name}" for name in (op, "all-gather") for key in keys]) for op in OPERATIONS}
    between = _first(fabrics, [cluster.fabric.id, cluster.fabric.kind, "default"])
    link = cluster.scaleup.bandwidth or HOST_BANDWIDTH
    adding = used["all-reduce"]
    return CollectiveLibrary(
        protocols={op: protocols(entry, link, between, _nics(cluster)) for op, entry in used.items()},
        switch=adding.switch * link if cluster.accelerator.adds_in_switch else 0.0,
        switch_step=adding.switch_step,
    )


def _first(entries: Mapping[str, Found], keys: Sequence[str]) -> Found:
    return entries[next((key for key in keys if key in entries), keys[-1])]


def collective_keys(accelerator: Accelerator) -> tuple[str, ...]:
    """What an accelerator's collective entries may stand under, the most particular first."""
    topology = accelerator.scaleup.topology
    return (accelerator.id, *((accelerator.generation,) if topology == "switch" else ()), topology)


def protocols(
    entry: CollectiveEfficiency, link: Figure, between: FabricEfficiency | None = None, nics: Figure = 0.0
) -> tuple[Protocol, ...]:
    """An entry's protocols on a link of `link` B/s an accelerator, between domains on NICs of `nics` B/s."""
    return tuple(
        Protocol(
            name=name,
            base=entry.base[name],
            step=entry.step[name],
            hop=HOPS[name] * between.hop if between else 0.0,
            rate=link * entry.rate * entry.share.get(name, 1.0),
            few=entry.few,
            crowding=entry.crowding,
            share=entry.share.get(name, 1.0),
            nic=nics * between.nic if between else 0.0,
            ramp=entry.ramp if name == "Simple" else 0.0,
            far_ramp=between.ramp if between else 0.0,
        )
        for name in PROTOCOLS
    )


def _nics(cluster: Cluster) -> float:
    """Nominal B/s per accelerator on the NICs."""
    node = cluster.node
    return max(node.nics, 1) * (node.nic_bandwidth or cluster.fabric.nic_bandwidth) / node.accelerators


def _dimensions(cluster: Cluster, reached: AcceleratorEfficiency) -> Dimensions | None:
    """A network's dimensions; software reaches of those that stay inside a node what it does of scale-up links, of the
    others what it does of NICs.
    """
    fabric = cluster.fabric
    per_node = cluster.node.accelerators
    all_ = cluster.accelerators
    given = fabric.dimensions
    if not given:
        return None
    if any(getattr(fabric, f"dimension{i}") is None for i in range(1, len(given) + 1)):
        raise WrongQuestion(f"{fabric.id}: dimension{len(given)} and no dimension below it; number them from 1")
    if any(d.size is None for d in given[:-1]):
        raise WrongQuestion(f"{fabric.id}: only the outermost dimension may leave its size out")
    below = 1
    along = []
    for d in given:
        size = d.size or max(1, -(-all_ // below))
        below *= size
        reach = reached.scaleup if below <= per_node else reached.nic
        along.append(NetworkDimension(d.topology, float(size), d.bandwidth * reach, d.latency))
    if below != all_:
        sizes = " x ".join(f"{d.size:g}" for d in along)
        raise WrongQuestion(
            f"{fabric.id}: {sizes} = {below:,} places for {all_:,} accelerators; leave the outermost size out"
        )
    return Dimensions(tuple(along), float(fabric.chunks))


LOGIT_BYTES = (6.0, 10.0)
"""Bytes that a logit takes in the loss: fused (16-bit logits, fp32 values of their exponentials), and not."""


LOSS_TRAFFIC = (32.0, 52.0)
"""Bytes of a logit that kernels of the loss read and write, both passes: Megatron-LM's fused one, compiled between its
collectives (d98e8a64, core/fusions/fused_cross_entropy.py: 22 forward, 10 backward), and one operator by operator
(core/tensor_parallel/cross_entropy.py: 38 and 14; as many in PyTorch's cross entropy of logits cast to fp32)."""
COMPILED_LOSS = 8.0
"""Bytes of a logit that a loss compiled whole moves: logits read twice, read again, their gradient written."""


def _loss_traffic(runtime: Runtime, release: str) -> float:
    """Bytes of a logit that kernels of the loss read and write, both passes."""
    if runtime.loss_traffic:
        return runtime.loss_traffic
    if runtime.fused_loss_since and release >= runtime.fused_loss_since:
        return COMPILED_LOSS
    fused, apart = LOSS_TRAFFIC
    return fused if runtime.fused_cross_entropy else apart


def _logit_bytes(runtime: Runtime, release: str) -> tuple[float, float]:
    """Bytes that a logit takes in the loss on a rank with the whole vocabulary, and on one with a share of it."""
    fused, apart = LOGIT_BYTES
    since = runtime.fused_loss_since
    if since and release >= since:
        return fused, fused
    whole = runtime.logit_bytes or (fused if runtime.fused_cross_entropy else apart)
    return whole, runtime.logit_bytes_split or whole


def stack(runtime: Runtime, reached: RuntimeEfficiency, release: str, accelerator: Accelerator) -> Stack:
    """The figures of a runtime's release on an accelerator."""
    drops = runtime.selective_recompute
    fused = runtime.fused_attention and release >= runtime.fused_attention_since
    whole, split = _logit_bytes(runtime, release)
    return Stack(
        **_copied(
            Stack,
            runtime,
            but=(
                "fp32_sums_below_zero",
                "fused_attention",
                "logit_bytes",
                "logit_bytes_split",
                "loss_traffic",
                "kernels_per_layer",
                "selective_recompute",
            ),
        ),
        **_copied(Stack, reached, but=("dispatch_once",)),
        gradient_wire=runtime.gradient_wire_bytes,
        fp32_sums_below_zero=float(runtime.at(release).fp32_sums_below_zero),
        parameter_wire=runtime.parameter_wire_bytes,
        hosted_weight=runtime.hosted_weight_bytes,
        fused_attention=float(fused and accelerator.generation not in runtime.fused_attention_not_on),
        loss_traffic=_loss_traffic(runtime, release),
        logit_bytes=whole,
        logit_bytes_split=split,
        drops_scores=float("scores" in drops),
        drops_activation=float("activation" in drops),
        drops_norms=float("norms" in drops),
        drops_linear=float("linear-half" in drops),
        drops_kernel=float("kernel-output" in drops),
        kernels_per_layer=reached.launches or runtime.kernels_per_layer,
        dispatch_once=reached.dispatch_once * bool(accelerator.dispatchers),
    )
