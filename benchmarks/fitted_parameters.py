"""What each fitted parameter buys: labs left out are predicted by fits with it and without it.

    python -m benchmarks.fitted_parameters > benchmarks/data/fitted_parameters.json

A parameter is kept if labs that its generation was run by, each left out, are predicted better with it than with its
prior, dense models and mixtures of experts apart. One that a single lab's runs rest on cannot be shown to, and is at
its prior. Minutes; prints JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner import catalog
from planner.calibration.fit import calibrate
from planner.calibration.fit.calibrate import Calibration
from planner.calibration.fit.counted_runs import cell, lab, weights
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit, Parameter, fit
from planner.calibration.measuring import measure
from planner.calibration.runs import reading
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data"
ROUNDS = 3
"""Steps of a fit from the one with all parameters."""


def refitted(found: Calibration, kept: NDArray[np.intp], chosen: Sequence[Parameter], start: Array) -> Fit:
    """A fit of some parameters to some runs."""
    weight = weights([cell(found.frame.runs[i]) for i in kept])
    return fit(found.frame, found.prior, chosen, kept, weight, start=start, rounds=ROUNDS)


def touched(found: Calibration, parameter: Parameter) -> NDArray[np.bool_]:
    """Which runs of the core a parameter moves by more than a thousandth."""
    index = found.fit.parameters.index(parameter)
    moved = np.zeros(len(found.fit.parameters))
    moved[index] = 0.05
    from planner.calibration.fit.least_squares import applied

    apart = found.frame.predict(applied(found.prior, found.fit.parameters, found.fit.theta + moved)).time[found.rows]
    return np.asarray(np.abs(np.log(apart / found.frame.predict(found.fit.efficiencies).time[found.rows])) > 1e-3)


def bought(found: Calibration) -> Iterator[dict[str, object]]:
    """For every parameter: the mean error of the labs that it moves, left out, with it and at its prior."""
    frame, rows = found.frame, found.rows
    names = np.array([lab(frame.runs[i]) for i in rows])
    kinds = np.array([frame.runs[i].family for i in rows])
    measured = frame.measured[rows]
    full = {name: calibrate.fitted_to(found, rows[names != name]) for name in sorted(set(names))}
    times = {name: frame.predict(each.efficiencies).time[rows] for name, each in full.items()}
    for index, parameter in enumerate(found.fit.parameters):
        moves = touched(found, parameter)
        others = [each for each in found.fit.parameters if each is not parameter]
        errors: dict[str, list[list[float]]] = {"dense": [], "moe": []}
        for name in sorted(set(names[moves])):
            kept = rows[names != name]
            without = refitted(found, kept, others, np.delete(full[name].theta, index))
            again = frame.predict(without.efficiencies).time[rows]
            for kind, pairs in errors.items():
                judged = moves & (names == name) & (kinds == kind)
                if judged.any():
                    pairs.append([_error(each[judged], measured[judged]) for each in (times[name], again)])
        yield {
            "parameter": parameter.name,
            "factor": round(float(np.exp(found.fit.theta[index])), 4),
            **{kind: _means(pairs) for kind, pairs in errors.items()},
        }


def _error(predicted: Array, measured: Array) -> float:
    return float(np.mean(np.abs(np.log(predicted / measured))))


def _means(pairs: Sequence[Sequence[float]]) -> dict[str, float | int]:
    """Labs, and the mean over them of the absolute log error with the parameter and at its prior."""
    if not pairs:
        return {"labs": 0}
    fitted, prior = np.mean(pairs, axis=0)
    return {"labs": len(pairs), "fitted": round(float(fitted), 4), "at_prior": round(float(prior), 4)}


def main() -> None:
    """Prints what every parameter buys."""
    priors = catalog.load(ROOT / "hardware_catalog" / "priors")
    frame = Frame(priors, reading.read(DATA / "measured_runs.csv", priors))
    prior, _ = measure.informed(Efficiencies.of(priors), priors, DATA / "gemm_measured.csv")
    print(json.dumps(list(bought(calibrate.calibrate(frame, prior))), indent=1))


if __name__ == "__main__":
    main()
