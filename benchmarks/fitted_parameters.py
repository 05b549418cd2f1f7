"""Which fitted parameters labs left out are predicted better by than by their priors.

    python -m benchmarks.fitted_parameters > benchmarks/data/fitted_parameters.json

Backward elimination: one parameter after the other, the least moved first, is put at its prior and labs are left out
in turn again. It stays there unless dense models or mixtures of experts, each lab of equal weight, are then predicted
worse by more than a thousandth. Fits are made on times that are linear in the parameters' logarithms (slopes between
prior and fit), which takes seconds; the last line leaves labs out with the model itself. Prints JSON, of which `kept`
is what :data:`planner.calibration.fit.calibrate.FITTED` lists.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner import catalog
from planner.calibration.fit import calibrate
from planner.calibration.fit.calibrate import Calibration
from planner.calibration.fit.counted_runs import cell, lab, weights
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import SCALE, applied, fit
from planner.calibration.measuring import measure
from planner.calibration.runs import reading
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data"
WORSE = 0.001
"""Mean absolute log error by which labs must be predicted worse without a parameter for it to be kept."""
STEP = 0.02
"""Change of a parameter's logarithm that a slope is taken over, where the fit moved it less."""
ROUNDS = 30
"""Steps of reweighted least squares; they change nothing after a dozen."""


@dataclass(frozen=True)
class Linear:
    """Log residuals of the core runs at the priors, and their slopes, shape (runs, parameters)."""

    names: NDArray[np.str_]
    """Who ran each."""
    kinds: NDArray[np.str_]
    cells: list[str]
    at_prior: Array
    slopes: Array
    sd: Array

    def fitted(self, rows: NDArray[np.bool_], chosen: NDArray[np.intp]) -> Array:
        """Parameters by soft-L1 least squares with their priors, as :func:`least_squares.fit` has it."""
        weight = weights([name for name, mine in zip(self.cells, rows, strict=True) if mine])
        slopes, off = self.slopes[np.ix_(rows, chosen)] / SCALE, self.at_prior[rows] / SCALE
        theta = np.zeros(len(chosen))
        for _ in range(ROUNDS):
            robust = weight / np.sqrt(1.0 + (off + slopes @ theta) ** 2)
            normal = (slopes.T * robust) @ slopes + np.diag(self.sd[chosen] ** -2.0)
            theta = np.linalg.solve(normal, -(slopes.T * robust) @ off)
        return theta

    def errors(self, chosen: NDArray[np.intp]) -> dict[str, float]:
        """Mean absolute log error of labs left out, by kind of model, every lab alike."""
        off = np.empty(len(self.names))
        for name in set(self.names):
            mine = self.names == name
            off[mine] = self.at_prior[mine] + self.slopes[np.ix_(mine, chosen)] @ self.fitted(~mine, chosen)
        return by_kind(np.abs(off), self.names, self.kinds)


def by_kind(off: Array, names: NDArray[np.str_], kinds: NDArray[np.str_]) -> dict[str, float]:
    """The mean over labs of the mean of their runs of a kind."""
    groups = {kind: [off[(names == name) & (kinds == kind)] for name in set(names)] for kind in ("dense", "moe")}
    return {kind: round(float(np.mean([each.mean() for each in groups[kind] if len(each)])), 5) for kind in groups}


def linear(found: Calibration) -> Linear:
    """Times of a calibration's runs as linear in what was fitted."""
    frame, rows, parameters, theta = found.frame, found.rows, found.fit.parameters, found.fit.theta

    def log_times(at: Array) -> Array:
        return np.asarray(np.log(frame.predict(applied(found.prior, parameters, at)).time[rows]))

    columns, fitted = [], log_times(theta)
    for place, value in enumerate(theta):
        moved = theta.copy()
        moved[place] = 0.0 if abs(value) > STEP else value + STEP
        columns.append((log_times(moved) - fitted) / (moved[place] - value))
    members = [frame.runs[i] for i in rows]
    slopes = np.stack(columns, axis=1)
    return Linear(
        np.array([lab(run) for run in members]),
        np.array([run.family for run in members]),
        [cell(run) for run in members],
        fitted - slopes @ theta - np.log(frame.measured[rows]),
        slopes,
        np.array([each.sd for each in parameters]),
    )


def with_the_model(found: Calibration, chosen: NDArray[np.intp]) -> dict[str, float]:
    """Errors of labs left out by whole fits of some parameters."""
    parameters = [found.fit.parameters[place] for place in chosen]
    weight = weights([cell(found.frame.runs[i]) for i in found.rows])
    some = replace(found, fit=fit(found.frame, found.prior, parameters, found.rows, weight))
    members = [found.frame.runs[i] for i in found.rows]
    names = [lab(run) for run in members]
    off = np.abs(np.log(calibrate.cross_validated(some, names) / found.frame.measured[found.rows]))
    return by_kind(off, np.array(names), np.array([run.family for run in members]))


def main() -> None:
    """Prints every step and what is kept."""
    priors = catalog.load(ROOT / "hardware_catalog" / "priors")
    frame = Frame(priors, reading.read(DATA / "measured_runs.csv", priors))
    prior, _ = measure.informed(Efficiencies.of(priors), priors, DATA / "gemm_measured.csv")
    found = calibrate.calibrate(frame, prior, calibrate.CANDIDATES)
    model, names = linear(found), [each.name for each in found.fit.parameters]
    chosen = np.arange(len(names))
    now = model.errors(chosen)
    steps: list[dict[str, object]] = [{"all": len(names), **now}]
    for place in np.argsort(np.abs(found.fit.theta)):
        without = chosen[chosen != place]
        then = model.errors(without)
        kept = max(then[kind] - now[kind] for kind in now) > WORSE
        steps.append({"without": names[place], "kept": bool(kept), **then})
        if not kept:
            chosen, now = without, then
    every, some = (with_the_model(found, each) for each in (np.arange(len(names)), chosen))
    kept_names = [names[place] for place in chosen]
    print(json.dumps({"steps": steps, "kept": kept_names, "with_all": every, "with_kept": some}, indent=1))


if __name__ == "__main__":
    main()
