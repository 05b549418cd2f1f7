"""Checks of how a plan cuts ranks, layers and samples: degrees, the batch, the schedule, stages, network dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan import Parallelism, Plan
from planner.verify.finding import FOLDED, TOLERANCE, Check, Claim
from planner.verify.model import head

MOST_DIMENSIONS = 4
TOPOLOGIES = ("ring", "switch", "fully-connected", "torus")


WAIVABLE = ("heads_divide", "kv_heads_divide", "hidden_divides")
"""What a plan may say that its question waived."""


def ranks_fill_the_cluster(c: Claim) -> Iterator[str]:
    """``tp pp cp dp = accelerators = sum(nodes per_node)``."""
    p, cluster = c.plan.parallelism, c.plan.cluster
    ranks = p.tp * p.pp * p.cp * p.dp
    owned = sum(pool.count * pool.accelerators_per_node for pool in cluster.pools)
    if ranks != cluster.accelerators:
        yield f"tp x pp x cp x dp is {ranks:,}, the cluster has {cluster.accelerators:,} accelerators"
    if owned != cluster.accelerators:
        yield f"the pools have {owned:,} accelerators, the cluster {cluster.accelerators:,}"


def tensor_divides(c: Claim) -> Iterator[str]:
    """``a % tp = 0``, ``h % tp = 0``, and k divides by tp or tp by k, but for what the plan says was waived."""
    m = c.model
    tp = c.plan.parallelism.tp
    waived = c.plan.waived or ()
    for name in waived:
        if name not in WAIVABLE:
            yield f"{name!r} cannot be waived"
    if (m.compressed.output_groups if m.compressed else m.heads) % tp and "heads_divide" not in waived:
        yield f"{m.heads:,} heads over tp {tp}"
    if m.hidden % tp and "hidden_divides" not in waived:
        yield f"hidden width {m.hidden:,} over tp {tp}"
    for kv in {m.kv_heads, m.full.kv_heads if m.full else m.kv_heads}:
        if kv % tp and tp % kv and "kv_heads_divide" not in waived:
            yield f"{kv:,} key/value heads and tp {tp}: neither divides the other"


def sequence_divides(c: Claim) -> Iterator[str]:
    """``s % (2 cp) = 0`` (two chunks a rank balance a causal mask), and a chunk of the sequence divides by tp."""
    p = c.plan.parallelism
    length = c.plan.workload.sequence
    if p.cp > 1 and (length % (2 * p.cp) or length // p.cp % p.tp):
        yield f"{length:,} tokens over cp {p.cp} (twice) and tp {p.tp}"


def experts_divide(c: Claim) -> Iterator[str]:
    """``E % ep = 0``, etp is 1 or tp and divides an expert, ``tp cp dp % (ep etp) = 0``."""
    p = c.plan.parallelism
    moe = c.model.moe
    experts, width = (moe.experts, moe.ffn) if moe else (1, 1)
    if experts % p.ep:
        yield f"{experts:,} experts over ep {p.ep}"
    if p.etp not in (1, p.tp) or width % p.etp:
        yield f"etp {p.etp} is neither 1 nor tp {p.tp}, or does not divide the experts' width {width:,}"
    if p.tp * p.cp * p.dp % (p.ep * p.etp):
        yield f"tp x cp x dp {p.tp * p.cp * p.dp:,} over ep x etp {p.ep * p.etp:,}"


def batch_divides(c: Claim) -> Iterator[str]:
    """``batch = micro dp accumulation``, and pools share the batch."""
    b = c.plan.batch
    dp = c.plan.parallelism.dp
    if b.micro * dp * b.accumulation != b.global_:
        yield f"{b.micro} x dp {dp} x {b.accumulation} is not the global batch of {b.global_:,}"
    if sum(b.per_pool) != b.global_ or len(b.per_pool) != len(c.plan.cluster.pools):
        yield f"the pools' batches {list(b.per_pool)} do not add up to {b.global_:,}, one for each pool"


def schedule_is_named(c: Claim) -> Iterator[str]:
    """None without a pipeline; with whole stages 1F1B or zero-bubble; with chunks interleaved, in rounds of pp
    micro-batches, or in a V of two. Others than 1F1B: :func:`weights_are_apart`.
    """
    p = c.plan.parallelism
    steps = c.plan.batch.accumulation
    plain = "none" if p.pp == 1 else "1f1b" if p.vpp == 1 else "interleaved-1f1b"
    apart = {1: ("zero-bubble",), 2: ("interleaved-zero-bubble", *FOLDED)}.get(p.vpp, ("interleaved-zero-bubble",))
    if p.schedule != plain and (p.pp == 1 or p.schedule not in apart):
        yield f"{p.schedule} with pp {p.pp} and vpp {p.vpp}: should be {plain}"
    if p.vpp > 1 and (p.pp == 1 or (not c.folded and steps % p.pp)):
        yield f"{steps} micro-batches interleaved over pp {p.pp}"
    if p.schedule in SPLIT_SCHEDULES:
        yield from weights_are_apart(c)


def weights_are_apart(c: Claim) -> Iterator[str]:
    """Micro-batches fill the pipeline, one a stage; all weights train; nothing is recomputed nor in 8 bit; neither
    tensor-parallel communication nor experts' exchanges overlap.
    """
    p = c.plan.parallelism
    steps = c.plan.batch.accumulation
    overlap = c.plan.overlap
    wrong = {
        f"with {steps} micro-batches": steps < (2 * p.pp if c.folded else p.pp),
        "with frozen weights": c.plan.workload.method["kind"] in ("lora", "freeze"),
        f"with recompute {c.plan.recompute.policy}": c.plan.recompute.policy != "none",
        f"in {c.plan.precision}": c.plan.precision not in ("bf16", "fp16", "fp32"),
        "with overlapped tensor parallelism": overlap.tp,
        "with overlapped exchanges of experts": bool(overlap.ep),
    }
    yield from (f"{p.schedule} {why}" for why, is_so in wrong.items() if is_so)


def folds_evenly(c: Claim) -> Iterator[str]:
    """``2 ceil(L / (2 pp))`` layers a rank of a V, but for the first, which has both ends and may lack two."""
    p = c.plan.parallelism
    total = len(c.layers)
    full = 2 * -(-total // (2 * p.pp))
    dealt = [stage.layers for stage in p.stages]
    if dealt != [total - full * (p.pp - 1), *[full] * (p.pp - 1)] or dealt[0] < full - 2 or dealt[0] < 2:
        yield f"stages of {dealt} layers in a V: each should have {full}, the first two less at most"


def layers_are_dealt(c: Claim) -> Iterator[str]:
    """One entry a stage, all layers dealt, no chunk empty, no stage more than one layer short of a full deal.

    A full deal is ``ceil(L / (pp vpp)) vpp`` layers. A runtime that counts the head: :func:`cut_by_cost`; one whose
    last stage gives up layers for it: :func:`placed_beside_head`; layers of several kinds: :func:`cut_by_work`.
    """
    p = c.plan.parallelism
    total = len(c.layers)
    dealt = [stage.layers for stage in p.stages]
    full = -(-total // (p.pp * p.vpp)) * p.vpp
    if len(dealt) != p.pp:
        yield f"{len(dealt)} stages for pp {p.pp}"
    if sum(dealt) != total:
        yield f"stages hold {sum(dealt)} of {total} layers"
    if c.folded:
        yield from folds_evenly(c)
    elif c.plan.runtime.balances_head and p.pp > 1:
        if dealt != (cut := cut_by_cost(c)):
            yield f"stages of {dealt} layers; cut by cost with the head they hold {cut}"
    elif c.plan.runtime.places_head and p.pp > 1:
        if total < p.pp * p.vpp or -total % (p.pp * p.vpp) >= p.pp:
            yield f"{total} layers over {p.pp * p.vpp} chunks: some stage would be short of more than one"
        elif dealt != (cut := placed_beside_head(c)):
            yield f"stages of {dealt} layers; placed with the head counted they hold {cut}"
    elif c.plan.runtime.cuts_by_work and p.pp > 1:
        yield from cut_by_work(c)
    elif any(n not in (full, full - 1) or n < p.vpp for n in dealt):
        yield f"stages of {dealt} layers: each should have {full}, or one less, and at least vpp {p.vpp}"


def cut_by_cost(c: Claim) -> list[int]:
    """Layers of each stage where a layer goes to the stage whose equal share of all cost it begins in, the head costing
    as much as ``V / (4 a d + 3 f)`` of them.
    """
    p = c.plan.parallelism
    m = c.model
    total = len(c.layers)
    share = (total + m.vocab / (4 * m.heads * m.head_dim + 3 * m.ffn)) / p.pp
    begins = [next(stage for stage in range(p.pp) if before <= (stage + 1) * share) for before in range(total)]
    return [begins.count(stage) for stage in range(p.pp)]


def cut_by_work(c: Claim) -> Iterator[str]:
    """Stages say what their chunks hold, and no cut into as many has less work in the chunk with most: filled from the
    back up to a hair less, so many do not hold all layers. The last has the head and all modules.
    """
    p = c.plan.parallelism
    modules = c.plan.workload.mtp_layers or 0
    given = [stage.chunks or (stage.layers,) for stage in p.stages]
    if any(
        len(stage_chunks) != p.vpp or sum(stage_chunks) != stage.layers
        for stage_chunks, stage in zip(given, p.stages, strict=True)
    ):
        stated = [list(stage_chunks) for stage_chunks in given]
        yield f"chunks of {stated} layers are not {p.vpp} a stage that hold all of its layers"
        return
    sizes = [stage_chunks[v] for v in range(p.vpp) for stage_chunks in given]
    ends = (1 + modules) * head(c.model)
    work = [c.layer_work(layer) for layer in c.layers]
    start = 0
    loads = []
    for size in sizes:
        loads.append(math.fsum(work[start : start + size]))
        start += size
    if min(sizes) < 1 or sizes[-1] < max(modules, 1):
        yield f"chunks of {sizes} layers: none may be empty, and the last holds every module"
    limit = max(*loads[:-1], loads[-1] + ends) * (1 - TOLERANCE)
    count = 1
    load = float(ends)
    for place, stage_chunks in enumerate(reversed(work)):
        if load + stage_chunks > limit and place >= max(modules, 1):
            count = count + 1
            load = 0.0
        load += stage_chunks
        if load > limit:
            return
    if count <= len(sizes):
        yield f"chunks of {sizes} layers: another cut has less work in its busiest chunk"


def placed_beside_head(c: Claim) -> list[int]:
    """Layers of each stage where the slowest is as fast as it can be, the head counting as ``w = L H / (P + S)`` of
    them: products with the head over those with all layers, scores that a causal mask leaves included, in whole layers.

    The last holds at least one layer a chunk and module of multi-token prediction, and at most what it would otherwise;
    what a full deal of the others lacks is taken from the first, then from the back.
    """
    p = c.plan.parallelism
    m = c.model
    total = len(c.layers)
    modules = c.plan.workload.mtp_layers or 0
    counted = c.work
    head = (1 + modules) * m.vocab * m.hidden
    weight = round(total * head / (counted.products - head + counted.scores / (2 if m.causal else 1) + counted.states))
    most = total // p.pp
    least = min(p.vpp * max(modules, 1), most)
    last = min(range(least, most + 1), key=lambda n: (max(-(-(total - n) // (p.pp - 1)), n + weight), -n))
    fewest, more = divmod(total - last, p.pp - 1)
    before = [fewest + 1] * more + [fewest] * (p.pp - 1 - more)
    return [*(before[-1:] + before[:-1] if more else before), last]


def stages_are_cut_alike(c: Claim) -> Iterator[str]:
    """Every stage stands on a pool that exists and has the plan's tp and dp."""
    p = c.plan.parallelism
    for index, stage in enumerate(p.stages):
        if not 0 <= stage.pool < len(c.plan.cluster.pools):
            yield f"stage {index} on pool {stage.pool}, which does not exist"
        if (stage.tp, stage.dp) != (p.tp, p.dp):
            yield f"stage {index} has tp {stage.tp} and dp {stage.dp}, the plan tp {p.tp} and dp {p.dp}"


def shards_span_replicas(c: Claim) -> Iterator[str]:
    """ZeRO 0: one shard. Otherwise all ``dp cp`` replicas share, or as many in one scale-up domain as divide them."""
    p = c.plan.parallelism
    expected = dense_shards(c.plan)
    if p.dp_shard != expected:
        yield f"dp_shard is {p.dp_shard}, zero {p.zero_stage} over {p.zero_scope} gives {expected}"
    if p.dp * p.cp % p.dp_shard:
        yield f"dp x cp {p.dp * p.cp} over shards of {p.dp_shard}"


def switches_go_together(c: Claim) -> Iterator[str]:
    """What has no meaning alone: sequence parallelism and its overlap need tp, a scope ZeRO, p2p overlap chunks, and
    experts' exchanges another micro-batch: :func:`exchanges_run_beside`.
    """
    p, overlap = c.plan.parallelism, c.plan.overlap
    if p.sequence_parallel and p.tp == 1:
        yield "sequence parallelism at tp 1"
    if c.model.moe and p.tp > 1 and not p.sequence_parallel:
        yield "a mixture of experts with tensor parallelism needs sequence parallelism"
    if overlap.tp and not p.sequence_parallel:
        yield "overlapped tensor parallelism without sequence parallelism"
    if overlap.dp and p.dp * p.cp == 1 and not c.plan.offload.get("weights"):
        yield "overlapped data parallelism with one replica"
    if overlap.p2p and p.vpp == 1:
        yield "overlapped transfers between stages without interleaving"
    if overlap.ep:
        yield from exchanges_run_beside(c)
    if p.zero_scope != "full" and (p.zero_stage == 0 or p.dp * p.cp == 1):
        yield "shards of a node where nothing is sharded"
    if p.rank_order != "tp-cp-ep-dp-pp" and (p.pp == 1 or p.dp * p.cp == 1):
        yield f"rank order {p.rank_order} without both stages and replicas"


def exchanges_run_beside(c: Claim) -> Iterator[str]:
    """Experts' exchanges overlap where there are some, with two micro-batches, chunks if there are stages, at most one
    module of multi-token prediction, no layer or mixture recomputed whole, and none that is a mixer alone.
    """
    p = c.plan.parallelism
    wrong = {
        "without exchanges (ep 1)": p.ep == 1,
        "with one micro-batch": c.micro_batches < 2,
        "over stages that are not interleaved": p.pp > 1 and p.vpp == 1,
        "with several modules of multi-token prediction": (c.plan.workload.mtp_layers or 0) > 1,
        "where layers are a mixer alone": any(not (layer.dense or layer.mixture) for layer in c.layers),
        "with whole layers recomputed": c.plan.recompute.layers_fraction > 0,
        "with whole mixtures recomputed": "moe" in c.plan.recompute.policy.partition(":")[2].split("+"),
    }
    yield from (f"overlapped exchanges of experts {why}" for why, is_so in wrong.items() if is_so)


def recomputation_is_named(c: Claim) -> Iterator[str]:
    """The policy's name and its two numbers say the same: none, selective (with modules or without), full, or
    ``block:SHARE``.
    """
    r = c.plan.recompute
    kind = "selective" if r.policy.startswith("selective:") else r.policy
    expected = {"none": (0.0, False), "selective": (0.0, True), "full": (1.0, False)}.get(kind)
    if expected is None and r.policy.startswith("block:"):
        try:
            expected = (float(r.policy.removeprefix("block:")), False)
        except ValueError:
            expected = None
    if expected != (r.layers_fraction, r.selective) or not 0 <= r.layers_fraction <= 1:
        yield f"{r.policy} with {r.layers_fraction:g} of the layers in full and selective {r.selective}"


# ---- groups ----------------------------------------------------------------------------------------------------------


def domain(plan: Plan) -> int:
    """Accelerators that share a scale-up domain: a node's; over ICI those of a pod."""
    pool = plan.cluster.pools[0]
    fabric = plan.cluster.fabric
    if fabric.kind == "ici":
        return min(pool.accelerators_per_node * fabric.leaf_nodes, plan.cluster.accelerators)
    return pool.accelerators_per_node


def _inside(plan: Plan, ranks: int, stride: int) -> int:
    """Members in the domains that share one copy, of `ranks` that are `stride` apart."""
    scope = plan.parallelism.zero_scope
    domains = int(scope.partition(":")[2]) if ":" in scope else 1
    return min(max(domains * domain(plan) // stride, 1), ranks)


def _between_stages(p: Parallelism) -> int:
    """By how much stages stretch the stride of data-parallel ranks: pp where they lie inside."""
    return p.pp if p.rank_order == "tp-cp-ep-pp-dp" else 1


def dense_shards(plan: Plan) -> int:
    """Ranks that share one sharded copy of dense parameters."""
    p = plan.parallelism
    if p.zero_stage == 0:
        return 1
    if p.zero_scope == "full":
        return p.dp * p.cp
    inside = _inside(plan, p.cp, p.tp) * _inside(plan, p.dp, p.tp * p.cp * _between_stages(p))
    return math.gcd(inside, p.cp * p.dp)


def expert_shards(plan: Plan) -> int:
    """Ranks that share one sharded copy of a routed expert: of ``tp cp dp / (ep etp)`` copies."""
    p = plan.parallelism
    if p.zero_stage == 0:
        return 1
    copies = max(p.tp * p.cp * p.dp // (p.ep * p.etp), 1)
    if p.zero_scope == "full":
        return copies
    return math.gcd(_inside(plan, copies, p.ep * p.etp * _between_stages(p)), copies)


def dimensions_have_places(c: Claim) -> Iterator[str]:
    """At most four dimensions, whose sizes multiply to at least the accelerators that are used."""
    along = c.plan.cluster.fabric.dimensions
    if along is None:
        return
    places = math.prod(dimension.size for dimension in along)
    if not 1 <= len(along) <= MOST_DIMENSIONS:
        yield f"a network of {len(along)} dimensions"
    if places < c.plan.cluster.accelerators:
        yield f"the network has {places:,} places for {c.plan.cluster.accelerators:,} accelerators"
    yield from (f"no topology {dimension.topology!r}" for dimension in along if dimension.topology not in TOPOLOGIES)


CHECKS: tuple[Check, ...] = (
    dimensions_have_places,
    ranks_fill_the_cluster,
    tensor_divides,
    sequence_divides,
    experts_divide,
    batch_divides,
    schedule_is_named,
    layers_are_dealt,
    stages_are_cut_alike,
    shards_span_replicas,
    switches_go_together,
    recomputation_is_named,
)
