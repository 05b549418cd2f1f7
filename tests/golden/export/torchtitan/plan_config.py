# Llama 3 8B: the model and what torchtitan takes as code.
import os
from functools import partial

import torch.nn as nn
from plan_check import compare
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import ParallelismConfig
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import (
    decoder_vocab_size,
    get_attention_config,
    make_gqa_config,
    make_ffn_config,
)
from torchtitan.models.common.param_init import depth_scaled_std, skip_param_init
from torchtitan.models.llama3 import Llama3Model, parallelize_llama
from torchtitan.models.llama3.model import Llama3TransformerBlock
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

try:
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

    def data():
        return HuggingFaceTextDataLoader.Config()
except ImportError:  # main of August 2026 (b5bcd76c)
    from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader
    from torchtitan.hf_datasets.text_datasets import DATASETS

    def data():
        dataset = DATASETS[os.environ.get("PLAN_DATASET", "c4")]
        return GrainDataLoader.Config(dataset=ConcatThenSplitPackingConfig(dataset=dataset))


LAYERS = 32
DIM = 4096
HEADS = 32
KV_HEADS = 8
HEAD_DIM = 128
HIDDEN_DIM = 14336
VOCAB = 128256
SEQUENCE = 8192

TIED = False
CONVERTERS = []
RECOMPUTE = None
MODEL_PARTS = None
LENGTH = "max_seq_len" if "max_seq_len" in ComplexRoPE.Config.__dataclass_fields__ else "max_context_length"

LINEAR = {"weight": partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}
EMBEDDING = {"weight": skip_param_init if TIED else partial(nn.init.normal_, std=1.0)}


def deep(layer):
    """Initialisation of the projections that write to the residual stream."""
    return {"weight": partial(nn.init.trunc_normal_, std=depth_scaled_std(0.02, layer)), "bias": nn.init.zeros_}


def norm(width):
    return RMSNorm.Config(normalized_shape=width, eps=1e-05, param_init={"weight": nn.init.ones_})


def block(layer):
    return Llama3TransformerBlock.Config(
        attention_norm=norm(DIM),
        ffn_norm=norm(DIM),
        attention=make_gqa_config(
            dim=DIM,
            n_heads=HEADS,
            n_kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            wqkv_param_init=LINEAR,
            wo_param_init=deep(layer),
            inner_attention=get_attention_config("flex"),
            fuse_qkv=True,
            rope=ComplexRoPE.Config(dim=HEAD_DIM, **{LENGTH: SEQUENCE}, theta=500000.0),
            qk_norm=None,
        ),
        feed_forward=make_ffn_config(
            dim=DIM, hidden_dim=HIDDEN_DIM, w1_param_init=LINEAR, w2w3_param_init=deep(layer)
        ),
    )


def model():
    head = DIM**-0.5
    config = Llama3Model.Config(
        dim=DIM,
        vocab_size=VOCAB,
        enable_weight_tying=TIED,
        tok_embeddings=Embedding.Config(num_embeddings=VOCAB, embedding_dim=DIM, param_init=EMBEDDING),
        norm=norm(DIM),
        lm_head=Linear.Config(
            in_features=DIM,
            out_features=VOCAB,
            param_init={
                "weight": partial(nn.init.trunc_normal_, std=head, a=-3 * head, b=3 * head),
                "bias": nn.init.zeros_,
            },
        ),
        layers=[block(layer) for layer in range(LAYERS)],
    )
    for converter in CONVERTERS:
        config = converter.build().convert(config)
    return config


CHECKED = []


def checked(split):
    """Compares the whole model and its mesh with the plan, before either is split."""

    def first(model, *, parallel_dims, **known):
        if not CHECKED:
            mesh = parallel_dims
            degrees = {"ranks": mesh.world_size, "replicas": mesh.dp_replicate, "shards": mesh.dp_shard}
            compare(degrees | {"tp": mesh.tp, "cp": mesh.cp, "pp": mesh.pp, "ep": mesh.ep})
            compare({"parameters": sum(parameter.numel() for parameter in model.parameters())})
            CHECKED.append(True)
        return split(model, parallel_dims=parallel_dims, **known)

    return first


def plan():
    spec = ModelSpec(
        name="llama3",
        flavor="plan",
        model=model(),
        parallelize_fn=checked(parallelize_llama),
        pipelining_fn=checked(pipeline_llm),
        post_optimizer_build_fn=None,
        state_dict_adapter=Llama3StateDictAdapter,
    )
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))),
        model_spec=spec,
        optimizer=default_adamw(lr=1.0e-4),
        dataloader=data(),
        parallelism=ParallelismConfig(module_fqns_per_model_part=MODEL_PARTS),
        checkpoint=CheckpointManager.Config(),
        activation_checkpoint=RECOMPUTE,
    )
