"""Hugging Face's Trainer: ``train.py``, its arguments, and the ``accelerate.yaml`` that shards it as the plan does.

Arguments: ``TrainingArguments`` of transformers 5.23.0 and the few of the script, which are called as in Transformers'
own ``run_clm.py``. Engines are those of :mod:`planner.launchers.accelerate`; adapters are PEFT's 0.21.2, quantised
weights bitsandbytes' 0.50.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import accelerate, table, trainer_arguments
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

NAME = "train.py"
TABLE = launcher_table("hf-trainer")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with a script that is written here, too, and all that it is told."""
    options = table.settings(TABLE, trainer_arguments.facts(plan, values, {}))
    argv = tuple(word for name, value in options for word in (f"--{name}", _word(value)))
    job = accelerate.launched(plan, job, values, LaunchProgram(NAME), *argv)
    return replace(job, argv=argv, files={**job.files, NAME: SCRIPT}, needed=(*job.needed, NAME))


def _word(value: object) -> str:
    return "true" if value is True else str(value)


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, or left to Accelerate."""
    yield from trainer_arguments.loses(plan)
    yield Loss("workload.shape", "the model's own config.json; train.py stops where layers, width or vocabulary differ")


SCRIPT = '''\
"""Trains a language model with Hugging Face's Trainer; its arguments are in start.sh. For transformers 5.23."""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers import FineGrainedFP8Config, HfArgumentParser, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging


@dataclass
class JobArguments:
    """What the Trainer's own arguments do not say."""

    model_name_or_path: str
    block_size: int
    model_layers: int
    model_hidden: int
    model_vocab: int
    model_untrained: bool = False
    lora_rank: int = 0
    lora_alpha: int = 0
    lora_target: str = ""
    lora_parameters: int = 0
    lora_magnitudes: bool = False
    quantization_bit: int = 0
    quantization_fp8: bool = False
    trained_layers: int = 0
    train_file: str = ""
    mock_data: bool = False


class MockData(torch.utils.data.Dataset):
    """Random words, the same in every run."""

    def __init__(self, job, sequences):
        self.job, self.sequences = job, sequences

    def __len__(self):
        return self.sequences

    def __getitem__(self, index):
        chosen = torch.Generator().manual_seed(index)
        words = torch.randint(0, self.job.model_vocab, (self.job.block_size,), generator=chosen)
        return {"input_ids": words, "labels": words}


def model_of(job, arguments):
    """The model, untrained or with its weights, in 32 bit: the engine casts what it computes with.

    What adapters leave frozen is in 16 bit, or quantised.
    """
    config = AutoConfig.from_pretrained(job.model_name_or_path)
    text = config.get_text_config()
    found = (text.num_hidden_layers, text.hidden_size, text.vocab_size)
    planned = (job.model_layers, job.model_hidden, job.model_vocab)
    if found != planned:
        raise SystemExit(f"{job.model_name_or_path}: layers, width, vocabulary are {found}, in the plan {planned}")
    if hasattr(text, "output_router_logits") and not job.lora_rank:
        text.output_router_logits = True  # adds the balancing loss of its experts
    config.use_cache = False
    if job.model_untrained:
        # Under FSDP rank 0 sends its weights to the others, which need no memory for them.
        sharded = os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", "false").lower() == "true"
        empty = sharded and int(os.environ.get("RANK", "0")) > 0
        with init_empty_weights(include_buffers=False) if empty else nullcontext():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        if empty:
            # Accelerate finds the optimizer's shards by addresses, which only tensors off "meta" have; no page is used.
            model._apply(lambda held: torch.empty_like(held, device="cpu") if held.is_meta else held)
            model.tie_weights()
        return model
    if not job.lora_rank and not job.trained_layers:
        return AutoModelForCausalLM.from_pretrained(job.model_name_or_path, config=config, dtype=torch.float32)
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else torch.float32
    known = {"config": config, "dtype": dtype, "quantization_config": quantised(job, dtype)}
    model = AutoModelForCausalLM.from_pretrained(job.model_name_or_path, **known)
    return last_layers(job, model) if job.trained_layers else adapted(job, arguments, model)


def quantised(job, dtype):
    """How the frozen weights are held; of 4 bit as numbers of the computation's type, so that they can be sharded."""
    if job.quantization_bit == 4:
        known = {"bnb_4bit_compute_dtype": dtype, "bnb_4bit_quant_storage": dtype}
        return BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, **known
        )
    if job.quantization_fp8:
        return FineGrainedFP8Config()
    return BitsAndBytesConfig(load_in_8bit=True) if job.quantization_bit == 8 else None


def last_layers(job, model):
    """The model frozen but for its last layers, which are in 32 bit."""
    model.requires_grad_(False)
    for layer in model.get_decoder().layers[-job.trained_layers :]:
        layer.float().requires_grad_(True)
    return model


def adapted(job, arguments, model):
    """The model frozen, with adapters in 32 bit (ZeRO-3 gathers weights of one type only: in that of the model)."""
    from peft import LoraConfig, get_peft_model

    plugin = arguments.deepspeed_plugin
    wide = not (plugin and plugin.zero_stage == 3) or bool(job.quantization_bit)
    known = {"r": job.lora_rank, "lora_alpha": job.lora_alpha, "target_modules": job.lora_target.split(",")}
    known["use_dora"] = job.lora_magnitudes
    model.enable_input_require_grads()  # what is recomputed needs a gradient at its input
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **known), autocast_adapter_dtype=wide)
    sizes = (getattr(p, "ds_numel", p.numel()) for p in model.parameters() if p.requires_grad)
    if (found := sum(sizes)) != job.lora_parameters:
        raise SystemExit(f"adapters on {job.lora_target} have {found} parameters, in the plan {job.lora_parameters}")
    return model


def data_of(job):
    """Texts (JSON lines with a field "text"), one after another, cut into whole sequences."""
    from datasets import load_dataset

    tokenizer = AutoTokenizer.from_pretrained(job.model_name_or_path)

    def cut(batch):
        ends = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        words = [word for one in tokenizer(batch["text"])["input_ids"] for word in one + ends]
        size = job.block_size
        rows = [words[at : at + size] for at in range(0, len(words) - size + 1, size)]
        return {"input_ids": rows, "labels": rows}

    texts = load_dataset("json", data_files=job.train_file, split="train")
    return texts.map(cut, batched=True, remove_columns=texts.column_names)


def main():
    logging.set_verbosity_info()
    job, arguments = HfArgumentParser((JobArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(arguments.seed)
    if job.mock_data:
        step = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
        data = MockData(job, arguments.max_steps * step)
    else:
        with arguments.main_process_first():
            data = data_of(job)
    trainer = Trainer(model=model_of(job, arguments), args=arguments, train_dataset=data)
    saved = os.path.isdir(arguments.output_dir) and get_last_checkpoint(arguments.output_dir)
    trainer.train(resume_from_checkpoint=saved or None)
    if arguments.save_strategy != "no":
        trainer.save_model()


if __name__ == "__main__":
    main()
'''

EXPORTER = by_table("hf-trainer", emit=emit, refuses=trainer_arguments.refuses, loses=loses)
