"""Files of trainers of post-training: what verl, NeMo-RL and TRL are set to, in their own syntax, and the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from planner.launchers import quoting, table
from planner.launchers.target import LaunchProgram

MODULES = {"colocated": "verl.trainer.main_ppo", "one-step-off": "verl.experimental.one_step_off_policy.main_ppo"}
"""verl's programs by placement; the others run ..."""
STREAMING = "verl.experimental.fully_async_policy.fully_async_main"
PREFIXES = {"verl.trainer.main_ppo": "", MODULES["one-step-off"]: "one_step_off_", STREAMING: "fully_async_"}
"""Program -> how the names of its configurations begin."""


class PostTrainingSettings(NamedTuple):
    """What a trainer is set to."""

    head: Mapping[str, Any]
    """Its table's title, versions and file."""
    known: Mapping[str, Any]
    """Facts of the plan."""
    options: Mapping[str, Any]
    values: Mapping[str, str]
    """Settings."""


Written = tuple[dict[str, str], tuple[str, ...], str]
"""Files, the command, and how a person starts it."""


def _verl(given: PostTrainingSettings) -> Written:
    """Overrides of verl's own configuration."""
    module = MODULES.get(given.known["roles"], STREAMING)
    inherited = f"{PREFIXES[module]}{given.head['configuration']}"
    command = ("python3", LaunchProgram("-m"), module, f"--config-name={inherited}")
    words = (f"{name}={_hydra(value)}" for name, value in given.options.items())
    text = quoting.command((*command, *words))
    start = f"#!/bin/bash\n# In the folder of verl's source.\nset -euo pipefail\n{text}\n"
    return {"start.sh": start}, command, "bash start.sh in the folder of verl's source, on the head of a Ray cluster"


def _hydra(value: Any) -> str:
    """A value of Hydra's grammar: what is no plain word is quoted."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    plain = isinstance(value, int | float) or all(c.isalnum() or c in "/._-" for c in text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return text if plain and text else f"'{escaped}'"


def _nemo_rl(given: PostTrainingSettings) -> Written:
    """A recipe that inherits one of NeMo-RL's."""
    inherited = f"{given.values['repository']}/examples/configs/{given.head['configuration']}.yaml"
    command = ("uv", "run", "examples/run_grpo.py", "--config", given.head["writes"])
    start = f"uv run examples/run_grpo.py --config {given.head['writes']} in the folder of NeMo-RL's source"
    whole = {"defaults": inherited, **table.nested(given.options)}
    return {given.head["writes"]: quoting.yaml(whole)}, command, start


def _trl(given: PostTrainingSettings) -> Written:
    """The script's configuration, Accelerate's, and of rollout elsewhere the command of its engine."""
    trainer = {name: value for name, value in given.options.items() if "/" not in name}
    below = table.nested(
        {name.partition("/")[2]: v for name, v in given.options.items() if name.startswith("accelerate/")}
    )
    served = {name.partition("/")[2]: v for name, v in given.options.items() if name.startswith("serve/")}
    files = {"trl.yaml": quoting.yaml(trainer), "accelerate.yaml": quoting.yaml(below)}
    if served:
        words = (word for name, value in served.items() for word in (f"--{name}", str(value)))
        files["serve.sh"] = f"#!/bin/bash\nset -euo pipefail\n{quoting.command(('trl', 'vllm-serve', *words))}\n"
    command = ("trl", given.known["task"], "--config", "trl.yaml", "--accelerate_config", "accelerate.yaml")
    before = "bash serve.sh on the node that rolls out, then " if served else ""
    return files, command, f"{before}{' '.join(command)} on every node"


WRITERS: Mapping[str, Callable[[PostTrainingSettings], Written]] = {
    "verl": _verl,
    "nemo-rl": _nemo_rl,
    "trl": _trl,
}
