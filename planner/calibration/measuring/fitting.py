"""Measured kernels to the few figures of an accelerator's efficiency entry.

The figures are factors on those of a prior entry, fitted as :mod:`planner.calibration.fit.least_squares` fits runs:
robust least squares on the log of times. Kernels show these figures directly, so the prior's hold is loose: it decides
what no measured row says anything about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.base.errors import WrongQuestion
from planner.calibration.fit.least_squares import Fit, Parameter, fit
from planner.calibration.measuring.kernel_times import (
    BACKWARD,
    COLLECTIVES,
    FORWARD,
    LAUNCH,
    MATRIX,
    MEMORY,
    REDUCE,
    MeasurementRow,
)
from planner.calibration.measuring.predicted import Kernels
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator

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
