"""verl's options of earlier releases, and what those took where nothing was said, as today's (1dda039b).

Until the middle of 2025 (volcengine/verl@008db456, verl/trainer/config/ppo_trainer.yaml) the engine was vLLM unless
stated, without CUDA graphs, and sequences kept their padding; micro-batches could be counted over all ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ROLE = "actor_rollout_ref."
EARLIER = re.compile(
    r"(.*\.)?(ppo_micro_batch_size|log_prob_micro_batch_size|forward_micro_batch_size)|data\.val_batch_size"
    r"|.*\.fsdp_config\.grad_offload|.*\.checkpoint\.contents|actor_rollout_ref\.rollout\.(n_agent|chat_scheduler)"
)
"""Options that only earlier releases have."""
LEFT: Mapping[str, Any] = {
    f"{ROLE}rollout.name": "vllm",
    f"{ROLE}rollout.enforce_eager": True,
    f"{ROLE}rollout.max_num_seqs": 1024,
    f"{ROLE}model.use_remove_padding": False,
}
"""Option -> what they take where nothing is said."""
NOTE = "options of verl before 0.5: what they leave out is as it was then"


def as_of_today(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(options of any release as of today's, what was assumed for it)."""
    stated = dict(values)
    if not any(EARLIER.fullmatch(name) for name in stated) and f"{ROLE}rollout.name" in stated:
        return stated, []
    taken = {name: value for name, value in LEFT.items() if stated.get(name) is None}
    words = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in taken.items())
    stated |= taken
    ranks = _whole(stated, "trainer.nnodes", 1) * _whole(stated, "trainer.n_gpus_per_node", 8)
    shared = _whole(stated, f"{ROLE}actor.ulysses_sequence_parallel_size", 1)
    for part in (f"{ROLE}actor.", "critic."):
        whole = stated.pop(f"{part}ppo_micro_batch_size", None)
        if whole is not None and stated.get(f"{part}ppo_micro_batch_size_per_gpu") is None:
            counted = re.fullmatch(r"\d{1,9}", str(whole)) is not None
            stated[f"{part}ppo_micro_batch_size_per_gpu"] = int(whole) * shared // ranks if counted else whole
    stated.pop(f"{ROLE}actor.fsdp_config.grad_offload", None)  # with the optimizer's
    return stated, [f"{NOTE} ({words})" if words else NOTE]


def _whole(values: Mapping[str, Any], name: str, usual: int) -> int:
    text = str(values.get(name, usual))
    return max(int(text), 1) if re.fullmatch(r"\d{1,6}", text) else usual
