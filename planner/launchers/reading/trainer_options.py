"""What Hugging Face's Trainer and those who build on it call the same things, and which of their options matter.

Names and defaults: transformers 5.23.0 (training_args.py), trl f2cd5771 (trl/trainer/sft_config.py), LLaMA-Factory
ff6d4d12 (src/llamafactory/hparams), axolotl 067b021c (src/axolotl/utils/schemas), DeepSpeed-Chat 83757d9c (step 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.base.errors import WrongQuestion

Values = Mapping[str, Any]


def true(value: Any) -> bool:
    """Whether a value switches something on, as YAML or a command line says it."""
    return value is True or (isinstance(value, str) and value.lower() in ("true", "yes", "1", "unsloth", "offload"))


def count(values: Values, name: str) -> int:
    """The whole number under a name, 0 where there is none.

    Raises:
        WrongQuestion: it is none.
    """
    value = values.get(name)
    if value is None or value is False:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", str(value)):
        raise WrongQuestion(f"--from trainer: {name} is {value!r:.40}; a whole number is expected")
    return int(value)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a program calls what all of them have.

    Attributes:
        keys: Our name -> its names, of which the first that is set counts.
        defaults: Our name -> its own value where nothing is set.
        lora: Whether its values ask for LoRA.
        known: By which a file is taken for its own.
    """

    name: str
    keys: Mapping[str, tuple[str, ...]]
    lora: Callable[[Values], bool]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    known: tuple[str, ...] = ()

    def get(self, values: Values, name: str) -> Any:
        """The value under one of its names, or its default."""
        found = (values[key] for key in self.keys.get(name, (name,)) if values.get(key) is not None)
        return next(found, self.defaults.get(name))


SHARED = {
    "model": ("model_name_or_path", "base_model"),
    "micro": ("per_device_train_batch_size", "micro_batch_size"),
    "accumulation": ("gradient_accumulation_steps",),
    "sequence": (
        "max_length",
        "max_seq_length",
        "max_seq_len",
        "model_max_length",
        "cutoff_len",
        "sequence_len",
        "block_size",
    ),
    "rank": ("lora_rank", "lora_r", "lora_dim"),
    "targets": ("lora_target", "lora_target_modules", "lora_module_name"),
    "optimizer": ("optim", "optimizer"),
    "recompute": ("gradient_checkpointing", "activation_checkpointing"),
    "packing": ("packing", "sample_packing", "neat_packing"),
    "steps": ("max_steps",),
    "nested": ("use_bnb_nested_quant", "double_quantization", "bnb_4bit_use_double_quant"),
}
TRAINER = Dialect(
    "trainer",
    SHARED,
    lambda values: true(values.get("use_peft")) or max(count(values, "lora_dim"), count(values, "lora_rank")) > 0,
    {"micro": 8, "accumulation": 1, "rank": 16},
    ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "model_name_or_path"),
)
LLAMA_FACTORY = Dialect(
    "llama-factory",
    SHARED,
    lambda values: values.get("finetuning_type", "lora") == "lora",
    {"micro": 8, "accumulation": 1, "sequence": 2048, "rank": 8, "recompute": True, "targets": "all", "nested": True},
    ("finetuning_type", "cutoff_len", "template"),
)
AXOLOTL = Dialect(
    "axolotl",
    SHARED,
    lambda values: values.get("adapter") in ("lora", "qlora"),
    {"micro": 1, "accumulation": 1, "sequence": 512, "optimizer": "adamw_torch_fused", "rank": 8, "nested": True},
    ("base_model", "micro_batch_size", "sequence_len"),
)
TRL_ONLY = ("dataset_name", "use_peft", "max_length", "completion_only_loss", "assistant_only_loss", "packing")
"""Keys that only TRL's SFT has, of the Trainers."""
TRL: Values = {**TRAINER.defaults, "sequence": 1024, "recompute": True, "bf16": True}
"""Its defaults (trl/trainer/sft_config.py, base_config.py)."""
DIALECTS = {each.name: each for each in (TRAINER, LLAMA_FACTORY, AXOLOTL)}
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("quantization_config", "gptq", "qat", "use_qat", "bnb_config_kwargs"), "quantised weights"),
    **dict.fromkeys(
        ("use_galore", "use_apollo", "use_badam", "use_muon", "use_adam_mini", "lisa_n_layers"),
        "optimizer states of another size",
    ),
    **dict.fromkeys(("freeze_trainable_layers", "unfrozen_parameters", "freeze_vision_tower"), "frozen layers"),
    **dict.fromkeys(("actor_model_name_or_path", "reward_model", "ref_model", "rl", "use_asft_loss"), "several models"),
    **dict.fromkeys(("fp8", "fp8_recipe", "fp8_enable_fsdp_float8_all_gather"), "8-bit products"),
    **dict.fromkeys(
        ("expert_parallel_size", "sequence_parallel_degree", "ulysses_degree"), "another kind of parallelism"
    ),
    **dict.fromkeys(("num_padding_at_beginning", "beta", "actor_zero_stage"), "rewards or preferences"),
    **dict.fromkeys(("mixture_of_depths", "use_dora", "oft_rank", "moe_config", "mod"), "other layers"),
    **dict.fromkeys(("use_kt", "use_unsloth", "unsloth", "diffusion", "reward_model_type"), "a program of its own"),
}
"""Keys that change the work or the memory, where they are set and not false."""
QUANTISERS = ("quantization_method", "quantization_type", "bnb_4bit_quant_type")
"""Keys that say how weights are quantised."""
BASES = {0: "lora", 4: "qlora", 8: "qlora:int8"}
"""Bits of frozen weights -> method."""
NAMES = frozenset(key for keys in SHARED.values() for key in keys)
OPTIONS = frozenset({*NAMES, *TRAINER.known, *REFUSED, "zero_stage", "fsdp", "config", "bf16", "fp16"})
"""By which a command is known as one of a Trainer."""
LIGER = ("use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy")
"""Keys that switch Liger's kernels on, whose loss takes logits in chunks."""
OTHERWISE: Mapping[str, str] = {
    **dict.fromkeys(LIGER, "fused kernels (Liger)"),
    **dict.fromkeys(("torch_compile",), "compiled by torch.compile"),
    **dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"), "fused LoRA kernels"),
}
OFFLOADING = "activation_offloading"
"""TRL's and Axolotl's key for what layers keep in host memory."""
STAGES = ("sft", "pt", None)
"""LLaMA-Factory's stages that train one model on one sequence each."""
PREFERENCES = re.compile(r"(^|[/_-])(dpo|grpo|ppo|kto|orpo|cpo|rloo|reward|gkd|bco|prm|rlhf)(?=[/_.-]|$)")
"""In the name of a program or its folder: models that are compared, judged or sampled from."""
OPTIMIZERS: Mapping[str, str] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adam", "adamw"), "adamw"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit"), "adam-8bit"),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit"), "paged-adamw"),
    "paged_adamw_8bit": "paged-adam-8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
TARGETS: Mapping[str, tuple[str, ...]] = {
    **{f"{name}_proj": (name,) for name in ("q", "k", "v", "o", "up", "down", "gate")},
    **{"all": ("q", "k", "v", "o", "up", "down", "gate"), "all-linear": ("q", "k", "v", "o", "up", "down", "gate")},
    **{"decoder.layers.": ("q", "k", "v", "o", "up", "down"), "layers.": ("q", "k", "v", "o", "up", "down", "gate")},
    **{"q_a_proj": ("q",), "q_b_proj": ("q",), "kv_a_proj_with_mqa": ("k",), "kv_b_proj": ("v",)},
    **{
        "fc1": ("up",),
        "fc2": ("down",),
        "out_proj": ("o",),
        "query_key_value": ("q", "k", "v"),
        "gate_up_proj": ("up", "gate"),
    },
}
"""Names of linear layers -> matrices of a block."""
PADS = "sequences are as long as the longest of a micro-batch; predicted all as long as the limit (packing fills them)"
FSDP = {"full_shard": (3, "full"), "shard_grad_op": (2, "full"), "hybrid_shard": (3, "node"), "no_shard": (0, "full")}
HARMLESS = re.compile(
    r"learning_rate|lr_.*|warmup_.*|num_warmup_steps|weight_decay|adam_.*|max_grad_norm|.*logg.*|log_.*|save_.*|saves_.*"
    r"|eval.*|.*_eval_.*|do_.*|report_to|run_name|push_to_hub|hub_.*|seed|data_?.*|dataset.*|train_.*|val_.*|test_.*"
    r"|output_.*|overwrite_.*|template|max_samples|preprocess.*|plot_loss|ddp_.*|resume_.*|num_(train_)?epochs|trust_.*"
    r"|wandb_.*|mlflow_.*|tokenizer.*|special_tokens|.*lora_alpha|lora_dropout|.*attn.*|attention.*|tf32|bf16|fp16|dtype"
    r"|early_.*|load_best.*|metric_.*|remove_unused.*|label_.*|include_.*|local_rank|debug|strict|chat_template.*|stage"
    r"|report.*|enable_tensorboard|tensorboard_.*|cache_dir|use_fast.*|add_.*|group_by_length|length_column.*|config.*"
    r"|finetuning_type|adapter|use_peft|model_.*|lora_.*|fsdp.*|deepspeed.*|zero_stage|offload|gradient_.*|peft_.*"
    r"|quantization_(method|type|bit)|bnb_4bit_.*|load_in_[48]bit|loraplus_.*|print_loss|only_optimize_lora|compute_fp32_loss|dropout|num_padding.*|conv.*|lazy_.*|is_.*|pad_.*|reinit_weights"
)


CHAT: Mapping[str, Any] = {"micro": 16, "accumulation": 1, "sequence": 512, "rank": 0, "targets": "decoder.layers."}
"""Defaults of DeepSpeed-Chat's own parser."""
