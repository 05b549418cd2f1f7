"""Intervals of step times: the terms that add up, what they are called, and that they are found where they were put."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from planner import catalog
from planner.figures import conformal_intervals, step_time_interval
from planner.figures.conformal_intervals import Width
from planner.figures.step_time_interval import Situation
from tests.sweeps import sweep

PLAIN = Situation(generation="hopper", precision="bf16", kind="dense", runtime="megatron-core", sequence=8192)
KNOWN = {
    step_time_interval.RUN: Width(0.08, 100),
    step_time_interval.LAB: Width(0.12, 8),
    step_time_interval.MIXTURE: Width(0.10, 30),
    step_time_interval.NEW_PART: Width(0.20, 30),
    step_time_interval.FRAMEWORK: Width(0.12, 30),
    step_time_interval.FINE_TUNING: Width(0.15, 30),
    step_time_interval.QUANTILE: Width(1.2, 100),
    **step_time_interval.support([PLAIN, replace(PLAIN, kind="moe")]),
}


def half(*sds: float) -> float:
    return 1.2 * math.sqrt(sum(sd * sd for sd in (0.08, 0.12, *sds)))


@sweep(
    ("changed", "more", "reason"),
    [
        ({}, (), ""),
        ({"kind": "moe"}, (0.10,), "mixture of experts"),
        ({"precision": "mxfp8"}, (0.20,), "no run on hopper in mxfp8"),
        ({"generation": "cdna3"}, (0.20,), "no run on cdna3 in bf16"),
        ({"runtime": "nanotron"}, (0.12,), "no run under nanotron on hopper"),
        ({"framework": "internevo"}, (0.12,), "no run under internevo on hopper"),
        ({"runtime": "nanotron", "generation": "trainium"}, (0.20,), "no run on trainium in bf16"),
        ({"method": "lora"}, (0.15,), "fine-tuning"),
        ({"sequence": 1_048_576}, (0.15,), "sequences beyond 262,144 tokens"),
        ({"kind": "moe", "precision": "fp8", "runtime": "x"}, (0.10, 0.20, 0.12), "no run on hopper in fp8, no run un"),
    ],
)
def test_variances_add_up_and_say_why(changed: dict[str, object], more: Sequence[float], reason: str) -> None:
    found, said = step_time_interval.half_width(KNOWN, replace(PLAIN, **changed))  # type: ignore[arg-type]
    assert found == pytest.approx(half(*more))
    assert said.startswith("no run of yours") and reason in said


def test_own_runs_take_the_place_of_the_lab_and_of_what_was_new() -> None:
    new = replace(PLAIN, kind="moe", generation="cdna3", runtime="mine")
    known = KNOWN | {new.site: Width(0.05, 4)}
    assert step_time_interval.half_width(known, new) == (pytest.approx(1.2 * 0.05), "4 own runs")
    assert step_time_interval.half_width(KNOWN | {new.site: Width(0.05, 1)}, new)[1] == "1 own run"
    long = replace(new, sequence=10**6)
    assert step_time_interval.half_width(known, long)[0] == pytest.approx(1.2 * math.hypot(0.05, 0.15))
    assert step_time_interval.half_width(known, PLAIN)[0] == pytest.approx(half())


def test_the_shipped_terms_are_all_there_and_no_less_than_assumed() -> None:
    shipped = conformal_intervals.read(catalog.load())
    for name, least in step_time_interval.ASSUMED.items():
        assert shipped[name].half >= least if name in shipped else name == step_time_interval.LONG
    assert shipped[step_time_interval.QUANTILE].half >= step_time_interval.LEAST_LEVEL
    assert {
        step_time_interval.RUN,
        step_time_interval.LAB,
        step_time_interval.QUANTILE,
        step_time_interval.MEASURED + PLAIN.part,
    } <= shipped.keys()


# ---- fitting ---------------------------------------------------------------------------------------------------------

LABS, EACH = 60, 30


def made(seed: int, lab: float = 0.2, run: float = 0.08, mixture: float = 0.0):
    """Residuals of labs with a bias each, half of whose runs are mixtures with a further bias."""
    rng = np.random.default_rng(seed)
    kinds = ["dense", "moe"] * (EACH // 2) if mixture else ["dense"] * EACH
    labs = [f"lab {i}" for i in range(LABS) for _ in range(EACH)]
    bias, more = np.repeat(rng.normal(0, lab, LABS), EACH), np.repeat(rng.normal(0, mixture, LABS), EACH)
    mixed = np.array(kinds * LABS) == "moe"
    residuals = bias + more * mixed + rng.normal(0, run, LABS * EACH)
    return residuals, [replace(PLAIN, kind=kind) for kind in kinds * LABS], labs


def test_what_was_put_in_comes_out() -> None:
    residuals, situations, labs = made(1)
    found = step_time_interval.fitted(residuals, situations, labs)
    assert (
        found[step_time_interval.LAB].half == pytest.approx(0.2, rel=0.2) and found[step_time_interval.LAB].runs == LABS
    )
    assert found[step_time_interval.RUN].half == pytest.approx(0.08, rel=0.05)
    assert (
        found[step_time_interval.MEASURED + PLAIN.part].runs
        == found[step_time_interval.MEASURED + PLAIN.runtime].runs
        == LABS * EACH
    )
    assert found[step_time_interval.MIXTURE] == Width(step_time_interval.ASSUMED[step_time_interval.MIXTURE], 0)
    assert found[step_time_interval.NEW_PART] == Width(step_time_interval.ASSUMED[step_time_interval.NEW_PART], 0)


def test_the_interval_holds_what_it_says_of_labs_never_seen() -> None:
    found = step_time_interval.fitted(*made(2))
    fresh, situations, _ = made(3)
    width = step_time_interval.half_width(found, situations[0])[0]
    assert np.mean(np.abs(fresh) <= width) == pytest.approx(0.8, abs=0.07)


def test_mixtures_that_were_predicted_worse_get_a_term() -> None:
    found = step_time_interval.fitted(*made(4, mixture=0.5))
    assert found[step_time_interval.MIXTURE].half == pytest.approx(0.5, rel=0.3)
    assert step_time_interval.ASSUMED[step_time_interval.MIXTURE] < 0.5 * 0.8, "not what is assumed at least"
    assert found[step_time_interval.LAB].half == pytest.approx(0.2, rel=0.2), "the others' are not theirs"


def test_every_lab_counts_alike() -> None:
    """One lab that ran ten times as much moves the terms no more than another."""
    residuals, situations, labs = made(5)
    again = [i for i, name in enumerate(labs) if name == "lab 0"] * 10
    found = step_time_interval.fitted(residuals, situations, labs)
    more = step_time_interval.fitted(
        np.concatenate([residuals, residuals[again]]),
        [*situations, *(situations[i] for i in again)],
        [*labs, *(labs[i] for i in again)],
    )
    for name in (step_time_interval.LAB, step_time_interval.RUN, step_time_interval.QUANTILE):
        assert more[name].half == pytest.approx(found[name].half, rel=0.02)


def test_few_labs_make_intervals_that_hold_for_a_further_one() -> None:
    """Of five labs at a time: what they show by themselves holds less than is said of a sixth."""
    fresh, held = made(7)[0].reshape(LABS, EACH), []
    residuals, situations, labs = made(8)
    for first in range(0, LABS, 5):
        rows = slice(first * EACH, (first + 5) * EACH)
        found = step_time_interval.fitted(residuals[rows], situations[rows], labs[rows])
        held.append(np.mean(np.abs(fresh) <= step_time_interval.half_width(found, PLAIN)[0]))
    assert np.mean(held) >= 0.8
    few = step_time_interval.fitted(residuals[: 4 * EACH], situations[: 4 * EACH], labs[: 4 * EACH])
    assert np.all(np.abs(residuals[: 4 * EACH]) <= step_time_interval.half_width(few, PLAIN)[0] * (1 + 1e-12))


def test_few_surprises_do_not_make_intervals_narrower_than_is_known() -> None:
    quiet = step_time_interval.fitted(*made(6, lab=0.01, run=0.01))
    assert quiet[step_time_interval.LAB].half == step_time_interval.ASSUMED[step_time_interval.LAB]
    assert quiet[step_time_interval.QUANTILE].half == step_time_interval.LEAST_LEVEL


def test_runs_that_no_fit_sees_do_not_set_the_level() -> None:
    residuals, situations, labs = made(9)
    found = step_time_interval.fitted(residuals, situations, labs)
    tuned = [replace(each, method="lora") for each in situations]
    both = step_time_interval.fitted(np.concatenate([residuals, 0.01 * residuals]), [*situations, *tuned], labs * 2)
    assert both[step_time_interval.QUANTILE] == found[step_time_interval.QUANTILE]
