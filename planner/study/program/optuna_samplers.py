"""Which point a trial takes: Optuna's samplers, held to what is known before a plan is searched for.

What a cluster costs, draws and counts is known of every point at once, and so is that a figure changes nothing where
nothing waits for it. A trial is a search for plans: none is spent on a point that breaks a known limit, or that is
worth what a tried one is. TPE takes the best of its candidates that is neither; between its proposals, sweeps go
through what lies around the best point so far.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.study.question.study import Point, Study

if TYPE_CHECKING:
    import optuna

CANDIDATES = 64
"""That TPE weighs in a trial."""
SWEEP = 3
"""One trial in so many is a sweep's."""
SWEEP_FROM = 60
"""First trial that may be one: earlier, sweeps would hold TPE in the first valley that it found."""
POPULATION = 32
"""Population of NSGA-II."""
DRAWS = 256
"""Most points drawn at random to find one that may be tried."""
CHILDREN = 16
"""Most children of NSGA-II, likewise."""


@dataclass(frozen=True)
class KnownPoints:
    """What is known of points before plans are searched for."""

    allowed: Callable[[Point], bool] = lambda point: True
    """Whether a point keeps the limits that need no plan."""
    plan_key: Callable[[Point], Hashable] = lambda point: point
    """What its worth follows from: points of one key are worth the same."""

    def fresh(self, point: Point, before: set[Hashable]) -> bool:
        """Whether a trial of it would tell anything; `before`: the keys of points that were tried."""
        return self.allowed(point) and self.plan_key(point) not in before


def distributions(study: Study) -> dict[str, Any]:
    """What Optuna may propose on each axis: the place among ordered values, or a name."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.path: IntDistribution(0, len(axis.values) - 1) if axis.ordered else CategoricalDistribution(axis.values)
        for axis in study.axes
    }


def point(study: Study, params: Mapping[str, Any]) -> Point:
    """The place on every axis that a trial's parameters (axis -> place or name) mean."""
    return tuple(
        int(params[axis.path]) if axis.ordered else axis.values.index(params[axis.path]) for axis in study.axes
    )


def _params(study: Study, point: Point) -> dict[str, Any]:
    """What proposes a point."""
    return {
        axis.path: place if axis.ordered else axis.values[place] for axis, place in zip(study.axes, point, strict=True)
    }


def seeded(seed: int, number: int) -> int:
    """The seed of trial `number`, derived from the study's."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


def ordinal(among: Any, number: int) -> int:
    """The number of a trial among `among`, from 0, when lost trials are not counted."""
    from optuna.trial import TrialState

    lost = among.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return number - len([trial for trial in lost if trial.number < number])


# ---- samplers --------------------------------------------------------------------------------------------------------


def sampler(asked: Study, seed: int, known: KnownPoints | None = None, make: Callable[[int], Any] | None = None) -> Any:
    """A sampler that is begun anew for every trial, with the trial's seed.

    Args:
        asked: what is searched
        seed: of the whole study
        known: what is known of points beforehand; None: nothing
        make: another sampler of Optuna's for a trial's number, taken as it is: what searches are compared with
    """
    from optuna.samplers import BaseSampler

    begin = min(16, 4 + 2 * len(asked.axes))
    may = known or KnownPoints()

    class Numbered(BaseSampler):
        """Hands each trial to a sampler of its own."""

        def __init__(self) -> None:
            self._of: tuple[int, Any] = (-1, None)

        def own(self, among: Any, trial: Any) -> Any:
            if self._of[0] != trial.number:
                number = ordinal(among, trial.number)
                self._of = (trial.number, make(number) if make else _usual(asked, seeded(seed, number), may, among))
            return self._of[1]

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self.own(study, trial).infer_relative_search_space(study, trial) if make else distributions(asked)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            sampler_state = self.own(study, trial)
            number = ordinal(study, trial.number)
            if make:
                return sampler_state.sample_relative(study, trial, search_space)
            several = len(asked.objectives) > 1
            if number < (POPULATION if several else begin):
                return drawn(asked, study, seeded(seed, number), may)
            if several:
                return _child(asked, sampler_state, study, trial, search_space, may)
            if number >= SWEEP_FROM and number % SWEEP == SWEEP - 1:
                place = swept(asked, study, seeded(seed, number), may)
                if place is not None:
                    return place
            params = sampler_state.sample_relative(study, trial, search_space)
            new = may.fresh(point(asked, params), tried(asked, study, may))
            return params if new else drawn(asked, study, seeded(seed, number), may)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self.own(study, trial).sample_independent(study, trial, param_name, param_distribution)

        def before_trial(self, study: Any, trial: Any) -> None:
            self.own(study, trial).before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self.own(study, trial).after_trial(study, trial, state, values)

    return Numbered()


def _usual(asked: Study, seed: int, may: KnownPoints, among: optuna.Study) -> Any:
    """NSGA-II for several objectives; for one TPE, whose candidates are those that may be tried."""
    import numpy as np
    from optuna.samplers import NSGAIISampler, TPESampler

    if len(asked.objectives) > 1:
        return NSGAIISampler(population_size=POPULATION, seed=seed)

    class Choosy(TPESampler):
        """TPE that takes the best of its candidates that may be tried and was not."""

        def _compute_acquisition_func(self, samples: Any, mpe_below: Any, mpe_above: Any) -> Any:
            values = np.array(super()._compute_acquisition_func(samples, mpe_below, mpe_above))
            columns = [samples[axis.path] for axis in asked.axes]
            before = tried(asked, among, may)
            for n in np.argsort(-values, kind="stable").tolist():
                place = tuple(int(column[n]) for column in columns)
                if may.fresh(place, before):
                    values[n] = np.inf
                    break
            return values

    return Choosy(seed=seed, multivariate=True, n_startup_trials=0, n_ei_candidates=CANDIDATES)


def tried(asked: Study, among: optuna.Study, may: KnownPoints) -> set[Hashable]:
    """Keys of the points that trials have or had, those of lost trials left out."""
    from optuna.trial import TrialState

    done = among.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
    return {may.plan_key(point(asked, trial.params)) for trial in done if len(trial.params) == len(asked.axes)}


def drawn(asked: Study, among: optuna.Study, seed: int, may: KnownPoints) -> dict[str, Any]:
    """Parameters of a random point that `may` be tried; if none of many draws may, the last drawn."""
    rng = random.Random(seed)
    before = tried(asked, among, may)
    for _ in range(DRAWS):
        place = tuple(rng.randrange(len(axis.values)) for axis in asked.axes)
        if may.fresh(place, before):
            break
    return _params(asked, place)


def _child(asked: Study, state: Any, among: Any, trial: Any, space: Any, may: KnownPoints) -> dict[str, Any]:
    """A child of NSGA-II's parents that may be tried; the last, if none of some may."""
    before = tried(asked, among, may)
    for _ in range(CHILDREN):
        params: dict[str, Any] = state.sample_relative(among, trial, space)
        if len(params) == len(asked.axes):
            if may.fresh(point(asked, params), before):
                break
    return params


# ---- sweeps ----------------------------------------------------------------------------------------------------------


def swept(asked: Study, among: optuna.Study, seed: int, may: KnownPoints) -> dict[str, Any] | None:
    """An untried point around the best so far; None if there is none left.

    By turns, one axis takes any other value, the nearest first, or two axes take a step each. One axis at a time finds
    another valley behind a ridge; two find the way along a limit, where more of one thing is paid for with another.
    """
    best = _best(asked, among)
    if best is None:
        return None
    rng = random.Random(seed)
    before = tried(asked, among, may)
    alone, both = list(_alone(asked, best)), list(_both(asked, best))
    for moves in (alone, both):
        rng.shuffle(moves)
    alone.sort(key=lambda place: sum(abs(a - b) for a, b in zip(place, best, strict=True)))
    for place in alone + both if seed % 2 else both + alone:
        if may.fresh(place, before):
            return _params(asked, place)
    return None


def _best(asked: Study, among: optuna.Study) -> Point | None:
    from optuna.trial import TrialState

    done = among.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    kept = [trial for trial in done if all(value <= 0 for value in trial.constraints.values())]
    if not kept:
        return None
    sign = -1.0 if among.directions[0].name == "MAXIMIZE" else 1.0
    return point(asked, min(kept, key=lambda trial: (sign * trial.values[0], trial.number)).params)


def _alone(asked: Study, best: Point) -> Iterator[Point]:
    for n, axis in enumerate(asked.axes):
        yield from ((*best[:n], place, *best[n + 1 :]) for place in range(len(axis.values)) if place != best[n])


def _both(asked: Study, best: Point) -> Iterator[Point]:
    steps = [
        (n, place)
        for n, axis in enumerate(asked.axes)
        for place in _next_places(axis.ordered, len(axis.values), best[n])
    ]
    for k, (n, place) in enumerate(steps):
        for m, other in steps[k + 1 :]:
            if m != n:
                moved = list(best)
                moved[n], moved[m] = place, other
                yield tuple(moved)


def _next_places(ordered: bool, values: int, place: int) -> list[int]:
    """The places next to one: of names, which have no order, all others."""
    return [near for near in range(values) if near != place and (not ordered or abs(near - place) == 1)]
