"""Synthetic logs in the forms that frameworks print; the files that print them are named in planner/site/logs."""

from collections.abc import Callable, Iterable, Sequence

Times = Sequence[float]
"""Seconds of step 1, 2, ..."""
STEADY = [30.0, 9.0, *([4.0, 4.1, 3.9] * 6)]
"""Two warm-up steps, then 4 s a step."""
TITAN_HEAD = [
    "[titan] 2026-01-01 12:00:00,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory",
    "[titan] 2026-01-01 12:00:01,000 - root - INFO - Building device mesh with parallelism: "
    "pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1",
    "[titan] 2026-01-01 12:00:02,000 - root - INFO - Trainer is initialized with local batch size 2, global batch size "
    "16, gradient accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)",
]
ARGUMENTS = {
    "bf16": True, "context_parallel_size": 1, "ffn_hidden_size": 14336, "fp8": None, "global_batch_size": 128,
    "group_query_attention": True, "hidden_size": 4096, "kv_channels": 128, "micro_batch_size": 1,
    "num_attention_heads": 32, "num_layers": 32, "num_query_groups": 8, "padded_vocab_size": 128256,
    "pipeline_model_parallel_size": 1, "recompute_granularity": None, "seq_length": 8192, "sequence_parallel": True,
    "swiglu": True, "tensor_model_parallel_size": 2, "use_distributed_optimizer": True,
    "virtual_pipeline_model_parallel_size": None, "world_size": 8,
}  # fmt: skip
"""A dump of Megatron-LM's arguments: Llama 3 8B on one node."""


def megatron_arguments(**other: object) -> list[str]:
    middle = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in (ARGUMENTS | other).items()]
    return ["-" * 24 + " arguments " + "-" * 24, *middle, "-" * 20 + " end of arguments " + "-" * 21]


def megatron(times: Times = STEADY, batch: int = 128, first: int = 1) -> list[str]:
    return [
        f" [2026-01-01 12:00:00.{step:06}] iteration {step:8d}/    1000 | consumed samples: {step * batch:12d} | "
        f"elapsed time per iteration (ms): {1e3 * time:.1f} | throughput per GPU (TFLOP/s/GPU): 400.1 | "
        f"learning rate: 1.000000E-04 | global batch size: {batch:5d} | lm loss: 1.1E+01 | loss scale: 1.0 | "
        "grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        for step, time in enumerate(times, first)
    ]


MEGATRON_MEMORY = (
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1000.0 | max allocated: 30000.0 | reserved: 40000.0 | "
    "max reserved: 40960.0"
)


def nemo(times: Times = STEADY) -> list[str]:
    return [
        f"Training epoch 0, iteration {step}/999 | lr: 1.961e-06 | global_batch_size: 128 | global_step: {step} | "
        f"reduced_train_loss: 1.315 | train_step_timing in s: {time:.3f} | consumed_samples: {step * 128}"
        for step, time in enumerate(times)
    ]


def torchtitan(times: Times = STEADY) -> list[str]:
    """16 sequences of 8,192 tokens on 8 accelerators."""
    return [
        f"[titan] 2026-01-01 12:01:00,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 12.0000  "
        f"\x1b[38;2;180;60;0mgrad_norm:  1.0000  \x1b[36mmemory: 40.00GiB(50.57%)  "
        f"\x1b[34mtps: {round(16 * 8192 / 8 / time):,}  \x1b[36mtflops: 300.00  \x1b[35mmfu: 30.00%\x1b[39m"
        for step, time in enumerate(times, 1)
    ]


def nanotron(times: Times = STEADY) -> list[str]:
    return [
        f"[default0]:01/01/2026 12:00:00 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: {step} / 1000 | "
        f"consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: {time:.3g}K | tokens_per_sec: 262K | "
        "global_batch_size: 128 | lm_loss: 10.9 | lr: 0.0003 | model_tflops_per_gpu: 120 | hardware_tflops_per_gpu: 120"
        " | grad_norm: 1.2 | cuda_memory_allocated: 3.1G | cuda_max_memory_reserved: 42.9G"
        for step, time in enumerate(times, 1)
    ]


def deepspeed(times: Times = STEADY) -> list[str]:
    """32 sequences a step."""
    return [
        f"[2026-01-01 12:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, "
        f"RunningAvgSamplesPerSec=7.9, CurrSamplesPerSec={32 / time}, MemAllocated=6.01GB, MaxMemAllocated=40.0GB"
        for step, time in enumerate(times, 1)
    ]


def deepspeed_pipeline(times: Times = STEADY) -> list[str]:
    return [
        f"steps: {step} loss: 5.1234 iter time (s): {time:.3f} samples/sec: {32 / time:.3f}"
        for step, time in enumerate(times, 1)
    ]


def composer(times: Times = STEADY) -> list[str]:
    """64 sequences a step."""
    return [
        line
        for step, time in enumerate(times, 1)
        for line in (
            f"0: [batch={step}/1000]:",
            f"0: \t Train time/batch: {step - 1}",
            "0: \t Train memory/peak_reserved_mem: 42.9497",
            f"0: \t Train throughput/batches_per_sec: {1 / time:.4f}",
            f"0: \t Train throughput/samples_per_sec: {64 / time:.6f}",
            f"0: \t Train throughput/device/samples_per_sec: {8 / time:.6f}",
            "0: \t Train loss/train/total: 12.0000",
        )
    ]


def hugging_face(times: Times = STEADY) -> list[str]:
    head = [
        "***** Running training *****",
        "  Num examples = 10,000",
        "  Instantaneous batch size per device = 4",
        "  Total train batch size (w. parallel, distributed & accumulation) = 64",
        "  Gradient Accumulation steps = 2",
        f"  Total optimization steps = {len(times)}",
    ]
    bars = (f"{step}/{len(times)} [00:{step:02}<01:00,  {time:.2f}s/it]" for step, time in enumerate(times, 1))
    return [*head, "\r".join(f" 10%|█         | {bar}" for bar in bars)]


def maxtext(times: Times = STEADY) -> list[str]:
    return [
        f"completed step: {step}, seconds: {time:.3f}, TFLOP/s/device: 210.300, Tokens/s/device: 1900.100, "
        "total_weights: 65536, loss: 10.200"
        for step, time in enumerate(times)
    ]


def mlperf(times: Times = STEADY) -> list[str]:
    """256 sequences a step."""
    return [
        ':::MLLOG {"namespace": "", "time_ms": 1696565401886, "event_type": "POINT_IN_TIME", "key": '
        '"global_batch_size", "value": 256, "metadata": {"file": "/workspace/pretrain.py", "lineno": 71}}',
        *(
            '0: :::MLLOG {"namespace": "", "time_ms": 1696565401886, "event_type": "POINT_IN_TIME", "key": '
            f'"tracked_stats", "value": {{"throughput": {256 / time}}}, "metadata": '
            f'{{"file": "/workspace/callbacks.py", "lineno": 277, "step": {step * 256}}}}}'
            for step, time in enumerate(times, 1)
        ),
    ]


FORMS: dict[str, tuple[Callable[[Times], Iterable[str]], float, float | None]] = {
    "Megatron-LM": (megatron, 4.0, None),
    "NeMo": (nemo, 4.0, None),
    "torchtitan": (torchtitan, 4.0 * 8 / (16 * 8192), 40 * 2.0**30),
    "nanotron": (nanotron, 4.0, 42.9e9),
    "DeepSpeed": (deepspeed, 4.0 / 32, 40 * 2.0**30),
    "Composer": (composer, 4.0 / 64, 42.9497e9),
    "Hugging Face Trainer": (hugging_face, 4.0, None),
    "MaxText": (maxtext, 4.0, None),
    "MLPerf": (mlperf, 4.0 / 256, None),
}
"""Name of a format -> what prints it, seconds (of a step, a token or a sequence) and bytes that must be read."""
