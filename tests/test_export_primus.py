"""Primus: what a plan says in an experiment, and what of Primus's own defaults would train otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api
from planner.launchers import bundle, parts, primus
from planner.launchers.benchmark import short
from planner.launchers.bundle import refusals
from planner.schema.plan import Plan
from tests.answered_once import answered_once
from tests.launchers.environments import given
from tests.launchers.spread import Case, expressible, plan

NAMES = json.loads((Path(__file__).parent / "data" / "primus_arguments.json").read_text("utf-8"))
"""Keys of its presets, and of Megatron-LM's parser besides."""
PRIMUS = primus.EXPORTER


def said(whole: Plan, *changed: Any, **given_too: str) -> dict[str, Any]:
    """The experiment."""
    made = bundle(whole, parts("primus"), given("primus") | given_too, *changed)
    found: dict[str, Any] = yaml.safe_load(made.files[primus.NAME])
    return found


def overrides(whole: Plan, **given_too: str) -> dict[str, Any]:
    found: dict[str, Any] = said(whole, **given_too)["modules"]["pre_trainer"]["overrides"]
    return found


@answered_once
def other(model: str, cluster: str, pins: str, runtime: str) -> Plan:
    return api.estimate(model, cluster, pins.split(), runtime=runtime).plans[0]


def test_every_key_is_one_that_is_read() -> None:
    """Primus ignores what neither has: norm_epsilon of its presets, for one, is no argument of this Megatron-LM."""
    known = {*NAMES["presets"], *NAMES["parser"]}
    for asked, whole in expressible("primus"):
        found = overrides(whole)
        assert set(found) <= known, asked
        assert set(primus.SET_BACK) <= set(found), asked
        arguments = {**found, "fp4_recipe": None, "pp_algorithm": None, "patch_primus_pipeline": None}
        assert set(arguments) - set(NAMES["presets"]) <= set(NAMES["parser"]), asked


def test_values_are_the_plans() -> None:
    for asked, whole in expressible("primus"):
        p, shape, found = whole.parallelism, whole.workload.shape, overrides(whole)
        degrees = [found[f"{name}_parallel_size"] for name in ("tensor_model", "pipeline_model", "context")]
        assert degrees == [p.tp, p.pp, p.cp], asked
        sizes = [found["micro_batch_size"], found["global_batch_size"]]
        assert sizes == [whole.batch.micro, whole.batch.global_], asked
        model = [found[name] for name in ("num_layers", "hidden_size", "ffn_hidden_size", "vocab_size", "seq_length")]
        assert model == [shape[n] for n in ("layers", "hidden", "ffn", "vocab")] + [whole.workload.sequence], asked
        assert found["use_distributed_optimizer"] is (p.zero_stage > 0), asked
        assert found["sequence_parallel"] is p.sequence_parallel, asked
        assert found["bf16"] is (whole.precision not in ("fp16", "fp32")), asked
        assert found["add_bias_linear"] is bool(shape["qkv_bias"] and shape["output_bias"]), asked
        assert found["swiglu"] is (shape["activation"] == "swiglu"), asked


def test_an_option_becomes_what_the_parser_keeps() -> None:
    argv = ("--no-bias-gelu-fusion", "--window-size", "(127,0)", "--window-attn-skip-freq", "([1]*2+[0]*1)")
    argv += ("--cp-comm-type", "p2p", "--recompute-modules", "mlp", "moe_act", "--lr", "1.0e-4", "--no-rope-freq", "4")
    argv += ("--data-path", "1e5", "--norm-epsilon", "1e-05", "--moe-layer-freq", "([0]*1+[1]*26)", "--swiglu")
    assert dict(primus._as_kept(argv)) == {
        **{"bias_gelu_fusion": False, "window_size": [127, 0], "window_attn_skip_freq": [1, 1, 0]},
        **{"cp_comm_type": ["p2p"], "recompute_modules": ["mlp", "moe_act"], "lr": 1e-4, "no_rope_freq": 4},
        **{"data_path": ["1e5"], "layernorm_epsilon": 1e-5, "moe_layer_freq": "([0]*1+[1]*26)", "swiglu": True},
    }


@pytest.mark.parametrize(
    ("model", "pins", "expected"),
    [
        ("llama2-7b", "tp=8 pp=4 micro=1 recompute=none schedule=zero-bubble", "zero-bubble"),
        ("llama3.1-8b", "pp=4 tp=2 schedule=zbv", "zbv-formatted"),
        ("llama3.1-8b", "", None),
    ],
)
def test_schedules_are_those_of_its_own_pipeline(model: str, pins: str, expected: str | None) -> None:
    """Which overlaps no gradients, and goes in a V over two chunks."""
    found = overrides(plan(Case("primus", model, "mi300x-8:4", pins)))
    assert found.get("pp_algorithm") == expected
    assert found.get("patch_primus_pipeline", False) is (expected is not None)
    assert expected is None or not found.get("overlap_grad_reduce")
    chunks = found.get("pipeline_model_parallel_layout", "").count("|") + 1
    assert expected != "zbv-formatted" or 2 in (found.get("num_virtual_stages_per_pipeline_rank"), chunks / 4)


def test_mxfp4_is_its_own() -> None:
    found = overrides(plan(Case("primus", "llama3.1-8b", "mi355x-8:1", "precision=mxfp4")))
    assert (found["bf16"], found["fp4"], found["fp4_recipe"]) == (True, "e2m1", "mxfp4")


def test_a_stopped_job_goes_on_where_primus_saves() -> None:
    """Which is under its workspace, wherever it is told to save; data are no corpus that its hooks would fetch."""
    whole = plan(Case("primus", "llama3.1-8b", "mi300x-8:1", "tp=2"))
    experiment, found = said(whole, save="/out/"), overrides(whole, save="/out/")
    path = [experiment[name] for name in ("workspace", "work_group", "user_name", "exp_name")]
    assert found["load"] == found["save"] == "/".join([path[0].rstrip("/"), *path[1:], "checkpoints"])
    assert (found["finetune"], found["exit_on_missing_checkpoint"]) == (False, False)
    assert found["train_data_path"] == ["/given/data-path"]
    assert "data_path" not in found


def test_nodes_and_ranks_reach_its_program() -> None:
    whole = plan(Case("primus", "llama3.1-8b", "mi300x-8:4", "zero=2"))
    made = bundle(whole, parts("primus+slurm"), given("primus") | {"primus-cli": "/opt/Primus/runner/primus-cli"})
    script = made.files["start.sh"].splitlines()
    command = made.files["start.sh"].partition("\nexec ")[2].replace("\\", "").split()
    assert {"export NNODES=4", "export GPUS_PER_NODE=8", "export MASTER_PORT=29500"} <= set(script)
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=8" in script
    start = '/opt/Primus/runner/primus-cli direct --script "$PWD/plan_check.py" -- train pretrain'
    assert " ".join(command) == f'{start} --config "$PWD/primus.yaml"'


def test_what_is_given_besides_and_contradicts_is_said() -> None:
    whole = plan(Case("primus", "llama3.1-8b", "mi300x-8:1", "tp=2"))
    made = bundle(whole, parts("primus"), given("primus") | {"extra-args": "train_iters=7 seed=3"})
    (lost,) = [loss for loss in made.losses if loss.field == "extra-args"]
    assert "train_iters 7 overrides" in lost.why


def test_fifty_steps_read_no_data_and_save_nothing() -> None:
    whole = plan(Case("primus", "llama3.1-8b", "mi300x-8:1", "tp=2"))
    made = bundle(whole, parts("primus"), {}, short)
    found = yaml.safe_load(made.files[primus.NAME])["modules"]["pre_trainer"]["overrides"]
    assert (found["train_iters"], found["mock_data"], found["train_data_path"], found["save"]) == (50, True, None, None)
    assert set(found) <= {*NAMES["presets"], *NAMES["parser"]}
    assert not made.missing


def test_other_makers_are_refused() -> None:
    assert "accelerators of amd" in "; ".join(refusals(other("llama3-8b", "dgx-h100:1", "", "megatron-core"), PRIMUS))


def test_plans_of_megatron_are_taken_with_what_changes() -> None:
    whole = other("llama3.1-8b", "mi300x-8:2", "tp=2", "megatron-core")
    losses = {loss.field: loss.why for loss in bundle(whole, parts("primus"), given("primus")).losses}
    assert "plan for primus" in losses["runtime"]
