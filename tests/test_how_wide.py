"""Rules of how wide intervals are, beside each other: what is put in comes out, and the part of the page is one."""

import math

import numpy as np
import pytest

from docs import accuracy_intervals
from docs.accuracy_intervals import NORMAL, RULES, Judged
from planner.figures.conformal_intervals import LEVEL
from tests.sweeps import sweep
from tests.test_step_time_interval import EACH, LABS, PLAIN, made

FEWER = 12
"""Labs that are left out in turn: judging one reads all others."""


@sweep("name", list(RULES)[1:])
def test_narrower_rules_hold_what_they_say_of_labs_like_those_they_know(name: str) -> None:
    """Labs drawn as the known ones were: 80 % of their runs lie inside, no more than some more."""
    half = RULES[name](*made(2))
    fresh, situations, _ = made(3)
    assert np.mean(np.abs(fresh) <= half(situations[0])) == pytest.approx(LEVEL, abs=0.07)


def test_restricted_likelihood_finds_the_variances_that_were_put_in() -> None:
    half = accuracy_intervals.by_components(*made(4, lab=0.15, run=0.08))
    assert half(PLAIN) == pytest.approx(NORMAL * math.hypot(0.15, 0.08), rel=0.12)


@pytest.mark.slow
def test_a_group_is_judged_by_the_others_alone() -> None:
    residuals, situations, labs = (part[: FEWER * EACH] for part in made(5))
    given = Judged(residuals, residuals, situations, labs, labs)
    before = accuracy_intervals.left_out(accuracy_intervals.by_class, given, residuals, labs)
    own = np.array([name == "lab 7" for name in labs])
    after = accuracy_intervals.left_out(accuracy_intervals.by_class, given, np.where(own, 9.0, residuals), labs)
    assert list(before[own]) == list(after[own]) and before[~own].max() < after[~own].max()
    assert len(set(labs)) == FEWER < LABS


def test_the_part_replaces_itself_and_nothing_else() -> None:
    page = f"a\n{accuracy_intervals.BEGIN}\nold\n{accuracy_intervals.END}\nb\n"
    assert accuracy_intervals.refreshed(page, "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no <!-- how wide"):
        accuracy_intervals.refreshed("a\n", "new\n")
