"""Run by Transformers' environment: its own parser on the exported command, as ``accelerate launch`` would start it.

``read_hf_trainer.py JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{folder, argv, environment, world}``.
"""

import runpy
from dataclasses import fields
from pathlib import Path

from accelerated import engine, enter
from answering import answer
from transformers import HfArgumentParser, TrainingArguments


def read(job):
    """What the Trainer makes of one job."""
    enter(job)
    script = runpy.run_path("train.py", run_name="read")
    TrainingArguments.world_size = property(lambda _: job["world"])  # one process stands for all
    argv = [*job["argv"], "--use_cpu", "true", "--output_dir", str(Path("out").absolute())]
    parser = HfArgumentParser((script["JobArguments"], TrainingArguments))
    own, found = parser.parse_args_into_dataclasses(argv)
    return {"job": {each.name: getattr(own, each.name) for each in fields(own)}, **engine(found)}


answer(read)
