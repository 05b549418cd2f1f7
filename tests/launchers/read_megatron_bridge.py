"""Run by Megatron's environment: the exported script's own ``configuration`` on Megatron-Bridge's recipes, and then
what Bridge itself makes of it and checks before it trains (``runtime_config_update``), for the plan's accelerators.

``read_megatron_bridge.py BRIDGE JOBS ANSWERS``. Transformer Engine and what else needs a GPU are replaced by
empty classes, recipes that build no text model are left out, and a model's config.json is built from the plan's shape.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import absent
from answering import answer

absent.replace()
for place in (Path(sys.argv[1], "src"), Path(sys.argv[1], "3rdparty", "Megatron-LM")):
    sys.path.insert(0, str(place.resolve()))

NAMED = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}
SHAPE = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels")
DEGREES = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"),
    *("context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size"),
)
AGAIN = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules")


def published(job):
    """The model's configuration as Transformers has it."""
    kind = NAMED[job["kind"]]
    import transformers

    made = getattr(transformers, f"{kind}Config")(**job["config"], architectures=[f"{kind}ForCausalLM"])
    made.dtype = "bfloat16"
    return made


def read(job):
    """What the recipe is, once the script has set what the plan says."""
    os.chdir(job["folder"])
    import transformers

    transformers.AutoConfig.from_pretrained = staticmethod(lambda *_, **__: published(job))
    spec = importlib.util.spec_from_file_location("exported", "train.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    config = script.configuration(json.loads(Path("bridge.json").read_text(encoding="utf-8")), job.get("words", ()))
    return said(config) | checked(config, job)


def checked(config, job):
    """What holds once Bridge has made one configuration of all."""
    import torch
    from megatron.bridge.training import config as bridge
    from megatron.bridge.training.utils import checkpoint_utils as checkpoints

    bridge.get_world_size_safe = lambda: job["world"]
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(major=9, name="NVIDIA H100")  # asked for dispatchers
    checkpoints.file_exists = lambda path: True  # Weights to start from are not here.
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(job["environment"])
    bridge.runtime_config_update(config)
    model, ddp = config.model, config.ddp
    return {
        "dp": config.data_parallel_size,
        "overlap": [ddp.overlap_grad_reduce, ddp.overlap_param_gather],
        "beside": [model.tp_comm_overlap, model.overlap_p2p_comm, model.batch_p2p_comm],
        "experts beside": model.overlap_moe_expert_parallel_comm,
        "formats": [model.bf16, model.fp16, model.fp8, model.fp4, config.optimizer.bf16],
        "schedule": [config.scheduler.lr_decay_iters, config.optimizer.lr, config.optimizer.min_lr],
    }


def said(config):
    """What the script has set."""
    model, ddp, mixed = config.model, config.ddp, config.mixed_precision
    return {
        "shape": [getattr(model, name) for name in SHAPE],
        "vocab": model.vocab_size,
        "experts": model.num_moe_experts,
        "degrees": [getattr(model, name) for name in DEGREES],
        "layout": model.pipeline_model_parallel_layout,
        "split": [model.account_for_embedding_in_pipeline_split, model.account_for_loss_in_pipeline_split],
        "context": model.cp_comm_type,
        "sequence_parallel": model.sequence_parallel,
        "sequence": [model.seq_length, config.dataset.seq_length],
        "recompute": [getattr(model, name) for name in AGAIN],
        "batch": [config.train.micro_batch_size, config.train.global_batch_size],
        "steps": [config.train.train_iters, config.checkpoint.save_interval],
        "sharding": [
            ddp.use_distributed_optimizer,
            ddp.num_distributed_optimizer_instances,
            ddp.use_megatron_fsdp,
            ddp.data_parallel_sharding_strategy,
        ],
        "optimizer": [
            *(config.optimizer.optimizer, config.optimizer.optimizer_cpu_offload),
            config.optimizer.optimizer_offload_fraction,
        ],
        "precision": [mixed.bf16, mixed.fp16, mixed.fp8, mixed.fp8_recipe, mixed.fp4, mixed.first_last_layers_bf16],
        "wide": [mixed.grad_reduce_in_fp32, ddp.grad_reduce_in_fp32],
        "pp_inner": config.dist.use_tp_pp_dp_mapping,
        "adapters": [config.peft.dim, config.peft.alpha, config.peft.dropout, list(config.peft.target_modules)]
        if config.peft
        else None,
        "weights": config.checkpoint.pretrained_checkpoint,
        "data": config.dataset.blend,
    }


answer(read)
