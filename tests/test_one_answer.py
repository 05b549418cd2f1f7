"""One question has one answer: `plan`, `estimate`, `explain` and `compare` say the same interval and release."""

import json
import math
from pathlib import Path

import pytest

from planner import api
from planner.planning import document
from planner.schema.plan import Plan
from tests.asking import ask

QUESTIONS = {
    "llama3-8b": ("dgx-h100:2", {}),
    "llama3-70b": ("dgx-b200:4", {"precision": "fp8"}),
    "mixtral-8x7b": ("dgx-h100:8", {}),
    "gpt2-xl": ("dgx-v100:2", {"precision": "fp16"}),
    "bert-large": ("dgx-a100-80gb:1", {}),
    "deepseek-v3": ("gb200-nvl72:4", {"runtime": "any"}),
}
"""Model -> machines and options: dense, mixtures, encoders, young and old parts, a framework that nobody names."""


@pytest.fixture(scope="module", params=sorted(QUESTIONS))
def asked(request: pytest.FixtureRequest):
    model = request.param
    cluster, options = QUESTIONS[model]
    return model, cluster, options, api.plan(model, cluster, top=2, **options)


def settings(plan: Plan) -> list[str]:
    """A plan's configuration as `estimate` takes it."""
    p, overlap = plan.parallelism, plan.overlap
    values = {
        **{axis: getattr(p, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp")},
        "micro": plan.batch.micro,
        "zero": p.zero_stage,
        "zero_scope": p.zero_scope,
        "rank_order": p.rank_order,
        "recompute": plan.recompute.policy,
        "offload": "optimizer" if plan.offload["optimizer"] else "none",
    }
    switches = {"sequence_parallel": p.sequence_parallel, "tp_overlap": overlap.tp, "dp_overlap": overlap.dp,
                "p2p_overlap": overlap.p2p, "ep_overlap": bool(overlap.ep)}  # fmt: skip
    return [f"{axis}={value}" for axis, value in values.items()] + [
        f"{axis}={'on' if on else 'off'}" for axis, on in switches.items()
    ]


@pytest.mark.slow
def test_estimate_says_of_the_best_plan_what_plan_says(asked) -> None:
    model, cluster, options, found = asked
    best = found.plans[0]
    again = api.estimate(model, cluster, settings(best), **{"precision": best.precision, **options}).plans[0]
    assert again.prediction.step_time_s == pytest.approx(best.prediction.step_time_s, rel=1e-12)
    assert again.prediction.intervals == best.prediction.intervals
    assert again.runtime == best.runtime


def test_explain_prints_the_interval_and_the_release_that_plan_found(asked, tmp_path: Path, capsys) -> None:
    *_, found = asked
    path, interval = tmp_path / "plan.json", found.plans[0].prediction.intervals["step_time_s"]
    path.write_text(document.as_json(found), encoding="utf-8")
    explained, written = json.loads(ask(capsys, f"explain {path} --json").out), document.dump(found)["plans"][0]
    assert explained["prediction"] == written["prediction"] and explained["runtime"] == written["runtime"]
    shown = " ".join(ask(capsys, f"explain {path} --verbose").out.split())
    assert interval.basis.removeprefix("80 %: ").partition("; from ")[0] in shown
    if (old := found.plans[0].runtime.older) is not None:
        assert f"{found.plans[0].runtime.name} {found.plans[0].runtime.release}, the newest; {old.release}:" in shown


def test_a_difference_is_no_less_sure_than_two_independent_predictions(asked) -> None:
    *_, found = asked
    first, second = found.plans[:2]
    compared = api.compare(first, second)
    assert [each.prediction.intervals for each in compared.plans] == [p.prediction.intervals for p in (first, second)]
    ends = [plan.prediction.intervals["step_time_s"] for plan in (first, second)]
    independent = math.hypot(*(math.log(end.high / end.low) for end in ends))
    assert compared.interval is not None
    assert 0.0 < math.log(compared.interval.high / compared.interval.low) <= independent + 1e-9
    assert compared.distinguishable != (compared.interval.low <= 1.0 <= compared.interval.high)


def test_what_widened_the_interval_is_what_it_says(asked) -> None:
    """The plan's own precision and the machines' own generation, not those of another."""
    model, _, _, found = asked
    for plan in found.plans:
        basis = plan.prediction.intervals["step_time_s"].basis
        assert ("mixture of experts" in basis) == (model in ("mixtral-8x7b", "deepseek-v3"))
        if "no run on" in basis:
            assert basis.partition("no run on ")[2].partition(",")[0].partition(";")[0].split()[-1] == plan.precision
