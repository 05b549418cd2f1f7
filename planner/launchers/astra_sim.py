"""ASTRA-sim: a workload as its text format (one row a layer), and back; a network as its analytical back end reads it.

A row holds a name, -1, for each of three passes (forward, input gradient, weight gradient) the nanoseconds of compute,
a collective and its bytes, and last the delay of the local update. The first line names the training loop; LIBRA's
files leave it and the number of layers out. Collectives of passes forward and back run over model-parallel ranks, those
of weight gradients over data-parallel ranks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.base.version import __version__
from planner.cost.operators import Operator, Pass
from planner.launchers.bundle import Bundle
from planner.launchers.target import Loss
from planner.planning.by_layer import Layered
from planner.schema.plan import DimensionSection, Plan

NAME = "astra-sim"
WORKLOAD, NETWORK = "workload.txt", "network.yml"
COLLECTIVES = ("NONE", "ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
_SPELT = {"all-reduce": "ALLREDUCE", "gather-scatter": "ALLREDUCE", "all-to-all": "ALLTOALL"}
"""A gather before and a scatter after a region move what one all-reduce does."""
_TOPOLOGY = {"ring": "Ring", "switch": "Switch", "fully-connected": "FullyConnected", "torus": "Ring"}
FIELDS = 12
LARGEST_FILE = 50_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of one row."""

    seconds: float
    collective: str = "NONE"
    size: int = 0
    """Bytes."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One layer."""

    name: str
    forward: Step
    inward: Step
    weight: Step
    update: float = 0.0
    """Seconds."""

    @property
    def passes(self) -> tuple[Step, Step, Step]:
        """All three."""
        return self.forward, self.inward, self.weight


@dataclass(frozen=True, slots=True)
class TextWorkload:
    """A file's content."""

    loop: str
    """``HYBRID_TRANSFORMER model_parallel_NPU_group: 8``; empty in LIBRA's files."""
    rows: tuple[TraceRow, ...]


# ---- writing ---------------------------------------------------------------------------------------------------------


def of_layers(found: Layered) -> TextWorkload:
    """A model's layers as rows, every block written out."""
    loops = {
        "cnn": "DATA",
        "dlrm": f"HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: {sum(x.name.startswith('bottom') for x in found.layers)}",
    }
    loop = loops.get(found.family, f"HYBRID_TRANSFORMER model_parallel_NPU_group: {int(found.layout.tp)}")
    return TextWorkload(loop, tuple(_row(name, layer) for name, layer in _in_order(found.layers)))


def _in_order(layers: tuple[Operator, ...]) -> Iterator[tuple[str, Operator]]:
    """Layers as a step passes them, those of a block beside one another."""
    blocks = max(int(layer.count) + layer.first for layer in layers)
    inside = [layer for layer in layers if layer.count > 1 or blocks == 1]
    start = layers.index(inside[0]) if inside else len(layers)
    if blocks == 1:
        yield from ((layer.name, layer) for layer in layers)
        return
    yield from ((layer.name, layer) for layer in layers[:start])
    for block in range(blocks):
        for layer in inside:
            if layer.first <= block < layer.first + layer.count:
                yield f"{block + 1} {layer.name}", layer
    yield from ((layer.name, layer) for layer in layers[start:] if layer not in inside)


def _row(name: str, layer: Operator) -> TraceRow:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return TraceRow(plain, _step(layer.forward), _step(layer.inward), _step(layer.weight))


def _step(each: Pass) -> Step:
    c = each.collective
    return Step(each.seconds, _SPELT[c.kind], round(c.size)) if c else Step(each.seconds)


def written(workload: TextWorkload) -> str:
    """The text of a file."""
    lines = [workload.loop, str(len(workload.rows))] if workload.loop else []
    for row in workload.rows:
        cells = [f"{round(each.seconds * 1e9)} {each.collective} {each.size}" for each in row.passes]
        lines.append(f"{row.name} -1 {' '.join(cells)} {round(row.update * 1e9)}")
    return "\n".join(lines) + "\n"


def network(along: tuple[DimensionSection, ...]) -> str:
    """A network of dimensions for the analytical back end: GB/s of one NPU, nanoseconds of a hop."""
    columns = {
        "topology": [_TOPOLOGY[each.topology] for each in along],
        "npus_count": [str(each.size) for each in along],
        "bandwidth": [f"{each.bytes_per_s / 1e9:.9g}" for each in along],
        "latency": [f"{each.latency_s * 1e9:.9g}" for each in along],
    }
    return "".join(f"{key}: [ {', '.join(values)} ]\n" for key, values in columns.items())


def bundle(plan: Plan, found: Layered) -> Bundle:
    """The files of a plan whose layers are known.

    Raises:
        WrongQuestion: pipeline, context-parallel or unlike ranks, which the text format has no place for.
    """
    p = plan.parallelism
    for axis, value in (("pp", p.pp), ("cp", p.cp)):
        if value > 1:
            raise WrongQuestion(
                f"plan {plan.rank} cannot be written for {NAME}: {axis} {value}; its text workload knows model- and "
                f"data-parallel ranks only (plan ... --pin {axis}=1)"
            )
    if p.groups:
        raise WrongQuestion(f"plan {plan.rank} cannot be written for {NAME}: its pipelines are heterogeneous")
    files = {WORKLOAD: written(of_layers(found))}
    if plan.cluster.fabric.dimensions:
        files[NETWORK] = network(plan.cluster.fabric.dimensions)
    target = {"kind": "target", "target": NAME, "version": __version__, "files": [*files, "target.json"]}
    return Bundle(
        NAME,
        {**files, "target.json": json.dumps(target, indent=2) + "\n"},
        (),
        tuple(_losses(plan)),
        f"AstraSim with --workload-configuration={WORKLOAD} (text workloads: its 1.0 branch)",
    )


def _losses(plan: Plan) -> Iterator[Loss]:
    if plan.batch.accumulation > 1:
        yield Loss("batch.accumulation", "an iteration is one micro-batch with its reduction of gradients")
    if plan.parallelism.zero_stage:
        yield Loss("parallelism.zero_stage", "gradients are all-reduced, nothing is gathered")
    yield Loss("update", "the optimizer's time is not modelled")
    if not plan.cluster.fabric.dimensions:
        yield Loss("cluster.fabric", "a fabric without dimensions is not written; give the simulator one of yours")


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> TextWorkload:
    """A file's rows.

    Raises:
        WrongQuestion: no such file, or a line that is no row; the message names file and line.
    """
    text = reading.text(path, "a workload", LARGEST_FILE)
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise WrongQuestion(f"{path}: empty")
    loop, stated = "", None
    if len(lines[0][1]) != FIELDS:
        loop = " ".join(lines[0][1])
        if len(lines) < 2 or len(lines[1][1]) != 1 or not lines[1][1][0].isdecimal():
            raise WrongQuestion(
                f"{path}:{lines[0][0]}: neither a layer of {FIELDS} fields, nor a training loop with the"
                " number of layers below it"
            )
        stated = int(lines[1][1][0])
        lines = lines[2:]
    rows = tuple(_parsed(path, number, cells) for number, cells in lines)
    if stated is not None and stated != len(rows):
        raise WrongQuestion(f"{path}: {stated} layers are announced, but the file has {len(rows)}")
    return TextWorkload(loop, rows)


def _parsed(path: Path, number: int, cells: list[str]) -> TraceRow:
    where = f"{path}:{number}"
    if len(cells) != FIELDS:
        raise WrongQuestion(f"{where}: {len(cells)} fields; a layer has {FIELDS}")
    forward, inward, weight = (_pass(where, *cells[i : i + 3]) for i in (2, 5, 8))
    return TraceRow(cells[0], forward, inward, weight, _whole(where, cells[11]) / 1e9)


def _pass(where: str, compute: str, collective: str, size: str) -> Step:
    if collective not in COLLECTIVES:
        raise WrongQuestion(f"{where}: no collective {collective!r}; they are {', '.join(COLLECTIVES)}")
    return Step(_whole(where, compute) / 1e9, collective, _whole(where, size))


def _whole(where: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise WrongQuestion(f"{where}: {text!r} is not a whole number of nanoseconds or bytes")
    return int(text)
