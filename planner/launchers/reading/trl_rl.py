"""TRL's GRPO and RLOO to a stated step: the script's YAML or its command, with Accelerate's file and its server's.

Colocated where ``vllm_mode`` is colocate, in step where it is server; the accelerators of a server are those of the
``trl vllm-serve`` command. Defaults are those of TRL f2cd5771 (trl/trainer/grpo_config.py, trl/scripts/vllm_serve.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.command import options
from planner.launchers.reading.hydra import flat, word
from planner.launchers.reading.post_training import PADDED, StatedStep, TrainerFlags, keys, other_keys
from planner.launchers.reading.shell.script import Branches, Script, Words, script
from planner.launchers.reading.trainer_dialects import mapping, named_file
from planner.launchers.reading.trainer_sharding import accelerate, launched, sharding
from planner.models import files
from planner.schema.launcher_table import launcher_table

PROGRAM = re.compile(r"(.*/)?(?!async)\w*(grpo|rloo)\w*\.py")
SERVES = "vllm-serve"


def read(commands: Script, machines: int | None = None) -> StatedStep:
    """A command, or a script with one.

    Args:
        commands: What the script starts.
        machines: Accelerators that the step is priced on, for a configuration that does not say its processes.

    Raises:
        WrongQuestion: there is none, or it says what no stated step holds.
    """
    started = [words for way in commands.ways for words in way]
    training = [*dict.fromkeys(words for words in started if _at(words) is not None)]
    trains = next(iter(training), None)
    if len(training) > 1:
        raise Branches(
            f"--from trl: the script may start {len(training)} commands that train: set the variable that decides "
            "(--env NAME=VALUE), or read what it starts with --run-script"
        )
    if trains is None:
        raise WrongQuestion("--from trl: no command with trl grpo, grpo.py, trl rloo or rloo.py in it")
    at = _at(trains) or 0
    before = _options(trains[:at])
    values = _options(trains[at + 1 :])
    if isinstance(values.get("config"), str):
        values = {**mapping(named_file(commands.folder, values["config"], commands.files)), **values}
    launch = {name: [str(value)] for name, value in before.items()}
    config: dict[str, Any] = launched(launch)
    for name in (before.get("config_file"), values.get("accelerate_config")):
        if isinstance(name, str):
            config = {**mapping(named_file(commands.folder, name, commands.files)), **config}
    serve = next((_options(words) for words in started if SERVES in words), None)
    whole = _with_files(values, config, serve, commands.files)
    return _stated(whole, commands.folder, commands.ignored, machines)


def read_file(
    text: str, folder: Path, given: tuple[Path, ...], ignored: frozenset[str], machines: int | None = None
) -> StatedStep:
    """The script's YAML, for as many `machines` where it does not say its processes.

    Raises:
        WrongQuestion: it says what no stated step holds.
    """
    whole = _with_files(mapping(text), {}, None, given)
    return _stated(whole, folder, ignored, machines if whole[1] else None)


def _at(words: Words) -> int | None:
    """Place of the program in a command: the first Python file, or a word behind ``trl``."""
    for at, text in enumerate(words):
        if at and text in ("grpo", "rloo") and re.fullmatch(r"(.*/)?trl", words[at - 1]):
            return at
        if at and text.endswith(".py"):
            return at if PROGRAM.fullmatch(text) else None
    return None


def _options(words: Words) -> dict[str, Any]:
    """Options and their values; a switch is on."""
    flags = options(words, keys("trl").left)
    return {name: True if not texts else word(texts[0]) for name, texts in flags.items()}


def _with_files(
    values: Mapping[str, Any], config: Mapping[str, Any], serve: Mapping[str, Any] | None, given: tuple[Path, ...]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """(the configuration with the files that belong to it, Accelerate's alone)."""
    for path in given:
        text = files.read_text(path)
        if SERVES in text:
            serve = next(_options(words) for way in script(text).ways for words in way if SERVES in words)
        elif "distributed_type" in text:
            config = {**mapping(text), **config}
    return {**flat(values), **flat(config, "accelerate/"), **flat(serve or {}, "serve/")}, config


def _stated(
    whole: tuple[dict[str, Any], Mapping[str, Any]], folder: Path, ignored: frozenset[str], machines: int | None
) -> StatedStep:
    """The configuration as a stated step, with what it leaves to who starts it."""
    values, config = whole
    left = {name: value for name, value in values.items() if name not in ignored}
    assumed = []
    alone = [name for name in ("vllm_device", "vllm_dtype", "vllm_max_model_len") if name in left]
    if alone:  # until TRL 0.15 vLLM ran in the program's first process, on an accelerator of its own
        left |= {"vllm_mode": "server", "serve/tensor_parallel_size": 1, "serve/data_parallel_size": 1}
        left["serve/gpu_memory_utilization"] = left.get("vllm_gpu_memory_utilization", 0.9)
        left = {"beta": 0.04, **{name: value for name, value in left.items() if name not in alone}}  # its default then
        assumed.append(f"{alone[0]}: vLLM has one accelerator of its own, as until TRL 0.15")
    if "accelerate/num_processes" not in left and machines is not None:
        left["accelerate/num_processes"] = machines - bool(alone)
        assumed.append(f"num_processes not stated: {left['accelerate/num_processes']}, of the cluster's accelerators")
    if not config:
        assumed.append("no file of Accelerate's: replicas (DistributedDataParallel); --file says another way")
    step = _read(TrainerFlags(source="trl", values=left, rows=launcher_table("rl_trl")), config, folder)
    return replace(step, assumed=(*step.assumed, *assumed))


def _read(flags: TrainerFlags, config: Mapping[str, Any], folder: Path) -> StatedStep:
    differs = [*other_keys(flags, re.compile("job_.*")), PADDED]
    if flags.get("use_vllm") is not True:
        raise WrongQuestion("--from trl: use_vllm is not set: transformers generates, which no stated step holds")
    if flags.get("fp16") or flags.get("bf16") is False:
        raise WrongQuestion("--from trl: bf16 is off: a stated step trains in bf16")
    apart = flags.get("vllm_mode") == "server"
    processes = flags.get("accelerate/num_processes")
    if processes is None:
        raise WrongQuestion(
            "--from trl: how many processes train, and what shards them? --file accelerate.yaml says it"
        )
    train = flags.count("accelerate/num_processes")
    sharded, _ = sharding(accelerate(config), folder)
    zero: object = sharded.settings.get("zero", 0)
    if flags.get("accelerate/fsdp_config.fsdp_version") == 2:
        zero = flags.fact("zero") or 3
    else:
        differs += sharded.differs
    micro = flags.count("per_device_train_batch_size")
    batch = micro * flags.count("gradient_accumulation_steps") * train
    per_step = flags.count_or_none("steps_per_generation")
    generated = flags.count_or_none("generation_batch_size") or (micro * train * per_step if per_step else batch)
    samples = flags.count("num_generations")
    if generated % batch or generated % samples:
        raise WrongQuestion(f"--from trl: generation_batch_size {generated:,}: a multiple of {batch:,} responses of an "
                            f"optimizer step and of {samples} generations is expected")  # fmt: skip
    steps = flags.get("max_steps")
    updates = generated // batch
    recomputes = flags.get("gradient_checkpointing") or flags.get(
        "accelerate/fsdp_config.fsdp_activation_checkpointing"
    )
    return StatedStep(
        model=str(flags.get("model_name_or_path") or ""),
        asked={
            "task": "grpo", "prompts": generated // samples, "samples": samples, "updates": updates,
            "reference": bool(flags.get("beta")), "placement": "in-step" if apart else "colocated",
            "weights": "broadcast" if apart else None,
            "engine": "vllm", "rollout": _replica(flags, apart), "states": None if apart else "accelerator",
            "steps": max(1, steps // updates) if isinstance(steps, int) and steps > 0 else None,
            "reward": flags.get("reward_model_name_or_path"), "runtime": sharded.runtime, "precision": "bf16",
        },
        settings={"zero": zero, "recompute": "full" if recomputes else "none"},
        train=train,
        rollout=_served(flags) if apart else None,
        response_cap=flags.count("max_completion_length"),
        prompt_cap=flags.count_or_none("max_prompt_length"),
        group_tokens=None,
        micro_responses=micro,
        differs=tuple(differs),
    )  # fmt: skip


def _served(flags: TrainerFlags) -> int:
    """Accelerators of the server."""
    if not any(name.startswith("serve/") for name in flags.values):
        raise WrongQuestion("--from trl: vllm_mode server: what serves? --file says the script with trl vllm-serve")
    return flags.count("serve/tensor_parallel_size") * flags.count("serve/data_parallel_size")


def _replica(flags: TrainerFlags, apart: bool) -> str:
    """A replica as ``--rollout`` says it."""
    tp = flags.count("serve/tensor_parallel_size" if apart else "vllm_tensor_parallel_size")
    share = flags.measure("serve/gpu_memory_utilization" if apart else "vllm_gpu_memory_utilization")
    return f"tp={tp},share={share:.6g}" + (",eager" if apart and flags.get("serve/enforce_eager") else "")
