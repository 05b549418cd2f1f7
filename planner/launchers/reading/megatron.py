"""Megatron-LM's arguments to axes of a plan."""

from __future__ import annotations

import ast
import re
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron
from planner.launchers.reading.found import FoundOptions, Options, degree, measure, number, options
from planner.launchers.reading.script import words
from planner.schema.workload import MOST_LAYERS

RUNTIME = "megatron-core"
STRATEGY = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_SHAPE = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "ffn-hidden-size": "ffn",
    "num-attention-heads": "heads",
    "num-query-groups": "kv_heads",
    "kv-channels": "head_dim",
    "vocab-size": "vocab",
}
_MIXTURE = {
    "num-experts": "experts",
    "moe-router-topk": "experts_per_token",
    "moe-ffn-hidden-size": "ffn",
    "moe-shared-expert-intermediate-size": "shared_ffn",
}
_LATENT = {
    "q-lora-rank": ("query_rank", 0),
    "kv-lora-rank": ("kv_rank", 32),
    "qk-pos-emb-head-dim": ("rope_dim", 64),
    "qk-head-dim": ("nope_dim", 128),
    "v-head-dim": ("value_dim", 128),
}
"""Option -> field of latent attention, and Megatron's default."""
_REFUSED = {
    "standalone-embedding-stage": "the embedding as a stage of its own",
    "account-for-embedding-in-pipeline-split": "the embedding counted as a layer",
    "account-for-loss-in-pipeline-split": "the head counted as a layer",
    "hybrid-layer-pattern": "layers of several kinds",
    "hybrid-override-pattern": "layers of several kinds",
    "is-hybrid-model": "layers of several kinds",
    "heterogeneous-layers-config-path": "layers of several shapes",
    "expert-model-parallel-degree": "an option that Megatron-LM does not have (--expert-model-parallel-size)",
    "encoder-num-layers": "an encoder",
    "decoder-num-layers": "an encoder and a decoder",
}
"""Options that change shape or sharding, and have no field of a plan."""
_READ = frozenset(
    """tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size
    expert-tensor-parallel-size num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage
    pipeline-model-parallel-layout sequence-parallel tp-comm-overlap overlap-grad-reduce overlap-param-gather
    no-overlap-p2p-communication use-tp-pp-dp-mapping use-distributed-optimizer num-distributed-optimizer-instances
    use-megatron-fsdp data-parallel-sharding-strategy recompute-granularity recompute-method recompute-num-layers
    recompute-modules optimizer-cpu-offload optimizer-offload-fraction use-precision-aware-optimizer micro-batch-size
    global-batch-size seq-length bf16 fp16 fp8-format fp8-recipe train-iters finetune swiglu normalization
    pretrained-checkpoint accumulate-allreduce-grads-in-fp32
    untie-embeddings-and-output-weights group-query-attention qk-layernorm add-qkv-bias disable-bias-linear
    max-position-embeddings position-embedding-type moe-layer-freq
    recompute-activations decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers use-torch-fsdp2
    torch-fsdp2-no-reshard-after-forward train-samples multi-latent-attention window-size window-attn-skip-freq
    no-gradient-accumulation-fusion ckpt-format softmax-type quick-geglu no-bias-dropout-fusion
    rotary-base rotary-percent use-rotary-position-embeddings use-rope-scaling rope-scaling-factor
    rotary-scaling-factor mscale mscale-all-dim norm-epsilon mtp-num-layers""".split()
) | {*_SHAPE, *_MIXTURE, *_LATENT}


def read(text: str) -> FoundOptions:
    """A command line, or a script with one.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    flags = options(words(text), _READ)
    if not _READ & flags.keys():
        raise WrongQuestion("--from megatron: no option of Megatron-LM in it (--tensor-model-parallel-size ...)")
    for name in flags.keys() & _REFUSED.keys():
        raise WrongQuestion(f"--{name}: {_REFUSED[name]} cannot be taken over; leave it out to see the rest priced")
    chunks = _chunks(flags)
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
        method="finetune" if {"finetune", "pretrained-checkpoint"} & flags.keys() else "pretrain",
        shape=_shape(flags),
        shards=number(flags, "num-distributed-optimizer-instances"),
        chunks=chunks,
        differs=() if _wide_gradients(flags) else ("gradients stay in 16 bit with --fp16 alone; predicted in 32 bit",),
        unread=sorted(flags.keys() - _READ),
    )


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
        "sequence_parallel": _switch("sequence-parallel" in flags and tp > 1),
        "dp_overlap": _switch("overlap-grad-reduce" in flags),
        "recompute": _recompute(flags, pp * vpp),
        "offload": "optimizer" if "optimizer-cpu-offload" in flags else "none",
        "rank_order": "tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in flags else "tp-cp-ep-dp-pp",
    }
    if "tp-comm-overlap" in flags:
        found["tp_overlap"] = "on"
    elif found["sequence_parallel"] == "on":
        found["tp_overlap"] = "off"
    if vpp > 1:
        found["p2p_overlap"] = _switch("no-overlap-p2p-communication" not in flags)
    if zero and (number(flags, "num-distributed-optimizer-instances") or 1) > 1:
        found["zero_scope"] = "node"
    return found


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _interleaving(flags: Options, pp: int, chunks: int | None) -> int:
    if chunks is not None:
        if chunks % pp:
            raise WrongQuestion(f"--pipeline-model-parallel-layout has {chunks} segments; pp {pp} does not divide them")
        return chunks // pp
    each = number(flags, "num-layers-per-virtual-pipeline-stage")
    if each:
        return max(degree(flags, "num-layers") // pp // each, 1)
    return degree(flags, "num-virtual-stages-per-pipeline-rank")


def _chunks(flags: Options) -> list[int] | None:
    """Layers of every segment of a layout such as ``Et*7|t*9|t*7L``; parentheses repeat what is in them."""
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
    return int("use-distributed-optimizer" in flags)


def _precision(flags: Options) -> str:
    if "fp8-format" in flags:
        return "mxfp8" if flags.get("fp8-recipe") == ["mxfp8"] else "fp8"
    return "bf16" if "bf16" in flags else "fp16" if "fp16" in flags else "fp32"


def _wide_gradients(flags: Options) -> bool:
    """Whether gradients are kept in 32 bit: ``--fp16`` alone does not, all others do by themselves."""
    return _precision(flags) != "fp16" or "accumulate-allreduce-grads-in-fp32" in flags


def _recompute(flags: Options, chunks: int) -> str:
    granularity = ["selective"] if "recompute-activations" in flags else flags.get("recompute-granularity")
    if granularity is None:
        return "none"
    if granularity == ["selective"]:
        return "selective"
    if flags.get("recompute-method") == ["block"]:
        layers = degree(flags, "num-layers") / chunks
        share = degree(flags, "recompute-num-layers") / layers
        return "full" if share >= 1 else f"block:{share:.6f}".rstrip("0")
    return "full"


def _shape(flags: Options) -> dict[str, Any]:
    """Fields of the model; Megatron's defaults where an option is left out."""
    if "num-layers" not in flags or "hidden-size" not in flags:
        return {}
    found: dict[str, Any] = {field: degree(flags, name) for name, field in _SHAPE.items() if name in flags}
    if found["layers"] > MOST_LAYERS:
        raise WrongQuestion(f"--num-layers {found['layers']}: at most {MOST_LAYERS:,}")
    found.setdefault("heads", 1)
    found.setdefault("kv_heads", found["heads"])
    found |= _attention(flags, found["layers"])
    found.setdefault("head_dim", found["hidden"] // found["heads"])
    found.setdefault("ffn", 4 * found["hidden"])
    found["gated"] = bool({"swiglu", "quick-geglu"} & flags.keys())
    found["norm"] = "rms" if flags.get("normalization") == ["RMSNorm"] else "layer"
    found["tied"] = "untie-embeddings-and-output-weights" not in flags
    found["qk_norm"] = "head" if "qk-layernorm" in flags and "multi-latent-attention" not in flags else "none"
    biased = "disable-bias-linear" not in flags
    found |= {"qkv_bias": biased or "add-qkv-bias" in flags, "output_bias": biased, "mlp_bias": biased}
    if flags.get("softmax-type") == ["learnable"]:
        found["extra_parameters_per_layer"] = found["heads"]
    found |= _norms_and_positions(flags)
    if "num-experts" in flags:
        found["moe"] = {**_mixture(flags, found["ffn"]), "router_bias": biased, "expert_bias": biased}
        dense = not all(megatron.mixtures(found["moe"], found["layers"]))
        found["mlp_bias"] = biased and dense
    return found


def _norms_and_positions(flags: Options) -> dict[str, Any]:
    """What norms add, and learned or rotary positions; Megatron's defaults where an option is left out."""
    found: dict[str, Any] = {"norm_epsilon": measure(flags, "norm-epsilon", 1e-5)}
    kind = flags.get("position-embedding-type", ["learned_absolute"])
    if "use-rotary-position-embeddings" in flags:
        kind = ["rope"]
    if kind == ["learned_absolute"]:
        return {**found, "learned_positions": number(flags, "max-position-embeddings", 0)}
    if kind != ["rope"]:
        return found
    rotary = {"base": measure(flags, "rotary-base", 1e4), "share": measure(flags, "rotary-percent", 1.0)}
    if "use-rope-scaling" in flags:
        stretched = {"scaling": "llama3", "factor": measure(flags, "rope-scaling-factor", 8.0), "original": 8192}
        return {**found, "rotary": rotary | stretched}
    factor = measure(flags, "rotary-scaling-factor", 1.0)
    if "multi-latent-attention" not in flags or factor == 1:
        return {**found, "rotary": rotary}
    grown = {
        "mscale": measure(flags, "mscale", 1.0, zero=True),
        "mscale_all_dim": measure(flags, "mscale-all-dim", 0.0, zero=True),
    }
    return {**found, "rotary": rotary | grown | {"scaling": "yarn", "factor": factor, "original": 4096}}


def _attention(flags: Options, layers: int) -> dict[str, Any]:
    """Latent attention and windows; the width of a head is then the latent's own."""
    found: dict[str, Any] = {}
    if "multi-latent-attention" in flags:
        latent = {field: number(flags, name, usual) for name, (field, usual) in _LATENT.items()}
        found |= {"latent": latent, "head_dim": latent["nope_dim"]}
    elif given := flags.keys() & _LATENT.keys():
        raise WrongQuestion(f"--{min(given)}: goes with --multi-latent-attention")
    if "window-size" in flags:
        found |= _window(flags, layers)
    return found


def _window(flags: Options, layers: int) -> dict[str, Any]:
    """``--window-size (127,0)``: a position sees itself and 127 before; every n-th is full at a skip frequency of n."""
    text = "".join(flags["window-size"])
    size = re.fullmatch(r"\(?(-?\d{1,9}),(-?\d{1,9})\)?", text)
    if size is None:
        raise WrongQuestion(f"--window-size {text:.40}: not a pair such as (127,0)")
    if int(size[1]) < 0:
        return {}
    frequency = "".join(flags.get("window-attn-skip-freq", ["0"]))
    window = {"size": int(size[1]) + 1}
    if frequency.isdecimal():
        every = int(frequency)
        # Every second layer is the same said either way; the library says it without inversion.
        return {} if every == 1 else {"window": {**window, "every": every or 1, "inverted": every > 2}}
    wanted = _listed(frequency, "window-attn-skip-freq")
    for every, inverted in ((n, i) for n in range(1, layers + 1) for i in (False, True)):
        shape = {"layers": layers, "window": {"every": every, "inverted": inverted}}
        if megatron.windowed(shape) == wanted:
            return {"window": {**window, "every": every, "inverted": inverted}}
    raise WrongQuestion(f"--window-attn-skip-freq {frequency:.60}: no rhythm of {layers} layers, which a plan needs")


def _mixture(flags: Options, ffn: int) -> dict[str, Any]:
    moe: dict[str, Any] = {field: degree(flags, name) for name, field in _MIXTURE.items() if name in flags}
    moe = {"experts_per_token": 2, "ffn": ffn, **moe}
    frequency = "".join(flags.get("moe-layer-freq", ["1"]))
    if frequency.isdecimal():
        return {**moe, "leading_dense_layers": 0, "every": max(int(frequency), 1)}
    where = _listed(frequency, "moe-layer-freq")
    lead = where.index(1) if 1 in where else 0
    for every in range(1, len(where) - lead + 1):
        for before in (lead, lead - every + 1):  # the dense layers of the first round lead, too
            rhythm = {"leading_dense_layers": before, "every": every}
            if before >= 0 and megatron.mixtures(rhythm, len(where)) == where:
                return {**moe, **rhythm}
    raise WrongQuestion(f"--moe-layer-freq {frequency:.60}: dense layers in no rhythm, which a plan needs")


def _listed(text: str, name: str) -> list[int]:
    """``([0]*3+[1]*58)`` written out; nothing but lists, ``+`` and ``*`` is understood."""
    try:
        return [int(bool(flag)) for flag in _value(ast.parse(text.strip(), mode="eval").body)]
    except (SyntaxError, ValueError, RecursionError):
        raise WrongQuestion(f"--{name} {text:.60}: not a list such as ([0]*3+[1]*58)") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value <= 10_000:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        added = isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list)
        if added and len(left) + len(right) <= MOST_LAYERS:
            return left + right
        if isinstance(left, list) and isinstance(right, int) and len(left) * right <= MOST_LAYERS:
            return left * right
    raise ValueError(ast.dump(node))
