"""Run by SkyPilot's environment: its own loader on exported files. ``read_skypilot.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder}``.
"""

import os

import sky
from answering import answer


def read(job):
    """What SkyPilot makes of one file."""
    os.chdir(job["folder"])
    task = sky.Task.from_yaml("task.yaml")
    (resources,) = task.resources
    return {
        "nodes": task.num_nodes,
        "accelerators": dict(resources.accelerators),
        "spot": resources.use_spot,
        "network": str(resources.network_tier.value) if resources.network_tier else None,
        "run": task.run,
        "name": task.name,
    }


answer(read)
