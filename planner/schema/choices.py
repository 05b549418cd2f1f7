"""Closed choices of a question. This module imports nothing: completing a word and ``--help`` wait for it."""

from __future__ import annotations

from typing import Literal

Target = Literal["q", "k", "v", "o", "up", "down", "gate"]
"""A matrix of a block that can carry a LoRA factor pair."""
Task = Literal["sft", "dpo", "reward"]
"""What a fine-tuning learns from: texts, or pairs of a chosen and a rejected answer, by comparison with the model as it
was (DPO, arXiv 2305.18290) or as scores (a reward model)."""
RLTask = Literal["grpo", "ppo", "rloo"]
"""What a post-training by reinforcement learning estimates advantages by: groups of responses (GRPO, arXiv 2402.03300),
a critic (PPO, arXiv 1707.06347), or the other responses to a prompt (RLOO, arXiv 2402.14740)."""
Placement = Literal["colocated", "in-step", "one-step-off", "async"]
"""Where rollout and training are: on the same accelerators in turns; apart, waiting for each other; apart, a batch
ahead; apart, as many batches ahead as the staleness says."""
Engine = Literal["vllm", "sglang", "tensorrt-llm", "megatron"]
WeightsWay = Literal["broadcast", "checkpoint-engine"]
"""How new weights reach replicas on other accelerators."""
"""What generates responses."""
Basis = Literal["on-demand", "spot", "reserved-1y", "reserved-3y"]
"""What kind of hourly price is meant."""
Objective = Literal["time", "cost", "energy", "tokens-per-dollar"]
"""What a plan is best in."""
METHODS = ("pretrain", "finetune", "full", "lora", "qlora", "qlora:int8", "qlora:fp8", "dora", "qdora", "freeze:N")
"""What of a model may be trained, as its name is written."""
