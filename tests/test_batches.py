"""Which global batch: by goodput where a noise scale is known, by throughput with a note where not."""

import pytest

from planner import api
from planner.mixed import global_batch
from planner.rebalancing import batch_choice
from tests.asking import ask
from tests.sweeps import sweep

CLUSTER = "t4-4:2"


def test_tokens_grow_as_samples_lose_worth() -> None:
    """The tokens for the same progress, times a sample's worth, are the same at every batch."""
    for batch in (64, 128, 4096):
        grown = global_batch.tokens_for(1e9, batch, 64, 500.0)
        assert grown * float(batch_choice.efficiency(batch, 64, 500.0)) == pytest.approx(1e9)
    assert global_batch.tokens_for(1e9, 4096, 64, 1e12) == pytest.approx(1e9, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "clusters", [(CLUSTER,), pytest.param((CLUSTER, "ws-4xrtx6000:1"), marks=pytest.mark.thorough)]
)
def test_a_small_noise_scale_takes_a_small_batch_a_large_one_a_large(clusters: tuple[str, ...]) -> None:
    asked = {"batch": "32|512", "pin": ("tp=1", "pp=1")}
    small = api.plan("bert-base", clusters, noise_scale="1", **asked)
    large = api.plan("bert-base", clusters, noise_scale="1M", **asked)
    fast = api.plan("bert-base", clusters, **asked)
    assert small.plans[0].batch.global_ == 32
    assert large.plans[0].batch.global_ == fast.plans[0].batch.global_ > 32
    assert [p.rank for p in small.plans] == list(range(1, len(small.plans) + 1))
    assert any("more for the same progress" in line for line in small.reasons.why_not)
    assert small.plans[0].assumptions[0].flag == "--noise-scale"
    assert any(a.flag == "--noise-scale" and "no noise scale" in a.why for a in fast.plans[0].assumptions)


@sweep("text", ["0", "-5", "much"])
def test_a_noise_scale_is_a_number_of_sequences(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, f"plan gpt2 --cluster {CLUSTER} --batch 8..16 --noise-scale={text}")
    assert found.code == 2 and "--noise-scale" in found.err


def test_estimators_are_chosen_by_name() -> None:
    assert batch_choice.estimator("cannikin") is batch_choice.cannikin
    assert batch_choice.estimator("pooled") is batch_choice.pooled
    with pytest.raises(ValueError, match="pooled and cannikin"):
        batch_choice.estimator("anova")
