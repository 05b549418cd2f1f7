"""Recipes of 8 and 4 bit, and modules recomputed by name: planned, written, and found where a kernel would stop."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts
from planner.schema.plan import Plan
from planner.site import cells, sharing
from planner.verify import violations
from tests.altering import altered
from tests.cases import CATALOG
from tests.launchers.environments import given
from tests.sweeps import sweep


@cache
def estimated(model: str, on: str, *pins: str) -> Plan:
    return api.estimate(model, on, list(pins), batch="64").plans[0]


latent = partial(
    estimated, "deepseek-v2-lite", "dgx-h100:4", "ep=8", "recompute=selective:moe_act+mla_up_proj+layernorm"
)
dense = partial(estimated, "llama3-8b", "dgx-h100:4", "tp=2", "zero=1", "recompute=selective:mlp")
ring = partial(estimated, "llama3-8b", "dgx-h100:4", "cp=2")


def command(plan: Plan) -> str:
    return bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]


@sweep(
    ("on", "precision", "flags"),
    [
        ("dgx-h100:4", "fp8", "--fp8-format hybrid --fp8-recipe tensorwise"),
        ("dgx-h100:4", "fp8-delayed", "--fp8-format hybrid --fp8-recipe delayed"),
        ("dgx-h100:4", "fp8-blockwise", "--fp8-format e4m3 --fp8-recipe blockwise"),
        ("dgx-b200:4", "mxfp8", "--fp8-format e4m3 --fp8-recipe mxfp8"),
        ("dgx-b200:4", "nvfp4", "--fp4-format e2m1 --fp4-recipe nvfp4"),
    ],
)
def test_a_recipe_is_planned_and_written(on: str, precision: str, flags: str) -> None:
    found = estimated("llama3-8b", on, "tp=2", "zero=1", f"precision={precision}")
    assert found.precision == precision and not violations(found)
    assert flags in " ".join(command(found).replace("\\\n", " ").split())


@sweep(
    ("on", "precision"),
    [
        *[("dgx-h100:4", "mxfp8"), ("dgx-h100:4", "nvfp4"), ("dgx-a100-80gb:4", "fp8-blockwise")],
        *[("mi355x-8:4", "nvfp4"), ("mi300x-8:4", "mxfp8")],
    ],
)
def test_a_recipe_goes_to_hardware_that_has_it(on: str, precision: str) -> None:
    with pytest.raises(WrongQuestion, match="has no such matrix products"):
        estimated("llama3-8b", on, f"precision={precision}")


def test_blocks_of_four_bits_in_powers_of_two_are_amds() -> None:
    """Primus trains in MXFP4 on CDNA 4, twice as fast a product as in 8 bit; no other runtime writes it."""
    in_4, in_8 = (
        api.estimate("llama3-8b", "mi355x-8:1", [f"precision={each}"], batch="64", runtime="primus").plans[0]
        for each in ("mxfp4", "fp8")
    )
    assert not violations(in_4)
    assert in_4.prediction.step_time_s < in_8.prediction.step_time_s
    with pytest.raises(WrongQuestion, match="precision mxfp4"):
        bundle(in_4, parts("megatron"), given("megatron"))
    with pytest.raises(WrongQuestion, match="can do that since 2026"):
        api.estimate("llama3-8b", "mi355x-8:1", ["precision=mxfp4"], batch="64", runtime="primus@2024")


def test_modules_are_written_by_name() -> None:
    written = " ".join(command(latent()).replace("\\\n", " ").split())
    assert "--recompute-modules layernorm moe_act mla_up_proj" in written
    assert not violations(latent()) and not violations(dense())


def test_delayed_scaling_excludes_some_modules() -> None:
    with pytest.raises(WrongQuestion, match="does not go with layernorm or moe_act"):
        estimated("deepseek-v2-lite", "dgx-h100:4", "ep=8", "precision=fp8-delayed", "recompute=selective:moe_act")


@sweep(
    ("made", "change", "told"),
    [
        (latent, {"precision": "fp8-delayed"}, "delayed scaling with selective:layernorm+moe_act"),
        (ring, {"precision": "nvfp4"}, "nvfp4 on H100"),
        (dense, {"recompute.policy": "selective:moe_act"}, "which the model does not have"),
        (dense, {"recompute.policy": "selective:mlps"}, "mlps is no module"),
        (dense, {"recompute.policy": "selective:layernorm"}, "which the model does not have"),
        (ring, {"workload.shape.head_dim": 132}, "heads of 132"),
        (ring, {"workload.shape.head_dim": 264}, "heads of 264"),
    ],
)
def test_verify_finds_what_a_kernel_stops_at(made: Callable[[], Plan], change: dict[str, Any], told: str) -> None:
    assert told in str(violations(altered(made(), change)))


def test_the_widest_heads_that_kernels_take_are_256() -> None:
    """Of latent attention the part with positions and the part without count together: 200 + 64."""
    wide = altered(ring(), {"workload.shape.head_dim": 256})
    assert "heads of" not in str(violations(wide))
    alone = altered(dense(), {"workload.shape.head_dim": 264})
    assert "heads of" not in str(violations(alone))
    split = altered(latent(), {"workload.shape.latent.nope_dim": 200, "parallelism.cp": 2})
    assert "heads of 264 elements over cp 2" in str(violations(split))


def test_one_key_value_head_is_left_beyond_their_number() -> None:
    """Over more tensor ranks than there are heads each holds a copy of one, which an exchange cannot cut in two."""
    found = str(violations(altered(ring(), {"parallelism.tp": 16, "parallelism.cp_algorithm": "a2a"})))
    assert "8 key/value heads over tp 16 and 2 ranks that exchange them" in found


def test_mixtures_without_latents_have_norms_to_drop() -> None:
    assert not violations(estimated("qwen3-30b-a3b", "dgx-h100:8", "ep=8", "recompute=selective:layernorm"))


def test_a_run_with_modules_is_known_again() -> None:
    """Its row names them; a log that says selective alone does not contradict it."""
    row = cells.of_plan(latent())
    assert row["activation_recompute"] == latent().recompute.policy
    assert not sharing.wrong("activation_recompute", row["activation_recompute"], CATALOG)
    assert not cells.contradictions({"activation_recompute": "selective"}, row, CATALOG)
    assert cells.contradictions({"activation_recompute": "full"}, row, CATALOG)
