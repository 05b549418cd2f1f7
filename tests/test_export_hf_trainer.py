"""``hf-trainer``: a job of Hugging Face's Trainer with the plan's engine."""

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import yaml

from planner import api
from planner.axes.table import ZERO_SCOPE
from planner.base.errors import WrongQuestion
from planner.launchers import EXPORTERS, bundle, hf_trainer, parts
from planner.launchers.benchmark import short
from planner.launchers.bundle import refusals
from planner.schema.plan import Plan
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from tests.altering import altered
from tests.cases import problem_of
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

NODE = "dgx-h100:4"
sharded = partial(plan, Case("fsdp2", "llama3-8b", NODE, "micro=2 recompute=full"))
engine = partial(plan, Case("deepspeed", "llama3-8b", NODE, "zero=1 recompute=full micro=8"))
replicas = partial(plan, Case("pytorch-ddp", "gpt2", "dgx-a100-80gb:1", "micro=2"))

quantised = partial(plan, Case("hf-trainer", "llama3-8b", "dgx-h100:1", "micro=2", "qlora"))
TUNED = [
    Case("hf-trainer", "llama3-8b", "dgx-h100:1", "micro=2", method) for method in ("qdora", "qlora:fp8", "freeze:2")
]


def files(whole: Plan) -> dict[str, str]:
    return dict(bundle(whole, parts("hf-trainer"), given("hf-trainer")).files)


def options(whole: Plan, **more: Any) -> dict[str, str]:
    made = bundle(whole, parts("hf-trainer"), given("hf-trainer"), **more)
    words = json.loads(made.files["target.json"])["argv"]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_script_is_python_and_reads_every_option_of_its_own() -> None:
    tree = ast.parse(files(sharded())["train.py"])
    own = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "JobArguments")
    fields = {n.target.id for n in own.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    asked = {*options(sharded()), *options(sharded(), changed=short), *options(quantised())}
    asked.update(name for case in TUNED for name in options(plan(case)))
    named = {
        name.removeprefix("--")
        for name in asked
        if name.startswith(("--model_", "--train_file", "--mock", "--bl", "--lora", "--quant", "--trained"))
    }
    assert named == fields


def test_recomputation_is_asked_for_once() -> None:
    """FSDP's is Accelerate's: Transformers stops where both are on."""
    config = yaml.safe_load(files(sharded())["accelerate.yaml"])
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert "--gradient_checkpointing" not in options(sharded())
    assert options(engine())["--gradient_checkpointing"] == "true"


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_was_planned_for_deepspeed_starts_with_it(zero: int) -> None:
    made = files(plan(Case("deepspeed", "llama3-8b", NODE, f"zero={zero}")))
    assert yaml.safe_load(made["accelerate.yaml"])["distributed_type"] == "DEEPSPEED"
    assert json.loads(made["ds_config.json"])["zero_optimization"]["stage"] == zero


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workload.mtp_layers": 1}, "no modules of multi-token prediction"),
        ({"workload.shape.family": "encoder"}, "family encoder (it has decoder)"),
    ],
)
def test_work_that_it_does_not_do_is_refused(change: dict[str, Any], says: str) -> None:
    whole = altered(sharded(), change)
    assert says in "; ".join(refusals(whole, EXPORTERS["hf-trainer"]))


def test_a_benchmark_needs_no_data_and_saves_nothing() -> None:
    found = options(replicas(), changed=short)
    assert found["--mock_data"] == "true" and found["--save_strategy"] == "no"
    assert (found["--max_steps"], found["--logging_steps"]) == ("50", "1")
    assert not found.keys() & {"--train_file", "--output_dir", "--save_steps"}


def test_weights_are_loaded_to_tune_them() -> None:
    tuned = altered(sharded(), {"workload.method": {"kind": "finetune", "rank": 0, "targets": []}})
    assert options(sharded())["--model_untrained"] == "true"
    assert "--model_untrained" not in options(tuned)


# ---- what is written in YAML -----------------------------------------------------------------------------------------

FILES = ("trl", "axolotl", "llama-factory")


def test_replicas_without_wide_weights_are_not_axolotls() -> None:
    assert "replicas in bf16" in "; ".join(refusals(replicas(), EXPORTERS["axolotl"]))
    assert not [*refusals(quantised(), EXPORTERS["axolotl"])]


def test_adapters_that_nobody_can_place_are_refused() -> None:
    method = {**quantised().workload.method, "base": "int8"}
    eight = altered(sharded(), {"workload.method": method, "precision": "bf16"})
    assert "weights in 8 bit cannot be sharded" in "; ".join(refusals(eight, EXPORTERS["hf-trainer"]))
    mixed = plan(Case("hf-trainer", "qwen3-30b-a3b", "dgx-h100:1", "zero=3", "qlora"))
    for name in ("hf-trainer", *FILES):
        assert "adapters of experts" in "; ".join(refusals(mixed, EXPORTERS[name]))


def test_what_frozen_weights_take_under_fsdp_is_told() -> None:
    """16-bit weights that Accelerate shards in 32 bit; those of 4 bit it leaves alone."""
    wide = plan(Case("hf-trainer", "llama3-8b", NODE, "zero=3 micro=2", "lora"))
    (told,) = [loss.why for loss in hf_trainer.trainer_loses(wide) if loss.field == "workload.method"]
    assert told == "Accelerate shards frozen weights in 32 bit: 0.5 GiB more than predicted"
    narrow = plan(Case("hf-trainer", "llama3-8b", NODE, "zero=3 micro=2", "qlora"))
    assert not [loss for loss in hf_trainer.trainer_loses(narrow) if loss.field == "workload.method"]


def test_extra_arguments_are_compared_with_what_a_file_says() -> None:
    for name, extra in (
        ("axolotl", "--micro_batch_size=4"),
        ("llama-factory", "cutoff_len=4096"),
        ("trl", "--lora_r 8"),
    ):
        made = bundle(quantised(), parts(name), given(name) | {"extra-args": extra})
        assert [loss.field for loss in made.losses].count("extra-args") == 1, name


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_scale_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(WrongQuestion, match="lora-alpha"):
        bundle(quantised(), parts("axolotl"), given("axolotl") | {"lora-alpha": value})


@pytest.mark.parametrize(("made", "name"), [(replicas, "adamw_bnb_8bit"), (sharded, "adamw_torch_8bit")])
def test_states_in_8_bit_are_asked_for_by_who_can_hold_them(made: Callable[[], Plan], name: str) -> None:
    """Shards are tensors that bitsandbytes does not take; what stays in 32 bit is told: 6 bytes of 50,257 x 768."""
    whole = made()
    narrow = altered(whole, {"workload.optimizer.id": "adam-8bit"})
    assert options(narrow)["--optim"] == name
    told = [loss.why for loss in EXPORTERS["hf-trainer"].loses(narrow) if "embedding" in loss.why]
    more = "states of the embedding stay in 32 bit, 0.2 GiB more than predicted"
    assert told == ([more] if made is replicas else [])


@pytest.mark.parametrize(
    ("own", "name"), [("paged-adamw", "paged_adamw_32bit"), ("paged-adam-8bit", "paged_adamw_8bit")]
)
def test_paged_states_are_asked_for_where_parameters_are_whole(own: str, name: str) -> None:
    paged = altered(replicas(), {"workload.optimizer.id": own})
    assert options(paged)["--optim"] == name
    assert any("states move to host memory" in loss.why for loss in EXPORTERS["hf-trainer"].loses(paged))
    tuned = altered(quantised(), {"workload.optimizer.id": own})
    for target in ("trl", "axolotl", "llama-factory"):
        assert name in "".join(bundle(tuned, parts(target), given(target)).files.values()), target
    shards = replace(sharded(), workload=paged.workload)
    assert "bitsandbytes takes no shards" in "; ".join(refusals(shards, EXPORTERS["hf-trainer"]))


def test_deepspeed_keeps_its_own_optimizer() -> None:
    narrow = altered(engine(), {"workload.optimizer": {"id": "adam-8bit"}})
    assert "DeepSpeed with optimizer adam-8bit" in "; ".join(refusals(narrow, EXPORTERS["hf-trainer"]))
    assert "DeepSpeed" not in "; ".join(refusals(engine(), EXPORTERS["hf-trainer"]))


def test_shards_inside_nodes_have_replicas_over_them() -> None:
    """HSDP: the search has it since Accelerate has, and four nodes hold four copies."""
    asked = {"method": "full", "batch": 32, "zero": 3, "zero_scope": "node"}
    with pytest.raises(WrongQuestion, match="zero_scope"):
        api.estimate("llama3-8b", NODE, runtime="hf-trainer@2024", **asked)
    found = api.estimate("llama3-8b", NODE, runtime="hf-trainer", **asked)[0]
    config = yaml.safe_load(files(found)["accelerate.yaml"])["parallelism_config"]
    assert found.parallelism.dp_shard == 8
    assert [config[f"parallelism_config_dp_{part}_size"] for part in ("replicate", "shard")] == [4, 8]


def test_hybrid_shards_are_searched_exactly() -> None:
    problem = problem_of("llama3-8b", NODE, runtime="hf-trainer", batches=(128,))
    assert any("node" in block.axes[ZERO_SCOPE] for block in problem.blocks)
    found, every = Bounded().search(problem), Exhaustive().search(problem)
    assert found.proven and found.best == every.best
