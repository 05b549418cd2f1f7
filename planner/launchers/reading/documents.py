"""Files in YAML as data, and which trainer a text is for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from planner.base.errors import WrongQuestion, malformed
from planner.schema.launcher_table import launcher_table

DEEPEST = 40
_MARKS: Mapping[str, list[str]] = {
    **{name: launcher_table(name).head["marks"] for name in ("deepspeed", "axolotl", "llama-factory")},
    "trainer": launcher_table("hf-trainer").head["marks"],
}
"""Trainer -> keys of its files, the most telling first."""
_UNREAD: Mapping[str, tuple[str, ...]] = {
    "GPT-NeoX": ("pipe-parallel-size", "model-parallel-size", "pipe_parallel_size", "model_parallel_size"),
    "Accelerate (name the command that launches with it)": ("distributed_type", "compute_environment"),
    "MaxText": ("base_emb_dim", "ici_fsdp_parallelism", "base_num_decoder_layers"),
    "llm-foundry": ("global_train_batch_size", "device_train_microbatch_size"),
    "Primus": ("work_group", "exp_name", "modules"),
    "NeMo or Megatron-Bridge": ("trainer", "exp_manager", "ddp", "train", "checkpoint"),
    "OLMo": ("device_train_microbatch_size", "wandb_group", "model_ladder"),
    "torchtune": ("_component_", "recipe", "tune"),
    "veRL": ("actor_rollout_ref",),
    "Kubernetes": ("apiVersion",),
}
"""What other files hold: they are told by name."""


def mapping(text: str) -> dict[str, Any]:
    """A YAML text as a mapping, its keys as text.

    Raises:
        WrongQuestion: no YAML, no mapping, or one with aliases, which could grow without end.
    """
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise WrongQuestion("YAML with aliases (*name) is not read: write the values out")
        found = yaml.load(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise WrongQuestion(f"not YAML: {' '.join(malformed(error).split())[:200]}") from None
    if not isinstance(found, dict):
        raise WrongQuestion("not a mapping of options in YAML")
    return {str(key): value for key, value in found.items()}


def detect(text: str) -> str | None:
    """Which trainer's file a text is; None where it is a command or a script.

    Raises:
        WrongQuestion: a file of a format that no reader takes, by its name if that is known.
    """
    keys = _keys(text)
    if keys is None:
        return None
    for trainer, marks in _MARKS.items():
        if keys.intersection(marks):
            return trainer
    counted = {name: len(keys.intersection(marks)) for name, marks in _UNREAD.items()}
    best = max(counted, key=lambda name: counted[name])
    known = ", ".join(_MARKS)
    if counted[best]:
        raise WrongQuestion(f"a configuration of {best}: no reader takes it; read are commands, and files for {known}")
    raise WrongQuestion(
        f"a configuration of no known format ({', '.join(sorted(keys)[:5])}); read are files for {known}"
    )


def _keys(text: str) -> set[str] | None:
    """Keys of a text that is JSON or YAML; None where it is neither."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return {str(key) for key in found} if isinstance(found, dict) else None
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    keyed = [line for line in lines if re.match(r"[\"']?[\w.-]+[\"']?:(\s|$)", line)]
    if not keyed or any(
        re.match(r"\s*[A-Za-z_]\w*=|\s*(torchrun|python3?|srun|export|deepspeed)\s", line) for line in lines
    ):
        return None
    return {line.partition(":")[0].strip("\"'") for line in keyed}
