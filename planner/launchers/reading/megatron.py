"""Megatron-LM's options, all of them today's and understood, to axes of a plan."""

from __future__ import annotations

import re

from planner.axes.table import OFFLOAD_OVERLAP
from planner.axes.values import ALONE, activation_offload, offload_name
from planner.base.errors import WrongQuestion
from planner.launchers.reading import megatron_model, megatron_options, tokenizers
from planner.launchers.reading.found_options import FoundOptions, Options, Reading, degree, measure, number
from planner.launchers.reading.trainer_dialects import NEAREST
from planner.schema.workload import MOST_LAYERS

TABLE = megatron_options.TABLE
RUNTIME = "megatron-core"
_RECIPES = TABLE.words("fp8-recipe")
STRATEGY = {
    "no_shard": 0,
    "optim": 1,
    **{word: int(zero) for word, zero in TABLE.words("data-parallel-sharding-strategy").items()},
}
_MUON = {"muon": 0, "dist_muon": 1}
"""Names of Muon -> the ZeRO stage that they mean by themselves."""
NARROW = "gradients stay in 16 bit; predicted in 32 bit"


def found_options(flags: Options) -> FoundOptions:
    """Options that are all understood as axes of a plan.

    Raises:
        WrongQuestion: a value that no plan can say.
    """
    kind = flags.get("optimizer", ["adam"])
    nearest, what = NEAREST.get(kind[0] if kind else "", (None, ""))
    kind = ["adam"] if nearest == "adamw" else kind
    if kind not in (["adam"], ["sgd"], *([name] for name in _MUON)):
        raise WrongQuestion(f"--optimizer {' '.join(kind):.40}: choose adam, sgd or muon; others keep other states")
    chunks = _chunks(flags)
    shape = {**megatron_model.shape(Reading(TABLE, flags)), **megatron_model.patterned(flags)}
    words = tokenizers.vocabulary(flags) if shape and "vocab" not in shape else None
    if words and words[1] in tokenizers.PATCHED:  # and what it adds to it
        flags = {name: values for name, values in flags.items() if name != "extra-vocab-size"}
    return FoundOptions(
        runtime=RUNTIME,
        settings=_settings(flags, len(chunks) if chunks else None),
        batch=number(flags, "global-batch-size"),
        sequence=number(flags, "seq-length"),
        precision=_precision(flags),
        per_rank=degree(flags, "micro-batch-size"),
        steps=number(flags, "train-iters"),
        mtp_layers=number(flags, "mtp-num-layers", 0) or 0,
        samples=number(flags, "train-samples"),
        most_tokens=number(flags, "train-tokens"),
        optimizer="muon" if kind[0] in _MUON else None,
        method="finetune" if {"finetune", "pretrained-checkpoint"} & flags.keys() else "pretrain",
        shape={**shape, "vocab": words[0]} if words else shape,
        assumed=(f"vocabulary not stated: {words[0]:,}, of its tokenizer ({words[1]})",) if words else (),
        shards=number(flags, "num-distributed-optimizer-instances"),
        cp_algorithm="+".join(flags.get("cp-comm-type", ["p2p"])),
        cp_levels=_levels(flags),
        kernel=megatron_options.attention_kernel(flags),
        chunks=chunks,
        differs=(*_differences(flags), *((f"{flags['optimizer'][0]}: {what}; predicted as AdamW",) if nearest else ())),
        unread=megatron_options.ignored(flags),
    )


def _levels(flags: Options) -> tuple[int, ...] | None:
    sizes = flags.get("hierarchical-context-parallel-sizes", [])
    return tuple(map(int, sizes)) if sizes and all(size.isdigit() for size in sizes) else None


def _settings(flags: Options, chunks: int | None) -> dict[str, object]:
    tp, pp = degree(flags, "tensor-model-parallel-size"), degree(flags, "pipeline-model-parallel-size")
    vpp, zero = _interleaving(flags, pp, chunks), _zero(flags)
    mixture = "num-experts" in flags
    found: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "cp": degree(flags, "context-parallel-size"),
        "ep": degree(flags, "expert-model-parallel-size"),
        "etp": degree(flags, "expert-tensor-parallel-size", tp) if mixture else 1,
        "micro": degree(flags, "micro-batch-size"),
        "zero": zero,
        "recompute": _recompute(flags, pp * vpp),
        **_offloaded(flags),
    }
    found |= Reading(TABLE, flags).switches(found)
    if found["offload"] == ALONE:
        found.pop(OFFLOAD_OVERLAP.name, None)
    found["sequence_parallel"] = "on" if "sequence-parallel" in flags and tp > 1 else "off"
    if mixture and (sent := megatron_options.dispatcher(flags)) is not None:
        found["dispatcher"] = sent
    if zero and (number(flags, "num-distributed-optimizer-instances") or 1) > 1:
        found["zero_scope"] = "node"
    return found


def _offloaded(flags: Options) -> dict[str, str]:
    """Of optimizer states all where no fraction says less (Megatron's own default in training/arguments.py)."""
    found = {"offload": "none"}
    if "optimizer-cpu-offload" in flags:
        share = measure(flags, "optimizer-offload-fraction", 1.0, zero=True)
        found = {"offload": offload_name(share)}
    if (graphs := _graphs(flags)) is not None:
        found["graphs"] = graphs
    if "fine-grained-activation-offloading" in flags:
        found["activation_offload"] = "+".join(activation_offload("+".join(flags.get("offload-modules", ["none"]))))
    return found


def _graphs(flags: Options) -> str | None:
    """What CUDA graphs launch, of what plans hold: modules of layers, or the whole step of a dense model."""
    impl = "".join(flags.get("cuda-graph-impl", ["none"])[:1])
    whole = impl == "full_iteration" or "full_iteration" in flags.get("cuda-graph-scope", [])
    if whole:
        return None if "num-experts" in flags else "full"
    partial = impl in ("local", "transformer_engine") and flags.get("recompute-granularity") != ["full"]
    return "modules" if partial and "fine-grained-activation-offloading" not in flags else None


def _interleaving(flags: Options, pp: int, chunks: int | None) -> int:
    if chunks is not None:
        if chunks % pp:
            named = "hybrid-layer-pattern" if megatron_model.PATTERN in flags else "pipeline-model-parallel-layout"
            raise WrongQuestion(f"--{named} has {chunks} segments; pp {pp} does not divide them")
        return chunks // pp
    of_a_chunk = number(flags, "num-layers-per-virtual-pipeline-stage")
    if of_a_chunk:
        return max(degree(flags, "num-layers") // pp // of_a_chunk, 1)
    return degree(flags, "num-virtual-stages-per-pipeline-rank")


def _chunks(flags: Options) -> list[int] | None:
    """Layers of every segment of a layout such as ``Et*7|t*9|t*7L``; parentheses repeat what is in them."""
    if (sizes := megatron_model.chunks(flags)) is not None:
        return sizes
    if "pipeline-model-parallel-layout" not in flags:
        return _with_modules(flags, _ends(flags))
    layout = "".join(flags["pipeline-model-parallel-layout"])
    while match := re.search(r"\(([^()]*)\)(?:\*(\d+))?", layout):
        layout = layout[: match.start()] + match[1] * min(int(match[2] or 1), 10_000) + layout[match.end() :]
        if len(layout) > 10 * MOST_LAYERS:
            raise WrongQuestion("--pipeline-model-parallel-layout: its repetitions grow without end")
    segments = layout.split("|")
    if not re.fullmatch(r"[Etm*L|\d,]*", layout):
        raise WrongQuestion(f"--pipeline-model-parallel-layout {layout:.60}: not a layout")
    return [sum(int(n or 1) for n in re.findall(r"[tm](?:\*(\d+))?", segment)) for segment in segments]


def _with_modules(flags: Options, chunks: list[int] | None) -> list[int] | None:
    """Modules of multi-token prediction stand in the last chunk where no layout says more, whatever that holds."""
    modules, pp = number(flags, "mtp-num-layers", 0) or 0, degree(flags, "pipeline-model-parallel-size")
    if not modules or pp == 1 or "num-layers" not in flags:
        return chunks
    if chunks is None:
        all_chunks = min(pp * _interleaving(flags, pp, None), MOST_LAYERS)
        chunks = [degree(flags, "num-layers") // all_chunks] * all_chunks
    return [*chunks[:-1], chunks[-1] + modules]


def _ends(flags: Options) -> list[int] | None:
    """Layers of every chunk where the first or the last stage holds others than those between."""
    first, last = (number(flags, f"decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if first is None and last is None:
        return None
    pp, layers = degree(flags, "pipeline-model-parallel-size"), degree(flags, "num-layers")
    between = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    vpp = _interleaving(flags, pp, None)
    each, left = divmod(rest, max(between, 1))
    stages = [*([first] if first is not None else []), *[each] * between, *([last] if last is not None else [])]
    if rest < 0 or left or between < 0 or (between == 0 and rest) or any(stage % vpp for stage in stages):
        raise WrongQuestion(
            f"--decoder-first/last-pipeline-num-layers {first}/{last}: {layers} layers cannot be split so "
            f"over {pp} stages"
        )
    return [stage // vpp for _ in range(vpp) for stage in stages]


def _zero(flags: Options) -> int:
    if "use-torch-fsdp2" in flags:
        return 2 if "torch-fsdp2-no-reshard-after-forward" in flags else 3
    if "use-megatron-fsdp" in flags:
        name = (flags.get("data-parallel-sharding-strategy") or ["no_shard"])[0]
        if name not in STRATEGY:
            raise WrongQuestion(f"--data-parallel-sharding-strategy {name}: choose {', '.join(STRATEGY)}")
        return STRATEGY[name]
    return max(int("use-distributed-optimizer" in flags), _MUON.get(flags.get("optimizer", ["adam"])[0], 0))


def _precision(flags: Options) -> str:
    if "fp4-format" in flags:
        return "nvfp4"
    if "fp8-format" in flags:
        return str(_RECIPES.get(flags.get("fp8-recipe", ["delayed"])[0], "fp8"))
    return "bf16" if "bf16" in flags else "fp16" if "fp16" in flags else "fp32"


def _differences(flags: Options) -> tuple[str, ...]:
    narrow = () if _wide_gradients(flags) else (NARROW,)
    if flags.get("cuda-graph-impl", ["none"]) != ["none"] and _graphs(flags) is None:
        narrow = (*narrow, "CUDA graphs as stated; predicted without")
    return tuple(dict.fromkeys((*narrow, *megatron_options.differences(flags))))


def _wide_gradients(flags: Options) -> bool:
    """Whether gradients are kept in 32 bit: ``--fp16`` alone does not, all others do by themselves unless told."""
    return "grad-reduce-in-bf16" not in flags and _wide_by_itself(flags)


def _wide_by_itself(flags: Options) -> bool:
    return _precision(flags) != "fp16" or "accumulate-allreduce-grads-in-fp32" in flags


def _recompute(flags: Options, chunks: int) -> str:
    granularity = (
        ["selective"]
        if {"recompute-activations", "moe-layer-recompute"} & flags.keys()
        else flags.get("recompute-granularity")
    )
    if granularity is None:
        return "none"
    if granularity == ["selective"]:
        listed = megatron_options.priced_modules(flags)
        return f"selective:{'+'.join(listed)}" if set(listed) - {"core_attn"} else "selective"
    if flags.get("recompute-method") == ["block"]:
        layers = degree(flags, "num-layers") / chunks
        share = (number(flags, "recompute-num-layers", 1) or 0) / layers
        if not share:
            return "none"
        return "full" if share >= 1 else f"block:{share:.6f}".rstrip("0")
    return "full"
