"""Fifty steps in place of a training run: mock data, no evaluation, no checkpoint, a line about every step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_bridge, primus, slurm, torchrun, torchtitan
from planner.launchers.bundle import Bundle
from planner.launchers.scripts import script
from planner.launchers.target import Exporter, LaunchJob
from planner.schema.plan import Plan

STEPS = 50
"""Of which the first few warm up; what is left says the median of a step within a per cent."""
LIMIT_MIN = 30
"""Minutes of one plan: start, compilation and the steps. What takes longer hangs."""
NAME, LOG = "benchmark.sh", "train.log"

_MEGATRON = (
    *("--load", "--save", "--save-interval", "--train-iters"),
    *("--data-path", "--tokenizer-type", "--tokenizer-model", "--vocab-size"),
    *("--exit-duration-in-mins", "--exit-signal"),
)
_MEGATRON_SWITCHES = ("--async-save", "--use-persistent-ckpt-worker", "--exit-signal-handler")
_TORCHTITAN = (
    *("--checkpoint.folder", "--checkpoint.interval", "--checkpoint.async_mode", "--training.steps"),
    *("--dataloader.dataset", "--hf_assets_path"),
)
_MAXTEXT = (
    "steps",
    "checkpoint_period",
    "dataset_type",
    "hf_path",
    "hf_train_files",
    "log_period",
    "load_parameters_path",
)
_DROPPED: Mapping[str, Mapping[str, int]] = {
    "megatron": {**dict.fromkeys(_MEGATRON, 1), **dict.fromkeys(_MEGATRON_SWITCHES, 0)},
    megatron_bridge.EXPORTER.name: {},
    primus.EXPORTER.name: {},
    "torchtitan": {"--checkpoint.enable": 0, **dict.fromkeys(_TORCHTITAN, 1)},
    "maxtext": dict.fromkeys(_MAXTEXT, 0),
    "hf-trainer": dict.fromkeys(("--train_file", "--output_dir", "--max_steps", "--save_steps", "--logging_steps"), 1),
}
"""Trainer -> options that are left out -> how many words follow each; of ``key=value`` the key."""


def short(trainer: Exporter, plan: Plan, job: LaunchJob) -> LaunchJob:
    """The job of a trainer with fifty steps on data that need no files.

    Options of Megatron-LM: megatron/training/arguments.py (``--mock-data``; the null tokenizer adds a token of its
    own); of torchtitan: torchtitan/config; of the Trainer: its arguments, and
    ``--mock_data`` of the script that is exported with them.

    Raises:
        WrongQuestion: the trainer runs a script of one's own, which decides on its data itself.
    """
    if trainer.name not in _DROPPED:
        *most, last = _DROPPED
        able = f"{', '.join(most)} and {last}"
        raise WrongQuestion(f"--benchmark: {trainer.name} has no data of its own; {able} have")
    if trainer.name == megatron_bridge.EXPORTER.name:
        return megatron_bridge.measured(plan, job, STEPS)
    if trainer.name == primus.EXPORTER.name:
        return primus.measured(plan, job, STEPS)
    if trainer.name == torchtitan.EXPORTER.name:
        job = torchtitan.measured(job)
    head = job.command[: len(job.command) - len(job.argv)]
    argv = (*_without(job.argv, _DROPPED[trainer.name]), *_added(trainer.name, plan))
    return replace(job, command=(*head, *argv), argv=argv)


def _added(trainer: str, plan: Plan) -> tuple[str, ...]:
    if trainer == "torchtitan":
        return ("--training.steps", str(STEPS), "--metrics.log_freq", "1")
    if trainer == "hf-trainer":
        return ("--mock_data", "true", "--max_steps", str(STEPS), "--logging_steps", "1", "--save_strategy", "no")
    if trainer == "maxtext":
        return (f"steps={STEPS}", "dataset_type=synthetic", "enable_checkpointing=false", "log_period=1")
    return (
        *("--mock-data", "--tokenizer-type", "NullTokenizer"),
        *("--vocab-size", str(int(plan.workload.shape["vocab"]) - 1)),
        *("--train-iters", str(STEPS), "--log-interval", "1", "--log-throughput"),
    )


def _without(words: Sequence[str], dropped: Mapping[str, int]) -> Iterator[str]:
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif (name := word.partition("=")[0]) in dropped:
            skip = dropped[name]
        else:
            yield word


def in_turn(folders: Sequence[str], exporters: Sequence[Exporter]) -> Bundle:
    """The script that runs the plans of several folders one after another, and says which failed and why.

    Raises:
        WrongQuestion: a scheduler other than Slurm: nothing waits for its jobs.
    """
    schedulers = [each.name for each in exporters if each.role == "scheduler"]
    if schedulers not in ([], ["slurm"]):
        raise WrongQuestion(f"--benchmark: jobs of {schedulers[0]} are not waited for; slurm's are, or no scheduler")
    run = f"timeout {60 * LIMIT_MIN} bash {torchrun.NAME} > {LOG} 2>&1"
    if schedulers:
        run = f"sbatch --wait --time={LIMIT_MIN} --output={LOG} {slurm.NAME}"
    names = "|".join(dict.fromkeys(setting.name for each in exporters for setting in each.settings))
    calls = "\n".join(f"measure {folder}" for folder in folders)
    text = script("benchmark.sh", RUN=run, LOG=LOG, NAMES=names, CALLS=calls)
    listed = {"kind": "target", "target": "benchmark", "files": [NAME, "target.json"]}
    files = {NAME: text, "target.json": json.dumps(listed, indent=2) + "\n"}
    every = "" if schedulers else " on every node, with NODE_RANK and MASTER_ADDR set"
    return Bundle("+".join(each.name for each in exporters), files, (), (), f"bash {NAME}{every}")
