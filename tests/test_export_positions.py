"""Norms and rotary positions: the model's own where they are known, lossy where a launcher has no word for them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts
from planner.launchers.reading import imported_plan
from planner.schema.plan import Plan
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

H100 = "dgx-h100"
DENSE = Case("megatron-core", "llama3-70b", f"{H100}:16", "tp=4 pp=4 vpp=4 cp=2")
SHARDED = Case("fsdp2", "llama3-8b", f"{H100}:2", "tp=2")
QWEN = Case("fsdp2", "qwen3-8b", f"{H100}:4", "tp=2")
STRETCHED = Case("megatron-core", "llama3.1-405b", f"{H100}:64", "tp=8 pp=16 vpp=4")
LATENT = Case("megatron-core", "deepseek-v3", f"{H100}:64", "ep=32 pp=16 tp=1")
OSS = Case("megatron-core", "gpt-oss-20b", f"{H100}:2", "ep=4")
LEARNED = Case("megatron-core", "gpt2", "dgx-a100-80gb:1", "")


def made(whole: Plan | Case) -> Plan:
    """A plan itself, or that of a case."""
    return plan(whole) if isinstance(whole, Case) else whole


def written(whole: Plan | Case, target: str = "megatron", **more: str) -> tuple[dict[str, str], str, dict[str, str]]:
    """Options of the command with the word after each, the module, and what is lossy of the shape."""
    files = bundle(made(whole), parts(target), {**given(target), **{n.replace("_", "-"): v for n, v in more.items()}})
    argv = json.loads(files.files["target.json"])["argv"]
    lost = {loss.field.removeprefix("workload.shape."): loss.why for loss in files.losses}
    return dict(zip(argv, [*argv[1:], ""], strict=True)), files.files.get("plan_config.py", ""), lost


def changed(case: Plan | Case, **shape: Any) -> Plan:
    """The same plan of a model that differs."""
    whole = made(case)
    return replace(whole, workload=replace(whole.workload, shape={**whole.workload.shape, **shape}))


def stretched(case: Plan | Case, **rotary: Any) -> Plan:
    """The same plan of a model with other rotary positions."""
    whole = made(case)
    return changed(whole, rotary={**whole.workload.shape["rotary"], **rotary})


def test_a_model_brings_its_own_base_and_epsilon() -> None:
    """Launchers' defaults differ: Megatron's are 10000 and 1e-5, torchtitan's 10000 and 1e-5."""
    told, _, lost = written(DENSE)
    assert (told["--rotary-base"], told["--norm-epsilon"]) == ("500000", "1e-05")
    assert "--use-rope-scaling" not in told
    assert not lost
    _, module, lost = written(QWEN, "torchtitan")
    assert "theta=1000000.0)" in module
    assert "eps=1e-06," in module
    assert not [field for field in lost if field.startswith(("rotary", "norm"))]


def test_a_base_that_is_set_leads() -> None:
    assert written(DENSE, rotary_base="1e6")[0]["--rotary-base"] == "1000000"
    assert "theta=1000000.0)" in written(SHARDED, "torchtitan", rotary_base="1e6")[1]


def test_learned_positions_have_no_base() -> None:
    assert "--rotary-base" not in written(LEARNED)[0]
    assert not written(LEARNED)[2].keys() & {"rotary", "norm_epsilon"}


@pytest.mark.parametrize(("target", "case"), [("megatron", DENSE), ("torchtitan", SHARDED)])
def test_what_is_not_known_is_told(target: str, case: Case) -> None:
    """As plans written before their models knew it."""
    whole = plan(case)
    told, module, lost = written(changed(whole, rotary=None, norm_epsilon=None), target)
    assert "base 500000 unless --set rotary-base=" in lost["rotary"]
    assert "the launcher's 1e-5 holds" in lost["norm_epsilon"]
    assert told.get("--rotary-base") == "500000" or "theta=500000.0)" in module
    older = {name: value for name, value in whole.workload.shape.items() if name not in ("rotary", "norm_epsilon")}
    assert written(replace(whole, workload=replace(whole.workload, shape=older)), target)[2] == lost


def test_llama_scaling_has_options() -> None:
    told, _, lost = written(STRETCHED)
    assert "--use-rope-scaling" in told
    assert told["--rope-scaling-factor"] == "8.0"
    assert not lost
    module = written(stretched(SHARDED, scaling="llama3", factor=32.0, original=8192), "torchtitan")[1]
    assert 'theta=500000.0, scaling="llama", scaling_factor=32.0' in module.replace("'", '"')
    assert "low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192" in module


def test_a_factor_that_megatron_reads_and_forgets_is_told() -> None:
    """pretrain_gpt.py of both revisions builds the model without --rope-scaling-factor: 8 holds."""
    told, _, lost = written(stretched(STRETCHED, factor=32.0))
    assert told["--rope-scaling-factor"] == "32.0"
    assert "builds with 8" in lost["rotary.factor"]
    assert (
        "4.0 holds, the model has 2.0"
        in written(stretched(STRETCHED, high_freq_factor=2.0))[2]["rotary.high_freq_factor"]
    )


def test_yarn_goes_with_latent_attention() -> None:
    told, _, lost = written(LATENT)
    assert [told[f"--{n}"] for n in ("rotary-scaling-factor", "mscale", "mscale-all-dim")] == ["40.0", "1.0", "1.0"]
    assert not lost
    assert written(stretched(LATENT, scaling="none"))[0]["--rotary-scaling-factor"] == "1.0"
    assert "4096 holds" in written(stretched(LATENT, original=8192))[2]["rotary.original"]
    assert "not stretched" in written(stretched(LATENT, scaling="llama3"))[2]["rotary.scaling"]
    assert "--position-embedding-type yarn" in written(OSS)[2]["rotary.scaling"]


def test_torchtitan_tells_what_its_angles_lack() -> None:
    yarn = stretched(QWEN, scaling="yarn", factor=4.0, original=32768)
    _, module, lost = written(yarn, "torchtitan")
    assert "rope_factor=4.0, original_seq_len=32768, beta_fast=32.0, beta_slow=1.0, truncate=True" in module
    assert "attention does not grow" in lost["rotary.mscale"]
    assert "rotary.mscale" not in written(stretched(yarn, mscale_all_dim=1.0), "torchtitan")[2]
    llama = stretched(QWEN, scaling="llama3", factor=8.0, original=8192)
    assert "no Llama 3 scaling" in written(llama, "torchtitan")[2]["rotary.scaling"]


def test_angles_without_a_word_are_refused() -> None:
    assert written(stretched(DENSE, share=0.5))[0]["--rotary-percent"] == "0.5"
    with pytest.raises(WrongQuestion, match="rotates whole heads"):
        written(stretched(SHARDED, share=0.5), "torchtitan")
    with pytest.raises(WrongQuestion, match=r"rotary base 10000\.5: --rotary-base takes whole numbers"):
        written(stretched(DENSE, base=10000.5))


COMMAND = (
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --vocab-size 128256 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --max-position-embeddings 8192 --seq-length 8192 "
    "--micro-batch-size 1 --global-batch-size 256 --train-iters 1000 --bf16 --use-distributed-optimizer "
)


def priced(more: str) -> imported_plan.Present:
    """A command of today, as import reads it."""
    return imported_plan.plan("megatron", COMMAND + more, [f"{H100}:2"])


def test_import_tells_norms_and_positions_that_differ() -> None:
    """They change neither time nor memory, so the model is still the library's."""
    same = priced("--hidden-dropout 0 --use-rotary-position-embeddings --rotary-base 500000 --norm-epsilon 1e-5")
    assert same.plans.plans[0].workload.model == "llama3-8b"
    assert not same.differs
    other = priced("--hidden-dropout 0 --position-embedding-type rope --rotary-base 10000 --norm-epsilon 1e-6")
    assert other.plans.plans[0].workload.model == "llama3-8b"
    assert [text.partition(";")[0] for text in other.differs] == ["norm_epsilon is 1e-06", "rotary.base is 10000.0"]


def test_import_takes_those_of_a_model_of_ones_own() -> None:
    shape = priced("--position-embedding-type rope --num-layers 30 --use-rope-scaling").plans.plans[0].workload.shape
    assert (shape["layers"], shape["norm_epsilon"]) == (30, 1e-5)
    assert (shape["rotary"]["base"], shape["rotary"]["scaling"], shape["rotary"]["factor"]) == (10000, "llama3", 8)


@pytest.mark.parametrize("more", ["--norm-epsilon 0", "--rotary-base x", "--rotary-base nan", "--norm-epsilon"])
def test_import_refuses_what_is_no_number(more: str) -> None:
    with pytest.raises(WrongQuestion, match="not a number above zero"):
        priced(f"--position-embedding-type rope {more}")
