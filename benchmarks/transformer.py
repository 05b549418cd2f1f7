"""A transformer of the library in PyTorch, for timing real steps. Imports PyTorch only when one is built.

Written as such models usually are: one product for query/key/value and one for gate and up, fused attention, logits
cast to fp32 for the loss. What the library says of a model is followed: norms, biases, gating, tied embeddings, rotary
or learned positions, grouped keys and values, dropout.
"""

from __future__ import annotations

from typing import Any

from planner.schema.workload import Model

DROPOUT = 0.1


def sharded(model: Model, sequence: int, recompute: bool, device: Any, compiled: bool) -> Any:
    """The network under FSDP2 on one device: fp32 parameters, a bf16 copy gathered block by block, fp32 gradients.

    The process group must exist. Called with (tokens, targets), it returns the loss.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    _check(model)
    torch.manual_seed(0)
    with torch.device(device):
        network = _network(model, sequence, recompute)
    mesh = init_device_mesh(device.type, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in network.blocks:
        if compiled:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(network, mesh=mesh, mp_policy=policy)


def _check(model: Model) -> None:
    unknown = [
        name for name in ("moe", "latent", "window", "encoder_layers", "embedding_width") if getattr(model, name)
    ]
    if unknown or model.qk_norm != "none" or not model.causal:
        raise ValueError(f"{model.id}: {', '.join(unknown) or 'query norms or two-way attention'} are not built here")


def _network(model: Model, sequence: int, recompute: bool) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    dropout = DROPOUT if model.dropout else 0.0

    def norm() -> nn.Module:
        if model.norm == "rms":
            return nn.RMSNorm(model.hidden)
        return nn.LayerNorm(model.hidden, bias=model.norm_bias)

    class Block(nn.Module):
        """Attention and MLP, each behind a norm and added to its input."""

        def __init__(self) -> None:
            super().__init__()
            queries, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
            self.before, self.between = norm(), norm()
            self.qkv = nn.Linear(model.hidden, queries + 2 * kv, bias=model.qkv_bias)
            self.out = nn.Linear(queries, model.hidden, bias=model.output_bias)
            self.up = nn.Linear(model.hidden, (1 + model.gated) * model.ffn, bias=model.mlp_bias)
            self.down = nn.Linear(model.ffn, model.hidden, bias=model.mlp_bias)

        def forward(self, x: torch.Tensor, rotation: torch.Tensor | None) -> torch.Tensor:
            x = x + functional.dropout(self.out(self.attention(self.before(x), rotation)), dropout)
            return x + functional.dropout(self.down(self.activation(self.up(self.between(x)))), dropout)

        def attention(self, x: torch.Tensor, rotation: torch.Tensor | None) -> torch.Tensor:
            heads = self.qkv(x).unflatten(-1, (-1, model.head_dim)).transpose(1, 2)
            q, k, v = heads.split([model.heads, model.kv_heads, model.kv_heads], dim=1)
            if rotation is not None:
                q, k = _rotated(q, rotation), _rotated(k, rotation)
            grouped = model.kv_heads != model.heads
            mixed = functional.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=grouped
            )
            return mixed.transpose(1, 2).flatten(2)

        def activation(self, x: torch.Tensor) -> torch.Tensor:
            if not model.gated:
                return functional.gelu(x, approximate="tanh")
            gate, up = x.chunk(2, dim=-1)
            return functional.silu(gate) * up

    class Network(nn.Module):
        """Embedding, blocks, head and loss."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(model.vocab, model.hidden)
            self.positions = nn.Embedding(sequence, model.hidden) if model.learned_positions else None
            self.blocks = nn.ModuleList(Block() for _ in range(model.layers))
            self.norm = norm() if model.final_norm else nn.Identity()
            self.head = nn.Linear(model.hidden, model.vocab, bias=False)
            if model.tied:
                self.head.weight = self.embedding.weight
            angles = torch.outer(torch.arange(sequence), 1e4 ** (-torch.arange(0, model.head_dim, 2) / model.head_dim))
            rotary = None if model.learned_positions else torch.stack((angles.cos(), angles.sin())).bfloat16()
            self.register_buffer("rotation", rotary, persistent=False)

        def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            if self.positions is not None:
                x = x + self.positions.weight
            x = functional.dropout(x, dropout)
            for block in self.blocks:
                x = checkpoint(block, x, self.rotation, use_reentrant=False) if recompute else block(x, self.rotation)
            logits = self.head(self.norm(x)).float()
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Network()


def _rotated(x: Any, rotation: Any) -> Any:
    """Rotary positions: halves of a head's width turned by ``position x 10000^(-2 i / width)``."""
    import torch

    (cosine, sine), (first, second) = rotation, x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
