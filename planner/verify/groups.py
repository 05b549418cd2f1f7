"""A plan whose pipelines are unlike: groups of them over several pools, with layers and micro-batches of their own."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.plan import Group, GroupStage
from planner.verify.finding import TOLERANCE, Check, Claim, same, unless_same
from planner.verify.memory import SIXTEEN_BIT, parts_add_up, trained
from planner.verify.model import StageBytes, first_end, last_end

RECOMPUTES = ("none", "selective", "full")


def groups_are_possible(c: Claim) -> Iterator[str]:
    """Every group has copies, pipelines, samples and stages, on pools that exist; links join two of them at a rate."""
    pools = len(c.plan.cluster.pools)
    for n, link in enumerate(c.plan.cluster.links):
        if len(set(link.pools)) != 2 or not all(0 <= p < pools for p in link.pools) or link.bytes_per_s <= 0:
            yield f"link {n} joins pools {list(link.pools)} of {pools} at {link.bytes_per_s:g} B/s"
    for n, pool in enumerate(c.plan.cluster.pools):
        if min(pool.count, pool.accelerators_per_node) < 1 or pool.accelerator_memory_bytes <= 0:
            yield f"pool {n} has {pool.count} nodes of {pool.accelerators_per_node} accelerators"
    for i, g in enumerate(c.plan.parallelism.groups):
        if min(g.copies, g.width, g.micro, g.micro_batches, g.sequences, len(g.stages)) < 1 or g.time_s <= 0:
            yield f"group {i} has {g.copies} copies of {g.width} pipelines, {g.sequences} sequences in {g.time_s:g} s"
        for n, s in enumerate(g.stages):
            if s.recompute not in RECOMPUTES:
                yield f"stage {n} of group {i} recomputes {s.recompute!r}; known are {', '.join(RECOMPUTES)}"
            if not 0 <= s.pool < pools:
                yield f"stage {n} of group {i} is on pool {s.pool}; there are {pools}"
            if min(s.layers, s.tp, s.cp, s.ep) < 1 or s.time_s <= 0:
                yield f"stage {n} of group {i} has {s.layers} layers, tp {s.tp}, cp {s.cp}, ep {s.ep}"


def summary_follows(c: Claim) -> Iterator[str]:
    """Degrees, micro-batch and accumulation are the largest of the groups', ``dp = sum(copies width)``; the stages told
    are those of the group with the most sequences; each pool's share of the batch is that of its layers.

    Unlike pipelines are not interleaved, cut no expert, and share optimizer states at most: ``vpp = etp = 1``,
    ``dp_shard = max(width cp)``.
    """
    p = c.plan.parallelism
    b = c.plan.batch
    groups = c.plan.parallelism.groups
    every = [s for g in groups for s in g.stages]
    stated = {
        **{degree: getattr(p, degree) for degree in ("tp", "pp", "cp", "ep", "dp", "vpp", "etp", "dp_shard")},
        "micro": b.micro,
        "accumulation": b.accumulation,
    }
    derived = {
        **{axis: max(getattr(s, axis) for s in every) for axis in ("tp", "cp", "ep")},
        "pp": max(len(g.stages) for g in groups),
        "dp": sum(g.copies * g.width for g in groups),
        "vpp": 1,
        "etp": 1,
        "dp_shard": max(g.width * s.cp for g in groups for s in g.stages) if p.zero_stage else 1,
        "micro": max(g.micro for g in groups),
        "accumulation": max(g.micro_batches for g in groups),
    }
    yield from (f"{n} is {stated[n]}; the groups have {most}" for n, most in derived.items() if stated[n] != most)
    if p.zero_stage > 1:
        yield f"zero_stage is {p.zero_stage}; heterogeneous pipelines can share optimizer states only"
    main = max(groups, key=lambda g: g.sequences)
    listed = [(s.pool, s.layers, s.tp, s.dp) for s in p.stages]
    if listed != [(s.pool, s.layers, s.tp, main.copies * main.width) for s in main.stages]:
        yield "the reported stages are not those of the group with the most sequences"
    shares = [
        sum(g.sequences * s.layers / sum(x.layers for x in g.stages) for g in groups for s in g.stages if s.pool == i)
        for i in range(len(c.plan.cluster.pools))
    ]
    for i, (mine, share) in enumerate(zip(b.per_pool, shares, strict=False)):
        if abs(mine - share) >= 1 + TOLERANCE * share:
            yield f"pool {i} is said to do {mine:,} sequences; its layers do {share:.6g}"


def _ranks(g: Group, s: GroupStage) -> int:
    return g.copies * g.width * s.tp * s.cp


def ranks_fit_the_pools(c: Claim) -> Iterator[str]:
    """``sum over groups of copies width tp cp <= nodes per_node`` on every pool, ``nodes <= offered``, none idle."""
    cluster = c.plan.cluster
    owned = sum(pool.count * pool.accelerators_per_node for pool in cluster.pools)
    if owned != cluster.accelerators:
        yield f"the pools have {owned:,} accelerators, the cluster {cluster.accelerators:,}"
    for i, pool in enumerate(cluster.pools):
        taken = sum(_ranks(g, s) for g in c.plan.parallelism.groups for s in g.stages if s.pool == i)
        if taken > pool.count * pool.accelerators_per_node:
            yield f"{taken:,} ranks on the {pool.count * pool.accelerators_per_node:,} accelerators of {pool.node}"
        if taken <= (pool.count - 1) * pool.accelerators_per_node:
            yield f"{taken:,} ranks leave nodes of {pool.node} idle, and the plan counts {pool.count}"
        if pool.offered is not None and pool.count > pool.offered:
            yield f"{pool.count:,} nodes of {pool.node}; {pool.offered:,} are offered"


def layers_are_all_dealt(c: Claim) -> Iterator[str]:
    """Every pipeline holds every layer once."""
    total = len(c.layers)
    for i, g in enumerate(c.plan.parallelism.groups):
        if sum(s.layers for s in g.stages) != total:
            yield f"group {i} holds {sum(s.layers for s in g.stages)} of {total} layers"


def batch_is_shared(c: Claim) -> Iterator[str]:
    """``sum of sequences = batch``, and none does more than ``copies width micro micro_batches``."""
    b = c.plan.batch
    groups = c.plan.parallelism.groups
    if sum(g.sequences for g in groups) != b.global_:
        yield f"the groups' {sum(g.sequences for g in groups):,} sequences are not the batch of {b.global_:,}"
    for i, g in enumerate(groups):
        most = g.copies * g.width * g.micro * g.micro_batches
        if g.sequences > most:
            yield f"group {i} has {g.sequences:,} sequences for {most:,} places"
    if sum(b.per_pool) != b.global_ or len(b.per_pool) != len(c.plan.cluster.pools):
        yield f"the pools' batches {list(b.per_pool)} do not add up to {b.global_:,}, one for each pool"


def tensor_divides(c: Claim) -> Iterator[str]:
    """``a % tp = 0``, ``h % tp = 0``, k divides by tp or tp by k, tp within a node; ``E % ep = 0``; sequences by cp."""
    m = c.model
    length = c.plan.workload.sequence
    experts = m.moe.experts if m.moe else 1
    for i, g in enumerate(c.plan.parallelism.groups):
        for n, s in enumerate(g.stages):
            if m.heads % s.tp or m.hidden % s.tp or (m.kv_heads % s.tp and s.tp % m.kv_heads):
                yield f"stage {n} of group {i}: {m.heads} heads, {m.kv_heads} key/value heads over tp {s.tp}"
            if experts % s.ep or s.ep > g.width * s.tp * s.cp:
                yield f"stage {n} of group {i}: {experts} experts over ep {s.ep}"
            if s.cp > 1 and (length % (2 * s.cp) or length // s.cp % s.tp):
                yield f"stage {n} of group {i}: {length:,} tokens over cp {s.cp}"


def times_follow(c: Claim) -> Iterator[str]:
    """The step ends with the slowest group, and no group ends before ``(M - 1) max + sum`` of its stages."""
    groups = c.plan.parallelism.groups
    slowest = max(g.time_s for g in groups)
    yield from unless_same("step_time_s", c.plan.prediction.step_time_s, slowest)
    for i, g in enumerate(groups):
        times = [s.time_s for s in g.stages]
        least = (g.micro_batches - 1) * max(times) + sum(times)
        if g.time_s < least * (1 - TOLERANCE):
            yield f"group {i} ends after {g.time_s:.6g} s; its stages need {least:.6g} s"


def gradients_cross_in_time(c: Claim) -> Iterator[str]:
    """What leaves a pool of layers that others hold too, e bytes a trained parameter, over its fastest link's rate is
    no more than the step: ``e sum parameters / (nodes max B_link) <= T``.
    """
    every = c.layers
    pools = c.plan.cluster.pools
    share = trained(c)
    homes: list[set[int]] = [set() for _ in every]
    for g in c.plan.parallelism.groups:
        start = 0
        for s in g.stages:
            for home in homes[start : start + s.layers]:
                home.add(s.pool)
            start += s.layers
    for i, pool in enumerate(pools):
        leaving = sum(
            layer.held.dense + layer.held.experts
            for layer, home in zip(every, homes, strict=True)
            if i in home and len(home) > 1
        )
        fastest = max((link.bytes_per_s for link in c.plan.cluster.links if i in link.pools), default=0.0)
        most = pool.count * fastest * c.plan.prediction.step_time_s
        if leaving and c.element * share * leaving > most * (1 + TOLERANCE):
            yield (
                f"gradients of {leaving:,} parameters leave {pool.node} in {c.plan.prediction.step_time_s:.6g} s; "
                f"{pool.count:,} nodes send at most {fastest:.6g} B/s each"
            )


def stages_add_up(c: Claim) -> Iterator[str]:
    """What a stage holds is the sum of its parts, where these are told."""
    for i, g in enumerate(c.plan.parallelism.groups):
        for n, s in enumerate(g.stages):
            if s.held is not None:
                yield from parts_add_up(f"stage {n} of group {i}", s.held)
                yield from unless_same(f"memory_bytes of stage {n} of group {i}", s.memory_bytes, s.held.total_bytes)


def memory_fits_stage_by_stage(c: Claim) -> Iterator[str]:
    """States and the inputs of all layers in flight fit into what a stage is said to hold, and that into its pool.

    ``parameters + gradients + optimizer / width`` of ``layers / tp`` and the ends, ``(pp - i) layers e micro s h / (cp
    tp)``.
    """
    every = c.layers
    w = c.plan.workload
    wide = (c.model.streams or 1) * c.model.hidden
    for i, g in enumerate(c.plan.parallelism.groups):
        start = 0
        for n, s in enumerate(g.stages):
            stage_layers = every[start : start + s.layers]
            start += s.layers
            held = sum((layer.held for layer in stage_layers), StageBytes(0, 0))
            ends = first_end(c.model) if n == 0 else 0
            ends += last_end(c.model, alone=len(g.stages) == 1) if n == len(g.stages) - 1 else 0
            least = _states(c, g, s, held + StageBytes(ends, 0))
            least += SIXTEEN_BIT * c.model.tower.parameters if c.model.tower and n == 0 else 0.0
            flying = min(len(g.stages) - n, g.micro_batches)
            least += flying * s.layers * c.element * g.micro * w.sequence * wide / (s.cp * s.tp)
            capacity = c.plan.cluster.pools[s.pool].accelerator_memory_bytes
            if s.memory_bytes < least * (1 - TOLERANCE):
                yield f"stage {n} of group {i} needs {least:.6g} B or more, but is reported with {s.memory_bytes:.6g} B"
            if s.memory_bytes > capacity * (1 + TOLERANCE):
                yield f"stage {n} of group {i} holds {s.memory_bytes:.6g} B of {capacity:.6g} B"


def _states(c: Claim, g: Group, s: GroupStage, held: StageBytes) -> float:
    """Bytes of parameters, gradients and optimizer states on one rank, these over all that may share them."""
    per_parameter = c.plan.runtime.bytes_per_parameter
    optimizer = c.plan.workload.optimizer
    share = trained(c)
    whole = held.dense / s.tp + held.experts / s.ep
    zero = c.plan.parallelism.zero_stage > 0
    shards, copies = (g.width * s.cp, max(g.width * s.tp * s.cp / s.ep, 1.0)) if zero else (1, 1.0)
    state = (optimizer["state_bytes"] + c.master_bytes) * share
    sharded = held.dense / s.tp / shards + held.experts / s.ep / copies
    kept = per_parameter.get("frozen") or per_parameter["parameters"]
    return float(whole * (kept + per_parameter["gradients"] * share) + state * sharded)


def fullest_stage_is_told(c: Claim) -> Iterator[str]:
    """The memory section is that of the stage with the largest share of its accelerator in use."""
    m = c.plan.prediction.memory
    pools = c.plan.cluster.pools
    held = [
        (s.memory_bytes / pools[s.pool].accelerator_memory_bytes, n, pools[s.pool].accelerator_memory_bytes)
        for g in c.plan.parallelism.groups
        for n, s in enumerate(g.stages)
    ]
    most = max(share for share, _, _ in held)
    yield from unless_same("memory.total_bytes / capacity_bytes", m.total_bytes / m.capacity_bytes, most)
    fullest = {(n, capacity) for share, n, capacity in held if same(share, most)}
    if not any(m.stage == n and same(m.capacity_bytes, capacity) for n, capacity in fullest):
        listed = " or ".join(f"stage {n} with {capacity:.6g} B" for n, capacity in sorted(fullest))
        yield f"memory is reported for stage {m.stage} with {m.capacity_bytes:.6g} B; the fullest is {listed}"


def switches_are_those_of_groups(c: Claim) -> Iterator[str]:
    """The recomputation told is the most that a stage does; unlike pipelines offload nothing and wait for transfers."""
    plan = c.plan
    names = {s.recompute for g in plan.parallelism.groups for s in g.stages}
    name = next(policy for policy in reversed(RECOMPUTES) if policy in names)
    listed = (plan.recompute.policy, plan.recompute.layers_fraction, plan.recompute.selective)
    if listed != (name, float(name == "full"), name == "selective"):
        yield f"recompute is reported as {', '.join(map(str, listed))}; the largest of the stages is {name}"
    if any(plan.offload.values()) or plan.overlap.p2p:
        yield "heterogeneous pipelines are costed without offload, and with transfers that are waited for"
    if plan.overlap.tp and not plan.parallelism.sequence_parallel:
        yield "overlap.tp without sequence_parallel"


def dollars_follow_from_pools(c: Claim) -> Iterator[str]:
    """``usd_per_hour = sum(nodes price)``, ``usd_total = usd_per_hour 24 days``, ``tokens_per_usd = tokens /
    usd_total``; the one price is the first pool's.
    """
    money = c.plan.money
    pools = c.plan.cluster.pools
    if money.usd_per_hour is None or money.usd_total is None:
        if any((money.usd_total is not None, money.prices, money.price, money.tokens_per_usd is not None)):
            yield "some amounts are known without the others"
        return
    if len(money.prices) != len(pools):
        yield f"{len(money.prices)} prices for {len(pools)} pools"
        return
    hourly = sum(pool.count * price.usd_per_hour for pool, price in zip(pools, money.prices, strict=True))
    yield from unless_same("usd_per_hour", money.usd_per_hour, hourly)
    yield from unless_same("usd_total", money.usd_total, money.usd_per_hour * 24.0 * money.days)
    bought = (money.tokens_per_usd or 0.0) * money.usd_total
    if money.usd_total:
        yield from unless_same("tokens_per_usd x usd_total", bought, c.plan.workload.tokens)
    if money.price != money.prices[0]:
        yield "the reported price is not that of the first pool"


CHECKS: tuple[Check, ...] = (
    summary_follows,
    ranks_fit_the_pools,
    layers_are_all_dealt,
    batch_is_shared,
    tensor_divides,
    times_follow,
    gradients_cross_in_time,
    stages_add_up,
    memory_fits_stage_by_stage,
    fullest_stage_is_told,
    switches_are_those_of_groups,
    dollars_follow_from_pools,
)
