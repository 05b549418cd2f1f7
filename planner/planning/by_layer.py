"""A model of any family on a node of the catalog, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.axes.options import option_values
from planner.axes.table import ATTENTION_KERNEL
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, cluster
from planner.cost import operators
from planner.cost.dlrm import Sharding
from planner.cost.figures import Device, Grid, Layout, Network
from planner.cost.operators import Operator
from planner.figures import cost_inputs, matrix_formats
from planner.figures.efficiency import reached, runtime_keys
from planner.models import blocks, families
from planner.models.workload import library, model, workload
from planner.schema.hardware import Cluster, Dimension, Fabric, Runtime
from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.schema.workload import Workload
from planner.space.cost_grid import as_figures

FAMILY_RUNTIME = {"cnn": "mxnet", "dlrm": "hugectr"}
"""Whose fitted software a convolutional network or a recommender is taken to run in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions:
    """How a model is cut and where it runs."""

    node: str = "dgx-h100"
    precision: str = "bf16"
    tp: int = 1
    ep: int = 1
    etp: int = 1
    dp: int = 1
    micro: int = 0
    """Sequences, images or samples of one rank at a time; 0: one sequence, 256 images, 4,096 samples."""
    sequence: int | None = None
    sequence_parallel: bool = False
    attention_kernel: str = ATTENTION_KERNEL.neutral
    tables: Sharding = "even"


@dataclass(frozen=True, slots=True)
class Layered:
    """A model's layers on one rank, with the machine that their seconds are for."""

    model: str
    family: str
    unit: str
    """What a micro-batch counts."""
    micro: int
    layers: tuple[Operator, ...]
    device: Device
    network: Network
    layout: Layout

    def exchange(self, c: operators.Collective) -> float:
        """Seconds of a collective on its own."""
        return operators.exchange_time(self.network, self.layout, c)


def layered(catalog: Catalog, name: str, asked: LayerOptions) -> Layered:
    """The layers of a model: a transformer of the library or a file, a convolutional network or a recommender.

    Raises:
        WrongQuestion: no such model, node or precision on it; a degree that does not divide what it cuts.
    """
    ranks = asked.tp * asked.dp
    per_node = catalog.node(asked.node).accelerators
    on = cluster(catalog, asked.node, max(1, math.ceil(ranks / per_node)))
    if not matrix_formats.can_train_in(on.accelerator, asked.precision):
        raise WrongQuestion(f"{on.accelerator.id} has no matrix rate in {asked.precision} (--precision)")
    if families.what(name) and name not in library():
        return _other(catalog, name, on, asked)
    return _transformer(catalog, workload(model(name), sequence=asked.sequence), on, asked)


def _transformer(catalog: Catalog, work: Workload, on: Cluster, asked: LayerOptions) -> Layered:
    shape, runtime = work.model, catalog.runtime("megatron-core")
    if shape.heads % asked.tp or shape.hidden % asked.tp:
        raise WrongQuestion(f"--tp {asked.tp}: {shape.heads} attention heads and {shape.hidden:,} hidden don't divide")
    experts = shape.moe.experts if shape.moe else 1
    if experts % asked.ep or asked.tp * asked.dp % asked.ep:
        raise WrongQuestion(f"--ep {asked.ep}: {experts} experts and tp x dp of {asked.tp * asked.dp} don't divide")
    micro = asked.micro or 1
    grid = grid_of(catalog, work, on, runtime, runtime.releases[-1], asked, micro)
    return Layered(
        shape.id,
        shape.family,
        "sequences",
        micro,
        operators.of_transformer(grid),
        grid.device,
        grid.network,
        grid.layout,
    )


def of_plan(catalog: Catalog, plan: Plan, own: Cluster | None = None) -> Layered:
    """The layers of a plan's model on one rank, under the plan's runtime, on the catalog's node or that of a cluster's
    file (`own`); its fabric is the plan's.

    Raises:
        WrongQuestion: a node or runtime that the catalog lacks, or one that is not what the plan was made with.
    """
    p, w, pool = plan.parallelism, plan.workload, plan.cluster.pools[0]
    asked = LayerOptions(
        node=pool.node,
        precision=plan.precision,
        tp=p.tp,
        ep=p.ep,
        etp=p.etp,
        dp=p.dp,
        micro=plan.batch.micro,
        sequence=w.sequence,
        sequence_parallel=p.sequence_parallel,
        attention_kernel=str(ATTENTION_KERNEL.of(plan)),
    )
    plain = workload(read(w.shape), sequence=w.sequence)
    work = replace(plain, mtp_layers=w.mtp_layers or 0, imbalance=w.imbalance, texts=w.texts or ())
    runtime, on = catalog.runtime(plan.runtime.name), _place(catalog, plan, own)
    grid = grid_of(catalog, work, on, runtime, plan.runtime.release, asked, asked.micro)
    layers = operators.of_transformer(grid)
    if p.pp == p.cp == 1 and not p.groups:
        _refuse_others(plan, layers, MEAN if blocks.differ(work.model, work.sequence) else 1e-6)
    return Layered(w.model, work.model.family, "sequences", asked.micro, layers, grid.device, grid.network, grid.layout)


def _place(catalog: Catalog, plan: Plan, own: Cluster | None) -> Cluster:
    """Nodes of the plan's first pool."""
    pool, section = plan.cluster.pools[0], plan.cluster.fabric
    if own is None and pool.node not in catalog.nodes:
        raise WrongQuestion(
            f"plan {plan.rank}: its node {pool.node!r} is not in the catalog; give the cluster's file that it was made "
            "from (--cluster FILE.toml)"
        )
    if own is not None and (own.node.id, own.accelerator.id) != (pool.node, pool.accelerator):
        raise WrongQuestion(
            f"plan {plan.rank}: it is on {pool.node} with {pool.accelerator}, and --cluster {own.name} has "
            f"{own.node.id} with {own.accelerator.id}"
        )
    on = cluster(catalog, pool.node, 1) if own is None else own
    sides = section.dimensions or ()
    fabric = Fabric(
        id=section.id,
        name=section.id,
        source="the plan",
        kind=section.kind,  # type: ignore[arg-type]
        nic_bandwidth=section.nic_bytes_per_s,
        latency=section.latency_s,
        topology=section.topology,  # type: ignore[arg-type]
        leaf_nodes=section.leaf_nodes,
        oversubscription=section.oversubscription,
        **{
            f"dimension{i}": Dimension(
                topology=d.topology,  # type: ignore[arg-type]
                size=d.size,
                bandwidth=d.bytes_per_s,
                latency=d.latency_s,
            )
            for i, d in enumerate(sides, 1)
        },
    )
    node = replace(on.node, fabric=fabric.id, nic_bandwidth=pool.nic_bytes_per_s or fabric.nic_bandwidth)
    return replace(on, node=node, fabric=fabric, count=pool.count)


MEAN = 1e-3
"""Relative: a product of layers of several kinds, as wide as their mean, takes another time than theirs do (Gemma 4,
GLM-5.2: 5e-4)."""


def _refuse_others(plan: Plan, layers: tuple[Operator, ...], same: float) -> None:
    """Raises WrongQuestion where layers take another time than the plan says of them, by more than `same` of it."""
    ours = dict.fromkeys(("matrix", "attention", "vector", "embedding", "tower", "logits"), 0.0)
    for layer in layers:
        ours[_cause(layer)] += plan.batch.accumulation * layer.count * sum(each.seconds for each in layer.passes)
    for cause, seconds in ours.items():
        theirs = plan.prediction.breakdown.get(cause, 0.0)
        if not math.isclose(seconds, theirs, rel_tol=same, abs_tol=1e-12):
            raise WrongQuestion(
                f"plan {plan.rank}: {cause} takes {theirs:.6g} s in it and {seconds:.6g} s by this version and the "
                "built-in catalog, layer by layer; give the cluster's file if it was made from one (--cluster "
                "FILE.toml); a catalog, adapters or layer times of your own have no layers here"
            )


def _cause(layer: Operator) -> str:
    """The term of a plan's breakdown that a layer is part of."""
    if layer.name in ("attention", "recurrence"):
        return "attention"
    if layer.name in ("embedding", "tower"):
        return layer.name
    if layer.name in ("logits", "loss"):
        return "logits"
    return "matrix" if layer.forward.flops else "vector"


def grid_of(
    catalog: Catalog, work: Workload, on: Cluster, runtime: Runtime, release: str, asked: LayerOptions, micro: int
) -> Grid:
    """One pipeline stage with the whole model, as a grid of scalars."""
    fitted = reached(catalog, on.accelerator, runtime, release)
    options = option_values(
        precision=asked.precision,
        sequence_parallel=asked.sequence_parallel and asked.tp > 1,
        attention_kernel=asked.attention_kernel,
    )
    network = cost_inputs.network(on, fitted.accelerator)
    return Grid(
        shape=cost_inputs.shape(work, runtime, mean=True),
        device=cost_inputs.device(on.accelerator, fitted.accelerator, asked.precision, release),
        network=replace(network, accelerators=float(asked.tp * asked.dp)),
        stack=cost_inputs.stack(runtime, fitted.runtime, release, on.accelerator),
        layout=_layout(asked, micro),
        options=as_figures(options),
    )


def _layout(asked: LayerOptions, micro: int) -> Layout:
    degrees = {name: float(getattr(asked, name)) for name in ("tp", "ep", "etp", "dp")}
    ones = dict.fromkeys(("pp", "vpp", "cp"), 1.0)
    return Layout(**degrees, **ones, micro=float(micro), batch=float(asked.dp * micro))


def _other(catalog: Catalog, name: str, on: Cluster, asked: LayerOptions) -> Layered:
    family = "cnn" if name in families.networks() else "dlrm"
    if asked.tp * asked.ep > 1:
        raise WrongQuestion(f"{name}: only data-parallel ranks (--dp) exist for a {family} model")
    if asked.sequence is not None:
        raise WrongQuestion(f"{name}: a {family} model has no sequence (--seq)")
    fitted = reached(catalog, on.accelerator, catalog.runtime("megatron-core"), "")
    entries = catalog.runtime_efficiencies
    keys = runtime_keys((FAMILY_RUNTIME[family],), "", "", on.accelerator.generation)
    software = cost_inputs.software(next(entries[key] for key in keys if key in entries), asked.precision)
    device = cost_inputs.device(on.accelerator, fitted.accelerator, asked.precision)
    network = replace(cost_inputs.network(on, fitted.accelerator), accelerators=float(asked.dp))
    micro = asked.micro or (256 if family == "cnn" else 4096)
    if family == "cnn":
        found = operators.of_network(families.network(name), device, software, float(micro), float(asked.dp))
    else:
        if asked.tables == "column" and asked.dp > families.recommender(name).embedding:
            width = families.recommender(name).embedding
            raise WrongQuestion(f"--tables column: {asked.dp} ranks and {width} columns; use at most {width}, or row")
        found = operators.of_recommender(
            families.recommender(name), device, software, float(micro), float(asked.dp), asked.tables
        )
    unit = "images" if family == "cnn" else "samples"
    return Layered(name, family, unit, micro, found, device, network, _layout(asked, micro))
