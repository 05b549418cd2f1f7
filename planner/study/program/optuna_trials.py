"""Trials of a study: points are proposed, each is evaluated exactly, and a storage keeps them.

Every trial has its own seed, made of the study's and the trial's number, so that a study that was stopped and resumed
by one worker ends as one that ran through.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from planner.axes.table import OFFLOAD, PRECISION, RECOMPUTE, SEQUENCE_PARALLEL, ZERO
from planner.axes.values import offload_name
from planner.base.locking import gone, this_process
from planner.schema.rl import RLPlan
from planner.study.program.evaluation import Evaluator, PointOutcome
from planner.study.program.optuna_samplers import KnownPoints, distributions, ordinal, point, sampler

if TYPE_CHECKING:
    import optuna

Progress = Callable[[int, str], None]
"""Told of so many more trials, and of the best so far."""
NAMELESS_S = 1.0
STALE_S = 900.0
"""After so long a trial that another machine began and did not end is taken for lost."""


def quiet() -> None:
    """Keeps Optuna's own log and its warnings of what is experimental off the screen."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def run(
    trials: optuna.Study, evaluator: Evaluator, target: int, seed: int, advance: Progress, goes_on: Callable[[], bool]
) -> None:
    """Makes trials until there are `target` of them, or `goes_on` says no."""
    from optuna.trial import TrialState

    study = evaluator.study
    trials.sampler = sampler(study, seed, KnownPoints(evaluator.allowed, evaluator.plan_key))
    spread = distributions(study)
    process = this_process()
    best: float | None = None
    while goes_on():
        if counted(trials) >= target and not release(trials):
            return
        trial = trials.ask(spread)
        if ordinal(trials, trial.number) >= target:
            trials.tell(trial, state=TrialState.FAIL)
            return
        trial.set_user_attr("worker", process)
        outcome = evaluator.one(point(study, trial.params))
        best = _stored_outcome(trials, trial, outcome, best, advance)


def _stored_outcome(
    trials: optuna.Study, trial: Any, outcome: PointOutcome, best: float | None, advance: Progress
) -> float | None:
    """Stores the outcome of a trial and tells Optuna; returns the best first objective so far."""
    names = list(outcome.objectives)
    for name, value in outcome.violations.items():
        trial.set_constraint(name, value)
    trial.set_user_attr("outcome", stored(outcome))
    worst = [0.0 if d.name == "MAXIMIZE" else float("inf") for d in trials.directions]
    values = [outcome.objectives[name] for name in names] if names else worst
    trials.tell(trial, values)
    first = values[0]
    if outcome.feasible and (
        best is None or (first > best if trials.directions[0].name == "MAXIMIZE" else first < best)
    ):
        best = first
    advance(1, "" if best is None else f"best {best:,.4g}")
    return best


def stored(outcome: PointOutcome) -> dict[str, Any]:
    """The part of an outcome that a journal keeps, as JSON values."""
    return {
        "objectives": outcome.objectives,
        "measures": outcome.measures,
        "violations": outcome.violations,
        "plan": [brief(candidate) for candidate in outcome.candidates] if outcome.objectives else [],
        "why": outcome.why,
    }


def brief(candidate: Any) -> dict[str, Any]:
    """A candidate as :class:`planner.schema.study.Brief` has it: seconds, bytes, layout and options; of a post-training
    accelerators by role, and its placement.
    """
    if isinstance(candidate, RLPlan):
        rolls_out = sum(side.accelerators for side in candidate.rollout)
        return {
            "step_time_s": candidate.step_s,
            "memory_bytes": candidate.trainer.memory_bytes,
            "layout": {"trains": candidate.trainer.accelerators, "rolls_out": rolls_out},
            "options": {"placement": candidate.placement, "staleness": f"{candidate.staleness:g}"},
        }
    options = candidate.options
    return {
        "step_time_s": candidate.time,
        "memory_bytes": candidate.memory,
        "layout": candidate.layout,
        "options": {
            "precision": options[PRECISION],
            "recompute": options[RECOMPUTE].name,
            "sequence_parallel": options[SEQUENCE_PARALLEL],
            "zero": options[ZERO],
            "offload": offload_name(float(options[OFFLOAD])),
        },
    }


def counted(trials: optuna.Study) -> int:
    """How many trials were begun and not lost."""
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE, TrialState.RUNNING)
    return len(trials.get_trials(deepcopy=False, states=states))


def release(trials: optuna.Study) -> int:
    """Marks the running trials of workers that have ended as failed; returns how many."""
    import datetime

    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    lost = 0
    running = trials.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    if any("worker" not in trial.user_attrs for trial in running):
        time.sleep(NAMELESS_S)  # a worker says who it is right after a trial began: unless it was killed between
        running = trials.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in running:
        worker = str(trial.user_attrs.get("worker", ""))
        began = trial.datetime_start
        age = (datetime.datetime.now() - began).total_seconds() if began else STALE_S
        if not worker or gone(worker) or age >= STALE_S:
            with contextlib.suppress(UpdateFinishedTrialError, ValueError):  # another gave it up just now
                trials.tell(trial.number, state=TrialState.FAIL)
                lost += 1
    return lost
