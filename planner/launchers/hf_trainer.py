"""Hugging Face's Trainer: ``train.py``, its arguments, and the ``accelerate.yaml`` that shards it as the plan does.

Arguments: ``TrainingArguments`` of transformers 5.23.0 and the few of the script, which are called as in Transformers'
own ``run_clm.py``. Engines are those of :mod:`planner.launchers.accelerate`; adapters are PEFT's 0.21.2, quantised
weights bitsandbytes' 0.50.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import accelerate, table, trainer_arguments
from planner.launchers.scripts import script
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
    return replace(job, argv=argv, files={**job.files, NAME: script("hf_trainer.py")}, needed=(*job.needed, NAME))


def _word(value: object) -> str:
    return "true" if value is True else str(value)


def loses(plan: Plan) -> Iterator[Loss]:
    """What is the model's own, or left to Accelerate."""
    yield from trainer_arguments.loses(plan)
    yield Loss("workload.shape", "the model's own config.json; train.py stops where layers, width or vocabulary differ")


EXPORTER = by_table("hf-trainer", emit=emit, refuses=trainer_arguments.refuses, loses=loses)
