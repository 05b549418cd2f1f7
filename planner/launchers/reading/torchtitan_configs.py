"""What torchtitan's own configurations hold that a command does not show: they are functions in its code.

From ``ConfigManager().parse_args(["--module", ..., "--config", NAME])`` of torchtitan 0.3.0, which a test asks again
where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Config:
    """A registered configuration.

    Attributes:
        model: Id in the library.
        micro: Sequences of a rank in a forward pass.
        sequence: Tokens.
        steps: Of the whole run.
        recompute: Our word for its activation checkpointing.
        options: What differs from torchtitan's defaults beyond that, as the command line would say it.
        precision: Of the matrix products.
    """

    model: str
    micro: int
    sequence: int
    steps: int
    recompute: str
    options: Mapping[str, str]
    precision: str = "bf16"


_TP8 = {"parallelism.tensor_parallel_degree": "8"}
_SCHEDULE = "parallelism.pipeline_parallel_schedule"
_EP8 = {"parallelism.expert_parallel_degree": "8", _SCHEDULE: "Interleaved1F1B"}
_EP2 = {"parallelism.expert_parallel_degree": "2", _SCHEDULE: "Interleaved1F1B"}

CONFIGS: Mapping[str, Config] = {
    "llama3_8b": Config("llama3.1-8b", 1, 8192, 1000, "selective", {}),
    "llama3_8b_mxfp8": Config("llama3.1-8b", 1, 8192, 1000, "selective", {}, "mxfp8"),
    "llama3_70b": Config("llama3.1-70b", 8, 8192, 1000, "full", _TP8),
    "llama3_405b": Config("llama3.1-405b", 2, 8192, 3000, "full", _TP8, "fp8"),
    "qwen3_0_6b": Config("qwen3-0.6b", 4, 4096, 10, "selective", {}),
    "qwen3_1_7b": Config("qwen3-1.7b", 4, 4096, 100, "selective", {}),
    "qwen3_14b": Config("qwen3-14b", 4, 4096, 3000, "full", {}),
    "qwen3_32b": Config("qwen3-32b", 2, 4096, 3000, "full", {}),
    "qwen3_30b_a3b": Config("qwen3-30b-a3b", 2, 4096, 3000, "full", {}),
    "sft_qwen3_8b_math": Config("qwen3-8b", 1, 2048, 180, "selective", {}),
    "deepseek_v3_16b": Config("deepseek-v2-lite", 4, 4096, 1000, "selective", _EP8),
    "deepseek_v3_16b_hybridep": Config("deepseek-v2-lite", 4, 4096, 1000, "selective", _EP8),
    "deepseek_v3_671b": Config("deepseek-v3", 4, 4096, 10000, "selective", _EP2),
    "deepseek_v3_671b_float8": Config("deepseek-v3", 4, 4096, 10000, "selective", _EP2, "fp8"),
    "gpt_oss_20b": Config("gpt-oss-20b", 1, 8192, 10000, "full", {}),
    "gpt_oss_120b": Config("gpt-oss-120b", 1, 8192, 10000, "full", {}),
}
