"""Measured kernels to the few figures of an accelerator's efficiency entry.

The figures are factors on those of a prior entry, fitted as :mod:`planner.calibration.fit.least_squares` fits runs:
robust least squares on the log of times. Kernels show these figures directly, so the prior's hold is loose: it decides
what no measured row says anything about.

Measured kernels are columns (:class:`Kernels`), priced by the functions of :mod:`planner.cost` that price plans:
nothing is computed here that it has a formula for. A kernel takes at least the time between two launches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.base.errors import WrongQuestion
from planner.calibration.fit.least_squares import Fit, Parameter, fit
from planner.calibration.measuring.kernel_times import (
    BACKWARD,
    COLLECTIVES,
    EXCHANGE,
    FORWARD,
    LAUNCH,
    MATRIX,
    MEMORY,
    REDUCE,
    MeasurementRow,
)
from planner.cost import attention, collective_times
from planner.cost.figures import Array, Device, Figure, Grid, Layout, Network, Options, Shape, Stack
from planner.cost.products import product_time
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.models import context
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator, Cluster, Fabric, Node

ROUNDS = 60
_OF_A_KIND = {
    MATRIX: (("inner_half", 1.0, 1e4), ("quantisation", 1.0, 1.0)),
    FORWARD: (("attention", 0.5, 1.0), ("attention_half", 1.0, 1e5)),
    BACKWARD: (("attention_backward", 0.5, 10.0),),
    MEMORY: (("memory", 0.5, 1.0),),
    LAUNCH: (("launch", 1.5, 1e-3),),
    REDUCE: (("scaleup_reduce", 0.5, 2.0),),
}
"""Kind of kernel -> (figure, standard deviation of its log factor, largest value) that its rows decide."""
_OF_A_RING = (("scaleup", 0.5, 1.0),)
_OF_ANY_COLLECTIVE = (("scaleup_latency", 1.0, 1e-2), ("collective_base", 1.0, 1e-2))
_MATRIX_SD, _AT_LIMIT = 0.5, 0.999


@dataclass(frozen=True, slots=True)
class KindError:
    """Errors of the rows of one kind; fractions."""

    kind: str
    rows: int
    mape: float
    bias: float
    """Mean signed relative error: positive is predicted too slow."""
    prior_mape: float
    """With the entry that the fit started from."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One figure."""

    name: str
    prior: float
    value: float
    spread: float
    """Standard deviation of its logarithm, by the rows and the prior together."""
    at_limit: bool
    """It would have gone on beyond what is possible: the catalog's nominal figure is too low."""


@dataclass(frozen=True, slots=True)
class FitReport:
    """What a fit of kernels rests on and how far from them it is."""

    rows: int
    kinds: tuple[KindError, ...]
    figures: tuple[Fitted, ...]
    freedom: float
    """Effective degrees of freedom."""
    mape: float


def fit_kernels(
    rows: Sequence[MeasurementRow], accelerator: Accelerator, prior: AcceleratorEfficiency
) -> tuple[AcceleratorEfficiency, FitReport]:
    """Fits an accelerator's figures to its measured kernels.

    Arguments:
        rows: kernels of this accelerator, in precisions that it has a peak for.
        accelerator: whose nominal figures the fractions are of.
        prior: the entry that is in force so far, its own or a relative's.

    Raises:
        WrongQuestion: there are no rows.
    """
    if not rows:
        raise WrongQuestion(f"no measured kernels of {accelerator.id} to fit")
    kernels = Kernels(accelerator, rows)
    start = _start(rows, accelerator, prior)
    base = Efficiencies({accelerator.id: start}, {})
    parameters = tuple(_parameters(rows, accelerator.id))
    fitted = fit(kernels, base, parameters, np.arange(len(rows)), np.ones(len(rows)), rounds=ROUNDS)
    entry = fitted.efficiencies.accelerators[accelerator.id]
    before, after = (kernels.predict(using).time / kernels.measured - 1.0 for using in (base, fitted.efficiencies))
    figures = tuple(_fitted(fitted, number, start, entry) for number in range(len(parameters)))
    report = FitReport(len(rows), _by_kind(rows, before, after), figures, fitted.freedom, float(np.abs(after).mean()))
    return entry, report


def _start(
    rows: Sequence[MeasurementRow], accelerator: Accelerator, prior: AcceleratorEfficiency
) -> AcceleratorEfficiency:
    """The prior under the accelerator's id, with a figure for every precision that was measured."""
    sixteen = prior.matrix.get("bf16") or prior.matrix.get("fp16", 0.5)
    measured = {row.kernel.dtype for row in rows if row.kernel.kind == MATRIX}
    added = {dtype: sixteen for dtype in sorted(measured) if dtype not in prior.matrix}
    return replace(prior, id=accelerator.id, name=accelerator.name, matrix={**prior.matrix, **added})


def _parameters(rows: Sequence[MeasurementRow], entry: str) -> Iterator[Parameter]:
    """What the rows say something about."""
    kinds = {row.kernel.kind for row in rows}
    for dtype in sorted({row.kernel.dtype for row in rows if row.kernel.kind == MATRIX}):
        yield Parameter(f"matrix.{dtype}", "accelerators", (entry,), f"matrix.{dtype}", _MATRIX_SD, 1.0)
    listed = [figure for kind, figures in _OF_A_KIND.items() if kind in kinds for figure in figures]
    listed += _OF_A_RING if kinds & set(COLLECTIVES) - {REDUCE} else ()
    listed += _OF_ANY_COLLECTIVE if kinds & set(COLLECTIVES) else ()
    if BACKWARD in kinds and FORWARD not in kinds:
        listed += _OF_A_KIND[FORWARD]
    for field, sd, most in listed:
        yield Parameter(field, "accelerators", (entry,), field, sd, most)


def _fitted(fitted: Fit, number: int, start: AcceleratorEfficiency, entry: AcceleratorEfficiency) -> Fitted:
    parameter = fitted.parameters[number]
    value = _figure(entry, parameter.field)
    return Fitted(
        parameter.name,
        _figure(start, parameter.field),
        value,
        float(fitted.spread[number]),
        value >= _AT_LIMIT * parameter.most,
    )


def _figure(entry: AcceleratorEfficiency, field: str) -> float:
    name, _, key = field.partition(".")
    value = getattr(entry, name)
    return float(value[key] if key else value)


def _by_kind(rows: Sequence[MeasurementRow], before: Array, after: Array) -> tuple[KindError, ...]:
    """Matrix products by precision, everything else by kind."""
    labels = np.array(
        [f"{row.kernel.kind} {row.kernel.dtype}" if row.kernel.kind == MATRIX else row.kernel.kind for row in rows]
    )
    return tuple(
        KindError(
            str(label),
            int(np.sum(labels == label)),
            float(np.abs(after[labels == label]).mean()),
            float(after[labels == label].mean()),
            float(np.abs(before[labels == label]).mean()),
        )
        for label in dict.fromkeys(labels)
    )


Record = TypeVar("Record", Shape, Network, Stack, Layout, Options)


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Seconds of every kernel."""

    time: Array


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one kind, precision and number of ranks."""

    kind: str
    dtype: str
    ranks: int
    rows: NDArray[np.intp]
    columns: dict[str, Array]


class Kernels:
    """Rows of one accelerator, to be predicted by :func:`planner.calibration.fit.least_squares.fit`."""

    def __init__(self, accelerator: Accelerator, rows: Sequence[MeasurementRow]) -> None:
        self.accelerator = accelerator
        self.rows = rows
        self.measured: Array = np.array([row.seconds for row in rows])
        keys = [(row.kernel.kind, row.kernel.dtype, row.kernel.ranks) for row in rows]
        self._groups = [
            _group(key, rows, [i for i, row_keys in enumerate(keys) if row_keys == key]) for key in sorted(set(keys))
        ]

    def predict(self, using: Efficiencies) -> KernelTimes:
        """Every row under the accelerator's entry of some efficiencies."""
        reached = using.accelerator(self.accelerator)
        time = np.empty(len(self.rows))
        for group in self._groups:
            time[group.rows] = _seconds(group, self.accelerator, reached)
        return KernelTimes(time)


def _group(key: tuple[str, str, int], rows: Sequence[MeasurementRow], places: list[int]) -> _Group:
    names = ("m", "n", "k", "batch", "heads", "head_dim", "sequence", "size")
    columns = {name: np.array([getattr(rows[i].kernel, name) for i in places], dtype=float) for name in names}
    return _Group(*key, np.array(places, dtype=np.intp), columns)


def _seconds(group: _Group, accelerator: Accelerator, reached: AcceleratorEfficiency) -> Figure:
    if group.kind in COLLECTIVES:
        return _collective(group, cost_inputs.network(one_node(accelerator, group.ranks), reached))
    device = cost_inputs.device(accelerator, reached, group.dtype)
    known = group.columns
    if group.kind == LAUNCH:
        return device.launch
    if group.kind == MATRIX:
        seconds = product_time(device, known["m"], known["n"], known["k"])
    elif group.kind == MEMORY:
        seconds = known["size"] / device.memory_rate
    else:
        passes = attention.kernel(_attention_grid(device, known))
        seconds = passes.forward if group.kind == FORWARD else passes.backward
    return np.maximum(seconds, device.launch)


def _collective(group: _Group, network: Network) -> Figure:
    members = collective_times.group(network, float(group.ranks), 1.0)
    priced: dict[str, Callable[..., Figure]] = {
        REDUCE: collective_times.all_reduce,
        EXCHANGE: collective_times.all_to_all,
    }
    return priced.get(group.kind, collective_times.gather)(network, group.columns["size"], members)


def one_node(accelerator: Accelerator, ranks: int) -> Cluster:
    """That many accelerators on their scale-up link, and no network: all that collectives inside one machine use."""
    node = Node(
        id="measured", name="this machine", source="", kind="server", provider="", accelerator=accelerator.id,
        accelerators=ranks,
    )  # fmt: skip
    fabric = Fabric(
        id="none", name="none", source="", kind="tcp", nic_bandwidth=1.0, latency=0.0, topology="fat-tree", leaf_nodes=1
    )
    return Cluster(node=node, accelerator=accelerator, count=1, fabric=fabric)


def _attention_grid(device: Device, known: dict[str, Array]) -> Grid:
    """A grid of which only the attention kernel's figures are set: causal, fused, on one rank."""
    shape = _only(
        Shape,
        heads=known["heads"],
        qk_dim=known["head_dim"],
        v_dim=known["head_dim"],
        sequence=known["sequence"],
        attended=context.of_whole_sequence(known["sequence"], causal=True),
        attended_full=known["sequence"],
        text=known["sequence"],
    )
    return Grid(
        shape=shape,
        device=device,
        network=_only(Network),
        stack=_only(Stack, fused_attention=1.0, attention=1.0),
        layout=_only(Layout, tp=1.0, cp=1.0, micro=known["batch"]),
        options=_only(Options),
    )


def _only(record: type[Record], **figures: Any) -> Record:
    """A record with the given figures and 0 everywhere else."""
    needed = [item.name for item in dataclasses.fields(record) if item.default is dataclasses.MISSING]
    return record(**dict.fromkeys(needed, 0.0) | figures)
