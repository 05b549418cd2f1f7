"""Files and scripts of Megatron-LM's kin: keys that are options, what scripts write, what their examples show."""

from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import reading

SMALL = "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 2048 --micro-batch-size 4 --bf16 "
TRAIN = """system:
  tensor_model_parallel_size: 2
  precision: {bf16: true, fp16: false}
model:
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  seq_length: 2048
  swiglu: true
  multiple_of: 256
  micro_batch_size: 2
  global_batch_size: 64
  optimizer: {lr_scheduler: {lr: 1.0e-4}}
  hidden_dropout: 0.0
data:
  data_path: ${data_path:??}
  tokenizer: {tokenizer_type: Mine, vocab_size: 100008}
"""
EXPERIMENT = """defaults: [_self_, {train: 7b}]
experiment:
  task: {type: train, backend: megatron, entrypoint: ./flagscale/train/train_gpt.py}
  runner: {nnodes: 2, nproc_per_node: 8}
action: run
"""
TEST = """ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
TEST_TYPE: regular
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --seq-length: 1024
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: false
  --fp16: true
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path: str, **started: Any) -> Any:
    return reading.read(reading.detect(path), path, reading.Started(**started))


def test_an_experiment_of_flagscale_is_read_with_its_file(tmp_path: Path) -> None:
    written(tmp_path, "train/7b.yaml", TRAIN)
    experiment = written(tmp_path, "train.yaml", EXPERIMENT)

    found = read(experiment)

    assert (found.ranks, found.batch, found.settings["tp"], found.precision) == (16, 64, 2, "bf16")
    assert (found.shape["ffn"], found.shape["vocab"], found.shape["kv_heads"]) == (11_008, 100_008, 32)
    assert found.shape["dropout"] is False  # 0.0 is a value, not an option that is left out
    other = written(tmp_path, "serve.yaml", EXPERIMENT.replace("type: train", "type: serve"))
    with pytest.raises(WrongQuestion, match="megatron serve"):
        read(other)


def test_arguments_of_megatrons_own_tests_are_its_options(tmp_path: Path) -> None:
    found = read(written(tmp_path, "model_config.yaml", TEST))
    assert (found.settings["tp"], found.settings["zero"], found.precision) == (2, 0, "fp16")
    assert found.settings["sequence_parallel"] == "on"
    with pytest.raises(WrongQuestion, match="--of-a-fork"):
        read(written(tmp_path, "fork.yaml", TEST + "  --of-a-fork: 2\n"))


def test_arguments_that_an_example_shows_are_taken_and_told(tmp_path: Path) -> None:
    script = (
        f"TP=$1\nBATCH=$2\ntorchrun pretrain_gpt.py {SMALL} --tensor-model-parallel-size $TP --global-batch-size $BATCH"
    )
    commented = written(tmp_path, "run.sh", f"# sh run.sh 2 64\n{script}")
    plain = written(tmp_path, "plain.sh", script)

    assert (read(commented).settings["tp"], read(commented).batch) == (2, 64)
    assert "started as a comment in it shows: 2 64" in read(commented).assumed
    assert read(commented, arguments=("4", "128")).batch == 128
    with pytest.raises(WrongQuestion, match="its value is not in the text"):
        read(plain)
    written(tmp_path, "README.md", "```\nbash plain.sh \\\n  4 \\\n  32\n```")
    assert "started as README.md shows: 4 32" in read(plain).assumed


def test_what_a_script_asks_of_its_caller_does_not_end_it(tmp_path: Path) -> None:
    asks = f'if [[ -z $DATA ]]; then\n echo "usage"; exit 1\nfi\ntorchrun pretrain_gpt.py {SMALL} --global-batch-size 8'
    found = read(written(tmp_path, "run.sh", asks))
    assert found.batch == 8
    assert any("a check of what it is started with" in line for line in found.assumed)
    choice = f"P=fp8\ncase $P in bf16) A=--bf16;; *) exit 1;; esac\ntorchrun pretrain_gpt.py {SMALL} $A"
    with pytest.raises(WrongQuestion, match="no option of Megatron-LM"):
        read(written(tmp_path, "choice.sh", choice))


def test_deepspeeds_file_that_a_script_writes_is_read(tmp_path: Path) -> None:
    ends = f"deepspeed pretrain_gpt.py {SMALL} --global-batch-size 64 --deepspeed --deepspeed_config $CONFIG\n"
    text = 'ZERO=2\nCONFIG=./ds.$JOB.json\ncat <<EOT > $CONFIG\n{"zero_optimization": {"stage": $ZERO}}\nEOT\n'
    assert read(written(tmp_path, "run.sh", text + ends)).settings["zero"] == 2


@pytest.mark.parametrize(
    ("flags", "vocabulary"),
    [
        ("--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt", 50_257),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model t.model", 32_000),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B", 128_256),
        ("--tokenizer-type HFTokenizer --tokenizer-model /fsx/Llama-2-7b-hf/tokenizer.model", 32_000),
        ("--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 293", 151_936),
        ("--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model own.model", None),
        ("--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model ./tests/own.model", None),  # a folder here
    ],
)
def test_a_tokenizer_says_the_vocabulary(flags: str, vocabulary: int | None) -> None:
    found = reading.read("megatron", f"{SMALL} --global-batch-size 8 {flags}")
    assert found.shape.get("vocab") == vocabulary
    assert not [text for text in found.differs if "words" in text]


def test_groups_count_where_they_are_switched_on() -> None:
    groups = f"{SMALL} --global-batch-size 8 --num-query-groups 4"
    assert reading.read("megatron", groups).shape["kv_heads"] == 12
    assert reading.read("megatron", f"{groups} --group-query-attention").shape["kv_heads"] == 4
    assert reading.read("megatron", f"{SMALL} --attention-head-type multiquery").shape["kv_heads"] == 1


def test_a_file_that_a_script_sources_is_read_where_it_lies_beside(tmp_path: Path) -> None:
    written(tmp_path, "model.sh", "TP=4\nARGS='--global-batch-size 16'")
    ends = f"torchrun pretrain_gpt.py {SMALL} --tensor-model-parallel-size ${{TP:-1}} ${{ARGS:-}}"

    for name in ("./model.sh", "$(dirname $0)/model.sh", "${HERE}/model.sh"):
        found = read(written(tmp_path, "run.sh", f"source {name}\n{ends}"))
        assert (found.settings["tp"], found.batch) == (4, 16)
    outside = read(written(tmp_path / "inner", "run.sh", f"source ../model.sh\n{ends}"))
    assert (outside.settings["tp"], outside.batch) == (1, None)
    assert any("was not read" in line for line in outside.assumed)


def test_options_with_underscores_are_epfls_with_its_defaults() -> None:
    command = (
        "torchrun --nproc_per_node 8 finetune.py --tensor_model_parallel_size 4 --num_layers 32 --hidden_size 4096 "
        "--num_attention_heads 32 --num_attention_heads_kv 8 --glu_activation swiglu --use_rms_norm --bf16 "
        "--position_embedding_type rotary --no_tie_embed_logits --seq_length 4096 --micro_batch_size 2 "
    )
    found = reading.read(reading.detect(command), command)

    assert (found.settings["tp"], found.settings["micro"], found.method, found.ranks) == (4, 2, "finetune", 8)
    shape = found.shape
    assert (shape["kv_heads"], shape["ffn"], shape["gated"], shape["norm"]) == (8, 16_384, True, "rms")
    assert (shape["mlp_bias"], shape["tied"], shape["rotary"]["base"]) == (False, False, 10_000.0)
    assert reading.read("megatron", f"{command} --use_bias").shape["mlp_bias"]
    with pytest.raises(WrongQuestion, match="--sliding-window-size"):
        reading.read("megatron", f"{command} --sliding_window_size 4096")


def test_deepspeeds_file_that_sed_makes_of_a_template_is_read(tmp_path: Path) -> None:
    written(
        tmp_path, "template.json", '{"zero_optimization": {"stage": STAGE}, "curriculum_learning": {"enabled": CL}}'
    )
    made = 'C=ds_$X\nsed "s/STAGE/${Z:-2}/" template.json | sed "s/CL/true/" > $C\n'
    ends = (
        f"deepspeed pretrain_gpt.py {SMALL} --global-batch-size 64 --deepspeed --deepspeed_config $C --zero-stage 0\n"
    )

    found = read(written(tmp_path, "run.sh", made + ends))

    assert found.settings["zero"] == 2
    assert any("sequences grow" in line for line in found.assumed)


def test_what_deepspeeds_file_switches_on_is_told(tmp_path: Path) -> None:
    ends = f"deepspeed pretrain_gpt.py {SMALL} --global-batch-size 64 --deepspeed --deepspeed_config ds.json\n"
    for on, said in (("true", True), ("false", False)):
        written(
            tmp_path, "ds.json", f'{{"zero_optimization": {{"stage": 1}}, "curriculum_learning": {{"enabled": {on}}}}}'
        )
        found = read(written(tmp_path, "run.sh", ends))
        assert any("sequences grow" in line for line in found.assumed) is said


def test_jobs_of_ms_swift_are_read_with_their_processes() -> None:
    ends = "--load Qwen2.5-7B-Instruct-mcore --tensor_model_parallel_size 4 --max_length 2048 --val_dataset x"
    found = reading.read("megatron", f"NPROC_PER_NODE=8 NNODES=2 megatron sft {ends}")
    assert (found.model, found.ranks, found.batch) == ("qwen2.5-7b", 16, 16)
    assert any("packing fills" in line for line in found.differs)
    assert not reading.read("megatron", f"megatron sft {ends} --packing true").differs
    with pytest.raises(WrongQuestion, match="megatron rlhf"):
        reading.read("megatron", f"megatron rlhf {ends}")


def test_adapters_are_on_all_layers_unless_some_are_named() -> None:
    swift = "megatron sft --model Qwen/Qwen3-8B --train_type lora"
    factory = "model_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\ntensor_model_parallel_size: 1\nbf16: true\n"
    every = ("q", "k", "v", "o", "up", "down", "gate")

    assert reading.read("megatron", swift).targets == every
    assert reading.read("megatron", f"{swift} --target_modules linear_qkv linear_proj").targets == ("q", "k", "v", "o")
    assert reading.read("llama-factory", factory).targets == every
    assert reading.read("llama-factory", f"{factory}lora_target: q_proj,v_proj\n").targets == ("q", "v")


@pytest.mark.parametrize("key", ["stage: dpo", "finetuning_type: freeze", "optim: adamw_8bit", "quantization_bit: 4"])
def test_other_jobs_of_the_adapter_are_refused(key: str) -> None:
    text = f"model_name_or_path: meta-llama/Llama-3.2-1B\ntensor_model_parallel_size: 1\nbf16: true\n{key}\n"
    with pytest.raises(WrongQuestion, match=key.partition(":")[0].replace("_", "[-_]")):
        reading.read("llama-factory", text)
    assert not reading.read("llama-factory", text.replace(key, "packing: true")).differs
