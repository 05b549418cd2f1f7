"""What a point of a study is worth: the exact best plan of every workload on its cluster, and the objectives from it.

A search is made once for all points that are the same to it: what changes a price, a power or a region changes no plan.
Many points at once are searched side by side, as machines of one space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from planner import cost
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.catalog import Catalog
from planner.cost import money
from planner.cost.figures import Array
from planner.cost.goodput import wall_time
from planner.models.parameters import parameters
from planner.models.workload import find_model
from planner.question import search_problem as question
from planner.question.request import goodput_of
from planner.question.rl_options import RLTraining
from planner.question.search_problem import Prepared, prepare, problem
from planner.rl.job import fastest
from planner.schema.hardware import Cluster
from planner.schema.rl import RLPlan
from planner.search.best_per_machine import best_on_each, needs
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate
from planner.search.side_by_side import Machine
from planner.space.cost_grid import single_grid
from planner.study.program.clusters import Clusters, Values
from planner.study.question.study import Objective, Point, Study, StudyWorkload

_HELD = 1 << 26
"""Most bytes that are kept of what candidates hold, of all spaces together."""
SAMPLED = 16
"""Points, spread over all, whose numbers of layouts say what a search takes."""
POINT_S, ROW_S, TABLE_ROW_S = 4e-4, 3e-7, 1e-5
"""CPU seconds of a workload at a point, of each layout that is searched, and of each layout of a space, once for all
machines that are searched in it side by side; as `benchmarks/design_points.py` prints them, rounded."""
STEP_S = 0.4
"""CPU seconds of a post-training at a point: each cluster is searched by itself."""
_WITHOUT_PLAN = ("capital", "power", "accelerators")
Key = tuple[object, ...]
Best = Candidate | RLPlan


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """One point, evaluated."""

    point: Point
    objectives: dict[str, float]
    """In the units of `study.UNITS`; empty where a workload has no plan."""
    measures: dict[str, float]
    """What is limited, as far as it is known."""
    violations: dict[str, float]
    """Constraint -> by what share it is exceeded; 0 or less where it is kept."""
    candidates: tuple[Best | None, ...]
    """The candidate of each workload, of a post-training its placement; None where it was not searched for or nothing
    fits."""
    why: str = ""
    """What is wrong with a point that is no cluster, or trains nothing."""

    @property
    def feasible(self) -> bool:
        """Whether every workload has a plan and every constraint is kept."""
        return bool(self.objectives) and all(value <= 0 for value in self.violations.values())


@dataclass
class _Space:
    """What all machines share on which the same layouts are legal."""

    prepared: Prepared
    least: float | None = None
    """Bytes that its leanest plan holds, once it is known."""
    held: list[Array] | None = None
    """What its candidates hold, the same on every machine, once it is known."""
    found: dict[Key, Candidate | None] = field(default_factory=dict)


class Evaluator:
    """Evaluates the points of a study and remembers the searches."""

    def __init__(self, catalog: Catalog, study: Study) -> None:
        self.catalog, self.study = catalog, study
        self.clusters = Clusters(catalog, study)
        self._spaces: dict[Key, _Space | str] = {}
        self._steps: dict[Key, RLPlan | str] = {}
        """Placements of post-trainings, or why there is none."""
        self._flops: dict[StudyWorkload, float] = {}
        self._weights = sum(job.weight for job in study.workloads)
        self._plan_keys: dict[Point, Key] = {}
        self._loose: Evaluator | None = None
        self.searches = 0
        """Plan searches made; the other points needed none."""

    def one(self, point: Point) -> PointOutcome:
        """The outcome of one point (its place on every axis)."""
        return self.many([point])[0]

    def many(self, points: Sequence[Point], advance: Callable[[int], None] | None = None) -> list[PointOutcome]:
        """The outcomes of several points, in their order; those with one plan space are searched together."""
        return self.valued([self.study.values(point) for point in points], points, advance)

    def valued(
        self, values: Sequence[Values], points: Sequence[Point], advance: Callable[[int], None] | None = None
    ) -> list[PointOutcome]:
        """The outcomes at any values of the axes (SI), also between those listed; `points` only names them."""
        limits = [self._limits(value) for value in values]
        wanted = [
            point_values
            for point_values, (_, broken, why) in zip(values, limits, strict=True)
            if not why and _kept(broken)
        ]
        self._search(wanted)
        outcomes = []
        for point, point_values, (measures, broken, why) in zip(points, values, limits, strict=True):
            if why or not _kept(broken):
                outcomes.append(PointOutcome(point, {}, measures, broken, (None,) * len(self.study.workloads), why))
            else:
                outcomes.append(self._outcome(point, point_values, measures, broken))
            if advance:
                advance(1)
        return outcomes

    def loosened(self) -> Evaluator:
        """An evaluator without constraints, sharing every search that was made."""
        if not self.study.constraints:
            return self
        if self._loose is None:
            self._loose = Evaluator(self.catalog, replace(self.study, constraints=()))
            self._loose._spaces, self._loose.clusters = self._spaces, self.clusters
            self._loose._steps = self._steps
        return self._loose

    def bounds(self, values: Sequence[Values]) -> list[dict[str, float]]:
        """For each point, constraint -> by what share it is exceeded (0 or less: kept), as far as no plan is needed."""
        return [self._limits(value)[1] for value in values]

    def allowed(self, point: Point) -> bool:
        """Whether a point is a cluster that keeps every limit which needs no plan."""
        _, broken, why = self._limits(self.study.values(point))
        return not why and _kept(broken)

    def plan_key(self, point: Point) -> Key:
        """A key that points with the same outcome share: their searches, US dollars of an hour and watts."""
        if point not in self._plan_keys:
            self._plan_keys[point] = self._plan_key_of(self.study.values(point))
        return self._plan_keys[point]

    def _plan_key_of(self, values: Values) -> Key:
        try:
            cluster = self.clusters.cluster(values)
        except ClusterwrightError as error:
            return (str(error),)
        parts: list[object] = [values[limit.of] for limit in self.study.constraints if limit.of in values]
        for ask in (self.clusters.capital, self.clusters.hourly_usd, self.clusters.power):
            with suppress(ClusterwrightError):  # it is not known, and so nothing follows from it
                parts.append(ask(values))
        for job in self.study.workloads:
            if job.post_training is not None:
                parts.append(_placed_on(cluster))
                continue
            prepared = self.prepared(job, values)
            good = float(goodput_of(self.clusters.request(job, values), cluster.count).fraction)
            parts += [_structure(cluster), good, prepared if isinstance(prepared, str) else _speed(prepared)]
        return tuple(parts)

    def seconds(self, at_once: int) -> float:
        """What a point takes of so many evaluated side by side, about: the same on every machine, since it is counted,
        not timed.
        """
        size = self.study.size
        values = [self.study.values(self.study.point(n * size // SAMPLED)) for n in range(min(size, SAMPLED))]
        point_s = ROW_S + TABLE_ROW_S / self._points_a_space(min(at_once, size))
        steps = sum(job.post_training is not None for job in self.study.workloads)
        return (
            STEP_S * steps
            + POINT_S * len(self.study.workloads)
            + point_s * sum(map(self._layouts, values)) / len(values)
        )

    def _points_a_space(self, many: int) -> float:
        """How many of `many` consecutive points share a space."""
        start = (self.study.size - many) // 2
        spaces = set()
        for n in range(start, start + many):
            with suppress(ClusterwrightError):
                spaces.add(_structure(self.clusters.cluster(self.study.values(self.study.point(n)))))
        return many / max(1, len(spaces))

    def _layouts(self, values: Values) -> int:
        """That are searched at a point: none where it is over a limit that needs no plan."""
        _, broken, why = self._limits(values)
        if why or not _kept(broken):
            return 0
        spaces = (self.prepared(job, values) for job in self.study.workloads if job.post_training is None)
        return sum(block.height for space in spaces if not isinstance(space, str) for block in space.blocks)

    # ---- constraints -------------------------------------------------------------------------------------------------

    def _limits(self, values: Values) -> tuple[dict[str, float], dict[str, float], str]:
        """What is known of a point without a plan: measures, violations, and what is wrong with it."""
        measures: dict[str, float] = {}
        try:
            self.clusters.cluster(values)
            for limit in self.study.constraints:
                if limit.of in values:
                    measures[limit.of] = float(values[limit.of])
                elif limit.of in _WITHOUT_PLAN:
                    measures[limit.of] = self.clusters.measured(limit.of, values)
            for name in self._needed():
                if name == "cost" or name == "performance-per-dollar":
                    self.clusters.paid(name, values)
        except ClusterwrightError as error:
            return measures, {"cluster": 1.0}, str(error)
        return measures, self._violations(measures), ""

    def limits(self, values: Values, known: Mapping[str, float]) -> dict[str, float]:
        """Constraint -> by what share it is exceeded at a point, with what is known of its plans."""
        return self._violations(
            self._limits(values)[0] | {c.of: known[c.of] for c in self.study.constraints if c.of in known}
        )

    def _violations(self, measures: dict[str, float]) -> dict[str, float]:
        violations: dict[str, float] = {}
        for limit in self.study.constraints:
            value = measures.get(limit.of)
            if value is None:
                continue
            if math.isfinite(limit.at_most):
                violations[f"{limit.of} at most"] = (value - limit.at_most) / max(abs(limit.at_most), 1e-300)
            if math.isfinite(limit.at_least):
                violations[f"{limit.of} at least"] = (limit.at_least - value) / max(abs(limit.at_least), 1e-300)
        return violations

    # ---- plans -------------------------------------------------------------------------------------------------------

    def _space(self, workload: StudyWorkload, cluster: Cluster, values: Values) -> _Space | str:
        key = (workload, *_structure(cluster))
        if key not in self._spaces:
            try:
                self._spaces[key] = _Space(prepare(self.catalog, self.clusters.request(workload, values)))
            except ClusterwrightError as error:
                self._spaces[key] = str(error).splitlines()[0]
        return self._spaces[key]

    def prepared(self, workload: StudyWorkload, values: Values) -> Prepared | str:
        """A workload's question on a point's cluster, prepared for the search; or why there is none, in words."""
        cluster = self.clusters.cluster(values)
        space = self._space(workload, cluster, values)
        return space if isinstance(space, str) else question.moved(space.prepared, cluster)

    def priced(self, workload: StudyWorkload, values: Values) -> Prepared:
        """A workload's question on a point's cluster with the price of an hour there, for its plan.

        Raises:
            WrongQuestion: the point trains nothing.
        """
        prepared = self.prepared(workload, values)
        if isinstance(prepared, str):
            raise WrongQuestion(prepared)
        try:
            return replace(prepared, request=self.clusters.priced(workload, values))
        except WrongQuestion:  # no price is known: none is said
            return replace(prepared, request=self.clusters.request(workload, values))

    def _search(self, wanted: Sequence[Values]) -> None:
        """Finds the plans that these points need and that are not known."""
        open_ones: dict[int, tuple[_Space, dict[Key, Prepared]]] = {}
        for values in wanted:
            for job in self.study.workloads:
                if job.post_training is not None:
                    self._placed(job, job.post_training, self.clusters.cluster(values))
                    continue
                space = self._space(job, self.clusters.cluster(values), values)
                if isinstance(space, str):
                    continue
                moved = question.moved(space.prepared, self.clusters.cluster(values))
                key = _speed(moved)
                if key not in space.found:
                    open_ones.setdefault(id(space), (space, {}))[1].setdefault(key, moved)
        for space, machines in open_ones.values():
            self.searches += len(machines)
            if _same_plans(space.prepared):
                asked = problem(space.prepared, 1)
                held = needs(asked) if space.held is None else space.held
                self._keep(space, held)
                machine_list = [Machine(p.figures.devices, p.figures.network, p.usable) for p in machines.values()]
                space.found |= dict(zip(machines, best_on_each(asked, machine_list, held), strict=True))
                continue
            for key, moved in machines.items():
                answer = Bounded().search(problem(moved, 1))
                space.found[key] = answer.best[0] if answer.best else None
                if answer.closest is not None:
                    space.least = answer.closest.memory

    def _placed(self, job: StudyWorkload, asked: RLTraining, cluster: Cluster) -> RLPlan | str:
        """The placement with the shortest step of a post-training on a cluster, or why there is none."""
        key = (job, *_placed_on(cluster))
        if key not in self._steps:
            self.searches += 1
            try:
                self._steps[key] = fastest(self.catalog, find_model(job.model), asked, cluster, job.learned)
            except ClusterwrightError as error:
                self._steps[key] = str(error).splitlines()[0]
        return self._steps[key]

    def _keep(self, space: _Space, held: list[Array]) -> None:
        """Remembers what the candidates of a space hold, and forgets that of others where it is too much."""
        others = [other for other in self._spaces.values() if isinstance(other, _Space) and other is not space]
        kept = sum(need.nbytes for other in others for need in other.held or ())
        own = sum(need.nbytes for need in held)
        if kept + own > _HELD:
            for other in others:
                other.held = None
        space.held = held if own <= _HELD else None

    def _least(self, space: _Space, prepared: Prepared) -> float:
        if space.least is None:
            closest = Bounded().search(problem(prepared, 1)).closest
            space.least = closest.memory if closest is not None else prepared.usable
        return space.least

    # ---- objectives --------------------------------------------------------------------------------------------------

    def _outcome(
        self, point: Point, values: Values, measures: dict[str, float], broken: dict[str, float]
    ) -> PointOutcome:
        candidates: list[Best | None] = []
        short = -1.0
        why = ""
        cluster = self.clusters.cluster(values)
        for job in self.study.workloads:
            space = (
                self._space(job, cluster, values)
                if job.post_training is None
                else self._placed(job, job.post_training, cluster)
            )
            if isinstance(space, RLPlan):
                candidates.append(space)
                continue
            if isinstance(space, str):
                candidates.append(None)
                short = max(short, 1.0)
                why = why or f"{job.model}: {space}"
                continue
            moved = question.moved(space.prepared, cluster)
            candidate = space.found[_speed(moved)]
            candidates.append(candidate)
            if candidate is None:
                short = max(short, self._least(space, moved) / moved.usable - 1.0, 1e-9)
                why = why or f"{job.model} does not fit into memory"
        if why:
            return PointOutcome(point, {}, measures, broken | {"memory": short}, tuple(candidates), why)
        known = self.worth(candidates, values)
        measures = measures | {c.of: known[c.of] for c in self.study.constraints if c.of in known}
        objectives: dict[str, float] = {name: known[name] for name in self.study.objectives}
        return PointOutcome(point, objectives, measures, self._violations(measures), tuple(candidates))

    def step_s(self, outcome: PointOutcome) -> float | None:
        """Seconds of a step, weighted over the workloads; None where one of them has no plan."""
        return self._mean(outcome, lambda _, best: best.learning_step_s if isinstance(best, RLPlan) else best.time)

    def token_usd(self, outcome: PointOutcome, values: Values) -> float | None:
        """US dollars of a million tokens, weighted over the workloads; None where one of them has no plan."""
        return self._mean(outcome, lambda job, best: self._value("cost", job, best, values))

    def _mean(self, outcome: PointOutcome, figure: Callable[[StudyWorkload, Best], float]) -> float | None:
        """A figure of plans, weighted over the workloads; None where one of them has no plan."""
        total = 0.0
        for job, candidate in zip(self.study.workloads, outcome.candidates, strict=True):
            if candidate is None:
                return None
            total += job.weight / self._weights * figure(job, candidate)
        return total

    def worth(self, candidates: Sequence[Best | None], values: Values) -> dict[str, float]:
        """Objectives that are asked for or limited, of plans at the prices and powers of a point: weighted means."""
        known: dict[str, float] = dict.fromkeys(self._needed(), 0.0)
        for job, candidate in zip(self.study.workloads, candidates, strict=True):
            assert candidate is not None
            for name in self._needed():
                known[name] += job.weight / self._weights * self._value(name, job, candidate, values)
        return known

    def _needed(self) -> Iterator[Objective]:
        """Objectives to know: those asked for, and those that are limited."""
        limited = {c.of for c in self.study.constraints}
        names: tuple[Objective, ...] = ("step-time", "cost", "energy", "performance-per-dollar")
        return (name for name in names if name in self.study.objectives or name in limited)

    def _value(self, name: Objective, job: StudyWorkload, candidate: Best, values: Values) -> float:
        """One objective of one workload."""
        wanted = self.clusters.request(job, values)
        if isinstance(candidate, RLPlan):
            nodes = self.clusters.cluster(values).count
            step_s = candidate.learning_step_s
            tokens = candidate.tokens_per_s * candidate.step_s
        else:
            nodes = candidate.layout["nodes"]
            step_s = candidate.time
            tokens = candidate.layout["batch"] * wanted.workload.sequence
        if name == "step-time":
            return step_s
        if name == "performance-per-dollar":
            capital = self.clusters.capital(values)
            paid = self.clusters.hourly_usd(values) if capital is None else capital
            return self._flops_per_token(job, candidate, values) * tokens / step_s / paid if paid else math.inf
        good = goodput_of(wanted, nodes).fraction
        seconds = float(wall_time(step_s, 1.0, good)) / tokens
        if name == "energy":
            return seconds * self.clusters.power(values)
        return seconds / money.HOUR_S * self.clusters.hourly_usd(values) * 1e6

    def _flops_per_token(self, job: StudyWorkload, candidate: Best, values: Values) -> float:
        if isinstance(candidate, RLPlan):  # of the updates; responses are there for their sake
            return 6.0 * parameters(find_model(job.model)).active
        if job not in self._flops:
            prepared = self.prepared(job, values)
            assert not isinstance(prepared, str)
            grid = single_grid(prepared.figures, candidate.layout, candidate.options)
            tokens = candidate.layout["batch"] * prepared.request.workload.sequence
            self._flops[job] = float(cost.model_flops(grid)) / tokens
        return self._flops[job]


def _kept(broken: dict[str, float]) -> bool:
    return all(value <= 0 for value in broken.values())


def _structure(cluster: Cluster) -> Key:
    """What of a cluster says which layouts are legal, and which efficiencies hold."""
    node, fabric, part = cluster.node, cluster.fabric, cluster.accelerator
    has = tuple(getattr(part, name) is None for name in type(part).__dataclass_fields__)
    return (node.id, node.accelerators, cluster.count, fabric.id, fabric.kind, fabric.leaf_nodes, part.id, has)


def _placed_on(cluster: Cluster) -> Key:
    """What of a cluster a step of post-training depends on: all but where it stands and what it draws."""
    return (str(asdict(replace(cluster, region=None, node=replace(cluster.node, max_power=None)))),)


def _speed(prepared: Prepared) -> Key:
    """What of a cluster a plan's time and whether it fits depend on, beside its structure."""
    figures = prepared.figures
    network = prepared.figures.network
    if float(network.accelerators) <= float(network.leaf):
        network = replace(network, spine=1.0)  # nothing crosses it
    others = tuple(
        getattr(figures, name)
        for name in type(figures).__dataclass_fields__
        if name not in ("shape", "stack", "devices", "profiles", "network")
    )
    return (network, *others, *figures.devices.values(), prepared.usable)


def _same_plans(prepared: Prepared) -> bool:
    """Whether machines may be searched side by side: they differ in devices, network and capacity alone."""
    figures = prepared.figures
    return not figures.profiles and figures.expanded is None and figures.network.dimensions is None
