"""``import`` of files and commands of programs on PyTorch and JAX: a row a construct, minimal texts of our own."""

from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.commands import launcher_files
from planner.launchers.reading import trainers_of_rl
from planner.launchers.reading.source import SOURCES, detect, read
from planner.launchers.reading.started import Started
from planner.launchers.reading.trainer_dialects import library_name, mapping

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
"""
REGISTRY = """
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.quantization import Float8LinearConverter
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer
from . import model_registry

def llama3_405b():
    config = Trainer.Config(
        model_spec=model_registry("405B", converters=[Float8LinearConverter.Config()]),
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192, steps=3),
        activation_checkpoint=FullAC.Config(),
    )
    config.parallelism = ParallelismConfig(tensor_parallel_degree=8)
    return config
"""
READ: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    # name -> (files, of which the first is imported, what is read, what is told)
    "torchtitan: a command over its file": (
        {"run.sh": "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file ./a.toml --training.seq_len 8192 "
                   "--activation_checkpoint.mode full --checkpoint.enable", "a.toml": TITAN},
        {"sequence": 8192, "model": "llama3-8b", "ranks": 8, "micro": 2, "recompute": "full"}, ""),
    "torchtitan: a registered configuration computed again otherwise": (
        {"run.sh": "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b "
                   "--activation_checkpoint.mode none"}, {"recompute": "none", "model": "llama3.1-8b"}, ""),
    "torchtitan: a program of its own over a file": (
        {"run.sh": "srun torchrun --nproc_per_node 8 ./train.py --job.config_file a.toml", "a.toml": TITAN},
        {"sequence": 4096, "model": "llama3-8b"}, ""),
    "torchtitan: every second block": (
        {"a.toml": TITAN}, {"recompute": "selective"}, "every 2. block is recomputed as a whole"),
    "torchtitan: every block": (
        {"a.toml": TITAN + '[activation_checkpoint]\nselective_ac_option = "1"'}, {"recompute": "full"}, ""),
    "torchtitan: 16-bit weights": ({"a.toml": TITAN + 'dtype = "bfloat16"'}, {}, "gradients and moments in 16 bit"),
    "torchtitan: experts in all tensor-parallel ranks": (
        {"a.toml": '[model]\nname = "llama4"\nflavor = "17bx16e"\n[training]\nseq_len = 64\n[parallelism]\n'
                   "tensor_parallel_degree = 8\nexpert_tensor_parallel_degree = 8"},
        {"model": "llama4-scout", "tp": 8, "etp": 8}, ""),
    "torchtitan: a registry's function": (
        {"config_registry.py": REGISTRY},
        {"model": "llama3.1-405b", "micro": 2, "sequence": 8192, "tp": 8, "recompute": "full", "precision": "fp8"},
        "of the program: llama3_405b"),
    "olmo: a command over its file": (
        {"run.sh": "torchrun --nproc_per_node=8 scripts/train.py a.yaml --device_train_microbatch_size=4",
         "a.yaml": "model: {d_model: 64, n_layers: 2, n_heads: 2, layer_norm_type: rms, mlp_hidden_size: 512}\n"
                   "device_train_microbatch_size: 2\nmax_duration: 10\nglobal_train_batch_size: 32\n"},
        {"micro": 4, "batch": 32, "ranks": 8}, ""),
    "llm-foundry: adapters, aliases": (
        {"a.yaml": "dataset: &d {name: x}\neval_loader: *d\nmodel: {name: hf_causal_lm, pretrained_model_name_or_path: "
                   "gpt2, peft_config: {peft_type: LORA, r: 8, target_modules: [q_proj]}}\nmax_seq_len: 64\n"
                   "max_duration: 1ba\nglobal_train_batch_size: 8\n"},
        {"method": "lora", "rank": 8, "targets": ("q",)}, ""),
    "litgpt: a base of 4 bit": (
        {"a.yaml": "checkpoint_dir: checkpoints/Qwen/Qwen2-7B\nout_dir: x\nquantize: bnb.nf4\nlora_r: 4\n"
                   "train: {global_batch_size: 4, micro_batch_size: 2}\n"},
        {"method": "qlora", "model": "qwen2.5-7b"}, ""),
    "openrlhf: options without dots": (
        {"run.sh": "deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --max_len 4096 "
                   "--bf16 --train_batch_size 64 --micro_train_batch_size 2 --zero_stage 3 --gradient_checkpointing"},
        {"model": "llama3-8b", "sequence": 4096, "batch": 64, "micro": 2, "zero": 3, "recompute": "full"}, ""),
    "maxtext: a model and a mesh of its own": (
        {"run.sh": "EXECUTABLE=train.py\npython3 MaxText/$EXECUTABLE MaxText/configs/base.yml base_emb_dim=1024 "
                   "per_device_batch_size=0.5 ici_tensor_parallelism=4 weight_dtype=bfloat16 attention=dot_product\n"
                   "python3 MaxText/decode.py MaxText/configs/base.yml per_device_batch_size=1"},
        {"micro": 2, "tp": 4, "sequence": 2048, "model": None, "recompute": "full"}, "weights in 16 bit"),
    "maxtext: variables are keys": (
        {"run.sh": "export M_PER_DEVICE_BATCH_SIZE=3\npython3 -m MaxText.train base.yml model_name=llama3-8b $@"},
        {"micro": 3}, ""),
    "maxtext: several runs of one work": (
        {"run.sh": "for i in 1 2; do python3 -m MaxText.train base.yml model_name=llama3.3-70b "
                   "run_name=$i steps=$i per_device_batch_size=1; done", "base.yml": "steps: 3\nnew_key: 4\n"},
        {"model": "llama3.1-70b", "micro": 1}, "1 other keys of its base.yml: the program's own defaults"),
    "verl: sft_trainer's micro-batches of tokens": (
        {"run.sh": "E=${E:-'-m verl.trainer.sft_trainer'}\ntorchrun --nproc_per_node=8 $E "
                   "model.path=$HOME/Qwen/Qwen2.5-7B data.max_length=2048 data.max_token_len_per_gpu=8192 "
                   "engine.ulysses_sequence_parallel_size=2"},
        {"model": "qwen2.5-7b", "micro": 8, "cp": 2, "batch": 256, "sequence": 2048}, ""),
    "nemo-rl: a root that lies elsewhere": (
        {"a.yaml": "defaults: ../../sft.yaml\nsft: {max_num_steps: 5}\n"
                   "policy: {megatron_cfg: {enabled: true, tensor_model_parallel_size: 2},\n"
                   "         dtensor_cfg: {enabled: false}}"},
        {"model": "llama3.2-1b", "batch": 32, "sequence": 1024, "zero": 1, "sequence_parallel": "off", "tp": 2},
        "sft.yaml is not at hand: what it says is taken from NeMo-RL 7ea279ab"),
    "torchtune: a program of one process": (
        {"run.sh": "tune run full_finetune_single_device --config a.yaml batch_size=8",
         "a.yaml": "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: x\nmetric_logger: x"},
        {"ranks": 1, "micro": 8}, ""),
    "torchtitan: what its filter leaves in 16 bit": (
        {"run.sh": "torchrun -m torchtitan.train --job.config_file a.toml --optimizer.name Adam "
                   "--model.converters float8 --float8.filter_fqns output,attention",
         "a.toml": TITAN}, {"precision": "fp8"}, "attention"),
    "torchtune: selective checkpoints": (
        {"a.yaml": "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: x\nmetric_logger: x\n"
                   "enable_activation_checkpointing: False\nac_mode: selective\nac_option: 2"},
        {"recompute": "selective"}, "so many layers apart"),
    "torchtune: blocks are not compiled": (
        {"a.yaml": "model: {_component_: torchtune.models.qwen2.qwen2_7b}\ncheckpointer: x\nmetric_logger: x\n"
                   "compile: False"}, {"model": "qwen2.5-7b"}, "blocks are not compiled by torch.compile"),
    "litgpt: a configuration in place of a name": (
        {"a.yaml": "model_name: stories15M\nout_dir: x\ntrain: {global_batch_size: 512, micro_batch_size: 128}\n"
                   "model_config: {n_layer: 6, n_embd: 288, n_head: 6, intermediate_size: 768, padded_vocab_size: 1000,"
                   " block_size: 256, mlp_class_name: LLaMAMLP, norm_class_name: RMSNorm, bias: false}"},
        {"model": None, "sequence": 256, "micro": 128}, ""),
    "nanotron: a command with its file": (
        {"run.sh": "#SBATCH --nodes=2\ntorchrun --nnodes=2 --nproc_per_node=8 run_train.py --config-file a.yaml",
         "a.yaml": "parallelism: {dp: 8, tp: 2, pp: 1}\ntokens: {micro_batch_size: 3, batch_accumulation_per_replica: 2"
                   ", sequence_length: 512}\nmodel: {model_config: {num_hidden_layers: 2, hidden_size: 64, "
                   "intermediate_size: 256, num_attention_heads: 2, vocab_size: 100}}"},
        {"ranks": 16, "micro": 3, "tp": 2, "sequence": 512}, ""),
    "nanotron: selective, biases": (
        {"a.yaml": "parallelism: {dp: 2, tp: 1, pp: 1, recompute_granularity: SELECTIVE}\ntokens: {micro_batch_size: 2,"
                   " sequence_length: 64}\nmodel: {model_config: {num_hidden_layers: 2, hidden_size: 64,"
                   " num_attention_heads: 2, attention_bias: true}}\ndoremi: {ref_model_resume_checkpoint_path: x}"},
        {"recompute": "selective", "micro": 2}, "a reference model reads all sequences, too"),
    "llm-foundry: texts padded to the longest": (
        {"a.yaml": "model: {name: hf_causal_lm, pretrained_model_name_or_path: gpt2, pretrained: true}\n"
                   "max_seq_len: 64\nmax_duration: 1ep\nglobal_train_batch_size: 8\ntrain_loader: {name: finetuning}"},
        {"method": "finetune"}, "packing fills them"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_a_file_states_is_read(name: str, tmp_path: Path) -> None:
    """Settings and fields are the file's; what no plan holds is told."""
    texts, wanted, told = READ[name]
    for file, text in texts.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    path = str(tmp_path / next(iter(texts)))

    found = read(detect(path), path, Started())

    assert {key: found.settings[key] if key in found.settings else getattr(found, key) for key in wanted} == wanted
    assert told in "\n".join((*found.differs, *found.assumed))


REFUSED = {
    "torchtune's distillation": (
        "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: x\nmetric_logger: x\nkd_ratio: 0.5",
        "kd_ratio 0.5"),
    "torchtune's preferences": (
        "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: x\nmetric_logger: x\n"
        "loss: {_component_: torchtune.rlhf.loss.DPOLoss}", "loss._component_ torchtune.rlhf.loss."),
    "llm-foundry's frozen layers": (
        "model: {name: hf_causal_lm, pretrained_model_name_or_path: gpt2}\nmax_seq_len: 64\nmax_duration: 1ep\n"
        "global_train_batch_size: 8\nalgorithms: {layer_freezing: {freeze_start: 0.5}}", "algorithms.layer_freezing"),
    "a mask of pruning": (
        "model: {d_model: 64, n_layers: 2, n_heads: 2, l0_module: {target_sparsity: 0.5}}\nmax_seq_len: 64\n"
        "max_duration: 1ep\nglobal_train_batch_size: 8\ntrain_loader: {name: text}", "model.l0_module.target_spars"),
    "maxtext: a file over another": (
        "base_config: mine.yml\nmodel_name: llama3-8b\nper_device_batch_size: 1", "base_config mine.yml"),
    "several works": (
        "".join(f"python3 -m MaxText.train base.yml model_name=llama3-8b per_device_batch_size={n}\n" for n in (1, 2)),
        "2 commands of MaxText in it, which differ in per rank"),
    "a fraction of a sequence": (
        "python3 -m MaxText.train base.yml model_name=llama3-8b per_device_batch_size=0.5", "0.5 sequences an acc"),
    "torchtitan's unknown section": (TITAN + "[foo]\nbar = 3", "foo.bar"),
    "llm-foundry's other lengths": (
        "model: {name: hf_causal_lm, pretrained_model_name_or_path: gpt2}\nmax_seq_len: 64\nmax_duration: 1ep\n"
        "global_train_batch_size: 8\nalgorithms: {seq_length_warmup: {duration: 0.3}}", "algorithms.seq_length_warmup"),
    "verl's own configuration": (
        "python3 -m verl.trainer.fsdp_sft_trainer --config-name=mine model.partial_pretrain=Qwen/Qwen2.5-7B",
        "config_name mine"),
    "torchtitan": (TITAN + "[optimizer]\nfollow_fsdp_groups = true", "optimizer.follow_fsdp_groups"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_knows_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """A key that is in no release of a program is its fork's: nothing is known of it."""
    text, says = REFUSED[name]
    path = tmp_path / "a"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(WrongQuestion, match=says.replace(".", r"\.")):
        read(detect(str(path)), str(path), Started())


def test_aliases_that_grow_without_end_are_refused() -> None:
    """Ten of ten of ten ...: a hundred thousand values of eleven lines."""
    text = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcde", "bcdef", strict=True)
    )

    with pytest.raises(WrongQuestion, match="write out to more than"):
        mapping(text)


RAY = (
    "ray job submit --address=x -- python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B "
    "--colocate_all_models --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 "
    "--train_batch_size 128 --bf16 "
    "--rollout_batch_size 64 --n_samples_per_prompt 8 --micro_train_batch_size 2 --zero_stage 3 --adam_offload "
    "--advantage_estimator group_norm --generate_max_len 2048 --remote_rm_url $URL --packing_samples"
)
DOTTED = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B --train.colocate_all "
    "--actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.batch_size 128 "
    "--rollout.batch_size 64 --rollout.n_samples_per_prompt 8 --train.micro_batch_size 2 --ds.zero_stage 3 "
    "--ds.adam_offload --algo.advantage.estimator group_norm --rollout.max_new_tokens 2048 --reward.remote_url $URL "
    "--ds.packing_samples"
)


@pytest.mark.parametrize("text", [RAY, DOTTED])
def test_openrlhfs_steps_are_read(text: str) -> None:
    """Eight accelerators train and roll out in turns: 64 x 8 responses are four updates of 128."""
    step = trainers_of_rl.read("openrlhf-rl", text, Started())

    assert trainers_of_rl.detected(text) == "openrlhf-rl"
    asked = {key: step.asked[key] for key in ("task", "prompts", "samples", "updates", "placement", "rollout")}
    assert asked == {"task": "grpo", "prompts": 64, "samples": 8, "updates": 4, "placement": "colocated",
                     "rollout": "tp=2,share=0.95"}  # fmt: skip
    assert step.settings == {"zero": 3, "recompute": "none", "offload": "optimizer"}
    assert (step.train, step.rollout, step.response_cap, step.micro_responses) == (8, None, 2048, 2)


@pytest.mark.parametrize(("source", "text"), [
    ("openrlhf-rl", f"{RAY}\n{RAY} --generate_max_len 8192"),
    ("trl", "accelerate launch grpo.py --use_vllm true --beta 0\naccelerate launch grpo.py --use_vllm true --beta 1"),
    ("openrlhf-rl", f"{RAY} $EXTRA_ARGS"), ("openrlhf-rl", f"{RAY} $(cat more)"),
    ("verl", "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo $MORE"),
    ("verl", "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo $(cat more)"),
    ("nemo-rl", "python examples/run_grpo.py --config a.yaml ${MORE[@]}"),
    ("trl", "accelerate launch --num_processes 8 grpo.py --use_vllm true $EXTRA_ARGS"),
    ("verl-sft", "python3 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen2.5-7B ${MORE}"),
    ("verl-sft", "python3 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen2.5-7B ~model.lora_rank"),
    ("verl-sft-engine", "python3 -m verl.trainer.sft_trainer model.path=Qwen/Qwen2.5-7B engine@engine=megatron"),
])  # fmt: skip
def test_words_in_which_options_may_stand_are_never_dropped(source: str, text: str) -> None:
    """What the text does not have may be any option, and the second of two commands may be the one."""
    reader = trainers_of_rl.read if source in trainers_of_rl.SOURCES else read

    with pytest.raises(WrongQuestion, match=r"does not set it|options may stand|is not read|may start 2 commands"):
        reader(source, text, Started())


def test_a_name_that_others_have_too_is_nobodys_alone() -> None:
    """`run_sft.py` is NeMo-RL's where its own keys or configurations follow."""
    assert detect("accelerate launch run_sft.py --model_name_or_path gpt2 --per_device_train_batch_size 2") == "trainer"
    assert detect("uv run run_sft.py --config a.yaml cluster.num_nodes=2") == "nemo-rl-sft"
    assert detect("uv run examples/run_sft.py --config examples/configs/sft.yaml") == "nemo-rl-sft"


def test_every_reader_is_asked_for_by_its_name() -> None:
    """`--from` offers them all."""
    source = next(option for option in launcher_files.import_.params if option.name == "source")

    assert {*source.type.choices} == {*SOURCES, *trainers_of_rl.SOURCES}


def test_a_model_at_two_of_its_steps_is_one_work() -> None:
    """And rewards, templates and places are nobody's time."""
    text = "".join(
        f"torchrun t.py --model_name_or_path TinyLlama/TinyLlama-1.1B-step-{n}k --per_device_train_batch_size 2\n"
        for n in (240, 480)
    )

    assert read("trainer", text, Started()).model == "tinyllama-1.1b"
    assert trainers_of_rl.read("openrlhf-rl", f"{RAY} --new_reward_url x --my_template y", Started()).train == 8


@pytest.mark.parametrize(("scale", "heads", "hidden", "layers"), [(1, 16, 2048, 16), (2, 32, 2048, 16),
                                                                  (4, 32, 4096, 16), (8, 32, 4096, 32),
                                                                  (128, 128, 8192, 64)])  # fmt: skip
def test_maxtexts_shapes_double_in_turn(scale: int, heads: int, hidden: int, layers: int) -> None:
    """2^7 is twice a whole turn of three, and one more: heads and MLP 2^3, width 2^2, layers 2^2 times."""
    text = f"python3 MaxText/train.py MaxText/configs/base.yml per_device_batch_size=1 global_parameter_scale={scale}"
    shape = read("maxtext", text, Started()).shape

    assert (shape["heads"], shape["hidden"], shape["layers"]) == (heads, hidden, layers)
    assert (shape["kv_heads"], shape["ffn"], shape["head_dim"]) == (heads, 7168 * heads // 16, 128)


@pytest.mark.parametrize("option", ["--lora_rank 8", "--max_epochs 2", "--new_option 3", "--dynamic_filtering"])
def test_options_of_openrlhf_that_no_step_holds_are_refused(option: str) -> None:
    with pytest.raises(WrongQuestion, match=option.split()[0].removeprefix("--")):
        trainers_of_rl.read("openrlhf-rl", f"{RAY} {option}", Started())


def test_a_critic_of_its_own_accelerators_is_refused() -> None:
    """Unless it is left out, and predicted on the policy's."""
    text = RAY.replace("--colocate_all_models", "--critic_num_gpus_per_node 2").replace("group_norm", "gae")

    with pytest.raises(WrongQuestion, match="critic_num_gpus_per_node 2: its accelerators are its own"):
        trainers_of_rl.read("openrlhf-rl", text, Started())
    step = trainers_of_rl.read("openrlhf-rl", text, Started(ignored=frozenset({"critic_num_gpus_per_node"})))
    assert (step.asked["placement"], step.rollout) == ("in-step", 8)


EARLIER = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.ppo_micro_batch_size=64 "
    "actor_rollout_ref.model.path=/x/Qwen2.5-7B/0123456789012345678901234567890123456789 data.train_batch_size=128 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.log_prob_micro_batch_size=16 "
    "trainer.nnodes=2 trainer.critic_warmup=20 actor_rollout_ref.actor.fsdp_config.grad_offload=False"
)


def test_steps_of_earlier_verl_take_what_it_took() -> None:
    """64 responses of a micro-batch over 16 ranks are four of each; vLLM without graphs, and padded sequences."""
    step = trainers_of_rl.read("verl", f"NNODES=${{NNODES:-2}}\n{EARLIER}", Started())

    assert (step.micro_responses, step.train, step.asked["engine"]) == (4, 16, "vllm")
    assert step.asked["rollout"].endswith("sequences=1024,eager")
    assert any("padded" in text for text in step.differs) and any("train the critic" in text for text in step.differs)
    assert any("verl before 0.5" in text for text in step.assumed)
    assert library_name(step.model) == "qwen2.5-7b"
