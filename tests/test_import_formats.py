"""``import`` of files and commands that tables say how to read: minimal texts of our own, one construct each."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import reading

NEOX = """{
  "pipe_parallel_size": 4, "model_parallel_size": 2, "num_layers": 44, "hidden_size": 6144,
  "num_attention_heads": 64, "seq_length": 2048, "pos_emb": "rotary", "no_weight_tying": true,
  "optimizer": {"type": "Adam", "params": {"lr": 1.0e-4}}, "zero_optimization": {"stage": 1, "overlap_comm": True},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 32, "checkpoint_activations": true,
  "fp16": {"enabled": true}, "log_interval": 2, "tensorboard-dir": "x",
}"""
OLMO = """
model: {d_model: 4096, n_heads: 32, n_layers: 32, mlp_hidden_size: 22016, layer_norm_type: rms, norm_after: true,
        attention_layer_norm: true, include_bias: false, weight_tying: false, rope: true, max_sequence_length: 4096,
        embedding_size: 100352, activation_type: swiglu}
device_train_microbatch_size: 2
global_train_batch_size: 1024
precision: amp_bf16
fsdp: {wrapping_strategy: by_block, precision: mixed}
max_duration: 4e9T
"""
FOUNDRY = """
variables: {max_seq_len: 2048}
max_seq_len: ${variables.max_seq_len}
model: {name: mpt_causal_lm, d_model: 4096, n_heads: 32, n_layers: 32, expansion_ratio: 4, vocab_size: 50368}
global_train_batch_size: 1024
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, activation_checkpointing: true}
max_duration: 100ba
"""
TUNE = """
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 8, lora_attn_modules: [q_proj, v_proj]}
checkpointer: {checkpoint_dir: x}
metric_logger: {log_dir: x}
tokenizer: {max_seq_len: 2048}
batch_size: 2
dtype: bf16
enable_activation_checkpointing: true
optimizer: {_component_: torch.optim.AdamW, lr: 1e-4}
"""
NEMO = """
trainer: {num_nodes: 16, devices: 8, precision: bf16, max_steps: 10}
exp_manager: {name: x}
model: {micro_batch_size: 1, global_batch_size: 256, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2,
        virtual_pipeline_model_parallel_size: 4, sequence_parallel: true, encoder_seq_length: 8192, num_layers: 32,
        hidden_size: 4096, ffn_hidden_size: 14336, num_attention_heads: 32, num_query_groups: 8, normalization: rmsnorm,
        bias: false, activation: fast-swiglu, position_embedding_type: rope, share_embeddings_and_output_weights: false,
        optim: {name: mcore_distributed_optim, overlap_grad_sync: true}}
"""
NANOTRON = """
parallelism: {dp: 4, tp: 2, pp: 1, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER}
tokens: {micro_batch_size: 3, batch_accumulation_per_replica: 2, sequence_length: 4096, train_steps: 10}
model: {dtype: bfloat16, model_config: {num_hidden_layers: 28, hidden_size: 2048, intermediate_size: 8192,
        num_attention_heads: 16, num_key_value_heads: 8, vocab_size: 32000, hidden_act: silu}}
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}
"""
PRIMUS = """
work_group: ${TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    model: llama3.1_8B.yaml
    overrides: {micro_batch_size: 2, global_batch_size: 64, seq_length: 8192, tensor_model_parallel_size: "${TP:4}",
                recompute_granularity: full, recompute_method: block, recompute_num_layers: 16, fp8: hybrid,
                enable_primus_turbo: true, wandb_project: x}
"""
ADAPTER = """
model_name_or_path: Qwen/Qwen3-30B-A3B
finetuning_type: full
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
pipeline_model_parallel_size: 4
expert_model_parallel_size: 2
use_distributed_optimizer: true
"""
MAXTEXT = """
base_config: "base.yml"
model_name: "llama3-70b"
hardware: "gpu"
per_device_batch_size: 4
max_target_length: 8192
remat_policy: "full"
dataset_type: "synthetic"
"""

LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
out_dir: out
precision: bf16-true
devices: 4
num_nodes: 1
lora_r: 32
lora_query: true
lora_key: false
lora_mlp: true
train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 512}
"""
SUPERVISED = """
sft: {max_num_steps: 60}
policy:
  model_name: meta-llama/Llama-3.2-1B
  train_global_batch_size: 32
  train_micro_batch_size: 1
  max_total_sequence_length: 1024
  precision: bfloat16
  dtensor_cfg:
    {enabled: true, tensor_parallel_size: 2, activation_checkpointing: true, lora_cfg: {enabled: false, dim: 8}}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 4, moe_token_dispatcher_type: alltoall}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
TUNER = """
from torch.optim import AdamW
pretrained_model_name_or_path = "meta-llama/Llama-2-7b-hf"
batch_size = 2
accumulative_counts = 4
accumulative_counts *= 2
max_length = 2048
pack_to_max_length = True
model = dict(type=Finetune, llm=dict(type=Auto.from_pretrained,
    pretrained_model_name_or_path=pretrained_model_name_or_path), lora=dict(r=64))
train_dataloader = dict(batch_size=batch_size)
optim_wrapper = dict(type=Amp, optimizer=dict(type=AdamW, lr=2e-4), dtype="float16")
"""


@pytest.mark.parametrize(
    ("source", "text", "settings", "rest"),
    [
        ("litgpt-finetune", LITGPT, {"zero": None}, {"targets": ("q", "up", "down", "gate"), "rank": 32, "ranks": 4}),
        ("nemo-rl-sft", SUPERVISED, {"tp": 2, "recompute": "full"}, {"runtime": "fsdp2", "ranks": 16, "rank": None}),
        (
            "xtuner",
            TUNER,
            {"micro": 2},
            {"runtime": "pytorch-ddp", "model": "llama2-7b", "per_rank": 16, "rank": 64, "steps": None},
        ),
        ("gpt-neox", NEOX, {"tp": 2, "pp": 4, "zero": 1, "recompute": "full"}, {"precision": "fp16", "per_rank": 128}),
        ("olmo", OLMO, {"micro": 2, "recompute": "none"}, {"runtime": "fsdp", "batch": 1024, "steps": 953}),
        ("llm-foundry", FOUNDRY, {"micro": 8, "recompute": "full"}, {"sequence": 2048, "steps": 100}),
        ("torchtune", TUNE, {"micro": 2}, {"model": "llama3.1-8b", "method": "lora", "targets": ("q", "v")}),
        ("nemo", NEMO, {"tp": 4, "pp": 2, "vpp": 4, "zero": 1, "dp_overlap": "on"}, {"ranks": 128, "batch": 256}),
        ("nanotron", NANOTRON, {"tp": 2, "zero": 1, "sequence_parallel": "on"}, {"ranks": 8, "per_rank": 6}),
        ("primus", PRIMUS, {"tp": 4, "recompute": "block:0.5"}, {"precision": "fp8-delayed", "model": "llama3.1-8b"}),
        ("llama-factory", ADAPTER, {"pp": 4, "ep": 2, "zero": 1}, {"runtime": "megatron-core", "per_rank": 8}),
    ],
)
def test_files_of_trainers_are_found_out_and_read(
    source: str, text: str, settings: dict[str, Any], rest: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")

    found = reading.read(reading.detect(str(path)), str(path))

    assert reading.detect(str(path)) == source
    assert {axis: found.settings.get(axis) for axis in settings} == settings
    assert {name: getattr(found, name) for name in rest} == rest
    assert not found.unread or source == "llama-factory"


def test_the_micro_batch_of_xtuner_stands_in_its_loader_where_no_name_has_it() -> None:
    text = TUNER.replace("batch_size = 2\n", "").replace("batch_size=batch_size", "batch_size=4")
    assert reading.read("xtuner", text).settings["micro"] == 4


def test_gated_widths_are_the_models_own() -> None:
    """OLMo states both halves (22,016 of 2 x 11,008), GPT-NeoX three parts rounded up (32,768 / 3 to 11,008)."""
    gated = NEOX.replace(
        '"pos_emb"', '"activation": "swiglu", "intermediate_size": 32768, "mlp_multiple_of": 256, "pos_emb"'
    )
    assert reading.read("olmo", OLMO).shape["ffn"] == 11008
    assert reading.read("gpt-neox", gated).shape["ffn"] == 11008


@pytest.mark.parametrize(
    ("source", "text", "key"),
    [
        ("gpt-neox", NEOX.replace('"fp16"', '"train_impl": "dpo", "fp16"'), "train_impl"),
        ("gpt-neox", NEOX.replace('"fp16"', '"moe_router_type": "topk", "fp16"'), "moe_router_type"),
        ("olmo", OLMO + "some_parallel_degree: 4\n", "some_parallel_degree"),
        ("torchtune", TUNE + "fsdp_mesh_degree: 4\n", "fsdp_mesh_degree"),
        ("primus", PRIMUS.replace("fp8: hybrid", "pipeline_shards: 3"), "pipeline-shards"),
        ("llama-factory", "cutoff_len: 8\nmodel_name_or_path: llama3-8b\nmesh_shape: 2x4\n", "mesh_shape"),
        ("axolotl", "base_model: llama3-8b\nzigzag_offload: true\n", "zigzag_offload"),
        ("maxtext", MAXTEXT + "logical_axis_rules: [[batch, data]]\n", "logical_axis_rules"),
        ("maxtext", MAXTEXT + "sparse_matmul: false\n", "sparse_matmul"),
    ],
)
def test_a_key_that_may_matter_is_never_ignored(source: str, text: str, key: str) -> None:
    with pytest.raises(WrongQuestion, match=f"{key}.*--ignore"):
        reading.read(source, text)
    keys = frozenset((key, key.replace("-", "_")))
    found = reading.read(source, text, reading.Started(ignored=keys))
    assert any("left out as asked" in line for line in found.assumed)


def test_variables_of_a_file_are_the_callers_or_its_defaults() -> None:
    assert reading.read("primus", PRIMUS, reading.Started(environment={"TP": "2"})).settings["tp"] == 2


def test_an_experiment_of_primus_says_its_own_shape() -> None:
    """As `export --to primus` writes it: over the model without a shape, so that its keys name no other model."""
    keys = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "seq_length": 128}
    keys |= {"micro_batch_size": 1, "global_batch_size": 8, "max_position_embeddings": 128, "vocab_size": 1024}
    module = {"framework": "megatron", "model": "language_model.yaml", "overrides": keys}
    text = json.dumps({"work_group": "amd", "modules": {"pre_trainer": module}})

    found = reading.read("primus", text)

    assert (found.model, found.shape["layers"], found.shape["hidden"], found.sequence) == (None, 4, 64, 128)
    assert not found.shape["qkv_bias"], "Primus's models have no biases unless told"


def test_primus_pipelines_are_schedules_and_nothing_of_its_own_shape_is_dropped() -> None:
    keys = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 256, "seq_length": 128}
    keys |= {"micro_batch_size": 1, "global_batch_size": 8, "vocab_size": 1024, "pipeline_model_parallel_size": 2}
    keys |= {"patch_primus_pipeline": True, "pp_algorithm": "zbv-formatted", "add_bias_linear": True}

    def text(**more: object) -> str:
        module = {"framework": "megatron", "model": "language_model.yaml", "overrides": {**keys, **more}}
        return json.dumps({"work_group": "amd", "modules": {"pre_trainer": module}})

    found = reading.read("primus", text())

    assert (found.settings["schedule"], found.shape["qkv_bias"]) == ("zbv", True)
    inserted = text(patch_primus_pipeline="${PATCH:true}", add_bias_linear="${BIASED:true}")
    assert reading.read("primus", inserted) == found, "Primus's usual way to write a value"
    with pytest.raises(WrongQuestion, match="add_bias_linear true: another model"):
        reading.read("primus", PRIMUS.replace("fp8: hybrid", "add_bias_linear: true"))
    for more, told in (({"pp_algorithm": "v-half"}, "pp_algorithm v-half: choose"), ({"new_degree": 2}, "new-degree")):
        with pytest.raises(WrongQuestion, match=told):
            reading.read("primus", text(**more))


def test_axolotls_mesh_is_replicas_of_shards() -> None:
    text = "base_model: llama3-8b\nfsdp_version: 2\ndp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n"
    found = reading.read("axolotl", text)
    assert (found.degrees, found.settings["tp"], found.settings["zero_scope"]) == ((2, 4), 2, "node")
    with pytest.raises(WrongQuestion, match="2 replicas of 4 shards are not the 4 ranks"):
        reading.plan("axolotl", text, ["dgx-h100:1"])


FORK = "deepspeed pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
FORK += "--micro-batch-size 2 --global-batch-size 512 --tensor-model-parallel-size 4 --bf16 "


def test_options_of_forks_and_earlier_releases_are_todays() -> None:
    fork = "--checkpoint-activations --num-key-value-heads 8 --num-experts 1 --topk 1 --deepspeed --zero-stage 1"
    found = reading.read("megatron", FORK + fork)
    assert found.runtime == "megatron-deepspeed"
    off = {"sequence_parallel": "off"}  # said, since an estimate has it on unless told
    assert found.settings == {"tp": 4, "micro": 2, "zero": 1, "recompute": "full", **off}
    assert found.shape["kv_heads"] == 8
    older = reading.read("megatron", FORK.replace("deepspeed ", "python ") + "--activations-checkpoint-method uniform")
    assert (older.runtime, older.settings["recompute"]) == ("megatron-core", "full")
    with pytest.raises(WrongQuestion, match="num-experts 64"):
        reading.read("megatron", FORK + "--num-experts 64 --deepspeed --zero-stage 1")
    with pytest.raises(WrongQuestion, match="--zero-stage N"):
        reading.read("megatron", FORK + "--deepspeed --deepspeed_config made_by_sed.json")


def test_ms_swifts_megatron_is_read_with_its_defaults() -> None:
    command = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --tensor_model_parallel_size 4 --max_length 8192"
    found = reading.read(reading.detect(command), f"{command} --sequence_parallel true --optimizer_cpu_offload false")
    assert (found.model, found.batch, found.sequence, found.method) == ("qwen2.5-7b", 16, 8192, "finetune")
    assert (found.settings["recompute"], found.settings["sequence_parallel"]) == ("selective", "on")


def test_slurms_own_lines_sums_and_commands_in_values_are_followed() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:a100:8\nN=$SLURM_GPUS_PER_NODE\nACC=$(expr 64 / $N)\n"
    script += "LOG=run_$(ssh host nvidia-smi --query-gpu=name | wc -l)\n"
    script += (
        "torchrun --nnodes $SLURM_NNODES --nproc_per_node $N t.py --model_name_or_path llama3-8b --output_dir $LOG "
    )
    found = reading.read("trainer", script + "--per_device_train_batch_size 1 --gradient_accumulation_steps $ACC")
    assert (found.ranks, found.accumulation, found.unread) == (32, 8, [])
    assert any("SLURM_NNODES 4" in line for line in found.assumed)


def test_accelerates_own_options_and_a_file_beside_it_count(tmp_path: Path) -> None:
    (tmp_path / "fsdp.yaml").write_text(
        "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: bf16\n"
    )
    recipe = "model_name_or_path: llama3-8b\nper_device_train_batch_size: 2\n"
    beside = reading.Started(files=(tmp_path / "fsdp.yaml",))
    command = (
        "accelerate launch --mixed_precision bf16 --use_deepspeed --zero_stage 3 t.py --model_name_or_path llama3-8b"
    )

    assert reading.read("trainer", recipe, beside).settings["zero"] == 3
    assert reading.read("trainer", recipe).settings["zero"] == 0
    found = reading.read("trainer", f"{command} --per_device_train_batch_size 1")
    assert (found.runtime, found.settings["zero"], found.precision) == ("deepspeed", 3, "bf16")


def test_an_optimizer_without_a_price_is_the_nearest_with_a_note() -> None:
    found = reading.read("axolotl", "base_model: llama3-8b\noptimizer: ademamix\n")
    assert found.optimizer == "adamw"
    assert any("ademamix" in line for line in found.differs)


def test_earlier_releases_of_torchtitan_are_read() -> None:
    text = "[model]\nname = 'llama3'\nflavor = '405B'\nnorm_type = 'rmsnorm'\nconverters = ['quantize.linear.float8']\n"
    text += "[training]\nlocal_batch_size = 2\n[parallelism]\nexpert_tensor_parallel_degree = 1\n"
    text += "[quantize.linear.float8]\nfilter_fqns = ['output']\n"
    found = reading.read("torchtitan", text)
    assert (found.model, found.precision, found.settings["micro"]) == ("llama3.1-405b", "fp8", 2)


def test_maxtext_is_sharded_in_a_node_unless_its_command_says_otherwise(tmp_path: Path) -> None:
    found = reading.read("maxtext", MAXTEXT)
    (tmp_path / "mine.yml").write_text(MAXTEXT)
    script = tmp_path / "run.sh"
    script.write_text("python3 -m MaxText.train mine.yml run_name=x dcn_data_parallelism=1 per_device_batch_size=2")
    led = reading.read("maxtext", str(script))

    assert (found.model, found.precision, found.settings["zero_scope"]) == ("llama3-70b", "bf16", "node")
    assert (led.settings["micro"], led.settings["zero"], "zero_scope" in led.settings) == (2, 3, False)
    with pytest.raises(WrongQuestion, match="ici_pipeline_parallelism 4"):
        reading.read("maxtext", f"{MAXTEXT}ici_pipeline_parallelism: 4")


@pytest.mark.parametrize(
    ("keys", "cluster", "told"),
    [
        ("ici_fsdp_parallelism: 4\ndcn_data_parallelism: 2", "dgx-h100:4", "2 replicas of 4 shards are not the 32"),
        ("ici_fsdp_parallelism: 5", "dgx-h100:4", "any replicas of 5 shards are not the 32"),
        ("ici_fsdp_parallelism: 4\ndcn_data_parallelism: 8", "dgx-h100:4", "over 4 ranks, .* has 8 .*--ignore"),
        ("hardware: tpu\ndcn_data_parallelism: 2", "tpu-v5p-4:8", "sharded over 16 ranks, .* has 32 .*--ignore"),
    ],
)
def test_meshes_of_maxtext_that_no_plan_has_are_refused(keys: str, cluster: str, told: str) -> None:
    with pytest.raises(WrongQuestion, match=told):
        reading.plan("maxtext", MAXTEXT + keys, [cluster])


def test_meshes_of_slices_and_nodes_are_those_of_the_plan() -> None:
    for keys, cluster in (("dcn_data_parallelism: 3", "dgx-h100:3"), ("hardware: tpu", "tpu-v5p-4:8")):
        (plan,) = reading.plan("maxtext", f"{MAXTEXT}{keys}\nici_fsdp_parallelism: -1", [cluster]).plans.plans
        assert plan.parallelism.dp_shard == (8 if "h100" in cluster else 32)
    (two,) = reading.plan("maxtext", f"{MAXTEXT}dcn_data_parallelism: 2", ["dgx-h100:4"]).plans.plans
    assert (two.parallelism.zero_scope, two.parallelism.dp_shard) == ("nodes:2", 16)
    found = reading.read("maxtext", MAXTEXT + "dcn_data_parallelism: -1\ncapacity_factor: 1.25")
    assert (found.degrees, found.settings["zero_scope"]) == (None, "node")
    assert any("up to a capacity" in text for text in found.differs)
    assert not reading.read("maxtext", MAXTEXT + "capacity_factor: -1.0\ngrad_dtype: float32").differs
    replicated = reading.read("torchtune", TUNE + "data_parallel_replicate_dim: 2\n")
    assert (replicated.degrees, replicated.settings["zero_scope"]) == ((2, -1), "node")


def test_a_precision_of_nemo_that_its_scripts_overwrite_is_told() -> None:
    found = reading.read("nemo", NEMO.replace("model: {", "model: {precision: 32, "))
    assert found.precision == "bf16"
    assert any("model.precision 32" in text for text in found.differs)


def test_a_section_that_is_switched_on_leads() -> None:
    """NeMo-RL's configuration has both engines; a dense model has no dispatcher, whatever the file says."""
    megatron = SUPERVISED.replace("{enabled: true, ten", "{enabled: false, ten").replace(
        "{enabled: false, tensor_model", "{enabled: true, tensor_model"
    )
    found = reading.read("nemo-rl-sft", megatron)
    assert (found.runtime, found.settings["tp"], "dispatcher" in found.settings) == ("nemo", 4, False)


def test_a_vocabulary_and_biases_of_nemos_own_are_read() -> None:
    """ChatGLM3's: 65,024 words, and biases on q, k and v alone."""
    shape = reading.read(
        "nemo", NEMO.replace("num_layers", "override_vocab_size: 65024, qkv_bias: true, num_layers")
    ).shape
    counted = NEMO.replace("num_layers", "activations_checkpoint_num_layers: 1, num_layers")
    assert not any("recomputed" in line for line in reading.read("nemo", counted).differs), "none are recomputed"
    assert (shape["vocab"], shape["qkv_bias"], shape["output_bias"], shape["mlp_bias"]) == (65024, True, False, False)


def test_nemos_fine_tuning_has_the_length_of_its_data() -> None:
    tuned = (
        "data: {train_ds: {max_seq_length: 2048, shuffle: true}}, peft: {peft_scheme: null, lora_tuning: {alpha: 32}}"
    )
    tuned += ", cpu_offloading: false, cpu_offloading_num_layers: 12, enable_cuda_graph: true"
    found = reading.read("nemo", NEMO.replace("bias: false", f"bias: false, {tuned}"))

    assert (found.sequence, found.method) == (2048, "finetune")
    assert {text.partition(";")[0] for text in found.differs} >= {
        "CUDA graphs as stated",
        "sequences are as long as the longest of a micro-batch",
    }
    with pytest.raises(WrongQuestion, match="peft"):
        reading.read("nemo", NEMO.replace("bias: false", f"bias: false, {tuned.replace('null', 'lora')}"))


def test_experts_of_nemo_are_read_with_their_capacity() -> None:
    experts = "num_moe_experts: 8, moe_expert_capacity_factor: 1.0, moe_grouped_gemm: false"

    found = reading.read("nemo", NEMO.replace("num_layers: 32", f"num_layers: 32, {experts}"))

    assert found.shape["moe"] == {"experts_per_token": 2, "ffn": 14336, "experts": 8}
    assert any("up to a capacity" in text for text in found.differs)
    assert any("moe_grouped_gemm false" in text for text in found.differs)
    dense = reading.read("nemo", NEMO.replace("num_layers: 32", "num_layers: 32, moe_grouped_gemm: false"))
    assert not any("moe_grouped_gemm" in text for text in dense.differs)


def test_a_script_sets_by_default_and_its_comments_end_with_their_line() -> None:
    script = """#!/bin/bash
: "${MICRO:=2}"
#    --recompute-activations \\
export CMD=" \\
  pretrain_gpt.py --num-layers 32 --micro-batch-size $MICRO --global-batch-size 64 --bf16"
srun bash -c "python -m torch.distributed.run --node_rank \\$SLURM_PROCID $CMD"
"""

    assert reading.read("megatron", script).settings["micro"] == 2
    behind = f"MICRO=8\nNAME='a # b'  # {chr(92)}\nMICRO=4 # twice {chr(92)}\n{script}"
    assert reading.read("megatron", behind).settings["micro"] == 4


@pytest.mark.parametrize(
    ("command", "settings", "rest"),
    [
        (
            "torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen2.5-Coder-7B "
            "+data.max_length=512 ulysses_sequence_parallel_size=2 model.lora_rank=32 model.target_modules=all-linear",
            {"cp": 2, "micro": 4, "recompute": "full"},
            {"model": "qwen2.5-7b", "batch": 256, "ranks": 4, "rank": 32, "cp_algorithm": "a2a"},
        ),
        (
            "read -r -d '' what <<EOF\nopenrlhf.cli.train_sft --data.max_len 2048 --train.batch_size 64 \\\n"
            "  --model.model_name_or_path llama3-8b --ds.zero_stage 3 --ds.packing_samples --ds.adam_offload\nEOF\n"
            "deepspeed --module $what",
            {"zero": 3, "offload": "optimizer", "recompute": "none", "micro": 8},
            {"runtime": "deepspeed", "batch": 64, "sequence": 2048},
        ),
        (
            "torchrun main_training.py --model_variant=llama3_8b_4k --batch_size=1 --sharding_strategy=fsdp",
            {"micro": 1, "recompute": "none"},
            {"model": "llama3-8b", "sequence": 4096, "steps": 1_000_000},
        ),
    ],
)
def test_commands_are_read_by_tables(command: str, settings: dict[str, Any], rest: dict[str, Any]) -> None:
    found = reading.read(reading.detect(command), command)
    assert {axis: found.settings.get(axis) for axis in settings} == settings
    assert {name: getattr(found, name) for name in rest} == rest


def test_a_command_reads_its_file_and_its_keys_lead(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SUPERVISED)
    (tmp_path / "mine.yaml").write_text("defaults: base.yaml\nsft: {max_num_steps: 9}\npolicy: {precision: float32}\n")
    script = tmp_path / "run.sh"
    script.write_text("uv run examples/run_sft.py --config mine.yaml policy.train_micro_batch_size=2")

    found = reading.read("nemo-rl-sft", str(script))
    assert (found.steps, found.precision, found.settings["micro"], found.settings["tp"]) == (9, "fp32", 2, 2)
    assert reading.read("nemo-rl-sft", str(tmp_path / "mine.yaml")).steps == 9
    script.write_text("uv run examples/run_sft.py --config mine.yaml policy.dtensor_cfg.new_degree=2")
    with pytest.raises(WrongQuestion, match="new_degree 2"):
        reading.read("nemo-rl-sft", str(script))
    script.write_text("uv run examples/run_sft.py --config mine.yaml policy.train_micro_batch_size=$MICRO")
    with pytest.raises(WrongQuestion, match=r"\$MICRO: the text does not set it; --env"):
        reading.read("nemo-rl-sft", str(script))


@pytest.mark.parametrize(
    ("source", "text", "told"),
    [
        ("nemo", NEMO, "kept and reduced in 32 bit"),
        ("olmo", OLMO + "activation_checkpointing: one_in_four\n", "half of the layers or fewer"),
        (
            "torchtune",
            TUNE + "loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}\n",
            "logits in chunks",
        ),
        ("nanotron", NANOTRON.replace("grad_in_fp32: true", "grad_in_fp32: false"), "reduced in 16 bit"),
        ("litgpt-finetune", LITGPT, "optimizer states in 16 bit"),
        ("megatron", FORK + "--use-bnb-optimizer --optimizer lion", "lion: fewer states"),
        ("megatron", FORK + "--no-async-tensor-model-parallel-allreduce", "no-async-tensor"),
    ],
)
def test_what_is_computed_otherwise_is_told(source: str, text: str, told: str) -> None:
    assert any(told in line for line in reading.read(source, text).differs)


def test_dropout_of_a_file_keeps_its_masks() -> None:
    """NeMo and OLMo drop a tenth where they say nothing."""
    assert reading.read("nemo", NEMO).shape["dropout"]
    assert not reading.read("nemo", NEMO.replace("num_layers", "hidden_dropout: 0.0, num_layers")).shape["dropout"]


def test_a_job_ends_at_its_tokens_or_its_samples_whichever_come_first() -> None:
    command = FORK + "--train-samples 1000 --vocab-size 32000 "
    for more, tokens in (("", 2_048_000), ("--train-tokens 1000000", 1_000_000), ("--train-tokens 9000000", 2_048_000)):
        (plan,) = reading.plan("megatron", command + more, ["dgx-h100:1"]).plans.plans
        assert plan.workload.tokens == tokens


def test_primus_adapts_its_layers() -> None:
    lora = "lora: {enabled: true, dim: 8, alpha: 16, target_modules: [linear_qkv, linear_fc2]}"
    found = reading.read("primus", PRIMUS.replace("fp8: hybrid", lora))
    assert (found.method, found.rank, found.targets) == ("lora", 8, ("q", "k", "v", "down"))
    for layers, targets in (("linear_proj", ("o",)), ("5", ("5",)), ("[[a]]", ("['a']",))):
        one = lora.replace("[linear_qkv, linear_fc2]", layers)
        assert reading.read("primus", PRIMUS.replace("fp8: hybrid", one)).targets == targets


def test_recipes_that_inherit_without_end_and_endless_sums_are_refused(tmp_path: Path) -> None:
    for level in range(9):
        (tmp_path / f"a{level}.yaml").write_text(f"defaults: [{', '.join([f'a{level + 1}.yaml'] * 12)}]\n")
    for parents, told in (
        ("a0.yaml", "recipes inherit|no such file"),
        ("5", "the name of a recipe"),
        ("{a: b}", "name of"),
    ):
        (tmp_path / "mine.yaml").write_text(SUPERVISED + f"defaults: {parents}\n")
        with pytest.raises(WrongQuestion, match=told):
            reading.read("nemo-rl-sft", str(tmp_path / "mine.yaml"))
    assert reading.read("nemo-rl-sft", SUPERVISED + "defaults:\n").batch == 32
    with pytest.raises(WrongQuestion, match="no Python"):
        reading.read("xtuner", TUNER + f"batch_size = {'+'.join('1' * 1500)}\n")


def test_recipes_inherit_nothing_from_outside_their_folder(tmp_path: Path) -> None:
    """By a path, a link or a recipe between; what ``--file`` names is meant."""
    base, folder = tmp_path / "base.yaml", tmp_path / "recipes"
    base.write_text(SUPERVISED)
    (folder / "inner").mkdir(parents=True)
    (folder / "link.yaml").symlink_to(base)
    (folder / "inner" / "next.yaml").write_text("defaults: ../../base.yaml\n")
    mine = folder / "mine.yaml"
    for parent in (str(base), "../base.yaml", "link.yaml", "inner/next.yaml"):
        mine.write_text(f"defaults: {parent}\npolicy: {{precision: float32}}\n")
        with pytest.raises(WrongQuestion, match=r"outside of .*recipes; --file "):
            reading.read("nemo-rl-sft", str(mine))
    mine.write_text("defaults: ../base.yaml\npolicy: {precision: float32}\n")
    assert reading.read("nemo-rl-sft", str(mine), reading.Started(files=(base,))).precision == "fp32"


def test_a_copy_of_maxtexts_defaults_says_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three keys of the real base.yml stand for its seven hundred."""
    copied = "attention_type: global\nattention_out: remat\nattn_logits_soft_cap: 0.0\n"
    text = f"model_name: llama3.1-8b\nper_device_batch_size: 2\nici_fsdp_parallelism: -1\n{copied}"
    with pytest.raises(WrongQuestion, match="attention_out remat"):
        reading.read("maxtext", text)
    monkeypatch.setattr(reading.formats, "WHOLE", 3)
    found = reading.read("maxtext", text)
    assert found.settings["micro"] == 2
    assert "4 keys that stand as in base.yml of 0.2.4: its own defaults" in found.assumed
    with pytest.raises(WrongQuestion, match="attention_type local_sliding: may change"):
        reading.read(
            "maxtext", text.replace("global", "local_sliding") + "use_iota_embed: false\nz_loss_multiplier: 0.0\n"
        )
