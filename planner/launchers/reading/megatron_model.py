"""Megatron-LM's arguments of the model to a model's fields; Megatron's defaults where an argument is left out."""

from __future__ import annotations

import ast
import re
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_model
from planner.launchers.reading import megatron_pattern
from planner.launchers.reading.found import Options, degree, measure, number
from planner.schema.workload import MOST_LAYERS

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
_CLAMPED = ("glu-linear-offset", "activation-func-clamp-value")
READ = {
    *_SHAPE,
    *_MIXTURE,
    *_LATENT,
    *(
        "swiglu",
        "quick-geglu",
        "squared-relu",
        "glu-linear-offset",
        "activation-func-clamp-value",
        "no-bias-gelu-fusion",
    ),
    *("normalization", "norm-epsilon", "apply-layernorm-1p", "qk-layernorm", "qk-l2-norm", "softmax-type"),
    *("add-qkv-bias", "disable-bias-linear", "untie-embeddings-and-output-weights", "group-query-attention"),
    *("max-position-embeddings", "position-embedding-type", "use-rotary-position-embeddings", "no-rope-freq"),
    *("rotary-base", "rotary-percent", "use-rope-scaling", "rope-scaling-factor", "rotary-scaling-factor"),
    *("mscale", "mscale-all-dim", "multi-latent-attention", "window-size", "window-attn-skip-freq"),
    *("attention-dropout", "hidden-dropout", "padded-vocab-size"),
    *("moe-layer-freq", "moe-router-score-function", "moe-router-pre-softmax", "moe-router-topk-scaling-factor"),
    *("moe-router-num-groups", "moe-router-group-topk", "moe-router-enable-expert-bias", "moe-router-bias-update-rate"),
    *("moe-router-load-balancing-type", "moe-aux-loss-coeff", "moe-z-loss-coeff", "moe-expert-capacity-factor"),
    *("moe-apply-probs-on-input", "moe-shared-expert-gate", "moe-router-dtype"),
}
"""Options of the model that are taken over."""


def shape(flags: Options) -> dict[str, Any]:
    """Fields of the model; Megatron's defaults where an option is left out.

    Raises:
        WrongQuestion: a size that no model has.
    """
    if "num-layers" not in flags or "hidden-size" not in flags:
        return {}
    found: dict[str, Any] = {field: degree(flags, name) for name, field in _SHAPE.items() if name in flags}
    if found["layers"] > MOST_LAYERS:
        raise WrongQuestion(f"--num-layers {found['layers']}: at most {MOST_LAYERS:,}")
    if "padded-vocab-size" in flags:
        found.setdefault("vocab", degree(flags, "padded-vocab-size"))
    found.setdefault("heads", 1)
    found.setdefault("kv_heads", found["heads"])
    found |= _attention(flags, found["layers"])
    found.setdefault("head_dim", found["hidden"] // found["heads"])
    found.setdefault("ffn", _usual_width(flags, found["hidden"]))
    found["gated"] = bool({"swiglu", "quick-geglu"} & flags.keys())
    found["activation"] = _activation(flags)
    found["dropout"] = measure(flags, "hidden-dropout", 0.1, zero=True) > 0
    found["norm"] = "rms" if flags.get("normalization") == ["RMSNorm"] else "layer"
    found["tied"] = "untie-embeddings-and-output-weights" not in flags
    found["norm_offset"] = "apply-layernorm-1p" in flags
    latent = "multi-latent-attention" in flags
    found["qk_norm"] = "unweighted" if "qk-l2-norm" in flags else "none"
    found["qk_norm"] = "head" if "qk-layernorm" in flags and not latent else found["qk_norm"]
    biased = "disable-bias-linear" not in flags
    found |= {"qkv_bias": biased or "add-qkv-bias" in flags, "output_bias": biased, "mlp_bias": biased}
    found["sinks"] = flags.get("softmax-type") == ["learnable"]
    found |= _norms_and_positions(flags)
    if "num-experts" in flags:
        found["moe"] = {**_mixture(flags, found["ffn"]), "router_bias": biased, "expert_bias": biased}
        dense = not all(megatron_model.mixtures(found["moe"], found["layers"]))
        found["mlp_bias"] = biased and dense
    return found


def _usual_width(flags: Options, hidden: int) -> int:
    """The MLP's width where none is given: ``4 h``, or for SwiGLU ``8 h / 3`` down to a multiple of 64."""
    return int((4 * hidden * 2 / 3) / 64) * 64 if "swiglu" in flags else 4 * hidden


def _activation(flags: Options) -> str | None:
    """The MLP's function; None for a gate that a model's record has no word for.

    Without a gate it is GELU: by tanh in the kernel that adds biases, by the error function without that.
    """
    if "swiglu" in flags:
        return "swiglu"
    if "quick-geglu" in flags:
        offset, clamp = (measure(flags, name, 0.0, zero=True) for name in _CLAMPED)
        return "clamped-swiglu" if (offset, clamp) == (1.0, 7.0) else None
    if "squared-relu" in flags:
        return "squared-relu"
    return "gelu" if {"disable-bias-linear", "no-bias-gelu-fusion"} & flags.keys() else "gelu-tanh"


def _norms_and_positions(flags: Options) -> dict[str, Any]:
    """What norms add, and learned or rotary positions; Megatron's defaults where an option is left out."""
    found: dict[str, Any] = {"norm_epsilon": measure(flags, "norm-epsilon", 1e-5)}
    kind = flags.get("position-embedding-type", ["learned_absolute"])
    if "use-rotary-position-embeddings" in flags:
        kind = ["rope"]
    if kind == ["learned_absolute"]:
        return {**found, "learned_positions": number(flags, "max-position-embeddings", 0)}
    if kind == ["none"]:
        return {**found, "positions": "none"}
    if kind != ["rope"]:
        return found
    rotary = {"base": measure(flags, "rotary-base", 1e4), "share": measure(flags, "rotary-percent", 1.0)}
    skips = number(flags, "no-rope-freq") if "".join(flags.get("no-rope-freq", [])).isdecimal() else None
    rotary |= {"skips": skips} if skips else {}
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
        if megatron_model.windowed(shape) == wanted:
            return {"window": {**window, "every": every, "inverted": inverted}}
    raise WrongQuestion(f"--window-attn-skip-freq {frequency:.60}: no rhythm of {layers} layers, which a plan needs")


def _mixture(flags: Options, ffn: int) -> dict[str, Any]:
    moe: dict[str, Any] = {field: degree(flags, name) for name, field in _MIXTURE.items() if name in flags}
    moe = {"experts_per_token": 2, "ffn": ffn, **moe, "router": _router(flags)}
    moe |= megatron_pattern.latent(flags)
    moe |= {"shared_gate": True} if "moe-shared-expert-gate" in flags else {}
    frequency = "".join(flags.get("moe-layer-freq", ["1"]))
    if frequency.isdecimal():
        return {**moe, "leading_dense_layers": 0, "every": max(int(frequency), 1)}
    where = _listed(frequency, "moe-layer-freq")
    lead = where.index(1) if 1 in where else 0
    for every in range(1, len(where) - lead + 1):
        for before in (lead, lead - every + 1):  # the dense layers of the first round lead, too
            rhythm = {"leading_dense_layers": before, "every": every}
            if before >= 0 and megatron_model.mixtures(rhythm, len(where)) == where:
                return {**moe, **rhythm}
    raise WrongQuestion(f"--moe-layer-freq {frequency:.60}: dense layers in no rhythm, which a plan needs")


_BALANCES = {"none": "none", "aux_loss": "batch", "global_aux_loss": "batch", "seq_aux_loss": "sequence"}


def _router(flags: Options) -> dict[str, Any] | None:
    """How tokens are sent; None for a balancing of another kind (sinkhorn, several losses at once)."""
    sigmoid = flags.get("moe-router-score-function") == ["sigmoid"]
    kinds, rates = flags.get("moe-router-load-balancing-type", ["aux_loss"]), flags.get("moe-aux-loss-coeff", ["0"])
    if len(kinds) != 1 or len(rates) != 1 or kinds[0] not in _BALANCES:
        return None
    loss, drops = measure(flags, "moe-aux-loss-coeff", 0.0, zero=True), "moe-expert-capacity-factor" in flags
    return {
        "score": "sigmoid" if sigmoid else "softmax",
        "normalised": degree(flags, "moe-router-topk", 2) > 1 if sigmoid else "moe-router-pre-softmax" not in flags,
        "scaling": measure(flags, "moe-router-topk-scaling-factor", 1.0),
        "groups": degree(flags, "moe-router-num-groups"),
        "groups_per_token": degree(flags, "moe-router-group-topk"),
        "bias_rate": measure(flags, "moe-router-bias-update-rate", 1e-3)
        if "moe-router-enable-expert-bias" in flags
        else 0.0,
        "balance": _BALANCES[kinds[0]] if loss else "none",
        "balance_loss": loss,
        "z_loss": measure(flags, "moe-z-loss-coeff", 0.0, zero=True),
        "capacity": measure(flags, "moe-expert-capacity-factor", 1.0) if drops else None,
        "on_input": "moe-apply-probs-on-input" in flags,
    }


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
