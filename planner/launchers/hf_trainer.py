"""Hugging Face's Trainer: ``train.py``, its arguments, and the ``accelerate.yaml`` that shards it as the plan does.

Arguments: ``TrainingArguments`` of transformers 5.23.0 and the few of the script, which are called as in Transformers'
own ``run_clm.py``. Engines are those of :mod:`planner.launchers.accelerate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import accelerate, deepspeed, facts, profiles, torchrun
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, Loss, Values
from planner.schema.plan import Plan

NAME = "train.py"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """Accelerate's job with a script that is written here, too, and all that it is told."""
    job = accelerate.emit(plan, job, {**values, "script": NAME})
    argv = tuple(arguments(plan, values))
    return replace(
        job,
        command=(*job.command, *argv),
        argv=argv,
        environment={name: text for name, text in job.environment.items() if name != accelerate.ACCUMULATION},
        files={**job.files, NAME: SCRIPT},
        needed=(*job.needed, NAME),
    )


def arguments(plan: Plan, values: Values) -> Iterator[str]:
    """The arguments of ``train.py``."""
    engine, shape = accelerate.route(plan), plan.workload.shape
    yield from ("--model_name_or_path", values["model"], "--train_file", values["train-file"])
    yield from ("--block_size", str(plan.workload.sequence))
    yield from ("--model_layers", str(shape["layers"]), "--model_hidden", str(shape["hidden"]))
    yield from ("--model_vocab", str(shape["vocab"]))
    if plan.workload.method["kind"] == "pretrain":
        yield from ("--model_untrained", "true")
    yield from ("--per_device_train_batch_size", str(plan.batch.micro))
    yield from ("--gradient_accumulation_steps", str(plan.batch.accumulation))
    if plan.precision != "fp32":
        yield from (f"--{plan.precision}", "true")
    if plan.recompute.policy == "full" and engine != "FSDP":  # FSDP's is in accelerate.yaml
        yield from ("--gradient_checkpointing", "true")
    if engine == "DEEPSPEED":
        yield from ("--deepspeed", deepspeed.NAME)
    yield from ("--optim", "adamw_torch", "--learning_rate", values["lr"])
    yield from ("--max_steps", str(facts.steps(plan)), "--logging_steps", "10")
    yield from ("--output_dir", values["save"], "--save_steps", str(facts.steps_between_checkpoints(plan)))


def refuses(plan: Plan) -> Iterator[str]:
    """What its engines exclude, and what its models have no loss for."""
    yield from accelerate.refuses(plan)
    if plan.workload.mtp_layers:
        yield "its models have no modules of multi-token prediction"


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, or left to Accelerate."""
    yield from facts.other_runtime(plan, ("fsdp2", "fsdp", "deepspeed", "pytorch-ddp"))
    yield from facts.shape_losses(plan)
    yield Loss("workload.shape", "the model's own config.json; train.py stops where layers, width or vocabulary differ")
    if accelerate.route(plan) == "DEEPSPEED" and plan.parallelism.zero_scope == "node":
        yield Loss(
            "parallelism.zero_scope", "weights are gathered inside a node; optimizer states stay sharded over all"
        )


SCRIPT = '''\
"""Trains a language model with Hugging Face's Trainer; its arguments are in start.sh. For transformers 5.23."""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed
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


def model_of(job):
    """The model, untrained or with its weights, in 32 bit: the engine casts what it computes with."""
    config = AutoConfig.from_pretrained(job.model_name_or_path)
    text = config.get_text_config()
    found = (text.num_hidden_layers, text.hidden_size, text.vocab_size)
    planned = (job.model_layers, job.model_hidden, job.model_vocab)
    if found != planned:
        raise SystemExit(f"{job.model_name_or_path}: layers, width, vocabulary are {found}, in the plan {planned}")
    if hasattr(text, "output_router_logits"):
        text.output_router_logits = True  # adds the balancing loss of its experts
    config.use_cache = False
    if job.model_untrained:
        # Under FSDP rank 0 sends its weights to the others, which need no memory for them.
        sharded = os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", "false").lower() == "true"
        empty = sharded and int(os.environ.get("RANK", "0")) > 0
        with init_empty_weights(include_buffers=False) if empty else nullcontext():
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return AutoModelForCausalLM.from_pretrained(job.model_name_or_path, config=config, dtype=torch.float32)


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
    trainer = Trainer(model=model_of(job), args=arguments, train_dataset=data)
    saved = os.path.isdir(arguments.output_dir) and get_last_checkpoint(arguments.output_dir)
    trainer.train(resume_from_checkpoint=saved or None)
    if arguments.save_strategy != "no":
        trainer.save_model()


if __name__ == "__main__":
    main()
'''

EXPORTER = Exporter(
    name="hf-trainer",
    title="Hugging Face Trainer with Accelerate",
    version="5.23.0",
    role="trainer",
    expresses={
        **accelerate.EXPORTER.expresses,
        **dict.fromkeys(("tp", "cp"), (1,)),
        "precision": ("bf16", "fp16", "fp32"),
        "method": ("pretrain", "finetune"),
        "optimizer": ("adamw",),
        "family": ("decoder",),
    },
    settings=(
        EnvironmentSetting("model", "Hugging Face id or folder of the model: config.json, tokenizer, weights to tune"),
        EnvironmentSetting("train-file", 'JSON lines with a field "text"'),
        EnvironmentSetting("save", "folder for checkpoints"),
        EnvironmentSetting("lr", "learning rate, which a plan does not choose", "1.0e-4"),
        torchrun.PORT,
        profiles.EXTRA,
    ),
    emit=emit,
    refuses=refuses,
    loses=loses,
    level="validated",
    validated_by="HfArgumentParser and TrainingArguments of transformers 5.23.0, under Accelerate's configuration",
)
