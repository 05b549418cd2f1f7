"""Two steps of post-training side by side: what the second gains, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from planner.base.units import format_seconds, format_usd
from planner.rl import constants
from planner.schema.rl import PLACED, RLPlan, RLPlanSet, layout, replicas


def compared(first: RLPlanSet, second: RLPlanSet) -> dict[str, Any]:
    """What the recommended step of the second document gains over that of the first, for as many tokens; where a law of
    learning is stated, for as much learning.
    """
    one = first.plans[0]
    two = second.plans[0]
    steps = _times(two) / _times(one)
    gain = two.tokens_per_s / one.tokens_per_s / steps
    half = constants.fitted().difference
    paid = None
    if one.usd_per_step is not None and two.usd_per_step is not None:
        paid = steps * (two.usd_per_step / second.work.tokens) / (one.usd_per_step / first.work.tokens)
    return {
        "kind": "rl-comparison",
        "schema_version": 1,
        "questions": list(_questions(first, second)),
        "fits": [answer.fits is not False for answer in (first, second)],
        "gain": gain,
        "low": gain * math.exp(-half),
        "high": gain * math.exp(half),
        "distinguishable": abs(math.log(gain)) > half,
        "usd": paid,
        "differing": [list(row) for row in _rows(one, two) if row[1] != row[2]],
    }


def sentence(gain: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    ends = f"80 %: {_more(gain['low'])} to {_more(gain['high'])}"
    sure = "" if gain["distinguishable"] else "; which is faster is not certain"
    paid = "" if gain["usd"] is None else f", {abs(gain['usd'] - 1):.1%} {'cheaper' if gain['usd'] <= 1 else 'dearer'}"
    speed = f"{abs(gain['gain'] - 1):.1%} {'faster' if gain['gain'] >= 1 else 'slower'}"
    return f"{speed} ({ends}{sure}){paid}"


def _times(plan: RLPlan) -> float:
    """Steps that learning needs over those in step, as the user states it."""
    return plan.learning_step_s / plan.step_s


def _more(ratio: float) -> str:
    return f"{ratio - 1:+.0%}"


def _questions(first: RLPlanSet, second: RLPlanSet) -> Iterator[str]:
    """Why two documents do not answer one question."""
    names = {"model": "models", "task": "tasks", "prompt_tokens": "lengths", "response_mean": "lengths",
             "response_cap": "lengths", "prompts": "prompts", "samples": "samples", "updates": "updates",
             "reference": "references", "critic": "critics", "reward": "reward models"}  # fmt: skip
    notes = [what for name, what in names.items() if getattr(first.work, name) != getattr(second.work, name)]
    notes += ["engines"] if first.engine != second.engine else []
    notes += ["machines"] if first.pools != second.pools else []
    yield from dict.fromkeys(notes)


def _rows(one: RLPlan, two: RLPlan) -> Iterator[tuple[str, str, str]]:
    """Name and both texts of what a step is."""
    yield "placement", PLACED[one.placement], PLACED[two.placement]
    yield "staleness", f"{one.staleness:g}", f"{two.staleness:g}"
    yield "training", layout(one), layout(two)
    yield "rollout", replicas(one), replicas(two)
    for name in vars(one.phases):
        seconds = getattr(one.phases, name), getattr(two.phases, name)
        if max(seconds) > 0.005:
            label = "overlapping" if name == "hidden_s" else name.removesuffix("_s").replace("_", "-")
            one_text, two_text = (format_seconds(value) if value > 0.005 else "none" for value in seconds)
            yield label, one_text, two_text
    yield "steps of learning", f"{_times(one):.4g} x", f"{_times(two):.4g} x"
    yield "step", format_seconds(one.step_s), format_seconds(two.step_s)
    if one.usd_per_step is not None and two.usd_per_step is not None:
        yield "a step", format_usd(one.usd_per_step), format_usd(two.usd_per_step)
