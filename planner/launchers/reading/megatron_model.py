"""Megatron-LM's arguments of the model to a model's fields; Megatron's defaults where an argument is left out."""

from __future__ import annotations

import ast
import re
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_model
from planner.launchers.reading import megatron_pattern
from planner.launchers.reading.found import Options, Reading
from planner.schema.workload import MOST_LAYERS

_LATENT = {"query_rank": 0, "kv_rank": 32, "rope_dim": 64, "nope_dim": 128, "value_dim": 128}
"""Megatron's own widths of latent attention."""
_CLAMPED = ("glu-linear-offset", "activation-func-clamp-value")


def shape(said: Reading) -> dict[str, Any]:
    """Fields of the model; Megatron's defaults where an option is left out.

    Raises:
        WrongQuestion: a size that no model has.
    """
    if "num-layers" not in said or "hidden-size" not in said:
        return {}
    found: dict[str, Any] = said.sizes("shape.")
    if found["layers"] > MOST_LAYERS:
        raise WrongQuestion(f"--num-layers {found['layers']}: at most {MOST_LAYERS:,}")
    if "padded-vocab-size" in said:
        found.setdefault("vocab", said("padded-vocab-size"))
    found.setdefault("heads", 1)
    found.setdefault("kv_heads", found["heads"])
    found |= _attention(said, found["layers"])
    found.setdefault("head_dim", found["hidden"] // found["heads"])
    found.setdefault("ffn", _usual_width(said, found["hidden"]))
    found["gated"] = "swiglu" in said or "quick-geglu" in said
    found["activation"] = _activation(said)
    found["dropout"] = said("hidden-dropout", 0.1) > 0
    found["norm"] = "rms" if said.words("normalization") == ["RMSNorm"] else "layer"
    found["tied"] = "untie-embeddings-and-output-weights" not in said
    found["norm_offset"] = "apply-layernorm-1p" in said
    latent = "multi-latent-attention" in said
    found["qk_norm"] = "unweighted" if "qk-l2-norm" in said else "none"
    found["qk_norm"] = "head" if "qk-layernorm" in said and not latent else found["qk_norm"]
    biased = "disable-bias-linear" not in said
    found |= {"qkv_bias": biased or "add-qkv-bias" in said, "output_bias": biased, "mlp_bias": biased}
    found["sinks"] = said.words("softmax-type") == ["learnable"]
    found |= _norms_and_positions(said)
    if "num-experts" in said:
        found["moe"] = {**_mixture(said, found["ffn"]), "router_bias": biased, "expert_bias": biased}
        dense = not all(megatron_model.mixtures(found["moe"], found["layers"]))
        found["mlp_bias"] = biased and dense
    return found


def _usual_width(said: Reading, hidden: int) -> int:
    """The MLP's width where none is given: ``4 h``, or for SwiGLU ``8 h / 3`` down to a multiple of 64."""
    return int((4 * hidden * 2 / 3) / 64) * 64 if "swiglu" in said else 4 * hidden


def _activation(said: Reading) -> str | None:
    """The MLP's function; None for a gate that a model's record has no word for.

    Without a gate it is GELU: by tanh in the kernel that adds biases, by the error function without that.
    """
    if "swiglu" in said:
        return "swiglu"
    if "quick-geglu" in said:
        return "clamped-swiglu" if [said(name, 0.0) for name in _CLAMPED] == [1.0, 7.0] else None
    if "squared-relu" in said:
        return "squared-relu"
    return "gelu" if "disable-bias-linear" in said or "no-bias-gelu-fusion" in said else "gelu-tanh"


def _norms_and_positions(said: Reading) -> dict[str, Any]:
    """What norms add, and learned or rotary positions; Megatron's defaults where an option is left out."""
    norms: dict[str, Any] = {"norm_epsilon": said("norm-epsilon", 1e-5)}
    kind = ["rope"] if "use-rotary-position-embeddings" in said else said.words("position-embedding-type")
    if kind in (None, ["learned_absolute"]):
        return {**norms, "learned_positions": said("max-position-embeddings", 0)}
    if kind == ["none"]:
        return {**norms, "positions": "none"}
    if kind != ["rope"]:
        return norms
    rotary = {"base": said("rotary-base", 1e4), "share": said("rotary-percent")}
    skips = said("no-rope-freq") if "".join(said.words("no-rope-freq") or []).isdecimal() else None
    rotary |= {"skips": skips} if skips else {}
    if "use-rope-scaling" in said:
        rotary |= {"scaling": "llama3", "factor": said("rope-scaling-factor", 8.0), "original": 8192}
        return {**norms, "rotary": rotary}
    factor = said("rotary-scaling-factor", 1.0)
    if "multi-latent-attention" in said and factor != 1:
        rotary |= {"mscale": said("mscale", 1.0), "mscale_all_dim": said("mscale-all-dim", 0.0)}
        rotary |= {"scaling": "yarn", "factor": factor, "original": 4096}
    return {**norms, "rotary": rotary}


def _attention(said: Reading, layers: int) -> dict[str, Any]:
    """Latent attention and windows; the width of a head is then the latent's own."""
    found: dict[str, Any] = {}
    widths = {o.says.removeprefix("shape.latent."): o.name for o in said.table.starting("shape.latent.")}
    if "multi-latent-attention" in said:
        latent = {field: said(name, _LATENT[field]) for field, name in widths.items()}
        found |= {"latent": latent, "head_dim": latent["nope_dim"]}
    elif given := said.options.keys() & {*widths.values()}:
        raise WrongQuestion(f"--{min(given)}: goes with --multi-latent-attention")
    if "window-size" in said:
        found |= _window(said.options, layers)
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


def _mixture(said: Reading, ffn: int) -> dict[str, Any]:
    moe: dict[str, Any] = {"experts_per_token": 2, "ffn": ffn, **said.sizes("shape.moe."), "router": _router(said)}
    moe |= {"latent": said("moe-latent-size") or 0} if megatron_pattern.OPTION in said else {}
    moe |= {"shared_gate": True} if "moe-shared-expert-gate" in said else {}
    frequency = "".join(said.options.get("moe-layer-freq", ["1"]))
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


def _router(said: Reading) -> dict[str, Any] | None:
    """How tokens are sent; None for a balancing of another kind (sinkhorn, several losses at once)."""
    balances = {**said.table.words("moe-router-load-balancing-type"), "global_aux_loss": "batch"}
    kinds = said.options.get("moe-router-load-balancing-type", ["aux_loss"])
    if len(kinds) != 1 or len(said.options.get("moe-aux-loss-coeff", ["0"])) != 1 or kinds[0] not in balances:
        return None
    sigmoid = said.words("moe-router-score-function") == ["sigmoid"]
    loss = said("moe-aux-loss-coeff")
    return {
        "score": "sigmoid" if sigmoid else "softmax",
        "normalised": said("moe-router-topk", 2) > 1 if sigmoid else "moe-router-pre-softmax" not in said,
        "scaling": said("moe-router-topk-scaling-factor"),
        "groups": said("moe-router-num-groups"),
        "groups_per_token": said("moe-router-group-topk", 1),
        "bias_rate": said("moe-router-bias-update-rate", 1e-3) if "moe-router-enable-expert-bias" in said else 0.0,
        "balance": balances[kinds[0]] if loss else "none",
        "balance_loss": loss,
        "z_loss": said("moe-z-loss-coeff"),
        "capacity": said("moe-expert-capacity-factor", 1.0) if "moe-expert-capacity-factor" in said else None,
        "on_input": "moe-apply-probs-on-input" in said,
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
