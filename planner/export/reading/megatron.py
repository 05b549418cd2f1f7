"""Megatron-LM's arguments to axes of a plan."""

from __future__ import annotations

import ast
import re
from typing import Any

from planner.errors import WrongQuestion
from planner.export.reading.found import Found, Options, degree, number, options
from planner.export.reading.script import words

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
_READ = frozenset(
    """tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size
    expert-tensor-parallel-size num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage
    pipeline-model-parallel-layout sequence-parallel tp-comm-overlap overlap-grad-reduce overlap-param-gather
    no-overlap-p2p-communication use-tp-pp-dp-mapping use-distributed-optimizer num-distributed-optimizer-instances
    use-megatron-fsdp data-parallel-sharding-strategy recompute-granularity recompute-method recompute-num-layers
    recompute-modules optimizer-cpu-offload optimizer-offload-fraction use-precision-aware-optimizer micro-batch-size
    global-batch-size seq-length bf16 fp16 fp8-format fp8-recipe train-iters finetune swiglu normalization
    untie-embeddings-and-output-weights group-query-attention qk-layernorm add-qkv-bias disable-bias-linear
    max-position-embeddings position-embedding-type moe-layer-freq
    no-gradient-accumulation-fusion ckpt-format""".split()
) | {*_SHAPE, *_MIXTURE}


def read(text: str) -> Found:
    """A command line, or a script with one.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    said = options(words(text), _READ)
    if not _READ & said.keys():
        raise WrongQuestion("--from megatron: no option of Megatron-LM in it (--tensor-model-parallel-size ...)")
    chunks = _chunks(said)
    return Found(
        runtime=RUNTIME,
        settings=_settings(said, len(chunks) if chunks else None),
        batch=number(said, "global-batch-size"),
        sequence=number(said, "seq-length"),
        precision=_precision(said),
        steps=number(said, "train-iters"),
        method="finetune" if "finetune" in said else "pretrain",
        shape=_shape(said),
        shards=number(said, "num-distributed-optimizer-instances"),
        chunks=chunks,
        unread=sorted(said.keys() - _READ),
    )


def _settings(said: Options, chunks: int | None) -> dict[str, object]:
    tp, pp = degree(said, "tensor-model-parallel-size"), degree(said, "pipeline-model-parallel-size")
    vpp, zero = _interleaving(said, pp, chunks), _zero(said)
    mixture = "num-experts" in said
    found: dict[str, object] = {
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "cp": degree(said, "context-parallel-size"),
        "ep": degree(said, "expert-model-parallel-size"),
        "etp": degree(said, "expert-tensor-parallel-size", tp) if mixture else 1,
        "micro": degree(said, "micro-batch-size"),
        "zero": zero,
        "sequence_parallel": _switch("sequence-parallel" in said and tp > 1),
        "dp_overlap": _switch("overlap-grad-reduce" in said),
        "recompute": _recompute(said, pp * vpp),
        "offload": "optimizer" if "optimizer-cpu-offload" in said else "none",
        "rank_order": "tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in said else "tp-cp-ep-dp-pp",
    }
    if "tp-comm-overlap" in said:
        found["tp_overlap"] = "on"
    elif found["sequence_parallel"] == "on":
        found["tp_overlap"] = "off"
    if vpp > 1:
        found["p2p_overlap"] = _switch("no-overlap-p2p-communication" not in said)
    if zero and (number(said, "num-distributed-optimizer-instances") or 1) > 1:
        found["zero_scope"] = "node"
    return found


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _interleaving(said: Options, pp: int, chunks: int | None) -> int:
    if chunks is not None:
        if chunks % pp:
            raise WrongQuestion(f"--pipeline-model-parallel-layout has {chunks} segments; pp {pp} does not divide them")
        return chunks // pp
    each = number(said, "num-layers-per-virtual-pipeline-stage")
    if each:
        return max(degree(said, "num-layers") // pp // each, 1)
    return degree(said, "num-virtual-stages-per-pipeline-rank")


def _chunks(said: Options) -> list[int] | None:
    """Layers of every segment of a layout such as ``Et*7|t*9|t*7L``; parentheses repeat what is in them."""
    if "pipeline-model-parallel-layout" not in said:
        return None
    layout = "".join(said["pipeline-model-parallel-layout"])
    while match := re.search(r"\(([^()]*)\)(?:\*(\d+))?", layout):
        layout = layout[: match.start()] + match[1] * min(int(match[2] or 1), 10_000) + layout[match.end() :]
    segments = layout.split("|")
    if not re.fullmatch(r"[Etm*L|\d,]*", layout):
        raise WrongQuestion(f"--pipeline-model-parallel-layout {layout:.60}: not a layout")
    return [sum(int(n or 1) for n in re.findall(r"t(?:\*(\d+))?", segment)) for segment in segments]


def _zero(said: Options) -> int:
    if "use-megatron-fsdp" in said:
        name = (said.get("data-parallel-sharding-strategy") or ["no_shard"])[0]
        if name not in STRATEGY:
            raise WrongQuestion(f"--data-parallel-sharding-strategy {name}: choose {', '.join(STRATEGY)}")
        return STRATEGY[name]
    return int("use-distributed-optimizer" in said)


def _precision(said: Options) -> str:
    if "fp8-format" in said:
        return "mxfp8" if said.get("fp8-recipe") == ["mxfp8"] else "fp8"
    return "bf16" if "bf16" in said else "fp16" if "fp16" in said else "fp32"


def _recompute(said: Options, chunks: int) -> str:
    granularity = said.get("recompute-granularity")
    if granularity is None:
        return "none"
    if granularity == ["selective"]:
        return "selective"
    if said.get("recompute-method") == ["block"]:
        layers = degree(said, "num-layers") / chunks
        share = degree(said, "recompute-num-layers") / layers
        return "full" if share >= 1 else f"block:{share:.6f}".rstrip("0")
    return "full"


def _shape(said: Options) -> dict[str, Any]:
    """Fields of the model; Megatron's defaults where an option is left out."""
    if "num-layers" not in said or "hidden-size" not in said:
        return {}
    found: dict[str, Any] = {field: degree(said, name) for name, field in _SHAPE.items() if name in said}
    found.setdefault("heads", 1)
    found.setdefault("kv_heads", found["heads"])
    found.setdefault("head_dim", found["hidden"] // found["heads"])
    found.setdefault("ffn", 4 * found["hidden"])
    found["gated"] = "swiglu" in said
    found["norm"] = "rms" if said.get("normalization") == ["RMSNorm"] else "layer"
    found["tied"] = "untie-embeddings-and-output-weights" not in said
    found["qk_norm"] = "head" if "qk-layernorm" in said else "none"
    biased = "disable-bias-linear" not in said
    found |= {"qkv_bias": biased or "add-qkv-bias" in said, "output_bias": biased, "mlp_bias": biased}
    if said.get("position-embedding-type", ["learned_absolute"]) == ["learned_absolute"]:
        found["learned_positions"] = number(said, "max-position-embeddings", 0)
    if "num-experts" in said:
        found["moe"] = _mixture(said, found["ffn"])
    return found


def _mixture(said: Options, ffn: int) -> dict[str, Any]:
    moe: dict[str, Any] = {field: degree(said, name) for name, field in _MIXTURE.items() if name in said}
    moe = {"experts_per_token": 2, "ffn": ffn, **moe}
    frequency = "".join(said.get("moe-layer-freq", ["1"]))
    where = [1] if frequency.isdigit() else _listed(frequency)
    moe["leading_dense_layers"] = where.index(1) if 1 in where else 0
    if frequency.isdigit():
        moe["every"] = int(frequency)
    return moe


def _listed(text: str) -> list[int]:
    """``([0]*3+[1]*58)`` written out; nothing but lists, ``+`` and ``*`` is understood."""
    try:
        return [int(bool(flag)) for flag in _value(ast.parse(text.strip(), mode="eval").body)]
    except (SyntaxError, ValueError, RecursionError):
        raise WrongQuestion(f"--moe-layer-freq {text:.60}: not a list such as ([0]*3+[1]*58)") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value <= 10_000:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        added = isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list)
        if added or (isinstance(left, list) and isinstance(right, int)):
            return left + right if added else left * right
    raise ValueError(ast.dump(node))
