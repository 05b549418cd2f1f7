"""Fits few, named, physical parameters to measured runs, each held to a physical prior.

A parameter is a factor on one figure of one efficiency entry, on a log scale: 0 is the prior. The fit minimises

    sum_i w_i rho(log(predicted_i / measured_i) / s) + sum_j (theta_j / sd_j)^2,   rho(x) = 2 (sqrt(1 + x^2) - 1)

by damped Gauss-Newton steps, robustly (soft L1). Rows are weighted so that a source counts by the square root of its
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

SCALE = 0.08
"""Relative error beyond which a row counts as an outlier more than as evidence."""
_STEP = 1e-3


class FittedTimes(Protocol):
    """Predictions."""

    @property
    def time(self) -> Array:
        """Seconds of every row."""
        ...


class MeasuredColumns(Protocol):
    """Rows that something can be fitted to: runs, or kernels."""

    measured: Array
    """Seconds of every row."""

    def predict(self, using: Efficiencies) -> FittedTimes:
        """What some efficiencies say of every row."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A factor on one figure of one or several efficiency entries."""

    name: str
    kind: str
    """accelerators or runtimes."""
    entries: tuple[str, ...]
    field: str
    """The figure; ``matrix.bf16`` for one precision."""
    sd: float
    """Standard deviation of the log factor that physics allows."""
    most: float = float("inf")
    """Largest value that the figure can have (fractions: 1)."""

    def applied(self, record: Any, factor: float) -> Any:
        """The record with the figure multiplied."""
        name, _, key = self.field.partition(".")
        if key:
            table = dict(getattr(record, name))
            if key in table:
                table[key] = min(table[key] * factor, self.most)
            return replace(record, **{name: table})
        return replace(record, **{name: min(getattr(record, name) * factor, self.most)})


def applied(base: Efficiencies, parameters: Sequence[Parameter], theta: Array) -> Efficiencies:
    """The efficiencies with every parameter's factor ``exp(theta)``."""
    tables = {"accelerators": dict(base.accelerators), "runtimes": dict(base.runtimes)}
    for parameter, value in zip(parameters, theta, strict=True):
        table: dict[str, Any] = tables[parameter.kind]  # type: ignore[assignment]
        for entry in parameter.entries:
            if entry in table:
                table[entry] = parameter.applied(table[entry], float(np.exp(value)))
    return Efficiencies(tables["accelerators"], tables["runtimes"], base.own)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit found."""

    parameters: tuple[Parameter, ...]
    theta: Array
    efficiencies: Efficiencies
    loss: float
    freedom: float
    """Effective degrees of freedom: the trace of the data's share in the normal equations."""
    spread: Array
    """Posterior standard deviation of every theta."""


def weights(groups: Sequence[str]) -> Array:
    """One per row: a group of n rows counts as ``sqrt(n)``."""
    names, index, count = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    del names
    return np.asarray(1.0 / np.sqrt(count[index]) * np.sqrt(len(groups) / len(count)))


def fit(
    frame: MeasuredColumns,
    base: Efficiencies,
    parameters: Sequence[Parameter],
    rows: NDArray[np.intp],
    weight: Array,
    start: Array | None = None,
    rounds: int = 12,
) -> Fit:
    """Fits to some rows of a frame (indices of runs), from the prior or from `start`."""
    measured = np.log(frame.measured[rows])
    sd = np.array([p.sd for p in parameters])
    theta = np.zeros(len(parameters)) if start is None else start.copy()

    def residual(at: Array) -> Array:
        return np.asarray((np.log(frame.predict(applied(base, parameters, at)).time[rows]) - measured) / SCALE)

    def loss(r: Array, at: Array) -> float:
        return float(np.sum(weight * 2.0 * (np.sqrt(1.0 + r * r) - 1.0)) + np.sum((at / sd) ** 2))

    r = residual(theta)
    current = loss(r, theta)
    damping = 1e-2
    jacobian = _jacobian(residual, theta, r)
    for _ in range(rounds):
        robust = weight / np.sqrt(1.0 + r * r)
        normal = (jacobian.T * robust) @ jacobian + np.diag(1.0 / sd**2)
        slope = (jacobian.T * robust) @ r + theta / sd**2
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
        trial = theta + np.clip(step, -0.5, 0.5)
        after = residual(trial)
        trial_loss = loss(after, trial)
        if trial_loss < current:
            gained = current - trial_loss
            theta = trial
            r = after
            current = trial_loss
            damping = damping / 3
            if gained < 1e-3 * max(current, 1.0):
                break
            jacobian = _jacobian(residual, theta, r)
        else:
            damping *= 5
            if damping > 1e6:
                break
    robust = weight / np.sqrt(1.0 + r * r)
    data = (jacobian.T * robust) @ jacobian
    inverse = np.linalg.inv(data + np.diag(1.0 / sd**2))
    return Fit(
        tuple(parameters),
        theta,
        applied(base, parameters, theta),
        current,
        float(np.trace(inverse @ data)),
        np.sqrt(np.diag(inverse)),
    )


def _jacobian(residual: Any, theta: Array, r: Array) -> Array:
    columns = []
    for index in range(len(theta)):
        moved = theta.copy()
        moved[index] += _STEP
        columns.append((residual(moved) - r) / _STEP)
    return np.stack(columns, axis=1)
