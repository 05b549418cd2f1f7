"""Run by DeepSpeed's environment: ``DeepSpeedConfig`` on exported files. ``read_deepspeed.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder, dp}``. DeepSpeed takes its data-parallel size from an mpu, as it does in a job.
"""

import json
import logging
import os
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
from answering import answer
from deepspeed.runtime.config import DeepSpeedConfig

logging.disable(logging.WARNING)


class Sizes:
    """What a model-parallel job tells DeepSpeed."""

    def __init__(self, dp):
        self.dp = dp

    def get_data_parallel_world_size(self):
        return self.dp


def read(job):
    """What DeepSpeed makes of one file."""
    deepspeed.comm.get_rank = lambda *_, **__: 0
    deepspeed.comm.get_world_size = lambda *_, **__: job["dp"]
    raw = json.loads(Path(job["folder"], "ds_config.json").read_text())
    config = DeepSpeedConfig(raw, mpu=Sizes(job["dp"]))
    zero = config.zero_config
    return {
        "global": config.train_batch_size,
        "micro": config.train_micro_batch_size_per_gpu,
        "accumulation": config.gradient_accumulation_steps,
        "zero": config.zero_optimization_stage,
        "bf16": config.bfloat16_config.enabled,
        "fp16": config.float16_config.enabled,
        "offload": bool(zero.offload_optimizer and zero.offload_optimizer.device != "none"),
        "hpz": zero.zero_hpz_partition_size,
        "overlap": zero.overlap_comm,
        "tp": config.tensor_parallel_config.autotp_size or 1,
        "pp": config.pipeline["stages"] if config.pipeline["stages"] != "auto" else 1,
    }


answer(read)
