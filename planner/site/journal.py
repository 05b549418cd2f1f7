"""``runs.csv``: the measured runs of a site, in the columns of ``docs/runs.md``; rows are added and never changed."""

from __future__ import annotations

COLUMNS = (
    *("id", "source", "lab", "date", "model", "family", "task", "runtime", "framework", "release"),
    *("accelerator", "num_accelerators", "accelerators_per_node", "inter_node_network"),
    *("seq_len", "global_batch_seqs", "tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch"),
    *("zero_stage", "activation_recompute", "sequence_parallel", "precision"),
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp"),
    *("num_experts", "topk", "moe_ffn_hidden"),
    *("step_time_s", "steps", "step_time_spread", "memory_gb_per_gpu", "memory_kind", "metric"),
    *("grade", "format", "notes"),
)
"""What a row says, in the order of the file; ``step_time_spread`` is the interquartile range over the median."""
HEADER = ",".join(COLUMNS) + "\n"
