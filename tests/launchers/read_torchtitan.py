"""Run by torchtitan's environment: its own parser on exported folders. ``read_torchtitan.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder, argv, world}``: the module in the folder is imported, the arguments are parsed,
and the mesh is built for the world, since the parser never learns how large that is.
"""

import importlib
import logging
import sys

from answering import answer
from torchtitan.components.quantization import float8, mx
from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims
from torchtitan.models.common import Linear

logging.disable(logging.WARNING)
float8.has_cuda_capability = mx.has_cuda_capability = lambda *_: True
"""8-bit formats are refused where there is no GPU; the plan's has them."""


ANGLES = ("theta", "scaling", "scaling_factor", "original_max_position_embeddings", "rope_factor")


def read(job):
    """What torchtitan makes of one job."""
    sys.path.insert(0, job["folder"])
    sys.modules.pop("plan_config", None)
    importlib.invalidate_caches()
    try:
        config = ConfigManager().parse_args(job["argv"])
    finally:
        sys.path.remove(job["folder"])
    p, t, model = config.parallelism, config.training, config.model_spec.model
    dims = ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        world_size=job["world"],
    )
    return {
        "tp": dims.tp,
        "pp": dims.pp,
        "cp": dims.cp,
        "ep": dims.ep,
        "mesh": [dims.dp_replicate, dims.dp_shard],
        "world": dims.world_size,
        "micro": p.pipeline_parallel_microbatch_size if dims.pp > 1 else t.local_batch_size,
        "local": t.local_batch_size,
        "global": t.global_batch_size,
        "sequence": t.seq_len,
        "layers": len(model.layers),
        "hidden": model.dim,
        "vocab": model.vocab_size,
        "tied": model.enable_weight_tying,
        "heads": model.layers[0].attention.n_heads,
        "groups": model.layers[0].attention.n_kv_heads,
        "epsilon": {norm.eps for norm in (model.norm, model.layers[0].attention_norm, model.layers[-1].ffn_norm)}.pop(),
        "angles": {name: getattr(model.layers[0].attention.rope, name) for name in ANGLES},
        "experts": model.layers[0].moe.num_experts if getattr(model.layers[0], "moe", None) else None,
        "chunks": chunks(config, dims),
        "schedule": p.pipeline_parallel_schedule if dims.pp > 1 else "none",
        "compiled": config.compile.enable,
        "reshard": p.fsdp_reshard_after_forward,
        "recompute": type(config.activation_checkpoint).__qualname__.split(".")[0],
        "converted": sorted(
            {type(c).__qualname__.split(".")[-2] for _, c, _, _ in model.traverse(Linear.Config)} - {"Linear"}
        ),
        "parameter_dtype": t.mixed_precision_param,
        "async_tp": config.compile.enable_async_tensor_parallel,
    }


def name(config):
    """Of the class that a configuration builds."""
    return type(config).__qualname__.split(".")[-2]


def chunks(config, dims):
    """Layers of every chunk, by torchtitan's own deal unless the module says it."""
    from torchtitan.distributed import pipeline_parallel as pipeline

    if dims.pp == 1:
        return None
    parts = config.parallelism.module_fqns_per_model_part
    if parts is None:
        parts = pipeline._generate_llm_fqn_per_model_part(
            *pipeline._get_pipeline_metadata(dims, config.parallelism, config.model_spec.model)
        )
    return [sum(name.startswith("layers.") for name in part) for part in parts]


answer(read)
