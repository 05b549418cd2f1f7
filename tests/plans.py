"""Plans as the program makes them, each made once a session: what tests of later rooms start from."""

from typing import Any

from planner import api
from planner.schema.plan import PlanSet
from tests.answered_once import answered_once

QUESTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": (
        "llama3-70b",
        "dgx-h100:16",
        {
            "deadline": "90000 h",
            "max_cost": "$900M",
            "pin": ("tp=4", "pp=4", "vpp=5", "cp=2", "micro=1", "offload=none"),
        },
    ),
    "multi-head": ("gpt3-175b", "dgx-a100-80gb:64", {}),
    "mixture": ("mixtral-8x7b", "dgx-h100:32", {"pin": ("tp=1", "pp=4", "vpp=4")}),
    "latent-cheap-start": ("kimi-k2", "dgx-h100:256", {}),
    "latent": ("deepseek-v3", "dgx-h100:64", {"pin": ("tp=1", "cp=1")}),
    "alternating-mixture": ("llama4-maverick", "dgx-h100:128", {}),
    "windows": ("gpt-oss-120b", "dgx-h100:16", {"pin": ("tp=1", "cp=1")}),
    "node-shards": ("llama3-70b", "dgx-h100:16", {"pin": ("zero_scope=node", "tp=2", "pp=4")}),
    "lora": ("llama2-70b", "dgx-h100:1", {"method": "lora", "pin": ("tp=1", "pp=1")}),
    "stages-inside": ("llama3-70b", "dgx-h100:16", {"pin": ("rank_order=tp-cp-ep-pp-dp", "zero_scope=node")}),
    "fsdp": ("llama3-8b", "dgx-h100:8", {"runtime": "fsdp2"}),
    "short-stages": ("llama3-70b", "dgx-h100:16", {"pin": ("pp=32",)}),
    "offload": ("llama3-70b", "dgx-h100:16", {"pin": ("offload=optimizer", "recompute=block:0.5"), "precision": "fp8"}),
    "head-counted": ("llama3-8b", "dgx-h100:8", {"runtime": "nanotron", "pin": ("pp=8",)}),
    "encoder-decoder": ("t5-large", "dgx-a100-40gb:2", {}),
    "tied": ("gpt2", "dgx-a100-40gb:1", {}),
    "vision": ("vit-l16", "dgx-a100-40gb:2", {}),
    "tied-stages": ("gpt2", "dgx-a100-40gb:1", {"pin": ("pp=4",)}),
    "old": ("opt-1.3b", "dgx-v100:4", {"runtime": "deepspeed"}),
    "encoder": ("bert-large", "dgx-a100-40gb:4", {}),
}
"""Name -> model, cluster, and what else is asked. Of every two the first, which CI asks, meet each class."""


@answered_once
def plans(name: str) -> PlanSet:
    """The answer to one of the questions."""
    model, cluster, asked = QUESTIONS[name]
    return api.plan(model, cluster, **asked)
