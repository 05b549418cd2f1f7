"""Commands and files of Hugging Face's Trainer, TRL, LLaMA-Factory, Axolotl and DeepSpeed-Chat as plans."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.base.errors import WrongQuestion
from planner.launchers import accelerate, bundle, parts, plan_facts, reading, write
from planner.launchers.reading import trainer_dialects
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.trainer_dialects import NAMES
from planner.launchers.torchrun import NAME as START
from planner.schema.launcher_table import launcher_table
from planner.schema.workload import Method
from tests.asking import ask
from tests.launchers.environments import given
from tests.launchers.spread import EVERY, expressible
from tests.words import worded

TRL = {
    **{"model_name_or_path": "meta-llama/Meta-Llama-3.1-8B-Instruct", "per_device_train_batch_size": 2},
    **{"gradient_accumulation_steps": 4, "max_length": 4096, "packing": True, "bf16": True, "learning_rate": "2e-5"},
    **{"gradient_checkpointing": True, "max_steps": 1000, "output_dir": "out"},
}
PLAIN = {"model_name_or_path": "Qwen/Qwen3-8B", "per_device_train_batch_size": 2}
FACTORY = {
    **{"model_name_or_path": "Qwen/Qwen3-8B", "stage": "sft", "do_train": True, "finetuning_type": "lora"},
    **{"lora_rank": 32, "lora_target": "q_proj,v_proj", "cutoff_len": 8192, "packing": True, "bf16": True},
    **{"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "template": "qwen3"},
}
AXOLOTL = {
    **{"base_model": "NousResearch/Meta-Llama-3.1-8B", "sequence_len": 8192, "sample_packing": True, "bf16": "auto"},
    **{"micro_batch_size": 1, "gradient_accumulation_steps": 8, "optimizer": "adamw_torch_fused", "num_epochs": 1},
    **{"gradient_checkpointing": True, "datasets": [{"path": "x", "type": "alpaca"}]},
}
ZERO3 = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
FSDP = {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 16, "fsdp_config": {"fsdp_version": 2}}


pytestmark = pytest.mark.usefixtures("folder")


def read(values: dict[str, Any], name: str = "run.yaml") -> FoundOptions:
    """What is read of a file, whose kind is found out."""
    Path(name).write_text(yaml.safe_dump(values), encoding="utf-8")
    return reading.read(reading.detect(name), name)


WRITTEN = {
    "hf-trainer": ("trainer", START),
    "trl": ("trainer", START),
    "llama-factory": ("llama-factory", "llama_factory.yaml"),
    "axolotl": ("axolotl", "axolotl.yaml"),
}
"""Launcher of the family -> the reader of what it writes, and the file."""


RUNTIMES = ("hf-trainer", "hf-trainer-liger", "deepspeed", "fsdp2", "pytorch-ddp")


@pytest.mark.parametrize("target", WRITTEN)
def test_what_export_wrote_reads_back(target: str) -> None:
    """LLaMA-Factory's own file says nothing of the shards that Accelerate's says; FSDP2 is ZeRO-3 or 2."""
    source, name = WRITTEN[target]
    plans = expressible(target, RUNTIMES)[::2]
    assert len(plans) >= 10 // EVERY
    for number, (asked, whole) in enumerate(plans):
        write(Path(str(number)), {"": bundle(whole, parts(target), given(target))})
        back = reading.read(source, str(Path(str(number)) / name))
        method = Method(**whole.workload.method)
        route = accelerate.route(whole)
        alone = target == "llama-factory" and route == "FSDP"
        zero = {"FSDP": 0 if alone else 3, "MULTI_GPU": 0}.get(route, whole.parallelism.zero_stage)
        assert (back.settings["zero"], back.settings["micro"]) == (zero, whole.batch.micro), asked
        assert (back.accumulation, back.steps) == (whole.batch.accumulation, plan_facts.steps(whole)), asked
        assert (back.sequence, back.precision) == (whole.workload.sequence, whole.precision), asked
        assert back.settings["recompute"] == ("none" if alone else whole.recompute.policy), asked
        assert (back.settings.get("offload") == "optimizer") == bool(whole.offload["optimizer"]), asked
        assert back.optimizer == whole.workload.optimizer["id"], asked
        assert back.method == method.name, asked
        assert (back.rank, sorted(back.targets or ())) == (method.rank or None, sorted(method.targets)), asked
        if source == "trainer":
            assert back.ranks == whole.cluster.accelerators, asked
            by_trainer = whole.runtime.name != "deepspeed"
            assert back.runtime.startswith("hf-trainer") if by_trainer else back.runtime == "deepspeed", asked


def test_names_that_are_written_are_read() -> None:
    said = {
        **{"examples": "micro", "micro": "micro", "accumulation": "accumulation", "sequence": "sequence"},
        **{"adapters.rank": "rank", "adapters.modules": "targets", "adapters.listed": "targets", "optim": "optimizer"},
        **{"job.model": "model", "steps": "steps"},
    }
    for target in WRITTEN:
        for option in launcher_table(target).options.values():
            assert option.says not in said or option.name in NAMES[said[option.says]], (target, option.name)


def test_a_trl_file_is_read() -> None:
    found = read(TRL)
    assert (found.model, found.runtime, found.precision, found.method) == (
        "llama3.1-8b",
        "hf-trainer",
        "bf16",
        "finetune",
    )
    assert found.settings == {"zero": 0, "micro": 2, "recompute": "full"}
    assert (found.per_rank, found.sequence, found.steps, found.optimizer) == (8, 4096, 1000, "adamw")
    assert not found.unread and not found.differs


def test_trls_own_defaults_are_taken_and_said() -> None:
    """1,024 tokens, bf16, recomputation; the plain Trainer has none of them."""
    found = read({**PLAIN, "dataset_name": "x"})
    assert (found.sequence, found.precision, found.settings["recompute"]) == (1024, "bf16", "full")
    assert "max_length not stated: 1024, the program's default" in found.assumed
    assert "gradient_checkpointing not stated: True, the program's default" in found.assumed
    plain = read(PLAIN)
    assert (plain.sequence, plain.precision, plain.settings["recompute"]) == (None, "fp32", "none")


def test_a_llama_factory_file_is_read_with_its_deepspeed_file(folder: Path) -> None:
    (folder / "ds.json").write_text(json.dumps(ZERO3), encoding="utf-8")
    found = read({**FACTORY, "deepspeed": "ds.json"})
    assert (found.model, found.method, found.rank, found.targets) == ("qwen3-8b", "lora", 32, ("q", "v"))
    assert (found.runtime, found.settings["zero"], found.settings["micro"]) == ("deepspeed", 3, 1)
    assert found.settings["recompute"] == "full"  # its default
    assert read({**FACTORY, "disable_gradient_checkpointing": True}).settings["recompute"] == "none"


def test_adapters_over_quantised_weights_are_read() -> None:
    """Each program's own keys, and its default for the scales of 4-bit weights."""
    found = read({**FACTORY, "quantization_bit": 4})
    assert (found.method, found.runtime, found.targets) == ("qlora", "hf-trainer", ("q", "v"))
    assert read({**FACTORY, "quantization_bit": 8}).method == "qlora:int8"
    fused = read({**FACTORY, "quantization_bit": 4, "enable_liger_kernel": True})
    assert fused.runtime == "hf-trainer-liger" and not any("Liger" in line for line in fused.differs)
    own = {**AXOLOTL, "adapter": "qlora", "load_in_4bit": True, "lora_r": 8, "lora_target_linear": True}
    assert (read(own).method, read(own).targets) == ("qlora", ("q", "k", "v", "o", "up", "down", "gate"))
    assert not any("scales" in line for line in read(own).differs)
    trl = {**TRL, "use_peft": True, "load_in_4bit": True, "lora_target_modules": ["q_proj"]}
    assert any("scales of 4-bit weights are in 32 bit" in line for line in read(trl).differs)
    assert not read({**trl, "use_bnb_nested_quant": True}).differs


def test_llama_factory_adapts_all_layers_by_default() -> None:
    left = {name: value for name, value in FACTORY.items() if name != "lora_target"}
    assert read(left).targets == ("q", "k", "v", "o", "up", "down", "gate")


def test_an_axolotl_file_is_read() -> None:
    found = read(
        {**AXOLOTL, "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": False}, "tensor_parallel_size": 2}
    )
    assert (found.model, found.runtime, found.settings["zero"], found.settings["tp"]) == ("llama3.1-8b", "fsdp2", 3, 2)
    assert found.differs == ("weights stay whole after the forward pass; predicted as given back",)
    assert "bf16 auto: bf16, as accelerators since Ampere have it" in found.assumed
    assert read({**AXOLOTL, "adapter": "lora", "lora_r": 16, "lora_target_modules": ["q_proj"]}).targets == ("q",)
    assert read({**AXOLOTL, "optimizer": "adamw_bnb_8bit"}).optimizer == "adam-8bit"
    assert read({**AXOLOTL, "optimizer": "paged_adamw_8bit"}).optimizer == "paged-adam-8bit"
    assert read({**AXOLOTL, "optimizer": "paged_adamw_32bit"}).optimizer == "paged-adamw"


def test_a_command_is_read_with_the_files_that_it_names(folder: Path) -> None:
    (folder / "sft.yaml").write_text(yaml.safe_dump(TRL), encoding="utf-8")
    (folder / "fsdp.yaml").write_text(yaml.safe_dump(FSDP), encoding="utf-8")
    text = "accelerate launch --config_file fsdp.yaml sft.py --config sft.yaml --max_length 8192 --use_peft --lora_r 8"
    found = reading.read("trainer", text)
    assert (found.runtime, found.settings["zero"], found.sequence, found.ranks) == ("hf-trainer", 3, 8192, 16)
    assert (found.method, found.rank, found.targets) == ("lora", 8, None)
    degrees = {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 8}
    (folder / "fsdp.yaml").write_text(yaml.safe_dump({**FSDP, "parallelism_config": degrees}))
    found = reading.read("trainer", text)
    assert (found.settings["zero_scope"], found.degrees) == ("node", (2, 8))
    engine = {"zero_stage": 2, "offload_optimizer_device": "cpu"}
    (folder / "fsdp.yaml").write_text(yaml.safe_dump({"distributed_type": "DEEPSPEED", "deepspeed_config": engine}))
    found = reading.read("trainer", text)
    assert (found.runtime, found.settings["zero"], found.settings["offload"]) == ("deepspeed", 2, "optimizer")


CHAT = """ZERO_STAGE=$2
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
deepspeed --num_gpus 4 main.py --model_name_or_path facebook/opt-1.3b --zero_stage $ZERO_STAGE --max_seq_len 1024 \\
  --gradient_checkpointing --lora_dim 128 --deepspeed &> log
"""


def test_a_deepspeed_chat_script_is_read() -> None:
    """Its own defaults: 16 sequences, fp16; LoRA leaves embeddings free."""
    found = reading.read(reading.detect(CHAT), CHAT)
    assert (found.model, found.precision, found.sequence, found.ranks) == ("opt-1.3b", "fp16", 1024, 4)
    assert (found.settings["zero"], found.settings["micro"], found.settings["dp_overlap"]) == (3, 16, "on")
    assert (found.rank, found.targets) == (128, ("q", "k", "v", "o", "up", "down"))
    assert found.differs == ("embeddings and norms are trained, too; predicted frozen",)


@worded("import.trainers", read=json.loads)
def test_what_cannot_be_read_is_told(case: tuple[str, dict[str, Any]]) -> str:
    base, changes = case
    with pytest.raises(WrongQuestion) as caught:
        read({"": {}, "FACTORY": FACTORY, "AXOLOTL": AXOLOTL, "TRL": TRL, "PLAIN": PLAIN}[base] | changes)
    return str(caught.value)


@worded("import.commands")
def test_commands_that_cannot_be_read_are_told(text: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        reading.read("trainer", text)
    return str(caught.value)


def test_yaml_is_data() -> None:
    for text, says in (
        ("a: [1", "not YAML"),
        ("- 1", "not a mapping"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    ):
        with pytest.raises(WrongQuestion, match=says):
            trainer_dialects.mapping(text)


def test_a_file_becomes_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    read(TRL)
    answer = ask(capsys, "import run.yaml --cluster dgx-h100:2 -o mine.json")
    assert answer.code in (0, 1), answer.err
    whole = json.loads(Path("mine.json").read_text(encoding="utf-8"))["plans"][0]
    assert (whole["axes"]["micro"], whole["axes"]["batch"]) == (2, 2 * 4 * 16)
    answer = ask(capsys, "import nothing-here.yaml --cluster dgx-h100:2")
    assert (answer.code, "no such file" in answer.err) == (2, True)
    lora = read({**FACTORY, "deepspeed": None})
    assert lora.rank == 32
    answer = ask(capsys, "import run.yaml --cluster dgx-h100:2 -o lora.json")
    method = json.loads(Path("lora.json").read_text(encoding="utf-8"))["plans"][0]["workload"]["method"]
    assert (method["kind"], method["rank"], method["targets"]) == ("lora", 32, ["q", "v"])


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("--use_lora", "lora"),
        ("--use_lora --q_lora True", "qlora"),
        ("--use_lora False --lora_rank 64", "finetune"),
        ("--lora_r 8", "lora"),
        ("--lora_r 8 --use_peft", "lora"),
    ],
)
def test_adapters_have_several_names(words: str, method: str) -> None:
    """Qwen's and FastChat's scripts: full fine-tuning would be another memory by far."""
    command = "torchrun t.py --model_name_or_path llama3-8b --per_device_train_batch_size 1 --bf16 "
    assert reading.read("trainer", command + words).method == method


def test_ms_swifts_own_files_of_deepspeed_overlap_nothing() -> None:
    command = "swift sft --model llama3-8b --tuner_type full --per_device_train_batch_size 1 --deepspeed zero3"
    assert reading.read("trainer", command).settings["dp_overlap"] == "off"
    with pytest.raises(WrongQuestion, match="no file behind it"):
        reading.read("trainer", command.replace(" zero3", ""))


def test_ms_swifts_own_defaults_are_taken() -> None:
    """Recomputation, all linear layers, the weights' bf16 and 16 sequences a step; what is stated leads."""
    command = "swift sft --model llama3-8b --per_device_train_batch_size 2"
    found = reading.read("trainer", command)
    assert (found.settings["recompute"], found.precision, found.rank, found.per_rank) == ("full", "bf16", 8, 16)
    assert found.targets is not None and len(found.targets) == 7
    assert "gradient_checkpointing not stated: True, the program's default" in found.assumed
    spread = "CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 swift sft --model llama3-8b --per_device_train_batch_size 2"
    assert reading.read("trainer", spread).per_rank == 8  # 2 x 4 x 2 processes
    assert any("take turns" in line for line in reading.read("trainer", spread).differs)
    assert reading.read("trainer", spread.replace("NPROC_PER_NODE=2 ", "")).ranks == 1
    stated = reading.read("trainer", f"{command} --gradient_checkpointing false --torch_dtype float16 --lora_rank 4")
    assert (stated.settings["recompute"], stated.precision, stated.rank) == ("none", "fp16", 4)


def test_adapters_of_pefts_examples_and_lisa() -> None:
    command = (
        "torchrun train.py --model_name_or_path llama3-8b --per_device_train_batch_size 8 --bf16 true --max_length 512"
    )
    found = reading.read("trainer", f"{command} --use_peft_lora true --lora_r 8 --use_4bit_quantization true")
    assert (found.method, found.rank) == ("qlora", 8)
    with pytest.raises(WrongQuestion, match="a few layers at a time"):
        reading.read("trainer", f"{command} --use_lisa 1 --lisa_activated_layers 1")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("llamafactory-cli train", {"method": "lora", "settings.recompute": "full", "sequence": 8192, "rank": 32}),
        ("llamafactory-cli train run.yaml cutoff_len=1024", {"sequence": 1024, "method": "lora"}),
        ("torchrun --nproc_per_node 4 src/train.py run.yaml", {"ranks": 4, "rank": 32}),
    ],
)
def test_commands_of_programs_read_the_file_that_they_name(command: str, expected: dict[str, Any]) -> None:
    """LLaMA-Factory recomputes and adapts where nothing is stated, by a file or by a command line of its own."""
    whole = {name: value for name, value in FACTORY.items() if name != "gradient_checkpointing"}
    Path("run.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    words = "" if "run.yaml" in command else " ".join(f"--{name} {value}" for name, value in whole.items())
    found = reading.read(reading.detect(f"{command} {words}"), f"{command} {words}")
    for name, value in expected.items():
        have = found.settings[name.partition(".")[2]] if "." in name else getattr(found, name)
        assert have == value, name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"use_dora": True}, {"method": "dora", "rank": 32}),
        ({"use_dora": True, "quantization_bit": 4}, {"method": "qdora"}),
        ({"finetuning_type": "freeze", "freeze_trainable_layers": 4}, {"method": "freeze:4", "rank": None}),
        ({"stage": "dpo"}, {"task": "dpo", "per_rank": 16}),
        ({"stage": "rm"}, {"task": "reward"}),
        ({"finetuning_type": "full", "train_from_scratch": True}, {"method": "pretrain"}),
        ({"additional_target": "embed_tokens"}, {"differs": "trained in addition to the adapters (embed_tokens)"}),
        ({"shift_attn": True}, {"differs": "attention in shifted groups"}),
        ({"flash_attn": "disabled"}, {"differs": "not fused"}),
        ({"deepspeed": "examples/deepspeed/ds_z3_config.json"}, {"assumed": "ZeRO-3, as the program's own file"}),
        (
            {"deepspeed": "ds_z2_offload_config.json", "quantization_bit": 4},
            {"differs": "optimizer states of adapters lie in host memory", "runtime": "hf-trainer"},
        ),
        (
            {"deepspeed": "ds_z2_config.json", "stage": "dpo", "finetuning_type": "full"},
            {"refused": "zero 2 under DeepSpeed: no plan holds it"},
        ),
        (
            {"deepspeed": "ds_z3_offload_config.json", "stage": "dpo"},
            {"task": "dpo", "runtime": "hf-trainer"},
        ),
        ({"fsdp": "fsdp2"}, {"refused": "fsdp fsdp2: choose"}),
        ({"never_heard_of": 7}, {"refused": "never_heard_of 7: may change .* --ignore never_heard_of"}),
        ({"never_heard_of": False}, {"method": "lora"}),
    ],
)
def test_every_option_is_read_told_or_refused(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    if "refused" in expected:
        with pytest.raises(WrongQuestion, match=expected["refused"]):
            read({**FACTORY, **changes})
        return
    found = read({**FACTORY, **changes})
    for name, value in expected.items():
        have = getattr(found, name)
        assert any(value in line for line in have) if name in ("differs", "assumed") else have == value, name


def test_a_second_configuration_of_llama_factory_is_that_of_the_first() -> None:
    second = {
        **{"model": "Qwen/Qwen3-8B", "model_class": "llm", "train_dataset": "x.yaml", "cutoff_len": 2048},
        **{"peft_config": {"name": "lora", "r": 16, "target_modules": "all"}, "micro_batch_size": 2},
        **{"dist_config": {"name": "fsdp2", "dcp_path": None}, "kernel_config": {"name": "auto"}},
    }
    found = read(second)
    assert (found.method, found.rank, found.settings["zero"], found.settings["recompute"]) == ("lora", 16, 3, "full")
    assert (found.precision, found.per_rank) == ("bf16", 2)
    with pytest.raises(WrongQuestion, match=r"dist_config\.offload_params"):
        read({**second, "dist_config": {"name": "fsdp2", "offload_params": True}})


SCRIPT = """
@dataclass
class Arguments:
    model_max_length: int = field(default=512, metadata={"help": "x"})
    bf16: bool = True
def train():
    model = get_peft_model(model, LoraConfig(r=64, target_modules=["q_proj", "v_proj"]))
"""


def test_a_training_script_says_its_own_defaults() -> None:
    """Its fields and the adapters that it builds whatever is asked; nothing of it is run."""
    command = "torchrun --nproc_per_node 8 train.py --model_name_or_path llama3-8b --per_device_train_batch_size 1"
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    found = reading.read("trainer", command)
    assert (found.sequence, found.precision, found.rank, found.targets) == (512, "bf16", 64, ("q", "v"))
    assert reading.read("trainer", f"{command} --model_max_length 1024").sequence == 1024
    always = SCRIPT + "    model = load(load_in_4bit=True)\n    model.gradient_checkpointing_enable()\n"
    Path("train.py").write_text(always, encoding="utf-8")
    found = reading.read("trainer", command)
    assert (found.method, found.settings["recompute"]) == ("qlora", "full")
    Path("train.py").write_text(SCRIPT.replace("    model =", "    if asked:\n      model ="), encoding="utf-8")
    assert reading.read("trainer", command).method == "finetune"


def test_alpaca_loras_options_are_those_of_its_defaults() -> None:
    """A global batch, weights in 8 bit, fp16, 256 tokens."""
    found = reading.read(
        "trainer", "torchrun --nproc_per_node 4 finetune.py --base_model llama3-8b --micro_batch_size 8"
    )
    assert (found.batch, found.method, found.precision, found.sequence, found.ranks) == (
        128,
        "qlora:int8",
        "fp16",
        256,
        4,
    )


def test_accelerators_are_counted_as_those_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """8 of nvidia-smi x 2 nodes of scontrol: 64 / 16 = 4; a list of its own is counted, too."""
    Path("run.sh").write_text(
        "#!/bin/bash\nNODES=$(scontrol show hostnames $X | wc -l)\nGPUS=$(nvidia-smi -L | wc -l)\nD=0,1\n"
        "N=$(echo $D | awk -F',' '{print NF}')\ntorchrun --nproc_per_node $GPUS t.py --model_name_or_path llama3-8b "
        "--bf16 --per_device_train_batch_size $N --gradient_accumulation_steps $((64 / NODES / GPUS))\n",
        encoding="utf-8",
    )
    answer = ask(capsys, "import run.sh --cluster dgx-h100:2 --seq 1024 --ran")
    assert "2 x 4 sequences a rank and step" in answer.out
    assert "counted by the script: accelerators of a node 8, nodes of the job 2" in answer.out


def test_branches_that_name_other_files_are_never_taken_one_for_the_other() -> None:
    """A job array: which file or which ``key=value`` it is hangs on the task."""
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text(yaml.safe_dump({**FACTORY, "cutoff_len": 1024 if name == "a.yaml" else 2048}), "utf-8")
    script = 'if [ "$TASK_ID" -eq 1 ]; then\n  X={}\nelse\n  X={}\nfi\nllamafactory-cli train {}\n'
    for cases in (("a.yaml", "b.yaml", "$X"), ("4", "2", "a.yaml per_device_train_batch_size=$X")):
        with pytest.raises(WrongQuestion, match=r"may start commands with --(config|per_device)"):
            reading.read("trainer", script.format(*cases))
    assert reading.read("trainer", script.format("a.yaml", "a.yaml", "$X")).sequence == 1024
    command = (
        "python mason.py --num_nodes 8 --gpus 8 -- accelerate launch --num_processes 8 --mixed_precision bf16 t.py "
    )
    assert reading.read("trainer", f"{command}--model_name_or_path llama3-8b --max_seq_length 8").ranks == 64


SPREAD = {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16", "num_processes": 8}
RUN = "t.py --model_name_or_path llama3-8b --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True"
ENGINE = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ({**SPREAD, "mixed_precision": "fp8"}, "mixed_precision fp8"),
        ({**SPREAD, "fp8_config": {"backend": "TE"}}, "accelerate's fp8_config"),
        ({**SPREAD, "distributed_type": "MEGATRON_LM"}, "distributed_type MEGATRON_LM"),
        ({**SPREAD, "parallelism_config": {"parallelism_config_sp_size": 2}}, "sp_size"),
        ({**FSDP, "fsdp_config": {"fsdp_xla": True}}, "fsdp's xla"),
        ({**SPREAD, "distributed_type": "MULTI_XPU"}, "distributed_type MULTI_XPU"),
        ({"SECRET": "distributed_type"}, "none of its keys"),
        ({**ENGINE, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}, "device is 'nvme'"),
        ({**ENGINE, "train_micro_batch_size_per_gpu": 8}, "8 in DeepSpeed's configuration, 2 by the options"),
        ({**ENGINE, "bf16": {}, "fp16": {"enabled": True}}, "fp16 in DeepSpeed's configuration, bf16 by the options"),
        ({**ENGINE, "zero_optimization": {"stage": 3, "mics_shard_size": 4}}, "mics_shard_size 4"),
        ({**ENGINE, "zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, "zero_quantized_weights"),
        ({**ENGINE, "optimizer": {"type": "OneBitAdam"}}, "optimizer.type onebitadam"),
        ({**ENGINE, "torch_autocast": {"enabled": True}}, "torch_autocast"),
        ("export ACCELERATE_USE_FSDP=true\n", "ACCELERATE_USE_FSDP=true"),
        ("export ACCELERATE_CONFIG_FILE=x.yaml\n", "ACCELERATE_CONFIG_FILE=x.yaml"),
    ],
)
def test_what_spreads_a_job_is_never_passed_over(file: dict[str, Any] | str, told: str) -> None:
    if isinstance(file, str):
        command = f"{file}torchrun --nproc_per_node 8 {RUN}"
    elif "zero_optimization" not in file:
        Path("a.yaml").write_text(yaml.safe_dump(file), encoding="utf-8")
        command = f"accelerate launch --config_file a.yaml {RUN}"
    else:
        Path("z.json").write_text(json.dumps(file), encoding="utf-8")
        command = f"deepspeed {RUN} --deepspeed z.json"
    with pytest.raises(WrongQuestion) as caught:
        reading.read("trainer", command)
    assert told in str(caught.value)


def test_words_of_fsdp_are_read() -> None:
    whole = {**FSDP, "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD", "fsdp_activation_checkpointing": True}}
    Path("a.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    found = reading.read("trainer", f"accelerate launch --config_file a.yaml {RUN}")
    assert (found.settings["zero"], found.settings["zero_scope"], found.settings["recompute"]) == (3, "node", "full")
    found = reading.read("trainer", f"torchrun --nproc_per_node 8 {RUN} --fsdp 'hybrid_shard auto_wrap'")
    assert (found.settings["zero"], found.settings["zero_scope"]) == (3, "node")
    secret = reading.Started(files=())
    Path("b.yaml").write_text("base_model: llama3-8b\nPASSWORD: hunter2xyz\n", encoding="utf-8")
    with pytest.raises(WrongQuestion) as caught:
        reading.read("axolotl", "b.yaml", secret)
    assert "hunter2" not in str(caught.value)


def test_only_trls_programs_have_trls_defaults() -> None:
    """run_clm.py has a dataset_name, too; a script that imports TRL is one of its."""
    command = "torchrun {} --model_name_or_path llama3-8b --per_device_train_batch_size 1 --dataset_name x"
    for program, recompute in (("run_clm.py", "none"), ("sft.py", "full"), ("mine.py", "none")):
        assert reading.read("trainer", command.format(program)).settings["recompute"] == recompute, program
    Path("mine.py").write_text("from trl import SFTTrainer\n", encoding="utf-8")
    assert reading.read("trainer", command.format("mine.py")).settings["recompute"] == "full"
    Path("sft.py").write_text("import transformers\n", encoding="utf-8")
    assert reading.read("trainer", command.format("sft.py")).settings["recompute"] == "none"


def test_a_configuration_of_deepspeed_says_the_batch_that_options_do_not() -> None:
    idle = {"torch_autocast": {"enabled": False}}
    Path("z.json").write_text(json.dumps({**ENGINE, **idle, "train_micro_batch_size_per_gpu": 4}), encoding="utf-8")
    words = "deepspeed t.py --model_name_or_path llama3-8b --learning_rate 1 --bf16 True --deepspeed z.json"
    assert reading.read("trainer", words).settings["micro"] == 4
    Path("z.json").write_text(json.dumps({**ENGINE, "train_batch_size": 64}), encoding="utf-8")
    with pytest.raises(WrongQuestion, match="train_batch_size 64 in DeepSpeed's configuration"):
        reading.read("trainer", words)
    assert any("TF32" in line for line in read({**PLAIN, "tf32": True}).differs)
    left = {**AXOLOTL, "overrides_of_model_config": {"num_hidden_layers": 4}}
    with pytest.raises(WrongQuestion, match="overrides_of_model_config: other layers"):
        read(left)
    former = {**FACTORY, "finetuning_type": "freeze", "num_layer_trainable": 8}
    with pytest.raises(WrongQuestion, match="the last blocks, whole"):
        read(former)
    assert read({**former, "name_module_trainable": "all"}).method == "freeze:8"


def test_what_a_file_behind_fsdp_says_counts(folder: Path) -> None:
    """ms-swift's `--fsdp FILE` holds FSDP's words and its settings."""
    config = {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": 2, "activation_checkpointing": True}}
    (folder / "fsdp2.json").write_text(json.dumps(config), encoding="utf-8")
    command = "swift sft --model Qwen/Qwen3-8B --dataset x --gradient_checkpointing false --fsdp fsdp2.json"
    found = reading.read("trainer", command)
    assert (found.settings["zero"], found.settings["recompute"]) == (3, "full")
    config["fsdp_config"]["activation_cpu_offload"] = True  # type: ignore[index]
    (folder / "fsdp2.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(WrongQuestion, match="activation_cpu_offload: may change"):
        reading.read("trainer", command)
