"""A workload layer by layer, as COMET's workflow starts: FLOPs, bytes, seconds and collectives of each pass.

Three passes are kept apart: forward, input gradient, weight gradient. Every figure comes from the functions that price
a step; layers only name what those add up. One micro-batch on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.cost import (
    attention,
    collective_times,
    convolution,
    data_parallel,
    dlrm,
    elements,
    experts,
    hyper_connections,
    products,
    recurrent,
    tower,
    transformer,
)
from planner.cost.dlrm import Sharding
from planner.cost.figures import Device, Figure, Grid, Layout, Network
from planner.cost.micro_batch import activation_bytes, region_bytes, tokens
from planner.cost.other_families import Software
from planner.cost.products import LayerPart, Product
from planner.schema.workload import ConvolutionNetwork, Recommender

Kind = Literal["all-reduce", "gather-scatter", "all-to-all"]
GroupName = Literal["tp", "dp", "ep", "all"]


@dataclass(frozen=True, slots=True)
class Collective:
    """What ranks exchange after a pass. Bytes as nccl-tests counts them, of one rank."""

    kind: Kind
    group: GroupName
    size: float


def exchange_time(network: Network, layout: Layout, c: Collective) -> float:
    """Seconds that a collective takes on its own; a gather before and a scatter after count as one."""
    ranks, stride = {
        "tp": (layout.tp, 1.0),
        "dp": (layout.dp * layout.cp, layout.tp),
        "ep": (layout.ep, layout.etp),
        "all": (network.accelerators, 1.0),
    }[c.group]
    group = collective_times.group(network, ranks, stride)
    if c.kind == "all-reduce":
        return float(collective_times.all_reduce(network, c.size, group))
    if c.kind == "all-to-all":
        return float(collective_times.all_to_all(network, c.size, group))
    return 2.0 * float(collective_times.gather(network, c.size, group))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one layer."""

    flops: float = 0.0
    moved: float = 0.0
    """Bytes to and from memory, re-reads of what the buffer doesn't hold among them."""
    seconds: float = 0.0
    collective: Collective | None = None


NOTHING = Pass()


@dataclass(frozen=True, slots=True)
class Operator:
    """One layer, `count` times in the model."""

    name: str
    count: float
    forward: Pass
    inward: Pass
    """Input gradient."""
    weight: Pass
    """Weight gradient."""
    first: int = 0
    """Block in which it stands first; all that stand once come before or after the blocks."""

    @property
    def passes(self) -> tuple[Pass, Pass, Pass]:
        """All three."""
        return self.forward, self.inward, self.weight


def traffic(device: Device, m: Figure, n: Figure, k: Figure, written: Figure = None) -> Figure:
    """Bytes that a product moves, ``e (r_1 m k + r_2 k n) + written m n``: the bytes term of the one product model."""
    first, second = products.reads(device, m, n, k)
    written = device.element if written is None else written
    return device.element * (first * m * k + second * k * n) + written * m * n


def _product(grid: Grid, p: Product, count: float, scale: float = 1.0) -> Operator:
    passes = products.by_pass(grid, p)
    added = products.gradient_traffic(grid)
    flops = float(2.0 * p.m * p.n * p.k * p.groups) * scale
    groups = float(p.groups) * scale

    def one(m: Figure, n: Figure, k: Figure, seconds: Figure, written: Figure = None) -> Pass:
        return Pass(flops, float(traffic(grid.device, m, n, k, written)) * groups, float(seconds) * scale)

    weight = one(p.k, p.n, p.m, passes.weight, added) if float(grid.shape.weight_gradient) else NOTHING
    return Operator(p.name, count, one(p.m, p.n, p.k, passes.forward), one(p.m, p.k, p.n, passes.inward), weight)


def _with(
    operator: Operator,
    name: str,
    *,
    forward: Collective | None = None,
    inward: Collective | None = None,
    weight: Collective | None = None,
) -> Operator:
    return replace(
        operator,
        name=name,
        forward=replace(operator.forward, collective=forward),
        inward=replace(operator.inward, collective=inward),
        weight=replace(operator.weight, collective=weight),
    )


def _bound_by_memory(grid: Grid, name: str, count: float, size: Figure) -> Operator:
    """Element-wise kernels: bytes over bandwidth, twice as many backward."""
    moved = float(size) * float(grid.stack.vector)
    rate = float(grid.device.memory_rate)
    return Operator(name, count, Pass(0.0, moved, moved / rate), Pass(0.0, 2 * moved, 2 * moved / rate), NOTHING)


# ---- transformers ----------------------------------------------------------------------------------------------------


def of_transformer(grid: Grid) -> tuple[Operator, ...]:
    """Layers of a transformer of scalars: embedding, the blocks' layers, logits.

    Tensor-parallel ranks reduce after the output and the down projection forward, and before the query/key/value and
    the up projection backward (Megatron, arXiv 1909.08053); data-parallel ranks reduce a block's gradients at once,
    booked on its last layer.
    """
    s = grid.shape
    body = float(s.layers) - float(s.leading_dense)
    dense = float(s.leading_dense) + body * (1.0 - float(s.moe_share) - float(s.idle_share))
    mixed = body * float(s.moe_share)
    region = _region(grid)
    operators = [_bound_by_memory(grid, "embedding", 1, transformer.embedding_bytes(grid))]
    if float(s.tower_parameters):
        flops = 2.0 * float(grid.layout.micro) * float(tower.work(s))
        tower_passes = tower.seconds(grid)
        size = elements.NARROW * float(s.tower_parameters)
        back = Pass(2.0 * flops, 2.0 * size, float(tower_passes.backward)) if float(s.tower_trained) else NOTHING
        operators.append(Operator("tower", 1, Pass(flops, size, float(tower_passes.forward)), back, NOTHING))
    if float(s.attention_share):
        operators += _attention(grid, float(s.layers * s.attention_share), region)
    if float(s.recurrent_share):
        operators += _recurrence(grid, float(s.layers * s.recurrent_share), region)
    if hyper_connections.mixed(grid):
        operators.append(_bound_by_memory(grid, "streams", float(s.layers), hyper_connections.vector_bytes(grid)))
        operators.append(_product(grid, hyper_connections.product(grid), 2.0 * float(s.layers)))
    if dense > 0:
        operators += _mlp(grid, s.ffn, dense, region, "", _gradients(grid, mixture=False))
    if mixed and float(s.shared_ffn):
        operators += _mlp(grid, s.shared_ffn, mixed, region, "shared ", None)
    if mixed:
        operators += _experts(grid, mixed)
    operators = [replace(x, first=round(dense)) if x.count == mixed != float(s.layers) else x for x in operators]
    head = _product(grid, transformer.head_shape(grid), float(s.losses))
    passes = float(transformer.loss_bytes(grid))
    loss_pass = Pass(0.0, passes, passes / float(grid.device.memory_rate))
    operators += [head, Operator("loss", float(s.losses), loss_pass, loss_pass, NOTHING)]
    return tuple(operators)


def _region(grid: Grid) -> Collective | None:
    if grid.layout.tp <= 1:
        return None
    kind: Kind = "gather-scatter" if grid.options.sequence_parallel else "all-reduce"
    return Collective(kind, "tp", float(region_bytes(grid)))


def _gradients(grid: Grid, *, mixture: bool) -> Collective | None:
    """Gradients of one block that data-parallel ranks reduce."""
    s, layout = grid.shape, grid.layout
    if layout.dp * layout.cp <= 1:
        return None
    inner = s.shared_parameters if mixture else s.mlp_parameters
    held = (s.attention_parameters + inner) / layout.tp
    if mixture:
        held = held + s.experts * s.expert_parameters / (layout.ep * layout.etp)
    return Collective("all-reduce", "dp", float(data_parallel.gradient_bytes(grid, held)))


def _attention(grid: Grid, count: float, region: Collective | None) -> list[Operator]:
    s = grid.shape
    scale = 1.0 + float(s.cross_share)
    first, *middle, last = (p for p in attention.shapes(grid) if float(p.m * p.n * p.k))
    products = [_with(_product(grid, first, count, scale), first.name, inward=region)]
    products += [_product(grid, p, count, scale) for p in middle]
    output = _with(_product(grid, last, count, scale), last.name, forward=region)
    return [
        _bound_by_memory(grid, "norm, rotary", count, attention.vector_bytes(grid)),
        *products,
        _scores(grid, count),
        output,
    ]


def _recurrence(grid: Grid, count: float, region: Collective | None) -> list[Operator]:
    """A recurrence: products before, between and behind it, and its kernel."""
    s = grid.shape
    first, between, last = recurrent.shapes(grid)
    both = round(float(s.layers * (s.attention_share + s.recurrent_share - s.mixing_share))) > 0
    around = recurrent.vector_bytes(grid)
    around = around - transformer.norm_bytes(grid) if both else around
    return [
        _bound_by_memory(grid, "norm, convolution, gate", count, around),
        _with(_product(grid, first, count), first.name, inward=region),
        *([_product(grid, between, count)] if float(between.n) else []),
        _kernel("recurrence", count, recurrent.kernel_flops(grid), recurrent.kept_bytes(grid), recurrent.kernel(grid)),
        _with(_product(grid, last, count), last.name, forward=region),
    ]


def _scores(grid: Grid, count: float) -> Operator:
    """Attention's scores and their product with the values: queries, keys, values read, outputs written; what a ring's
    steps found is joined.
    """
    s = grid.shape
    width = s.heads * (s.qk_dim + s.v_dim) / grid.layout.tp + attention.kv_width(grid)
    seconds = attention.kernel(grid) + attention.joining(grid)
    return _kernel(
        "attention", count, attention.kernel_flops(grid) * s.attended, activation_bytes(grid, width), seconds
    )


def _kernel(name: str, count: float, flops: Figure, moved: Figure, seconds: LayerPart) -> Operator:
    """A fused kernel: FLOPs and bytes forward, twice the bytes backward."""
    forward = Pass(float(flops), float(moved), float(seconds.forward))
    inward = Pass(attention.BACKWARD * float(flops), 2.0 * float(moved), float(seconds.backward))
    return Operator(name, count, forward, inward, NOTHING)


def _mlp(
    grid: Grid, width: Figure, count: float, region: Collective | None, kind: str, gradients: Collective | None
) -> list[Operator]:
    up, down = (_product(grid, p, count) for p in transformer.mlp_shapes(grid, width))
    operators = [_with(up, f"{kind}up", inward=region), _with(down, f"{kind}down", forward=region, weight=gradients)]
    if kind:
        return operators
    return [_bound_by_memory(grid, "norm, activation", count, transformer.mlp_vector_bytes(grid, width)), *operators]


def _experts(grid: Grid, count: float) -> list[Operator]:
    s, layout = grid.shape, grid.layout
    up, down, router, *latents = (_product(grid, p, count) for p in experts.shapes(grid))
    size = grid.device.element * tokens(grid) * s.experts_per_token / layout.tp * experts.width(grid)
    exchange = Collective("all-to-all", "ep", float(size)) if layout.ep > 1 else None
    moved = experts.vector_bytes(grid) + experts.shared_bytes(grid)
    apart = experts.unfused_kernels(grid)
    rate = float(grid.device.memory_rate)
    unfused_s = float(apart.forward)
    back = float(apart.backward)
    biases = Operator(
        "biases, clamps", count, Pass(0.0, unfused_s * rate, unfused_s), Pass(0.0, back * rate, back), NOTHING
    )
    return [
        _bound_by_memory(grid, "norm, routing", count, moved),
        *([biases] if unfused_s else []),
        router,
        *latents,
        _with(up, up.name, forward=exchange, inward=exchange),
        _with(down, down.name, forward=exchange, inward=exchange, weight=_gradients(grid, mixture=True)),
    ]


# ---- convolutional networks ------------------------------------------------------------------------------------------


def of_network(
    model: ConvolutionNetwork, device: Device, software: Software, images: float, ranks: float
) -> tuple[Operator, ...]:
    """Layers of a convolutional network, `images` on each of `ranks` data-parallel ranks; each with the normalisation
    and activation behind it.
    """
    one = np.array([images])
    rows = convolution.layers(model)
    parts = convolution.by_pass(rows, device, software, one)
    behind = convolution.between(rows, device, software, one)
    moved = convolution.product_bytes(rows, software, one)
    around = convolution.between_bytes(rows, software, one)
    flops = 2.0 * images * rows.products
    operators = []
    for i, name in enumerate(convolution.names(model)):
        grad = Collective("all-reduce", "dp", float(rows.weights[i] * software.element)) if ranks > 1 else None
        size = float(moved[i, 0])
        first = bool(rows.first[i])
        operators.append(
            Operator(
                name,
                1,
                Pass(flops[i], size + float(around.forward[i, 0]), float(parts[0][i, 0] + behind.forward[i, 0])),
                Pass(
                    0.0 if first else flops[i],
                    (0.0 if first else size) + float(around.backward[i, 0]),
                    float(parts[1][i, 0] + behind.backward[i, 0]),
                ),
                Pass(flops[i], size, float(parts[2][i, 0]), grad),
            )
        )
    return tuple(operators)


# ---- recommenders ----------------------------------------------------------------------------------------------------


def of_recommender(
    model: Recommender, device: Device, software: Software, samples: float, ranks: float, by: Sharding
) -> tuple[Operator, ...]:
    """Layers of a recommender, `samples` on each of `ranks` ranks, tables sharded `by`.

    The all-to-all of pooled vectors follows the lookups forward; that of their gradients follows the interaction's
    input gradient backward. Tables are updated sparsely with their gradients: that traffic is their weight gradient.
    """
    element = float(software.element)
    exchange = (
        Collective("all-to-all", "all", float(dlrm.exchange_bytes(model, element, samples, ranks, by)))
        if ranks > 1
        else None
    )
    moved = dlrm.gather_bytes(model, element, samples, ranks, by)
    rate = float(device.memory_rate) * float(software.gather)
    index = float(dlrm.index_bytes(model, samples, ranks, by))
    asked = Collective("all-to-all", "all", index) if ranks > 1 and index else None
    rows = [Operator("indices", 1, Pass(0.0, index, 0.0, asked), NOTHING, NOTHING)] if asked else []
    rows += [
        Operator(
            f"{len(model.tables)} tables",
            1,
            Pass(0.0, float(moved.forward), float(moved.forward) / rate, exchange),
            NOTHING,
            Pass(0.0, float(moved.backward), float(moved.backward) / rate),
        )
    ]
    joined = dlrm.interaction(model, device, software, samples)
    size = float(joined.forward) * float(device.memory_rate)
    middle = Operator(
        "interaction",
        1,
        Pass(0.0, size, float(joined.forward)),
        Pass(0.0, 2 * size, float(joined.backward), exchange),
        NOTHING,
    )
    bottom = len(model.bottom)
    for i, layer in enumerate(dlrm.dense_layers(model)):
        if i == bottom:
            rows.append(middle)
        rows.append(_dense(layer, device, software, samples, ranks))
    return tuple(rows)


def _dense(layer: dlrm.DenseLayer, device: Device, software: Software, samples: float, ranks: float) -> Operator:
    passes = dlrm.dense_by_pass(layer, device, software, samples)
    flops = 2.0 * samples * layer.inputs * layer.outputs
    element = float(software.element)
    around = samples * layer.outputs * element * float(software.vector)
    a = float(layer.inputs)
    b = float(layer.outputs)

    def moved(m: float, n: float, k: float) -> float:
        return float(traffic(replace(device, element=element), m, n, k))

    size = (layer.inputs * layer.outputs + layer.outputs) * element
    grad = Collective("all-reduce", "dp", size) if ranks > 1 else None
    first = layer.first
    return Operator(
        layer.name,
        1,
        Pass(flops, moved(samples, b, a) + 2.0 * around, float(passes[0])),
        Pass(0.0 if first else flops, (0.0 if first else moved(samples, a, b)) + 3.0 * around, float(passes[1])),
        Pass(flops, moved(a, b, samples), float(passes[2]), grad),
    )
