"""`evaluate_many`: the figures and the refusals of `estimate`, for each of many configurations."""

from typing import Any

import pytest

import clusterwright as cw
from benchmarks import many_configurations
from planner.schema.listings import EvaluatedConfiguration
from tests.sweeps import depth, sweep

FIGURES = ("step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s", "mfu", "memory_bytes",
           "memory_capacity_bytes", "oom_chance", "days", "usd")  # fmt: skip
MIXTURE = (
    *("tp=2 pp=8 ep=8", "tp=4 pp=16 ep=32 micro=2 zero=0 recompute=full", "tp=3 ep=8", "tp=8 pp=2 zero=2 ep=8"),
    *("tp=1 pp=8 vpp=4 ep=16 schedule=zbv", "ep=64 dispatcher=deepep graphs=modules precision=fp8", "ep=64 tq=8"),
    *("tp=2 pp=4 vpp=2 ep=8 recompute=selective:layernorm+moe_act micro=2", "ep=64 pp=8 offload=optimizer:0.5"),
    *("tp=2|4", "ep=64 pp=16 schedule=zbv recompute=full", "ep=64 attention_kernel=triton", "pp=8 dp=64 ep=64"),
)
DENSE = ("micro=2", "tp=8", "zero=3 recompute=full micro=4", "zero=0", "cp=2 zero=1", "pp=2", "micro=7", "cp=8 tp=2")
CASES: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "mixture": ("deepseek-v3", "dgx-h100:64", MIXTURE, {"price": 2.0}),
    "any runtime, one accelerator": ("gpt2", "dgx-h100:1", DENSE, {"runtime": "any", "batch": 64}),
    "adapters": ("llama3-8b", "dgx-h100:1", DENSE, {"method": "qlora", "batch": 64}),
}


def assert_as_alone(each: EvaluatedConfiguration, model: str, cluster: str, asked: dict[str, Any]) -> None:
    """Sums of columns may round otherwise in the last place; reasons are word for word."""
    expected = alone(model, cluster, each.configuration, asked)
    said = {name: getattr(each, name) for name in expected}
    assert said == {
        k: pytest.approx(v, rel=1e-14) if k in FIGURES and v is not None else v for k, v in expected.items()
    }


def alone(model: str, cluster: str, settings: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What `estimate` says of one configuration."""
    try:
        plans = cw.estimate(model, cluster, settings, **asked)
    except cw.ClusterwrightError as error:
        return dict.fromkeys(FIGURES) | {"reason": str(error), "fits": False}
    return {name: plans[0].row()[name] for name in FIGURES} | {"reason": None, "fits": plans.search.feasible > 0}


@sweep("name", CASES)
def test_many_have_the_figures_and_refusals_of_each_alone(name: str) -> None:
    """In the order asked; some are refused, and some do not fit."""
    model, cluster, settings, asked = CASES[name]
    many = cw.evaluate_many(model, cluster, settings, **asked)
    assert [each.configuration for each in many] == list(settings)
    for each in many:
        assert_as_alone(each, model, cluster, asked)
    assert any(each.reason for each in many) and any(each.fits for each in many)


@pytest.mark.slow
@pytest.mark.parametrize("model, cluster", [*many_configurations.JOBS, ("qwen3-30b-a3b", "dgx-h100:2")])
def test_many_drawn_at_random_are_as_each_alone(model: str, cluster: str) -> None:
    settings = many_configurations.drawn(mixture="llama" not in model)[: depth(150, 40)]
    for each in cw.evaluate_many(model, cluster, settings, batch=1024):
        assert_as_alone(each, model, cluster, {"batch": 1024})


def test_axes_are_texts_or_mappings_and_the_answer_is_a_table() -> None:
    many = cw.evaluate_many("llama3-8b", "dgx-h100:1", [{"tp": 8, "micro": 2}, "tp=8,micro=2"], batch=64)
    assert many[0].configuration == "tp=8 micro=2"
    assert many[0].step_time_s == many[1].step_time_s == many.to_frame()["step_time_s"][0]
    assert not cw.evaluate_many("llama3-8b", "dgx-h100:1", [])


def test_what_configurations_share_is_refused_at_once() -> None:
    with pytest.raises(cw.WrongQuestion, match="of one pool"):
        cw.evaluate_many("llama3-8b", ["dgx-h100:1", "dgx-a100-80gb:1"], ["tp=8"])
    with pytest.raises(cw.WrongQuestion, match="Did you mean"):
        cw.evaluate_many("llama3-8B", "dgx-h1000:1", ["tp=8"])
