"""Run by Transformers' environment: Axolotl's own pydantic models and checks on the exported configuration.

``read_axolotl.py CHECKOUT JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{folder, argv, environment, world}``.
"""

import json
import os
import sys
from pathlib import Path

import torch
import yaml

sys.path.insert(0, str(Path(sys.argv[1], "src")))

from answering import answer
from axolotl.utils import config as module
from axolotl.utils.dict import DictDefault
from axolotl.utils.schemas.config import AxolotlConfigWCapabilities, AxolotlInputConfig
from axolotl.utils.trainer import setup_fsdp_envs, setup_parallelism_envs

OWN = dict(os.environ)


def read(job):
    """What Axolotl makes of one job on accelerators of the plan's generation."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(OWN)
    (name,) = job["argv"]
    said = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    plugged = {key for key in said if key.startswith("liger_")} | {"plugins"}
    known = set(AxolotlInputConfig.model_fields)
    if strange := said.keys() - known - plugged:
        raise ValueError(f"keys that Axolotl would pass over: {strange}")
    has = {"bf16": True, "fp8": False, "n_gpu": job["world"], "n_node": 1, "compute_capability": "sm_90"}
    plain = {key: value for key, value in said.items() if key not in plugged}
    has = {"capabilities": has, "env_capabilities": {"torch_version": str(torch.__version__).partition("+")[0]}}
    found = DictDefault(AxolotlConfigWCapabilities(**plain, **has).model_dump(exclude_none=True))
    module.resolve_dtype(found)
    fsdp = found.fsdp_config
    if fsdp:
        setup_fsdp_envs(found)
    setup_parallelism_envs(found)
    zero = json.loads(Path(found.deepspeed).read_text(encoding="utf-8")) if found.deepspeed else None
    return {
        "model": found.base_model,
        "untrained": bool(found.reinit_weights),
        "data": [found.datasets[0]["path"], found.datasets[0]["type"]],
        "sequence": found.sequence_len,
        "packed": [found.sample_packing, found.pad_to_sequence_len, found.attn_implementation],
        "micro": found.micro_batch_size,
        "accumulation": found.gradient_accumulation_steps,
        "dtype": str(found.torch_dtype).removeprefix("torch."),
        "precision": "bf16" if found.bf16 else "fp16" if found.fp16 else "no",
        "optimizer": str(found.optimizer),
        "rate": found.learning_rate,
        "steps": [found.max_steps, found.save_steps],
        "goes on": found.auto_resume_from_checkpoints,
        "recompute": bool(found.gradient_checkpointing),
        "adapters": [found.lora_r, found.lora_alpha, found.lora_dropout, sorted(found.lora_target_modules)]
        if found.adapter
        else None,
        "method": found.adapter,
        "bits": 4 if found.load_in_4bit else 8 if found.load_in_8bit else None,
        "fsdp": [os.environ[name] for name in ("FSDP_VERSION", "FSDP_RESHARD_AFTER_FORWARD")] if fsdp else None,
        "mesh": [int(os.environ.get(f"PARALLELISM_CONFIG_DP_{name}_SIZE", 1)) for name in ("REPLICATE", "SHARD")]
        if fsdp
        else None,
        "zero": zero["zero_optimization"]["stage"] if zero else None,
        "liger": bool(said.get("liger_fused_linear_cross_entropy")),
    }


answer(read)
