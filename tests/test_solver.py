"""The solver module against answers known by hand or by trying all, in every way in which solving ends.

`make test-matrix` runs these with PuLP 3 and PuLP 4: nothing here names either.
"""

import itertools
import math
import os
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest

from planner.base import solver
from planner.base.errors import ClusterwrightError
from planner.base.solver import Linear, Problem, Status, dot, total
from tests.sweeps import sweep


def knapsack(seed: int, items: int, rows: int, *, low: int = 0) -> tuple[Problem, list[list[int]], list[int]]:
    """The most of what items are worth, within the room of every row; and its figures."""
    r = random.Random(seed)
    worth = [r.randint(50, 99) for _ in range(items)]
    sizes = [[r.randint(20, 90) for _ in range(items)] for _ in range(rows)]
    problem = Problem()
    x = [problem.integer(f"x{i}", low, 5) for i in range(items)]
    for row, size in enumerate(sizes):
        problem.constrain(dot(size, x) <= 120 * items + row, f"room_{row}")
    problem.minimise(-dot(worth, x))
    return problem, sizes, worth


def hard() -> Problem:
    """Branch and bound does not end within a node."""
    return knapsack(1, 40, 8)[0]


@sweep("seed", range(5))
def test_the_optimum_is_that_of_trying_all(seed: int) -> None:
    problem, sizes, worth = knapsack(seed, 4, 2)
    found = problem.solve(gap=0.0)
    fits = [
        sum(w * n for w, n in zip(worth, counts, strict=True))
        for counts in itertools.product(range(6), repeat=4)
        if all(sum(s * n for s, n in zip(size, counts, strict=True)) <= 480 + row for row, size in enumerate(sizes))
    ]
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(-max(fits), abs=1e-6)
    assert found.bound == pytest.approx(-max(fits), abs=1e-6)


def test_variables_have_the_kind_and_the_bounds_that_were_given() -> None:
    problem = Problem()
    yes, whole, any_number = (
        problem.binary("yes"),
        problem.integer("whole", -3, 8),
        problem.continuous("any", None, 2.5),
    )
    problem.constrain(2 * whole >= 5, "half")
    problem.constrain(any_number >= -7.25, "floor")
    problem.minimise(whole + any_number - yes)
    found = problem.solve(gap=0.0)
    assert [found.value(x) for x in (yes, whole, any_number)] == [1.0, 3.0, -7.25]
    problem.minimise(-any_number - whole + yes)
    assert [problem.solve(gap=0.0).value(x) for x in (yes, whole, any_number)] == [0.0, 8.0, 2.5]


def test_sums_are_what_they_say() -> None:
    problem = Problem()
    x, y = problem.continuous("x", 3, 3), problem.continuous("y", 5, 5)
    sums = {
        "x + y": (x + y, 8), "1 - x": (1 - x, -2), "1 + x": (1 + x, 4), "x - y - 1": (x - y - 1, -3), "-x": (-x, -3),
        "2 (x + 1)": (2 * (x + 1), 8), "(x + y) / 4": ((x + y) / 4, 2), "x - x": (x - x, 0), "0 x": (0 * x, 0),
        "numpy": (np.float64(2) * x + np.float64(1), 7), "total": (total([x, y, x, 1.5]), 12.5),
        "nothing": (total(()), 0), "dot": (dot(np.array([2, 3]), [x, y]), 21),
    }  # fmt: skip
    problem.constrain(x + y <= 8, "both")
    found = problem.solve()
    assert {name: found.value(expression) for name, (expression, _) in sums.items()} == {
        name: value for name, (_, value) in sums.items()
    }
    assert found.value(4) == 4.0
    assert (np.float64(3) >= x).sense == "<="
    with pytest.raises(ValueError, match="zip"):
        dot([1.0], [x, y])
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(0 <= x <= 1)


@sweep("constant", [0.0, 100.0, -1e6])
def test_the_objectives_constant_is_in_its_value_and_in_its_bound(constant: float) -> None:
    problem = Problem()
    n = problem.integer("n")
    problem.constrain(2 * n >= 3, "enough")
    problem.minimise(n + constant)
    found = problem.solve(gap=0.0)
    assert (found.objective, found.bound) == pytest.approx((2 + constant, 2 + constant))


def test_an_optimum_within_a_gap_says_what_was_proven() -> None:
    exact = hard().solve(gap=1e-4, max_nodes=20_000).objective
    found = hard().solve(gap=0.2)
    assert found.status is Status.OPTIMAL
    assert found.bound <= exact + 1e-6 and exact <= found.objective + 1e-6
    assert found.objective - found.bound <= 0.2 * abs(found.objective)


def test_what_is_found_at_a_limit_is_feasible_with_its_bound() -> None:
    found = hard().solve(gap=0.0, max_nodes=1)
    assert found.status is Status.FEASIBLE
    assert -math.inf < found.bound < found.objective < 0
    assert found.values == hard().solve(gap=0.0, max_nodes=1).values  # a number of nodes, so that answers repeat


@pytest.mark.parametrize("limit", [{"max_nodes": 0}, {"time_limit_s": 0.0}], ids=str)
def test_nothing_found_at_a_limit_is_neither_an_answer_nor_a_refusal(limit: dict[str, float]) -> None:
    problem, *_ = knapsack(1, 40, 8)
    problem.constrain(total(Linear({f"x{i}": 7.0 + i}) for i in range(40)) == 1234, "exactly")
    found = problem.solve(gap=0.0, **limit)  # type: ignore[arg-type]
    assert found.status is Status.UNKNOWN and not found.status.found and not found.values
    assert found.objective == math.inf and found.bound < 0


@pytest.mark.parametrize("whole", [False, True])
def test_what_cannot_be_is_infeasible(whole: bool) -> None:
    problem = Problem()
    x, y = (problem.integer if whole else problem.continuous)("x"), problem.continuous("y")
    problem.constrain(x + y <= 1, "little")
    problem.constrain(x - y >= 2, "much")
    problem.minimise(-x - y)
    found = problem.solve()
    assert (found.status, found.objective, found.bound) == (Status.INFEASIBLE, math.inf, math.inf)


@pytest.mark.parametrize("whole", [False, True])
def test_what_has_no_end_is_unbounded(whole: bool) -> None:
    """HiGHS says "unbounded or infeasible" of the one with whole numbers, and PuLP 3 "infeasible"."""
    problem = Problem()
    x, y = (problem.integer if whole else problem.continuous)("x"), problem.continuous("y")
    problem.constrain(x - y <= 1, "near")
    problem.minimise(-x - y)
    found = problem.solve()
    assert (found.status, found.objective, found.bound) == (Status.UNBOUNDED, -math.inf, -math.inf)


def test_a_constraint_without_variables_counts() -> None:
    for most, status in ((1, Status.OPTIMAL), (-1, Status.INFEASIBLE)):
        problem = Problem()
        problem.constrain(total(()) <= most, "empty")
        problem.minimise(7)
        found = problem.solve()
        assert (found.status, found.objective) == (status, 7.0 if most > 0 else math.inf)


def test_a_variable_that_nothing_depends_on_is_next_to_0() -> None:
    problem = Problem()
    free = [
        problem.continuous(f"free{i}", *bounds) for i, bounds in enumerate(((0, 9), (2, 9), (-9, -3), (None, None)))
    ]
    used = problem.binary("used")
    problem.minimise(used + 0 * free[1])
    assert [problem.solve().value(x) for x in (*free, used)] == [0.0, 2.0, -3.0, 0.0, 0.0]


ODD = [
    "a-b",
    "a_b",
    "a b",
    "a+b",
    "[a]",
    "a>b",
    "a/b",
    "_a",
    "a:b",
    "größe",
    "2",
    "",
    "x" * 300,
    "c00000000",
    "__dummy",
]


def test_names_may_hold_any_characters() -> None:
    problem = Problem()
    for i, name in enumerate(ODD):
        problem.constrain(problem.integer(name) >= i + 0.5, name)
    problem.minimise(total(Linear({name: 1.0}) for name in ODD))
    assert problem.solve(gap=0.0).values == {name: i + 1.0 for i, name in enumerate(ODD)}


def test_names_are_given_once_and_numbers_are_finite() -> None:
    problem = Problem()
    x = problem.binary("x")
    problem.constrain(x >= 0, "row")
    with pytest.raises(ValueError, match="two variables are called 'x'"):
        problem.continuous("x")
    with pytest.raises(ValueError, match="two constraints are called 'row'"):
        problem.constrain(x <= 1, "row")
    with pytest.raises(ValueError, match="'most': 'y' is no variable"):
        problem.constrain(Problem().binary("y") <= 1, "most")
    for odd in (math.nan, math.inf):
        with pytest.raises(ValueError, match="the objective: 'x' is"):
            problem.minimise(odd * x)
        with pytest.raises(ValueError, match="'most': 'the constant' is"):
            problem.constrain(x <= odd, "most")


def test_among_equal_optima_names_decide_not_the_order_of_asking() -> None:
    """The releases of PuLP order columns differently, and HiGHS takes the first of equals."""

    def taken(order: list[int]) -> dict[str, float]:
        problem = Problem()
        x = {i: problem.binary(f"x{i}") for i in order}
        problem.constrain(total(x[i] for i in order) == 2, "two")
        problem.minimise(total(x[i] for i in reversed(order)))
        assert list(solver._handed_over(problem, problem.objective)[1]) == [f"x{i}" for i in range(5)]
        return dict(problem.solve(gap=0.0).values)

    assert taken([0, 1, 2, 3, 4]) == taken([4, 2, 0, 3, 1])


def test_nothing_is_printed_or_warned_of() -> None:
    told = (
        "from planner.base.solver import Problem; p = Problem(); x = p.integer('x'); p.constrain(2 * x >= 3, 'r'); "
        "p.minimise(x); assert p.solve().objective == 2; p.solve(max_nodes=0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", told], env=environment, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.skipif(not solver.installed("cbc"), reason="PuLP 4 brings no CBC")
def test_cbc_agrees() -> None:
    infeasible = Problem()
    x = infeasible.integer("x", high=3)
    infeasible.constrain(2 * x == 5, "odd")
    infeasible.minimise(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = knapsack(3, 4, 2)[0].solve(gap=0.0, solver="cbc")
        assert infeasible.solve(solver="cbc").status is Status.INFEASIBLE
    with_highs = knapsack(3, 4, 2)[0].solve(gap=0.0)
    assert (found.status, found.objective, found.bound) == pytest.approx(
        (with_highs.status, with_highs.objective, with_highs.bound), abs=1e-6
    )


def test_cbc_serves_where_highs_is_missing_and_what_to_install_is_said_where_both_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if solver.installed("cbc"):
        with monkeypatch.context() as patched:
            patched.setattr(solver, "installed", lambda name: name == "cbc")
            assert knapsack(3, 4, 2)[0].solve().status is Status.OPTIMAL
    monkeypatch.setattr(solver, "installed", lambda name: False)
    with pytest.raises(ClusterwrightError, match=r"^highs is not installed.*pip install highspy$"):
        hard().solve()


def test_a_relaxed_program_tells_what_a_unit_of_what_is_0_costs() -> None:
    problem = Problem()
    x, y = problem.integer("x", high=4), problem.integer("y", high=4)
    problem.constrain(2 * x + 2 * y >= 3, "demand")
    problem.minimise(2 * x + 5 * y)
    whole, any_, half = (each.solve(gap=0.0) for each in (problem, problem.relaxed(), problem.relaxed({"x"})))
    assert (whole.objective, any_.objective, half.objective) == (4.0, 3.0, 3.0)
    assert any_.reduced == {"x": 0.0, "y": 3.0} and not whole.reduced and not half.reduced
    assert problem.columns["x"].whole
