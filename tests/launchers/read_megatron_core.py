"""Run by megatron-core's environment, as published: its configuration class and its rank groups.

``read_megatron_core.py JOBS ANSWERS``; ``JOBS`` is a JSON list of ``{fields, degrees, order, world}``. Groups are
built on torch's fake process group, so that any world fits into this process.
"""

import torch.distributed as dist
from answering import answer
from megatron.core import parallel_state
from megatron.core.transformer import TransformerConfig
from torch.testing._internal.distributed.fake_pg import FakeStore


def read(job):
    """The configuration's own view of itself, and the groups of rank 0."""
    config = TransformerConfig(**job["fields"])
    degrees = job["degrees"]
    dist.init_process_group("fake", rank=0, world_size=job["world"], store=FakeStore())
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=degrees["tp"],
            pipeline_model_parallel_size=degrees["pp"],
            context_parallel_size=degrees["cp"],
            expert_model_parallel_size=degrees["ep"],
            expert_tensor_parallel_size=degrees["etp"],
            order=job["order"],
            create_gloo_process_groups=False,  # they crash on a fake store
        )
        groups = {
            "tp": parallel_state.get_tensor_model_parallel_group(),
            "cp": parallel_state.get_context_parallel_group(),
            "dp": parallel_state.get_data_parallel_group(),
            "pp": parallel_state.get_pipeline_model_parallel_group(),
            "ep": parallel_state.get_expert_model_parallel_group(),
        }
        return {
            "groups": {name: dist.get_process_group_ranks(group) for name, group in groups.items()},
            "stages": stages(degrees, job["order"], job["world"]),
            "layers": config.num_layers,
            "heads": config.num_attention_heads,
            "groups_of_queries": config.num_query_groups,
            "experts": config.num_moe_experts,
        }
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def stages(degrees, order, world):
    """The ranks of every pipeline stage."""
    tp, pp, cp = degrees["tp"], degrees["pp"], degrees["cp"]
    cutter = parallel_state.RankGenerator(tp=tp, ep=1, dp=world // (tp * pp * cp), pp=pp, cp=cp, order=order)
    return [sorted(ranks) for ranks in zip(*cutter.get_ranks("pp"), strict=True)]


answer(read)
