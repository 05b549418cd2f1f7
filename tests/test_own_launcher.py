"""A plan on one pool that no launcher of its own runtime writes says so, with who does and what to ask instead."""

import pytest

from planner.launchers.own_launcher import without_own_launcher
from tests.launchers.spread import Case, plan

H100 = "dgx-h100:2"


@pytest.mark.parametrize(
    ("runtime", "model", "says"),
    [
        ("megatron-core", "llama3-8b", ""),
        ("fsdp", "llama3-8b", ""),  # a runtime without a launcher of its own, whose plans others start
        ("megatron-core", "olmo2-13b", "no launcher of megatron-core writes this plan: 2 norms a layer, output"),
        ("megatron-core", "olmo2-13b", "hf-trainer, llama-factory, deepspeed, accelerate can start it, at other times"),
        ("megatron-core", "olmo2-13b", "--runtime hf-trainer plans for one that writes the model"),
        ("megatron-core", "qwen3-next-80b-a3b", "nor does any other as it is"),
    ],
)
def test_what_no_launcher_of_the_runtime_writes_is_said(runtime: str, model: str, says: str) -> None:
    layout = "tp=1 zero=2" if runtime != "fsdp" else "zero=3"
    layout = layout if "next" not in model else "tp=1 ep=16 zero=1"
    stated = without_own_launcher(plan(Case(runtime, model, H100, layout)))

    assert says in stated and bool(says) == bool(stated)
