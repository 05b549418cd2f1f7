"""Closed choices of a question. This module imports nothing: completing a word and ``--help`` wait for it."""

from __future__ import annotations

from typing import Literal

Target = Literal["q", "k", "v", "o", "up", "down", "gate"]
"""A matrix of a block that can carry a LoRA factor pair."""
Task = Literal["sft", "dpo", "reward"]
"""What a fine-tuning learns from: texts, or pairs of a chosen and a rejected answer, by comparison with the model as it
was (DPO, arXiv 2305.18290) or as scores (a reward model)."""
Basis = Literal["on-demand", "spot", "reserved-1y", "reserved-3y"]
"""What kind of hourly price is meant."""
Objective = Literal["time", "cost", "energy", "tokens-per-dollar"]
"""What a plan is best in."""
METHODS = ("pretrain", "finetune", "full", "lora", "qlora", "qlora:int8", "qlora:fp8", "dora", "qdora", "freeze:N")
"""What of a model may be trained, as its name is written."""
