"""Every candidate of a question, from plain loops over the rules: what the vectorised space must hold, and no more."""

from collections.abc import Iterator
from itertools import product

from planner.axes.options import OptionValues, Sharding, TensorMode, option_values
from planner.axes.values import RANK_ORDERS, recompute
from planner.question.request import Request
from planner.schema.hardware import Runtime
from planner.schema.workload import Model

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp")


def layouts(request: Request) -> Iterator[dict[str, int]]:
    """Layouts that keep every rule, pins, and what the runtime can express."""
    model, length = request.workload.model, request.workload.sequence
    moe, runtime, node = model.moe, request.runtime, request.cluster.node.accelerators
    layers = model.layers + model.encoder_layers

    def may(axis, value):
        known = runtime.axes.get(axis, (1,)) if axis in DEGREES else "any"
        return (known == "any" or value in known) and request.pins.allow(axis, value)

    for nodes in request.counts:
        ranks = nodes * node
        for batch in request.batches:
            for tp in range(1, ranks + 1):
                if ranks % tp or model.heads % tp or model.hidden % tp or tp > node or not may("tp", tp):
                    continue
                if model.kv_heads % tp and tp % model.kv_heads:
                    continue
                for cp in (1, 2, 4, 8, 16, 32, 64):
                    if ranks % (tp * cp) or not may("cp", cp):
                        continue
                    if cp > 1 and (length % (2 * cp) or length // cp % tp or length // cp < 1024):
                        continue
                    for pp in range(1, layers + 1):
                        if ranks % (tp * cp * pp) or not may("pp", pp):
                            continue
                        dp = ranks // (tp * cp * pp)
                        if not may("dp", dp):
                            continue
                        for vpp in range(1, layers // pp + 1 if pp > 1 else 2):
                            missing = -layers % (pp * vpp)
                            if pp > 1 and model.encoder_layers:
                                continue
                            if not leading_layers_fit(model, layers, pp, vpp):
                                continue
                            most = pp if runtime.uneven_stages else 1
                            anywhere = (runtime.places_head or runtime.lists_layers) and of_kinds(model, length)
                            if not may("vpp", vpp) or (missing >= most and not anywhere):
                                continue
                            for micro in range(1, batch // dp + 1):
                                if batch % (dp * micro) or not may("micro", micro):
                                    continue
                                folds = vpp == 2 and {"zbv", "dualpipe-v"} & set(runtime.schedules)
                                enough = batch // (dp * micro) >= 2 * pp if folds else False
                                if vpp > 1 and batch // (dp * micro) % pp and not enough:
                                    continue
                                if micro * length // cp > max(131072, length // cp // 131072 * 131072):
                                    continue
                                for ep in range(1, moe.experts + 1 if moe else 2):
                                    if (moe and moe.experts % ep) or not may("ep", ep):
                                        continue
                                    for etp in sorted({1, tp}) if moe and moe.experts > 1 else [1]:
                                        if not may("etp", etp) or tp * cp * dp % (ep * etp):
                                            continue
                                        if etp > 1 and moe.ffn % etp:
                                            continue
                                        cut = {"tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "etp": etp, "dp": dp}
                                        yield cut | {"micro": micro, "batch": batch, "nodes": nodes}


def of_kinds(model: Model, length: int) -> bool:
    """Whether layers take turns: mixtures with MLPs, or a window that cuts the sequence with none."""
    turns = model.moe is not None and model.moe.every > 1
    return turns or (model.window is not None and model.window.size < length and model.window.every > 1)


def leading_layers_fit(model: Model, layers: int, pp: int, vpp: int) -> bool:
    """Whether each leading dense layer is of some stage's first chunk, one by one: the stages that are a layer short
    are the last ones, in their last chunk, and from two on the first, in its first.
    """
    full, short = -(-layers // (pp * vpp)), -layers % (pp * vpp)
    is_short = [short >= 2, *(stage >= pp - max(short - 1, min(short, 1)) for stage in range(1, pp))]
    chunks = [full - (is_short[stage] and (stage == 0 or vpp == 1)) for stage in range(pp)]
    leading = model.moe.leading_dense_layers if model.moe else 0
    filled = [stage for stage in range(1, pp) if sum(chunks[: stage + 1]) < leading]
    return pp == 1 or (leading <= sum(chunks) and len({chunks[stage] for stage in filled}) <= 1)


def options(request: Request, layout: dict[str, int]) -> Iterator[OptionValues]:
    """Options that exist for a layout, in 16 bit."""
    runtime, pins = request.runtime, request.pins

    def values(axis, neutral, all_of=(False, True)):
        known = runtime.axes.get(axis, (neutral,))
        return [v for v in all_of if (known == "any" or v in known) and pins.allow(axis, v)]

    names = [n for n in ("none", "selective", "full") if n in runtime.axes["recompute"]]
    if "block" in runtime.axes["recompute"]:
        names += ["block:0.25", "block:0.5", "block:0.75"]
    replicas, staged = layout["dp"] * layout["cp"] > 1, layout["pp"] > 1
    precision = next(p for p in ("bf16", "fp16", "fp32") if _has(request, p))
    beside = layout["ep"] > 1 and layout["batch"] // layout["dp"] // layout["micro"] > 1
    beside = beside and (layout["pp"] == 1 or layout["vpp"] > 1) and request.workload.mtp_layers < 2
    overlaps = [o for o in values("ep_overlap", False) if beside or not o]
    pairs = [(n, o) for n in names for o in overlaps if not (o and (n == "full" or n.startswith("block")))]
    yield from apart(request, layout, precision, values)
    plain = "none" if not staged else "1f1b" if layout["vpp"] == 1 else "interleaved-1f1b"
    in_rounds = layout["vpp"] == 1 or steps(layout) % layout["pp"] == 0
    pairs = pairs if in_rounds and pins.allow("schedule", plain) else []
    for policy, exchanges in (pair for pair in pairs if pins.allow("recompute", pair[0])):
        for tensor in _tensor(request, layout["tp"], values):
            for place, beside, moved, graphs in offloaded(request, policy):
                able = runtime.offload_needs_zero if place != "none" else ()
                able = [zero for zero in able or (0, 1, 2, 3) if zero < 2 or not (graphs == "modules" and exchanges)]
                for sharding in (
                    *_sharding(runtime, replicas, staged, values, able),
                    *_spanning(request, layout, values, able),
                ):
                    for p2p in values("p2p_overlap", False) if layout["vpp"] > 1 else [False]:
                        orders = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
                        known = values("rank_order", orders[0], orders)
                        alone = not (replicas and staged) or ":" in sharding.scope
                        kept = [o for o in known if not alone or o == orders[0]]
                        for order, way, sent in product(kept, ways(request, layout), dispatched(request, layout)):
                            if sent == "allgather" and exchanges:
                                continue
                            yield option_values(
                                precision=precision,
                                recompute=recompute(policy),
                                sequence_parallel=tensor.sequence_parallel,
                                tp_overlap=tensor.overlap,
                                zero=sharding.zero,
                                zero_scope=sharding.scope,
                                dp_overlap=sharding.overlap,
                                p2p_overlap=p2p,
                                rank_order=RANK_ORDERS[order == orders[1]],
                                offload={"none": 0.0, "optimizer": 1.0}.get(place)
                                or float(place.partition(":")[2] or 0),
                                ep_overlap=exchanges,
                                cp_algorithm=way,
                                offload_overlap=beside,
                                graphs=graphs,
                                dispatcher=sent,
                                activation_offload=() if moved == "none" else tuple(moved.split("+")),
                            )


def offloaded(request: Request, policy: str) -> Iterator[tuple[str, bool, str, str]]:
    """Shares of the optimizer, whether copies overlap, modules in host memory, CUDA graphs: those that pins name."""
    pins, known = request.pins, request.runtime.axes
    given = {axis: pins.bounds[axis].values for axis in ("offload", "activation_offload") if axis in pins}
    for place in given.get("offload", ("none", "optimizer")):
        if ("part" if ":" in place else place) not in known.get("offload", ("none",)):
            continue
        asked = [on for on in (False, True) if "offload_overlap" in pins and pins.allow("offload_overlap", on)]
        asked = [on for on in asked if on in known.get("offload_overlap", (False,)) and (place != "none" or not on)]
        for moved in given.get("activation_offload", ("none",)):
            taken = policy == "full" or policy.startswith("block") or (policy == "selective" and "core_attn" in moved)
            for graphs in pins.bounds["graphs"].values if "graphs" in pins else ("none",):
                captures = graphs in known.get("graphs", ("none",)) and (moved == "none" or graphs == "none")
                captures = captures and not (graphs == "full" and request.workload.model.moe)
                drawn = request.workload.model.dropout and policy in ("selective", "selective:mlp")
                captures = captures and not (graphs != "none" and drawn)
                captures = captures and not (graphs == "modules" and (policy == "full" or policy.startswith("block")))
                if captures and (moved == "none" or not taken):
                    yield from ((place, on, moved, graphs) for on in (asked if "offload_overlap" in pins else [False]))


def dispatched(request: Request, layout: dict[str, int]) -> list[str]:
    """How tokens reach experts: as pins name it where these are spread over ranks, all-gather for whole ones."""
    if "dispatcher" not in request.pins:
        return ["none"]
    asked = request.pins.bounds["dispatcher"].values
    spread = layout["ep"] * layout["etp"] > 1
    return [name for name in asked if name == "none" or (spread and not (name == "allgather" and layout["etp"] > 1))]


def steps(layout: dict[str, int]) -> int:
    return layout["batch"] // layout["dp"] // layout["micro"]


def apart(request: Request, layout: dict[str, int], precision: str, values) -> Iterator[OptionValues]:
    """Options with weight gradients apart: nothing recomputed, no pieces of tensor-parallel communication."""
    runtime, pins, pp, vpp = request.runtime, request.pins, layout["pp"], layout["vpp"]
    if pp == 1 or not pins.allow("recompute", "none") or not pins.allow("ep_overlap", False):
        return
    if request.workload.method.kind in ("lora", "freeze") or request.workload.task != "sft":
        return
    layers, full = request.workload.layers, -(-request.workload.layers // (pp * vpp)) * vpp
    short = full * pp - layers
    first = full - (short if short <= 2 else 0)
    model = request.workload.model
    leading = model.moe.leading_dense_layers if model.moe else 0
    for name in runtime.schedules:
        looped = name not in ("zbv", "dualpipe-v")
        here = first if not looped else full - (short >= 2)
        between = [full - (looped and pp - i <= short - 1) for i in range(1, pp - 1)]
        fill = {"zero-bubble": vpp == 1 and steps(layout) >= pp}
        fill["interleaved-zero-bubble"] = vpp > 1 and steps(layout) % pp == 0
        even = len(set(between)) < 2 and (looped or short <= 2) and leading <= here // vpp
        if not pins.allow("schedule", name) or not even:
            continue
        if not fill.get(name, vpp == 2 and steps(layout) >= 2 * pp):
            continue
        for tensor in (mode for mode in _tensor(request, layout["tp"], values) if not mode.overlap):
            for place in values("offload", "none", ("none", "optimizer")):
                able = runtime.offload_needs_zero if place == "optimizer" else ()
                every = [*_sharding(runtime, layout["dp"] * layout["cp"] > 1, True, values, able or (0, 1, 2, 3))]
                every += _spanning(request, layout, values, able or (0, 1, 2, 3))
                may_wait = False in runtime.axes.get("dp_overlap", (False,))
                for sharding in (each for each in every if not (each.overlap and may_wait)):
                    for p2p in values("p2p_overlap", False) if vpp > 1 else [False]:
                        orders = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
                        known = values("rank_order", orders[0], orders)
                        alone = layout["dp"] * layout["cp"] == 1 or ":" in sharding.scope
                        kept = [o for o in known if not alone or o == orders[0]]
                        for order, way in product(kept, ways(request, layout)):
                            yield option_values(
                                precision=precision,
                                sequence_parallel=tensor.sequence_parallel,
                                tp_overlap=tensor.overlap,
                                zero=sharding.zero,
                                zero_scope=sharding.scope,
                                dp_overlap=sharding.overlap,
                                p2p_overlap=p2p,
                                rank_order=RANK_ORDERS[order == orders[1]],
                                offload=place == "optimizer",
                                cp_algorithm=way,
                                schedule=name,
                            )


def ways(request: Request, layout: dict[str, int]) -> list[str]:
    """How context-parallel ranks may share a sequence: what attention, a rank's heads, runtime and pins allow."""
    model, tp, cp = request.workload.model, layout["tp"], layout["cp"]
    if cp == 1:
        return [way for way in ["none"] if request.pins.allow("cp_algorithm", way)]
    able = ["p2p", "all_gather", "a2a", "a2a+p2p"]
    if model.window and model.window.size < request.workload.sequence:
        able = ["all_gather", "a2a"]
    if model.sinks:
        able = ["a2a"]
    chosen = "cp_algorithm" in request.pins
    able = [way for way in able if way in (request.runtime.axes.get("cp_algorithm", able[:1]) if chosen else able[:1])]
    own, inside = max(model.kv_heads // tp, 1), max(request.cluster.node.accelerators // tp, 1)
    if own % cp:
        able = [way for way in able if way != "a2a"]
    if own % inside or cp % inside or inside == 1 or inside >= cp:
        able = [way for way in able if way != "a2a+p2p"]
    return [way for way in able if request.pins.allow("cp_algorithm", way)]


def _has(request: Request, precision: str) -> bool:
    return precision in request.cluster.accelerator.peak and precision in request.runtime.axes["precision"]


def _tensor(request: Request, tp: int, values) -> Iterator[TensorMode]:
    if tp == 1:
        yield TensorMode(False, False)
        return
    for sequence_parallel in values("sequence_parallel", False):
        for overlap in values("tp_overlap", False):
            if (sequence_parallel or not overlap) and (sequence_parallel or not request.workload.model.moe):
                yield TensorMode(sequence_parallel, overlap)


def _spanning(request: Request, layout: dict[str, int], values, able) -> Iterator[Sharding]:
    """Copies that a pinned count of nodes shares: each holds whole replicas, and there are several."""
    pinned = request.pins.bounds["zero_scope"].values if "zero_scope" in request.pins else ()
    of_stage = layout["tp"] * layout["cp"] * layout["dp"]
    for scope in (scope for scope in pinned if ":" in scope):
        ranks = int(scope.split(":")[1]) * request.cluster.node.accelerators
        parts = (layout["tp"] * layout["cp"], layout["ep"] * layout["etp"])
        if of_stage > ranks and of_stage % ranks == 0 and all(ranks % part == 0 for part in parts):
            for zero in able:
                known = request.runtime.axes["zero"]
                gathered = zero < 2 or layout["pp"] == 1 or request.runtime.gathers_working_copy
                if zero and (known == "any" or zero in known) and request.pins.allow("zero", zero) and gathered:
                    yield from (Sharding(zero, scope, o) for o in values("dp_overlap", False))


def _sharding(runtime: Runtime, replicas: bool, staged: bool, values, able) -> Iterator[Sharding]:
    stages = values("zero", 0, able)
    if not replicas:
        yield from (Sharding(zero, "full", False) for zero in stages[:1])
        return
    for zero in stages:
        if zero >= 2 and staged and not runtime.gathers_working_copy:
            continue
        for scope in runtime.zero_scope if zero else ("full",):
            for overlap in values("dp_overlap", False):
                yield Sharding(zero, scope, overlap)
