"""Linear and integer programs: variables, sums, named constraints, and what the solver found and proved.

The only place that knows PuLP, whose releases 3 and 4 differ in nearly every name and in the order of columns, of which
the choice among equal optima depends. So a program is kept as plain data here and handed over when it is solved:
columns sorted by their names, rows as they were added, the objective without its constant. HiGHS then gets the same
program, and answers the same, whichever release is installed; what it says is asked of itself.

    problem = Problem()
    x, y = problem.integer("x", high=4), problem.continuous("y")
    problem.constrain(x + 2 * y >= 7, "demand")
    problem.minimise(3 * x + y)
    found = problem.solve(gap=0)
    found.status, found.objective, found.value(x + y)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from planner.base.errors import ClusterwrightError

Sense = Literal["<=", "==", ">="]
SolverName = Literal["highs", "cbc"]
GAP = 1e-4


class Status(Enum):
    """How solving ended."""

    OPTIMAL = "optimal"
    """Within the gap that was asked for."""
    FEASIBLE = "feasible"
    """Something was found before a limit was reached."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    UNKNOWN = "unknown"
    """Nothing was found before a limit was reached, and nothing excluded."""

    @property
    def found(self) -> bool:
        """Whether there are values."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """``sum_x coefficients[x] x + constant``; a variable is the sum of itself."""

    coefficients: Mapping[str, float]
    """By name of the variable."""
    constant: float = 0.0

    __array_ufunc__ = None  # with a number of numpy on the left, the operators below are asked
    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Linear | float) -> Linear:
        return total((self, other))

    def __radd__(self, other: float) -> Linear:
        return total((self, other))

    def __sub__(self, other: Linear | float) -> Linear:
        return total((self, -other))

    def __rsub__(self, other: float) -> Linear:
        return total((-self, other))

    def __neg__(self) -> Linear:
        return Linear({name: -c for name, c in self.coefficients.items()}, -self.constant)

    def __mul__(self, factor: float) -> Linear:
        by = float(factor)
        return Linear({name: by * c for name, c in self.coefficients.items()}, by * self.constant)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Linear:
        by = float(divisor)
        return Linear({name: c / by for name, c in self.coefficients.items()}, self.constant / by)

    def __le__(self, other: Linear | float) -> Constraint:
        return Constraint(self - other, "<=")

    def __ge__(self, other: Linear | float) -> Constraint:
        return Constraint(self - other, ">=")

    def __eq__(self, other: Linear | float) -> Constraint:  # type: ignore[override]
        return Constraint(self - other, "==")


@dataclass(frozen=True, slots=True)
class Constraint:
    """``left <= 0``, ``left == 0`` or ``left >= 0``."""

    left: Linear
    sense: Sense

    def __bool__(self) -> bool:
        raise TypeError("a constraint is neither true nor false before the program is solved")


def total(terms: Iterable[Linear | float]) -> Linear:
    """The sum of all."""
    coefficients: dict[str, float] = {}
    constant = 0.0
    for term in terms:
        if isinstance(term, Linear):
            constant += term.constant
            for name, c in term.coefficients.items():
                coefficients[name] = coefficients.get(name, 0.0) + c
        else:
            constant += float(term)
    return Linear(coefficients, constant)


def dot(factors: Iterable[float], terms: Iterable[Linear]) -> Linear:
    """``sum_i factors[i] terms[i]``."""
    return total(term * factor for factor, term in zip(factors, terms, strict=True))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the solver found and proved."""

    status: Status
    objective: float
    """Infinite where nothing was found, -infinite where it has no end."""
    bound: float
    """No answer has a smaller objective: proven. Infinite if there is none, -infinite if nothing is known."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By name of the variable; none where nothing was found."""
    reduced: Mapping[str, float] = field(default_factory=dict)
    """By name of the variable: what a unit of it adds to the objective, at least, which may be no less than 0 for what
    is 0; of HiGHS's programs without whole numbers alone.
    """

    def value(self, expression: Linear | float) -> float:
        """What a variable or a sum comes to; a variable that nothing depends on is 0, or its bound next to 0."""
        if not isinstance(expression, Linear):
            return float(expression)
        value = expression.constant
        for name, c in expression.coefficients.items():  # not sum(), which rounds otherwise from Python 3.12 on
            value += self.values[name] * c
        return value


@dataclass(frozen=True, slots=True)
class _Column:
    low: float | None
    high: float | None
    whole: bool


class Problem:
    """Variables, constraints and what is minimised; by itself nothing is."""

    def __init__(self) -> None:
        self.columns: dict[str, _Column] = {}
        self.rows: dict[str, Constraint] = {}
        self.objective = Linear({})

    def binary(self, name: str) -> Linear:
        """A new variable that is 0 or 1."""
        return self._variable(name, _Column(0.0, 1.0, True))

    def integer(self, name: str, low: float | None = 0.0, high: float | None = None) -> Linear:
        """A new variable of whole numbers; None is no bound."""
        return self._variable(name, _Column(_bound(low), _bound(high), True))

    def continuous(self, name: str, low: float | None = 0.0, high: float | None = None) -> Linear:
        """A new variable of any numbers; None is no bound."""
        return self._variable(name, _Column(_bound(low), _bound(high), False))

    def _variable(self, name: str, column: _Column) -> Linear:
        if name in self.columns:
            raise ValueError(f"two variables are called {name!r}")
        self.columns[name] = column
        return Linear({name: 1.0})

    def constrain(self, constraint: Constraint, name: str) -> None:
        """Adds a constraint under a name of its own."""
        if name in self.rows:
            raise ValueError(f"two constraints are called {name!r}")
        self._check(constraint.left, f"constraint {name!r}")
        self.rows[name] = constraint

    def minimise(self, objective: Linear | float) -> None:
        """Sets the objective."""
        objective = total((objective,))
        self._check(objective, "the objective")
        self.objective = objective

    def _check(self, expression: Linear, where: str) -> None:
        for name, c in (*expression.coefficients.items(), ("", expression.constant)):
            if name and name not in self.columns:
                raise ValueError(f"{where}: {name!r} is no variable of this program")
            if not math.isfinite(c):
                raise ValueError(f"{where}: {name or 'the constant'!r} is {c}")

    def solve(
        self,
        *,
        gap: float = GAP,
        time_limit_s: float | None = None,
        max_nodes: int | None = None,
        seed: int = 0,
        threads: int = 1,
        tolerance: float | None = None,
        solver: SolverName = "highs",
    ) -> Outcome:
        """The least objective.

        Args:
            gap: relative difference of objective and bound at which it may end. The objective's constant counts for
                nothing here.
            time_limit_s: answers depend on the machine where this ends it.
            max_nodes: of branch and bound; answers repeat.
            seed: of HiGHS.
            threads: more than one are seldom faster.
            tolerance: by which a constraint may be broken; None is the solver's own.
            solver: CBC serves where HiGHS is not installed; it is asked by name only for comparison.
        """
        limits = {"gapRel": gap, "timeLimit": time_limit_s, "threads": threads}
        if solver == "highs" and installed("highs"):
            more = {"mip_max_nodes": max_nodes, "primal_feasibility_tolerance": tolerance}
            given = {key: value for key, value in more.items() if value is not None}
            return _with_highs(self, _pulps("highs", **limits, random_seed=seed, **given))
        if not installed("cbc"):
            raise ClusterwrightError(f"{solver} is not installed, and no other solver is: pip install highspy")
        return _with_cbc(self, _pulps("cbc", **limits, maxNodes=max_nodes), gap)

    def relaxed(self, names: Collection[str] | None = None) -> Problem:
        """The same where some variables (by default all) need not be whole numbers."""
        found = Problem()
        found.rows, found.objective = dict(self.rows), self.objective
        found.columns = {
            name: replace(column, whole=column.whole and names is not None and name not in names)
            for name, column in self.columns.items()
        }
        return found


def installed(solver: SolverName) -> bool:
    """Whether a solver is there. PuLP 3 brings CBC; PuLP 4 takes what `pulp[cbc]` or the machine has."""
    return bool(_pulps(solver).available())


def _pulps(solver: SolverName, **options: Any) -> Any:
    import pulp

    if solver == "highs":
        return pulp.HiGHS(msg=False, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PuLP 3 says that PuLP 4 has no PULP_CBC_CMD
        return getattr(pulp, "PULP_CBC_CMD", pulp.COIN_CMD)(msg=False, **options)


def _bound(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else float(value)


def _handed_over(problem: Problem, objective: Linear) -> tuple[Any, dict[str, Any]]:
    """The program as PuLP's, and its variables by our names: its own forbid some characters and differ in which."""
    import pulp

    rows = problem.rows.values()
    used = {name for each in (objective, *(row.left for row in rows)) for name, c in each.coefficients.items() if c}
    handed = pulp.LpProblem("program", pulp.LpMinimize)
    variables = {}
    for i, name in enumerate(sorted(used)):  # and PuLP 3 sorts columns by theirs
        column = problem.columns[name]
        kind: Any = pulp.LpInteger if column.whole else pulp.LpContinuous
        variables[name] = handed.add_variable(f"x{i:08d}", column.low, column.high, kind)

    def affine(expression: Linear) -> Any:
        handed_sum = pulp.lpSum(())
        for name, c in expression.coefficients.items():
            if c:
                handed_sum.addterm(variables[name], c)
        return handed_sum

    handed.setObjective(affine(objective))
    for i, row in enumerate(rows):
        left, right = affine(row.left), -row.left.constant
        stated = left <= right if row.sense == "<=" else left >= right if row.sense == ">=" else left == right
        handed.addConstraint(stated, f"c{i:08d}")
    return handed, variables


def _with_highs(problem: Problem, solver: Any) -> Outcome:
    handed, variables = _handed_over(problem, problem.objective)
    model = _run_highs(handed, solver)
    reported, info = model.getModelStatus().name, model.getInfo()
    if reported == "kUnboundedOrInfeasible":  # which of them, the constraints alone tell
        alone, _ = _handed_over(problem, Linear({}))
        of_constraints = _run_highs(alone, solver).getModelStatus().name
        reported = "kUnbounded" if of_constraints == "kOptimal" else of_constraints
    status = {"kOptimal": Status.OPTIMAL, "kInfeasible": Status.INFEASIBLE, "kUnbounded": Status.UNBOUNDED}.get(
        reported
    )
    if status is None:
        status = Status.FEASIBLE if int(info.primal_solution_status) == 2 else Status.UNKNOWN
    whole = any(problem.columns[name].whole for name in variables)
    found = _outcome(problem, status, variables, float(info.mip_dual_bound) if whole else None)
    if whole or status is not Status.OPTIMAL:
        return found
    return replace(found, reduced={name: float(x.dj or 0.0) for name, x in variables.items()})


def _run_highs(handed: Any, solver: Any) -> Any:
    """HiGHS itself after solving."""
    try:
        handed.solve(solver)
    except KeyError:
        # PuLP 3 has no word for HiGHS's limit of nodes; it looks for one after it has taken the values over.
        if handed.solverModel.getModelStatus().name != "kSolutionLimit":
            raise
    return handed.solverModel


def _with_cbc(problem: Problem, solver: Any, gap: float) -> Outcome:
    handed, variables = _handed_over(problem, problem.objective)
    reported = handed.solve(solver)
    if hasattr(handed, "sol_status"):  # PuLP 3
        code, found, bound = handed.status, handed.sol_status in (1, 2), None
        optimal = handed.sol_status == 1
    else:
        code, found, bound = int(reported.status), bool(reported.has_solution), reported.best_bound
        optimal = code == 1
    if found:
        status = Status.OPTIMAL if optimal else Status.FEASIBLE
    else:
        status = {-1: Status.INFEASIBLE, -2: Status.UNBOUNDED}.get(int(code), Status.UNKNOWN)
    outcome = _outcome(problem, status, variables, bound)
    if optimal and bound is None:  # where it does not say what it proved, it proved what it was asked to
        return Outcome(status, outcome.objective, outcome.objective - gap * abs(outcome.objective), outcome.values)
    return outcome


def _outcome(problem: Problem, status: Status, variables: Mapping[str, Any], bound: float | None) -> Outcome:
    """Everything with the objective's constant again. A program without whole numbers has no bound of its own: its
    optimum is one. Where nothing is proven yet, the bounds of the variables are.
    """
    if status is Status.INFEASIBLE:
        return Outcome(status, math.inf, math.inf)
    if status is Status.UNBOUNDED:
        return Outcome(status, -math.inf, -math.inf)
    proven = math.nan if bound is None or abs(bound) > 1e29 else bound + problem.objective.constant
    if not status.found:
        return Outcome(status, math.inf, _least(problem) if math.isnan(proven) else proven)
    values = {name: _next_to_0(column) for name, column in problem.columns.items()}
    values |= {name: float(x.value() or 0.0) for name, x in variables.items()}
    objective = Outcome(status, 0.0, 0.0, values).value(problem.objective)
    if math.isnan(proven):
        proven = objective if status is Status.OPTIMAL else _least(problem)
    return Outcome(status, objective, min(proven, objective), values)


def _least(problem: Problem) -> float:
    """What the bounds of the variables alone leave of the objective."""
    least = problem.objective.constant
    for name, c in problem.objective.coefficients.items():
        column = problem.columns[name]
        limit = column.low if c > 0 else column.high
        least += (-math.inf if limit is None else c * limit) if c else 0.0
    return least


def _next_to_0(column: _Column) -> float:
    return max(column.low or 0.0, 0.0) or min(column.high if column.high is not None else 0.0, 0.0)
