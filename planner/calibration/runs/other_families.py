"""Convolutional networks and recommenders: rows as runs, many of them predicted at once, and fits to them.

Fits move what calibration may move for these and for encoders; their cross-validation leaves sources out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.base.processes import ALONE, Workers, spread
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit, Parameter, fit, weights
from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, number
from planner.calibration.runs.measured_run import Run
from planner.catalog import Catalog
from planner.cost import convolution, dlrm
from planner.cost.figures import Array, Device, Network, stacked
from planner.cost.other_families import Software
from planner.figures import cost_inputs, matrix_formats
from planner.figures.efficiency import Efficiencies
from planner.models import families

FAMILIES = ("encoder", "cnn", "dlrm")
UNSTATED_BATCH = {"fp16": 256, "bf16": 256}
"""Images per accelerator where nothing is stated, by precision; 128 in 32 bit."""
_EXAMPLES = ("pytorch-ddp", "2020")
_TUNED = {"cnn": ("mxnet", ""), "dlrm": ("hugectr", "")}


def filled(run: Run, row: Mapping[str, str]) -> Run:
    """The run of a convolutional network's or a recommender's row.

    Raises:
        Unpredictable: no such model, no batch, no throughput in the precision.
    """
    if run.family not in _TUNED:
        raise Unpredictable(f"family {run.family}: transformers, convolutional networks and recommenders are predicted")
    name = names.MODELS.get(run.model, run.model)
    if name not in (families.networks() if run.family == "cnn" else families.recommenders()):
        raise Unpredictable(f"no {run.family} of the library is called {run.model!r}")
    inferred: list[str] = []
    precision = (row.get("precision") or "").strip()
    if not precision:
        precision = "fp16"
        inferred.append("precision fp16")
    assert run.cluster is not None
    if not matrix_formats.can_train_in(run.cluster.accelerator, precision):
        raise Unpredictable(f"{run.cluster.accelerator.id} has no matrix rate in {precision}")
    batch = int(number(row, "global_batch_seqs") or 0)
    if not batch:
        each = int(number(row, "micro_batch") or 0)
        if not each:
            each = UNSTATED_BATCH.get(precision, 128)
            inferred.append(f"batch: {each} per accelerator")
        batch = each * run.accelerators
    rate = number(row, "value") if row.get("metric") == "samples_per_s" else None
    tuned = run.task.startswith("mlperf") or "MXNet" in (row.get("notes") or "")
    runtime, year = _TUNED[run.family] if tuned else _EXAMPLES
    date = names.dated(row.get("framework_date") or "") or year
    return replace(
        run,
        model=name,
        measured=batch / rate if rate else number(row, "step_time_s"),
        runtime=runtime,
        known_as=(runtime,),
        year=year or date[:4],
        date=date,
        batch=batch,
        precision=precision,
        inferred=tuple(inferred),
    )


def without_layouts(runs: Sequence[Run]) -> list[Run]:
    """The runs of convolutional networks and recommenders that can be predicted."""
    return [run for run in runs if run.covered and run.family in _TUNED]


def columns(runs: Sequence[Run], using: Efficiencies) -> tuple[Device, Network, Software, Array, Array]:
    """Device, links, software, batch and ranks of some runs as columns."""
    devices, networks, softwares = [], [], []
    for run in runs:
        assert run.cluster is not None
        part = run.cluster.accelerator
        reached = using.accelerator(part)
        devices.append(
            cost_inputs.matured(cost_inputs.device(part, reached, run.precision, run.date), reached, run.date)
        )
        networks.append(replace(cost_inputs.network(run.cluster, reached), accelerators=run.accelerators))
        softwares.append(
            cost_inputs.software(using.runtime(run.known_as, run.year, "", part.generation), run.precision)
        )
    return (
        stacked(devices),
        stacked(networks),
        Software(**{name: np.array([getattr(s, name) for s in softwares]) for name in Software.__slots__}),
        np.array([float(run.batch) for run in runs]),
        np.array([float(run.accelerators) for run in runs]),
    )


def stepper(model: str, family: str) -> Callable[[Device, Network, Software, Array, Array], Array]:
    """The step time of a model, as a function of columns."""
    if family == "cnn":
        layers = convolution.layers(families.network(model))
        return lambda *figures: np.asarray(convolution.step_time(layers, *figures))
    described = families.recommender(model)
    return lambda device, network, software, batch, ranks: np.asarray(
        dlrm.step_time(described, device, network, software, batch, dlrm.TableCut(ranks))
    )


def predict(runs: Sequence[Run], using: Efficiencies) -> Array:
    """Seconds per step of runs of convolutional networks and recommenders."""
    times = np.empty(len(runs))
    groups: dict[tuple[str, str], list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault((run.model, run.family), []).append(index)
    for (model, family), rows in groups.items():
        times[rows] = stepper(model, family)(*columns([runs[row] for row in rows], using))
    return times


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """Seconds per step of every run."""

    time: Array


class OtherFrame:
    """Runs of encoders, convolutional networks and recommenders, predicted together."""

    def __init__(self, catalog: Catalog, runs: Sequence[Run]) -> None:
        chosen = [run for run in runs if run.covered and run.family in FAMILIES]
        with_layouts = [run for run in chosen if run.variants]
        self._transformers = Frame(catalog, with_layouts) if with_layouts else None
        self._others = without_layouts(chosen)
        self.runs = [*with_layouts, *self._others]
        self.measured = np.array([run.measured or np.nan for run in self.runs])

    def predict(self, using: Efficiencies) -> TimedRuns:
        """Every run under some efficiencies, in the order of `runs`."""
        first = self._transformers.predict(using).time if self._transformers else np.empty(0)
        return TimedRuns(np.concatenate([first, predict(self._others, using)]))


FOLDS = 5
EXAMPLES = ("pytorch-ddp@2020",)
HUGECTR = ("hugectr", "hugectr@2021", "hugectr@2022")
DDP = ("pytorch-ddp", "pytorch-ddp/blackwell")
BOARDS = ("H100-PCIE-80GB", "L40S", "L40", "L4", "A30", "A40", "A100-PCIE-80GB", "RTX-A6000", "RTX-A5000", "RTX-A4000")


def parameters() -> tuple[Parameter, ...]:
    """All of them, in a fixed order."""
    return (
        Parameter("convolution", "runtimes", ("mxnet", *EXAMPLES), "convolution", 0.3, 1.5),
        Parameter("mxnet.vector", "runtimes", ("mxnet",), "vector", 0.3, 4.0),
        Parameter("mxnet.kernel", "runtimes", ("mxnet",), "kernel", 0.4, 1e-4),
        Parameter("hugectr.gather", "runtimes", HUGECTR, "gather", 0.4, 4.0),
        Parameter("hugectr.kernel", "runtimes", HUGECTR, "kernel", 0.4, 1e-4),
        Parameter("hugectr.exchange", "runtimes", HUGECTR, "exchange", 0.4, 1.0),
        Parameter("pytorch-ddp.vector", "runtimes", DDP, "vector", 0.3, 4.0),
        Parameter("pytorch-ddp.dp_overlap", "runtimes", DDP, "dp_overlap", 0.3, 1.0),
        Parameter("examples.kernel", "runtimes", EXAMPLES, "kernel", 0.4, 1e-3),
        Parameter("examples.vector", "runtimes", EXAMPLES, "vector", 0.3, 4.0),
        Parameter("examples.gather", "runtimes", EXAMPLES, "gather", 0.4, 4.0),
        Parameter("boards.power_capped", "accelerators", BOARDS, "power_capped", 0.2, 1.0),
    )


def timed(frame: OtherFrame) -> NDArray[np.intp]:
    """Runs with a measured time of their own."""
    not_repeated = np.array([not run.repeated for run in frame.runs])
    return np.flatnonzero(np.isfinite(frame.measured) & not_repeated)


def fitted(frame: OtherFrame, prior: Efficiencies, rows: NDArray[np.intp] | None = None) -> Fit:
    """The parameters fitted to some rows (all that are timed). A family of a source counts as the root of its rows."""
    rows = timed(frame) if rows is None else rows
    weight = weights([f"{frame.runs[i].family} {frame.runs[i].source}" for i in rows])
    return fit(frame, prior, parameters(), rows, weight)


def extended(catalog: Catalog, runs: Sequence[Run], base: Efficiencies) -> Efficiencies:
    """Efficiencies fitted to transformers, with those of the other families fitted on top of them."""
    known = [run for run in runs if run.covered and run.measured and run.family in FAMILIES]
    return fitted(OtherFrame(catalog, known), base).efficiencies if known else base


def folds(sources: Sequence[str]) -> dict[str, int]:
    """Source -> fold: the largest first, each to the fold with the fewest rows so far."""
    names, count = np.unique(np.array(sources), return_counts=True)
    load = [0] * FOLDS
    fold_of = {}
    for size, name in sorted(zip(-count, names, strict=True)):
        fold = load.index(min(load))
        fold_of[str(name)] = fold
        load[fold] -= int(size)
    return fold_of


def cross_validated(frame: OtherFrame, prior: Efficiencies, workers: Workers = ALONE) -> Array:
    """Times of the timed rows, each by a fit that left out its source's fold. Seconds."""
    rows = timed(frame)
    sources = [frame.runs[i].source for i in rows]
    fold = np.array([folds(sources)[source] for source in sources])
    times = np.empty(len(rows))
    wanted = sorted(set(fold))
    for place, fitted_fold in spread(
        _fitted_to, (frame, prior), [rows[fold != left_out] for left_out in wanted], workers
    ):
        left = fold == wanted[place]
        times[left] = frame.predict(fitted_fold.efficiencies).time[rows[left]]
    return times


def _fitted_to(given: tuple[OtherFrame, Efficiencies], rows: NDArray[np.intp]) -> Fit:
    return fitted(*given, rows)
