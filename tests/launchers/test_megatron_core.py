"""Without a checkout of Megatron-LM: the published package takes the plan's shape and cuts ranks as the plan does."""

from pathlib import Path
from typing import Any

import pytest

from planner.schema.plan import Plan
from tests.launchers.environments import ask, python
from tests.launchers.spread import expressible


def job(plan: Plan) -> dict[str, Any]:
    """The arguments of the configuration and the groups, as pretrain_gpt.py would derive them from the command."""
    p, shape, moe = plan.parallelism, plan.workload.shape, plan.workload.shape["moe"]
    fields = {
        "num_layers": shape["layers"] - shape["layers"] % p.pp,  # unlike stages need a layout, which a flag carries
        "hidden_size": shape["hidden"],
        "ffn_hidden_size": shape["ffn"],
        "num_attention_heads": shape["heads"],
        "num_query_groups": shape["kv_heads"],
        "kv_channels": shape["head_dim"],
        "tensor_model_parallel_size": p.tp,
        "pipeline_model_parallel_size": p.pp,
        "context_parallel_size": p.cp,
        "expert_model_parallel_size": p.ep,
        "sequence_parallel": p.sequence_parallel,
        "pipeline_dtype": "bf16" if p.pp > 1 else None,
        "num_moe_experts": moe["experts"] if moe else None,
        "add_bias_linear": False,
        "gated_linear_unit": shape["gated"],
        "bf16": True,
    }
    degrees = {name: getattr(p, name) for name in ("tp", "pp", "cp", "ep")}
    degrees["etp"] = p.etp if moe else p.tp
    return {"fields": fields, "degrees": degrees, "order": p.rank_order, "world": plan.cluster.accelerators}


def groups(plan: Plan) -> dict[str, list[int]]:
    """Ranks that rank 0 talks to: the strides that the plan's order of dimensions means."""
    p = plan.parallelism
    inner = p.tp * p.cp
    dp_first = p.rank_order == "tp-cp-ep-dp-pp"
    dp_stride, pp_stride = (inner, inner * p.dp) if dp_first else (inner * p.pp, inner)
    found = {
        "tp": [n for n in range(p.tp)],
        "cp": [n * p.tp for n in range(p.cp)],
        "dp": [n * dp_stride for n in range(p.dp)],
        "pp": [n * pp_stride for n in range(p.pp)],
    }
    etp = p.etp if plan.workload.shape["moe"] else p.tp
    return found | {"ep": [n * etp for n in range(p.ep)]}


def test_ranks_are_cut_as_the_plan_says(tmp_path: Path) -> None:
    python("megatron")
    plans = [(asked, plan) for asked, plan in expressible("megatron") if not plan.workload.shape["latent"]][::3]
    assert len(plans) >= 30
    found = ask("megatron_core", [job(plan) for _, plan in plans], tmp_path)
    for (asked, plan), said in zip(plans, found, strict=True):
        assert "error" not in said, f"{asked}: {said['error']}"
        assert said["values"]["groups"] == groups(plan), asked
        assert said["values"]["heads"] == plan.workload.shape["heads"], asked


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"num_attention_heads": 30}},
        {"degrees": {"tp": 3}},
        {"fields": {"num_query_groups": 3}},
        {"degrees": {"ep": 3}},
        {"world": 100},
    ],
)
def test_what_does_not_divide_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    python("megatron")
    asked, plan = next((a, p) for a, p in expressible("megatron") if "70b" in a and p.parallelism.tp == 4)
    broken = job(plan)
    for key, value in change.items():
        broken[key] = {**broken[key], **value} if isinstance(value, dict) else value
    (said,) = ask("megatron_core", [broken], tmp_path)
    assert "error" in said, f"{asked} with {change}"
