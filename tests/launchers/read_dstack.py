"""Run by dstack's environment: its own parser on exported files. ``read_dstack.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder}``.
"""

from pathlib import Path

import yaml
from answering import answer
from dstack._internal.core.models.configurations import parse_run_configuration


def read(job):
    """What dstack makes of one file."""
    task = parse_run_configuration(yaml.safe_load(Path(job["folder"], "task.dstack.yml").read_text()))
    gpu = task.resources.gpu
    return {
        "type": task.type,
        "name": task.name,
        "nodes": task.nodes,
        "gpus": gpu.name,
        "count": [gpu.count.min, gpu.count.max],
        "commands": len(task.commands),
    }


answer(read)
