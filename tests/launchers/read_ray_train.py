"""Run by Ray's environment: the TorchTrainer that an exported script makes. ``read_ray_train.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder}``.
"""

import os
import runpy

from answering import answer


def read(job):
    """What Ray makes of one script."""
    os.chdir(job["folder"])
    trainer = runpy.run_path("ray_train.py")["trainer"]()
    scaling = trainer.scaling_config
    return {
        "nodes": scaling.num_workers,
        "gpus": scaling.num_gpus_per_worker,
        "total": dict(scaling.total_resources),
        "placement": scaling.placement_strategy,
        "restarts": trainer.run_config.failure_config.max_failures,
        "files": sorted(trainer.train_loop_config),
    }


answer(read)
