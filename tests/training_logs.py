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
    return [*head, "\r".join(bars(times))]


def bars(times: Times, before: str = "", drawn: int = 1) -> list[str]:
    """Progress bars as tqdm draws them: whole seconds, and a moving average with a weight of 0.3."""
    drawn_bars = [f"{before}  0%|          | 0/{len(times)} [00:00<?, ?it/s]"]
    elapsed, average = 0.0, 0.0
    for step, time in enumerate(times, 1):
        elapsed += time
        average = 0.3 * time + 0.7 * average
        mean = average / (1 - 0.7**step)
        rate = f"{mean:.2f}s/it" if mean > 1 else f"{1 / mean:.2f}it/s"
        if step % drawn == 0:
            bar = f"{100 * step // len(times):3}%|█         | {step}/{len(times)} [{clock(elapsed)}<01:00,  {rate}]"
            drawn_bars.append(before + bar)
    return drawn_bars


def clock(seconds: float) -> str:
    """Whole seconds as tqdm prints them."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


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


def neox(times: Times = STEADY) -> list[str]:
    return [
        f" samples/sec: {512 / time:.3f} | iteration {step:8d}/  320000 | elapsed time per iteration (ms): "
        f"{1e3 * time:.1f} | learning rate: 9.7E-05 | approx flops per GPU: 92.7TFLOPS | lm_loss: 2.6E+00 | "
        "number of skipped iterations:   0 |"
        for step, time in enumerate(times, 1)
    ]


def bigscience(times: Times = STEADY) -> list[str]:
    """Seconds, where others print milliseconds."""
    return [
        f" iteration {step:8d}/  115311 | consumed samples: {step * 2048:12d} | consumed tokens: {step * 2**22:16d} | "
        f"elapsed time per iteration (s): {time:.2f} | learning rate: 6.0E-05 | global batch size:  2048 | lm loss: 2.3"
        for step, time in enumerate(times, 1)
    ]


def argonne(times: Times = STEADY) -> list[str]:
    return [
        f"[2026-01-01 12:00:00.709465][INFO][training_log.py:661] -  iteration={step:8}/  105963 | "
        f"consumed_samples={step * 96:8} | elapsed_time_per_iteration_ms={1e3 * time:.1f} | learning_rate=1.8e-07 | "
        "global_batch_size=   96 | lm loss=9.1"
        for step, time in enumerate(times, 1)
    ]


def bridge(times: Times = STEADY) -> list[str]:
    return [f"Step Time : {time:.2f}s GPU utilization: 456.7MODEL_TFLOP/s/GPU" for time in times]


def dllogger(times: Times = STEADY) -> list[str]:
    return [
        f'DLLL {{"timestamp": "1700000000.123456", "elapsedtime": "9.1", "type": "LOG", "step": {step}, "data": '
        f'{{"reduced_train_loss": 10.9, "lr": 1.2e-06, "global_step": {step}.0, "consumed_samples": {step * 256}.0, '
        f'"train_backward_timing in s": 4.6e-05, "train_step_timing in s": {time}, "epoch": 0}}}}'
        for step, time in enumerate(times, 1)
    ]


def nemo_bar(times: Times = STEADY) -> list[str]:
    return [
        f"Epoch 0: :  10%|█         | {step}/100 [{clock(sum(times[:step]))}<10:00, v_num=, reduced_train_loss=6.5, "
        f"global_step={step}.00, consumed_samples={step * 256}.0, train_step_timing in s={time:.2f}]"
        for step, time in enumerate(times, 1)
    ]


def levanter(times: Times = STEADY) -> list[str]:
    return [
        f"2026-01-01T12:00:00 - 0 - tqdm_loggable.tqdm_logging - tqdm_logging.py:145 - INFO :: Progress on:train "
        f"{step:.1f}it/5.00kit rate:{time:.1f}s/it remaining:09:00 elapsed:{clock(sum(times[:step]))} postfix:loss=5.5"
        for step, time in enumerate(times, 1)
    ]


def olmo(times: Times = STEADY) -> list[str]:
    return [
        line
        for step, time in enumerate(times, 1)
        for line in (
            f"2026-01-01 12:00:00.000 node:0 olmo.train:967 INFO [step={step}/739328]",
            "    train/CrossEntropyLoss=11.25",
            f"    throughput/total_tokens={step * 4194304:,}",
            f"    throughput/device/tokens_per_second={16384 / time:,.0f}",
            f"    throughput/device/batches_per_second={1 / time:.4f}",
            "    System/Peak GPU Memory (MB)=42,949",
        )
    ]


def olmo_core(times: Times = STEADY) -> list[str]:
    return [
        line
        for step, time in enumerate(times, 1)
        for line in (
            f"2026-01-01 12:00:00.000 node:0 olmo_core.train.callbacks.console_logger:73 [step={step}/596057,epoch=1]",
            "    train/CE loss=11.25",
            f"    throughput/device/TPS={16384 / time:,.0f}",
            f"    throughput/device/BPS={1 / time:.4f}",
            f"    throughput/device/BPS (actual avg)={0.9 / time:.4f}",
            "    gpu_memory/GPU reserved mem (GiB)=40.00",
        )
    ]


def torchtune(times: Times = STEADY) -> list[str]:
    return ["\r".join(bars(times, before="1|7|Loss: 1.2345678: "))]


def torchtune_disk(times: Times = STEADY) -> list[str]:
    return [
        f"Step {step} | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:{8192 / time} peak_memory_reserved:40.0 "
        for step, time in enumerate(times, 1)
    ]


def litgpt(times: Times = STEADY, of: int = 1) -> list[str]:
    """Steps of so many micro-batches."""
    return [
        f"Epoch 1 | iter {(step - 1) * of + part} step {step - (part < of)} | loss train: 5.1, val: n/a | "
        f"iter time: {1e3 * time / of:.2f} ms{' (step)' if part == of else ''} remaining time: 1:00:00"
        for step, time in enumerate(times, 1)
        for part in range(1, of + 1)
    ]


def nanogpt(times: Times = STEADY) -> list[str]:
    return [f"iter {step}: loss 4.1234, time {1e3 * time:.2f}ms, mfu 45.67%" for step, time in enumerate(times)]


def modded_nanogpt(times: Times = STEADY) -> list[str]:
    return [
        f"step:{step}/1750 train_time:{1e3 * sum(times[:step]):.0f}ms step_avg:{time:.2f}ms"
        for step, time in enumerate(times, 1)
    ]


def llm_c(times: Times = STEADY) -> list[str]:
    return [
        f"step {step:5}/19560 | loss 10.95 (+nanz)| norm 15.3 (+nanz)| lr 8.57e-07 | {1e3 * time:.2f} ms "
        "| 42.6% bf16 MFU | 171545 tok/s"
        for step, time in enumerate(times, 1)
    ]


def verl(times: Times = STEADY) -> list[str]:
    return [
        f"step:{step} - actor/entropy:0.5 - actor/pg_loss:0.1 - timing_s/gen:{0.6 * time:.3f} - "
        f"timing_s/step:{time:.3f} - perf/throughput:512.0"
        for step, time in enumerate(times, 1)
    ]


def nemo_rl(times: Times = STEADY) -> list[str]:
    return [
        line
        for step, time in enumerate(times, 1)
        for line in (
            f"========================= Step {step}/100 =========================",
            "▶ Preparing batch...",
            "⏱️  Timing:",
            f"  • Total step time: {time:.2f}s",
        )
    ]


def llama_factory(times: Times = STEADY) -> list[str]:
    return [
        f'{{"current_steps": {step}, "total_steps": {len(times)}, "loss": 1.2, "lr": 5e-05, "epoch": 0.1, '
        f'"percentage": 1.0, "elapsed_time": "0:{clock(sum(times[:step]))}", "remaining_time": "2:15:33"}}'
        for step, time in enumerate(times, 1)
    ]


def mlperf_blocks(times: Times = STEADY) -> list[str]:
    """Blocks of one step of 256 sequences, between two of which an evaluation takes a minute."""

    def event(kind: str, key: str, at: float, samples: int) -> str:
        return (
            f':::MLLOG {{"namespace": "", "time_ms": {1.7e12 + 1e3 * at:.0f}, "event_type": "INTERVAL_{kind}", '
            f'"key": "{key}", "value": null, "metadata": {{"file": "callbacks.py", "lineno": 129, '
            f'"samples_count": {samples}}}}}'
        )

    lines = []
    for step, time in enumerate(times):
        begin = 60.0 * step + sum(times[:step])
        lines.append(event("START", "block_start", begin, 256 * step))
        lines.append(event("END", "block_stop", begin + time, 256 * (step + 1)))
    return lines


FORMS: dict[str, tuple[Callable[[Times], Iterable[str]], float, float | None]] = {
    "Megatron-LM": (megatron, 4.0, None),
    "NeMo": (nemo, 4.0, None),
    "GPT-NeoX": (neox, 4.0, None),
    "Megatron-Bridge": (bridge, 4.0, None),
    "Megatron-DeepSpeed": (argonne, 4.0, None),
    "Levanter": (levanter, 4.0, None),
    "OLMo": (olmo, 4.0, 42.949e9),
    "OLMo-core": (olmo_core, 4.0, 40 * 2.0**30),
    "torchtune": (torchtune, 4.0, None),
    "litgpt": (litgpt, 4.0, None),
    "nanoGPT": (nanogpt, 4.0, None),
    "modded-nanogpt": (modded_nanogpt, 4.0, None),
    "llm.c": (llm_c, 4.0, None),
    "verl": (verl, 4.0, None),
    "NeMo-RL": (nemo_rl, 4.0, None),
    "LLaMA-Factory": (llama_factory, 4.0, None),
    "torchtitan": (torchtitan, 4.0 * 8 / (16 * 8192), 40 * 2.0**30),
    "nanotron": (nanotron, 4.0, 42.9e9),
    "DeepSpeed": (deepspeed, 4.0 / 32, 40 * 2.0**30),
    "Composer": (composer, 4.0 / 64, 42.9497e9),
    "Hugging Face Trainer": (hugging_face, 4.0, None),
    "MaxText": (maxtext, 4.0, None),
    "MLPerf": (mlperf, 4.0 / 256, None),
}
"""Name of a format -> what prints it, seconds (of a step, a token or a sequence) and bytes that must be read."""
