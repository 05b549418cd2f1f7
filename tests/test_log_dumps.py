"""Dumps of arguments, as frameworks print them, to cells: what a cell says is what ran, or the cell is empty."""

from pathlib import Path

from planner.site.logs import reading
from tests import training_logs as logs
from tests.sweeps import sweep

EMPTY = ""


def dotted(**arguments: object) -> list[str]:
    """Megatron-LM's form."""
    return [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]


def neox(**arguments: object) -> list[str]:
    """GPT-NeoX's form, which says where a value is from."""
    lines = [f"  {name} {'.' * (32 - len(name))} {value}" for name, value in arguments.items()]
    return [f"{line}{'.' * (64 - len(line))}updated" for line in lines]


def deepspeed(**arguments: object) -> list[str]:
    """DeepSpeed's form."""
    head = "[2026-01-01 12:00:00,000] [INFO] [config.py:984:print]   "
    return [f"{head}{name} {'.' * (29 - len(name))} {value}" for name, value in arguments.items()]


def record(**arguments: object) -> list[str]:
    """A record that is printed a field a line."""
    return ["TrainingArguments(", *(f"{name}={value!r}," for name, value in arguments.items()), ")"]


V1 = {"model_parallel_size": 8, "batch_size": 4, "world_size": 64, "num_layers": 72, "checkpoint_activations": True}
OLD = {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2, "world_size": 16, "zero_stage": 1.0}
NEOX = {"model_parallel_size": 2, "pipe_parallel_size": 0, "train_batch_size": 512, "global_num_gpus": 16}

DUMPS = {
    "checkpoint_activations is full recomputation": (
        dotted(**OLD, checkpoint_activations=True, checkpoint_num_layers=1),
        {"activation_recompute": "full"},
    ),
    "Megatron-DeepSpeed of today says both": (
        dotted(**OLD, checkpoint_activations=True, recompute_granularity=None, recompute_method=None),
        {"activation_recompute": "full"},
    ),
    "no checkpointed activations": (
        dotted(**OLD, checkpoint_activations=False, checkpoint_num_layers=1),
        {"activation_recompute": "none"},
    ),
    "Megatron-LM v2.6 uniform": (
        dotted(**OLD, activations_checkpoint_method="uniform", activations_checkpoint_num_layers=1),
        {"activation_recompute": "full"},
    ),
    "Megatron-LM v2.6 blocks": (
        dotted(**OLD, activations_checkpoint_method="block", activations_checkpoint_num_layers=3),
        {"activation_recompute": "block:3"},
    ),
    "NeMo 1": (
        ["    activations_checkpoint_granularity: selective", "    tensor_model_parallel_size: 2"],
        {"activation_recompute": "selective", "tp": "2"},
    ),
    "a dump that says nothing of it": (dotted(**OLD), {"activation_recompute": EMPTY}),
    "DeepSpeed that is off": (
        dotted(**OLD, deepspeed=False, use_distributed_optimizer=False),
        {"zero_stage": "0", "runtime": "megatron-core"},
    ),
    "DeepSpeed that is off, before the distributed optimizer": (dotted(**OLD, deepspeed=False), {"zero_stage": "0"}),
    "DeepSpeed that is on": (
        dotted(**OLD, deepspeed=True, use_distributed_optimizer=False),
        {"zero_stage": "1", "runtime": "megatron-deepspeed"},
    ),
    "the distributed optimizer": (dotted(**OLD, use_distributed_optimizer=True), {"zero_stage": "1"}),
    "PyTorch's FSDP2 in Megatron": (dotted(**OLD, use_torch_fsdp2=True, deepspeed=False), {"zero_stage": "3"}),
    "Megatron-LM v1": (
        dotted(**V1),
        {"tp": "8", "micro_batch": "4", "global_batch_seqs": "32", "activation_recompute": "full", "layers": "72"},
    ),
    "GPT-NeoX": (
        neox(**NEOX, zero_stage=1, deepspeed=True, precision="bfloat16", checkpoint_activations=True),
        {"tp": "2", "pp": "1", "global_batch_seqs": "512", "num_accelerators": "16", "zero_stage": "1",
         "precision": "bf16", "activation_recompute": "full", "runtime": "megatron-deepspeed"},
    ),
    "DeepSpeed's world is its replicas": (
        [*dotted(**OLD, deepspeed=True), *deepspeed(world_size=2, train_batch_size=64)],
        {"num_accelerators": "16", "global_batch_seqs": "64"},
    ),
    "DeepSpeed alone": (
        deepspeed(world_size=8, train_batch_size=64, zero_optimization_stage=3, bfloat16_enabled=True),
        {"num_accelerators": "8", "zero_stage": "3", "precision": "bf16"},
    ),
    "Hugging Face's Trainer": (
        [*record(per_device_train_batch_size=4, gradient_checkpointing=True, bf16=True), *logs.hugging_face()[:6]],
        {"micro_batch": "4", "global_batch_seqs": "64", "num_accelerators": "8", "precision": "bf16",
         "activation_recompute": "full"},
    ),
    "llm-foundry": (
        ["n_gpus: 8", "  d_model: 4096", "  n_layers: 32", "device_train_microbatch_size: 2", "precision: amp_bf16",
         "  sharding_strategy: FULL_SHARD", "  activation_checkpointing: true"],
        {"hidden": "4096", "layers": "32", "micro_batch": "2", "num_accelerators": "8", "zero_stage": "3",
         "activation_recompute": "full", "precision": "bf16"},
    ),
    "torchtitan's mesh says how many": (
        [line.replace("dp_replicate=1, dp_shard=8", "dp_replicate=2, dp_shard=8") for line in logs.TITAN_HEAD],
        {"num_accelerators": "16", "zero_stage": "3"},
    ),
    "torchtitan before it accumulated": (
        ["[rank0]:[titan] Training starts at step 1, with local batch size 8, global batch size 64, "
         "sequence length 4096, total steps 1000 (warmup 200)"],
        {"global_batch_seqs": "64", "micro_batch": "8", "seq_len": "4096"},
    ),
    "Lightning": (
        ["    devices: 8", "    num_nodes: 4", "  precision: bf16-mixed"],
        {"num_accelerators": "32", "precision": "bf16"},
    ),
    "Lightning, of one node nobody knows": (["    devices: 8"], {"num_accelerators": EMPTY}),
    "nanotron with experts": (["  dp=4,", "  expert_parallel_size=2,"], {"num_accelerators": EMPTY, "ep": "2"}),
    "nanotron": (
        ["       parallelism=ParallelismArgs(dp=4,", "       pp=2,", "       tp=2,", "       recompute_layer=False,",
         "       tokens=TokensArgs(sequence_length=4096,", "       micro_batch_size=2,",
         "       batch_accumulation_per_replica=8)"],
        {"tp": "2", "pp": "2", "num_accelerators": "16", "micro_batch": "2", "seq_len": "4096",
         "activation_recompute": "none"},
    ),
    "a model's configuration": (
        ['  "hidden_size": 2048,', '  "num_hidden_layers": 24,', '  "num_key_value_heads": 8,', '  "batch_size": 3,'],
        {"hidden": "2048", "layers": "24", "kv_heads": "8", "micro_batch": EMPTY},
    ),
    "modules recomputed by name": (
        dotted(**OLD, recompute_granularity="selective", recompute_modules=["core_attn", "mlp"]),
        {"activation_recompute": "selective:core_attn+mlp"},
    ),
    "attention alone": (
        dotted(**OLD, recompute_granularity="selective", recompute_modules=["core_attn"]),
        {"activation_recompute": "selective"},
    ),
    "a module that is unknown": (
        dotted(**OLD, recompute_granularity="selective", recompute_modules=["core_attn", "other"]),
        {"activation_recompute": EMPTY},
    ),
    "graphs and host memory": (
        dotted(**OLD, cuda_graph_impl="local", optimizer_cpu_offload=True, optimizer_offload_fraction=0.5),
        {"notes": "CUDA graphs: modules; optimizer offload 50 %"},
    ),
    "no accelerators": (dotted(**OLD | {"world_size": 0}), {"num_accelerators": EMPTY}),
    "a type in place of a count, of a log that holds its program": (["    batch_size: int"], {"micro_batch": EMPTY}),
    "what is put in place of a dump": (
        ['  "n_layer": 12,', "INFO:__main__:Overriding config: n_embd=7168,n_layer=40,use_cache=False"],
        {"layers": EMPTY, "hidden": "7168"},
    ),
    "nodes and what is in each": (["num_gpus_per_node: 8", "num_nodes: 2"], {"num_accelerators": "16"}),
    "neither": (dotted(**OLD, cuda_graph_impl=None, optimizer_cpu_offload=False), {"notes": EMPTY}),
    "two names that differ": (
        dotted(micro_batch_size=2, train_micro_batch_size_per_gpu=4), {"micro_batch": EMPTY},
    ),
    "accelerators that do not divide": (dotted(**OLD | {"world_size": 12}), {"num_accelerators": EMPTY, "tp": "4"}),
}  # fmt: skip
"""What is dumped -> lines, and cells that must be read from them; an empty one must not be there."""


@sweep("name", DUMPS)
def test_a_dump_says_what_ran(tmp_path: Path, name: str) -> None:
    lines, expected = DUMPS[name]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, *logs.megatron(batch=int(expected.get("global_batch_seqs") or 64))]) + "\n")
    (run,) = reading.read(path)
    cells = {**run.stated, "runtime": run.runtime}
    assert {column: cells.get(column, EMPTY) for column in expected} == expected


@sweep(
    ("name", "says"),
    [
        ("two names that differ", "micro_batch is 2 and 4"),
        ("accelerators that do not divide", "12 accelerators do not divide into TP x PP x CP"),
    ],
)
def test_what_is_left_empty_is_said(tmp_path: Path, name: str, says: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join([*DUMPS[name][0], *logs.megatron()]) + "\n")
    (run,) = reading.read(path)
    assert run.conflicts == (says,)


TASKS = {
    "{'loss': 0.6, 'rewards/chosen': 0.1, 'rewards/rejected': -0.1, 'epoch': 0.1}": "--task dpo",
    "step:4 - actor/pg_loss:0.01 - timing_s/step:98.3": "--task rlhf",
    "{'loss': 0.01, 'reward': 0.5, 'reward_std': 0.2, 'epoch': 0.1}": "--task rlhf",
    "stage: dpo": "--task dpo",
    "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622": "lora",
    "trainable params: 6,742,609,920 || all params: 6,742,609,920 || trainable%: 100.0000": EMPTY,
    "Number of non-trainable parameters: 1,100,048,384": "lora",
    "Number of non-trainable parameters: 0": EMPTY,
    "[INFO] Fine-tuning method: LoRA": "lora",
    "Running LoRAFinetuneRecipeDistributed with resolved config:": "lora",
    "  load_in_4bit: true": "--method qlora",
    "a line about the LoRAX project and a DPO paper": EMPTY,
}
"""Line of a log -> the task that it names."""


@sweep("line", TASKS)
def test_a_line_names_what_is_trained(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join([line, *logs.megatron()]) + "\n")
    assert reading.read(path)[0].stated.get("task", EMPTY) == TASKS[line]


def test_of_two_tasks_the_rarer_one_is_trained(tmp_path: Path) -> None:
    """Preferences are learned by adapters, too: what a run costs follows from the preferences."""
    path = tmp_path / "train.log"
    lora, dpo = (next(line for line, named in TASKS.items() if named == task) for task in ("lora", "--task dpo"))
    path.write_text("\n".join([lora, dpo, lora, *logs.megatron()]) + "\n")
    assert reading.read(path)[0].stated["task"] == "--task dpo"


def test_a_dump_behind_the_steps_says_nothing_of_the_run_before(tmp_path: Path) -> None:
    """Runs whose dumps share no name: where the second is dumped, nothing differs until its steps begin again."""
    path, alone = tmp_path / "train.log", []
    joined = [[*DUMPS[name][0], *logs.megatron()] for name in ("Megatron-LM v1", "NeMo 1")]
    for lines in joined:
        path.write_text("\n".join(lines) + "\n")
        alone += [run.stated for run in reading.read(path)]
    path.write_text("\n".join([*joined[0], *joined[1]]) + "\n")
    assert [run.stated for run in reading.read(path)] == alone
