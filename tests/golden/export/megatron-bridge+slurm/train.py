"""Trains a recipe of Megatron-Bridge with the settings of bridge.json; PATH=VALUE on the command line leads."""

import json
import sys

import torch
from megatron.bridge import recipes
from megatron.bridge.peft.canonical_lora import CanonicalLoRA
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.mixed_precision import get_mixed_precision_config


def put(config, path, value):
    """Sets what the configuration has; what it has not is refused."""
    *outer, name = path.split(".")
    for part in outer:
        config = getattr(config, part, None)
    if not hasattr(config, name):
        raise SystemExit(f"{path} is no setting of this version")
    if isinstance(value, str) and value.startswith("torch."):
        value = getattr(torch, value.removeprefix("torch."))
    setattr(config, name, value)


def given(word):
    """Path and value of PATH=VALUE, which is JSON or a text."""
    path, equals, value = word.partition("=")
    if not equals:
        raise SystemExit(f"{word}: write PATH=VALUE, as in train.train_iters=100")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def configuration(job, words=()):
    """The recipe as the plan has it."""
    config = getattr(recipes, job["recipe"])()
    found = {name: getattr(config.model, name) for name in job["model"]}
    if found != job["model"]:
        raise SystemExit(f"{job['recipe']} builds {found}, the plan has {job['model']}")
    config.mixed_precision = get_mixed_precision_config(job["precision"])
    config.mixed_precision.grad_reduce_in_fp32 = config.ddp.grad_reduce_in_fp32 = job["wide_gradients"]
    config.mixed_precision.first_last_layers_bf16 = False
    config.comm_overlap = CommOverlapConfig(**job["overlap"])
    config.peft = CanonicalLoRA(**job["adapters"]) if job["adapters"] else None
    for path, value in (job["settings"] | dict(map(given, words))).items():
        put(config, path, value)
    return config


def checked(chunks):
    """The chunks of the model, compared with the plan before they are wrapped, and before adapters are put in."""
    import plan_check

    plan_check.count(chunks)
    plan_check.over_all_ranks()
    return chunks


def main():
    from megatron.bridge.training.finetune import finetune
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    with open("bridge.json", encoding="utf-8") as file:
        config = configuration(json.load(file), sys.argv[1:])
    hooks = getattr(config.model, "pre_wrap_hooks", None)
    (config.model.register_pre_wrap_hook if hooks is None else hooks.append)(checked)
    train = finetune if config.checkpoint.pretrained_checkpoint else pretrain
    train(config, forward_step)


if __name__ == "__main__":
    main()
