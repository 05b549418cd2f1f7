"""Options of Megatron-LM that no plan holds: which change nothing it predicts, and what the others change.

What is in neither table, and what no Megatron-LM has, is refused by name: it may change precision, memory or time.
Names and meanings: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py of core_v0.16.1
and d98e8a64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from planner.base.errors import WrongQuestion
from planner.launchers.reading.found import Options, number
from planner.schema.launcher_table import launcher_table

TABLE = launcher_table("megatron")

_FAMILIES = (
    # learning: rates, moments, regularisation, initial weights, seeds
    r"(min-|decoupled-)?(min-)?lr(-.*)?|head-lr-mult|(start-|end-)?weight-decay(-.*)?|adam-.*|sgd-momentum|clip-grad",
    r"init-method-.*|embedding-init-.*|mup-.*|use-mup|seed|data-parallel-random-init|use-same-sampling-seed-.*",
    r"(initial-|min-)?loss-scale(-window)?|hysteresis|calculate-per-token-loss|iterations-to-skip|skip-train",
    r"override-opt[_-]param-scheduler|use-checkpoint-opt[_-]param-scheduler|qk-clip.*|mtp-loss-scaling-factor",
    r"apply-wd-to-qk-layernorm|no-weight-decay-cond-type|phase-transition-iterations|attention-mask-type",
    # data and tokenizers
    r".*data-path|data-args-path|per-.*-args-path|data-cache-path|.*dataloader.*|(no-)?mmap-bin-files|num-workers",
    r"(no-)?mock-data|split|fim-.*|(reset|eod)-.*|sft(-.*)?|(no-|null-)?tokenizer-.*|legacy-tokenizer|tiktoken-.*",
    r"vocab-file|merge-file|vocab-extra-ids|special-tokens|trust-remote-code|chat-template|num-dataset-builder-threads",
    r"object-storage-.*|mid-level-dataset-surplus|per-dataset-sequences-path|no-data-sharding|disable-msc|enable-msc",
    r"short-seq-prob|allow-ambiguous-pad-tokens|(no-|disable-)?pad-vocab-size|multiple-validation-sets|validation-set.*",
    # evaluation, logs, checkpoints, profiles, failures
    r"eval-.*|full-validation|start-eval-at-iter|test-mode|log-.*|logging-level|timing-.*|train-sync-interval",
    r"tensorboard-.*|wandb-.*|mlflow-.*|(no-|enable-)?one-logger.*|otel-.*|app-tag-.*|config-logger-dir|nvtx-ranges",
    r"save(-.*)?|load(-.*)?|(no-)?(save|load)-.*|pretrained-checkpoint|.*ckpt.*|(async|use-checkpoint|non-persistent)-.*",
    r"persistent-save-interval|replication.*|use-mp-args-from-.*|auto-detect-.*|use-dist-ckpt|no-initialization",
    r"exit-.*|adlr-autoresume.*|profile.*|(use-)?pytorch-profiler.*|record-.*|memory-snapshot-path|inprocess-.*",
    r"(calc-|enable-)?ft-.*|fault-injector-.*|error-injection-.*|rerun-mode|.*straggler.*|gpu-sniff-.*|.*flight-recorder.*",
    r"check-.*|no-check-.*|result-rejected-.*|moe-per-layer-logging|run-workload-inspector-server|save-.*-interval",
    r"distributed-(timeout|backend).*|local-rank|lazy-mpu-init|use-cpu-initialization|init-model-with-meta-device",
    r"(disable|enable|create)-(gloo|all-gather).*|no-barrier-.*|fake-process-group|verify-integrity",
    r"inference-.*|rl-skip-.*|export-.*|finetune-.*|help|yaml-cfg",
    # the same by another name, or what every fast configuration has, and the runtime's figures come with
    r"use-mcore-models|use-flash-attn|(no-)?async-tensor-model-parallel-allreduce|no-position-embedding|rope-type",
    r"max-tokens-to-oom|manual-gc.*|(disable|no)-manual-gc-.*|empty-unused-memory-level|ddp-.*|openai-gelu",
    r"yarn-.*|no-yarn-.*|rotary-(interleaved|seq-len-.*)|moe-router-(force-load-balancing|fusion)|group-query-attention",
    r"moe-(input-jitter-eps|token-drop-policy)|enable-(experimental|gpt-oss)|fp8-(amax-.*|margin|interval)|use-te-rng",
    r"muon-(momentum|nesterov|use-nesterov|scale-mode|coefficient-type|extra-scale-factor)|te-rng-tracker|make-vocab-size-divisible-by|cross-entropy-.*|moe-(grouped-gemm|permute-fusion)|no-use-tokenizer-.*|(no-|disable-)?strict-fsdp-.*",
)
_HARMLESS = re.compile("|".join(f"(?:{family})" for family in _FAMILIES))
"""What the loss, the data, the files or the log of a job depend on, not its step's time and memory."""
_KERNELS = re.compile(
    r"moe-(permute-fusion-.*|use-legacy-grouped-gemm|router-padding-.*|shared-expert-overlap)"
    r"|no-(masked-softmax|rope-fusion|persist-layer-norm|bias-swiglu|gradient-reduce-div).*|attention-softmax-in-fp32"
    r"|attention-backend|flash-attention-version|no-query-key-layer-scaling|apply-query-key-layer-scaling"
    r"|(disable|no)-(tp-comm|jit|bf16-reduced|clone|scatter).*|tp-comm-(bootstrap|overlap-cfg).*|use-(nccl-ub|sharp.*)"
    r"|nccl-communicator-config-path|high-priority-.*|.*-symmetric.*|use-ring-exchange-p2p|deterministic-mode"
    r"|pipeline-model-parallel-comm-backend|fsdp-(double-buffer|manual-registration|db-.*)|moe-.*-num-(sms|blocks).*"
    r"|delay-wgrad-compute|defer-embedding-wgrad-compute|wgrad-deferral-limit|overlap-(p2p|param-gather-with|cpu).*"
    r"|(enable-|external-)cuda-graph|cuda-graph-(?!impl|scope|modules).*|use-transformer-engine-op-fuser"
    r"|use-te-activation-func|mla-down-proj-fusion"
    r"|optimizer-cuda-graph|fused-residual-rmsnorm|use-fused-weighted-squared-relu|batch-invariant-.*|no-pin-cpu-.*"
    r"|microbatch-group-size-.*|use-torch-optimizer-for-cpu-offload|disable-symmetric-registration|no-align-.*"
)
"""Which kernels and buffers do the same work: a plan is predicted with those that its runtime's figures came with."""
_OTHERWISE: Mapping[str, str] = {
    "fp8-param-gather": "weights are kept and gathered in 8 bit; predicted in 16 bit",
    "rampup-batch-size": "the batch grows while training; predicted at its last size",
    "step-batch-size-schedule": "the batch grows while training; predicted at --global-batch-size",
    "modelopt-enabled": "quantisers that the checkpoint may hold are not predicted",
    "microbatch-group-size-per-virtual-pipeline-stage": "groups of micro-batches of its own size; predicted as pp",
}
_UNFUSED = {"attention-backend": ("unfused", "local"), "transformer-impl": ("local",)}
"""Option -> values that write attention's scores to memory."""
_FEWER_BITS = ("megatron-fsdp-grad-comm-dtype", "megatron-fsdp-main-grads-dtype", "main-grads-dtype")
_PLAIN: Mapping[str, tuple[str, ...]] = {
    "outer-dp-sharding-strategy": ("no_shard",),
    "transformer-impl": ("transformer_engine",),
    "moe-enable-deepep": (),
    **{name: tuple(TABLE.words(name)) for name in ("moe-flex-dispatcher-backend", "moe-token-dispatcher-type")},
    **{name: tuple(TABLE.words(name)) for name in ("muon-tp-mode", "fp8-recipe", "fp4-recipe")},
    "muon-num-ns-steps": ("5",),
    "muon-fp32-matmul-prec": ("medium",),
    **dict.fromkeys(_FEWER_BITS, ("fp32", "bf16", "fp16")),
}
"""Option -> its values that are understood."""


READ = {option.name for option in TABLE.options.values() if not option.is_job}
"""Options that say something of a plan or its model."""
REFUSED: Mapping[str, str] = TABLE.head["refused"]
"""Option -> what it is, where it changes shape or sharding and no plan has a field for it."""


def refuse(flags: Options) -> None:
    """Refuses options that may change what a plan predicts and are not understood.

    Raises:
        WrongQuestion: one or several, by name.
    """
    for name in filter(REFUSED.__contains__, flags):
        raise WrongQuestion(f"--{name}: {REFUSED[name]} cannot be taken over; leave it out to see the rest priced")
    asked = flags.keys() - (READ - _PLAIN.keys())
    unknown = sorted(name for name in asked if not _understood(name, flags[name]))
    unknown += sorted(
        name for name, values in _UNFUSED.items() if name not in unknown and {*flags.get(name, ())} & {*values}
    )
    if unknown:
        names = ", ".join(f"--{name}" for name in unknown[:8]) + (
            f" and {len(unknown) - 8} more" if unknown[8:] else ""
        )
        ignored = " ".join(f"--ignore {name}" for name in unknown[:2])
        raise WrongQuestion(
            f"{names}: may change precision, memory or time, and no plan holds it; {ignored} prices the rest without"
        )


def _understood(name: str, values: Iterable[str]) -> bool:
    if name in _PLAIN:
        return set(values) <= set(_PLAIN[name])
    return name in _OTHERWISE or bool(_HARMLESS.fullmatch(name) or _KERNELS.fullmatch(name))


def priced_modules(flags: Options) -> list[str]:
    """Modules that a command recomputes, that its model has, and that are priced one by one."""
    experts, latents = "num-experts" in flags, "multi-latent-attention" in flags
    there = {
        "core_attn": True,
        "layernorm": experts or latents,
        "moe_act": experts,
        "mla_up_proj": latents,
        "mlp": not experts or flags.get("moe-layer-freq", ["1"]) != ["1"],
        "moe": experts,
    }
    listed = flags.get("recompute-modules", ["core_attn"])
    return [module for module, has in there.items() if has and module in listed]


def _spread(flags: Options) -> bool:
    degrees = [number(flags, f"expert-{kind}-parallel-size") or 1 for kind in ("model", "tensor")]
    return "num-experts" in flags and max(degrees) > 1


def dispatcher(flags: Options) -> str | None:
    """How tokens reach experts on other ranks, Megatron's own default where nothing is said; None where no plan says it
    so: experts on one rank, or tokens gathered for parts of experts.
    """
    kind = flags.get("moe-token-dispatcher-type", ["allgather"])[0]
    if kind == "flex":
        kind = flags.get("moe-flex-dispatcher-backend", ["deepep"])[0]
    parts = (number(flags, "expert-tensor-parallel-size") or number(flags, "tensor-model-parallel-size") or 1) > 1
    return kind if _spread(flags) and not (kind == "allgather" and parts) else None


def differences(flags: Options) -> Iterator[str]:
    """What a command says that is predicted otherwise."""
    yield from (text for name, text in _OTHERWISE.items() if name in flags)
    if flags.get("moe-token-dispatcher-type") == ["allgather"] and dispatcher(flags) is None and _spread(flags):
        yield "tokens reach experts by all-gather; predicted by all-to-all"
    if any(flags.get(name) in (["bf16"], ["fp16"]) for name in _FEWER_BITS):
        yield "gradients stay in 16 bit; predicted in 32 bit"
    modules = flags.get("recompute-modules", ["core_attn"]) + ["moe"] * ("moe-layer-recompute" in flags)
    selective = flags.get("recompute-granularity") == ["selective"] or "moe-layer-recompute" in flags
    priced = priced_modules(flags) or ["core_attn"]
    if selective and (others := [module for module in modules if module not in priced]):
        yield f"recomputes {', '.join(others)}; predicted without (counted: {', '.join(priced)})"
    kernels = sorted(name for name in flags if _KERNELS.fullmatch(name) and name not in _OTHERWISE)
    if kernels:
        yield f"kernels and buffers as stated ({', '.join(kernels)}); predicted with the runtime's usual ones"


def ignored(flags: Options) -> list[str]:
    """Options that nothing predicted depends on."""
    return sorted(name for name in flags.keys() - READ if _HARMLESS.fullmatch(name))
