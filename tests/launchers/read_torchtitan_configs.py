"""Run by torchtitan's environment: what its own configurations hold. ``read_torchtitan_configs.py NAMES ANSWERS``.

``NAMES`` is a JSON list; the answers are in the words of ``planner/launchers/torchtitan.toml``.
"""

import importlib
import logging

from answering import answer
from torchtitan.components.quantization import float8, mx
from torchtitan.config import ConfigManager
from torchtitan.models.common import Linear

logging.disable(logging.WARNING)
float8.has_cuda_capability = mx.has_cuda_capability = lambda *_: True
MODULES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")
AXES = (
    *(f"{axis}_parallel" for axis in ("tensor", "pipeline", "context", "expert")),
    *("data_parallel_replicate", "data_parallel_shard"),
)
POLICIES = {"FullAC": "full", "SelectiveAC": "selective", "NoneType": "none"}
FORMATS = {"Float8Linear": "fp8", "MXFP8Linear": "mxfp8"}


def read(name):
    """What torchtitan makes of one configuration."""
    registries = {each: importlib.import_module(f"torchtitan.models.{each}.config_registry") for each in MODULES}
    module = next(each for each, registry in registries.items() if hasattr(registry, name))
    config = ConfigManager().parse_args(["--module", module, "--config", name])
    p, t, model = config.parallelism, config.training, config.model_spec.model
    kinds = {type(c).__qualname__.split(".")[-2] for _, c, _, _ in model.traverse(Linear.Config)}
    return {
        "micro": t.local_batch_size,
        "sequence": t.seq_len,
        "steps": t.steps,
        "recompute": POLICIES[type(config.activation_checkpoint).__qualname__.split(".")[0]],
        "precision": next((FORMATS[kind] for kind in sorted(kinds) if kind in FORMATS), "bf16"),
        "degrees": [getattr(p, f"{axis}_degree") for axis in AXES],
        "global": t.global_batch_size,
        "layers": len(model.layers),
        "hidden": model.dim,
    }


answer(read)
