"""Megatron-LM's arguments of the model to a model's fields; Megatron's defaults where an argument is left out.

A pattern of layers says a model's blocks, and with its bars a plan's stages.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_hybrid, megatron_model
from planner.launchers.reading.found_options import Options, Reading, degree
from planner.models.huggingface.pattern import LETTERS, once
from planner.schema.launcher_table import launcher_table
from planner.schema.workload import MOST_LAYERS

_LATENT = {"query_rank": 0, "kv_rank": 32, "rope_dim": 64, "nope_dim": 128, "value_dim": 128}
"""Megatron's own widths of latent attention."""
_CLAMPED = ("glu-linear-offset", "activation-func-clamp-value")
STATES = {o.name: o.says.removeprefix("recurrence.") for o in launcher_table("megatron").starting("recurrence.")}
"""Option -> field of a recurrence."""
PATTERN = "hybrid-layer-pattern"
_OTHERS = {
    "G": "a gated delta net",
    "D": "sparse attention",
    "+": "latent attention",
    "/": "multi-token prediction",
}
_ENDS = {"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}
_MAMBA = {"mamba-head-dim": 64, "mamba-num-groups": 8, "mamba-state-dim": 128}
"""Megatron's defaults (core_v0.19.0, core/transformer/transformer_config.py)."""


def shape(flags: Reading) -> dict[str, Any]:
    """Fields of the model; Megatron's defaults where an option is left out.

    Raises:
        WrongQuestion: a size that no model has.
    """
    if "num-layers" not in flags or "hidden-size" not in flags:
        return {}
    found: dict[str, Any] = flags.sizes("shape.")
    if found["layers"] > MOST_LAYERS:
        raise WrongQuestion(f"--num-layers {found['layers']}: at most {MOST_LAYERS:,}")
    if "padded-vocab-size" in flags:
        found.setdefault("vocab", flags("padded-vocab-size"))
    found.setdefault("heads", 1)
    # Groups count where they are switched on alone (core_transformer_config_from_args), by default one.
    found["kv_heads"] = found.get("kv_heads", 1) if "group-query-attention" in flags else found["heads"]
    found |= _attention(flags, found["layers"])
    found.setdefault("head_dim", found["hidden"] // found["heads"])
    found.setdefault("ffn", _usual_width(flags, found["hidden"]))
    found["gated"] = "swiglu" in flags or "quick-geglu" in flags
    found["activation"] = _activation(flags)
    found["dropout"] = flags("hidden-dropout", 0.1) > 0
    found["norm"] = "rms" if [*map(str.lower, flags.words("normalization") or ())] == ["rmsnorm"] else "layer"
    found["tied"] = "untie-embeddings-and-output-weights" not in flags
    found["norm_offset"] = "apply-layernorm-1p" in flags
    latent = "multi-latent-attention" in flags
    found["qk_norm"] = "unweighted" if "qk-l2-norm" in flags else "none"
    found["qk_norm"] = "head" if "qk-layernorm" in flags and not latent else found["qk_norm"]
    biased = "disable-bias-linear" not in flags
    found |= {"qkv_bias": biased or "add-qkv-bias" in flags, "output_bias": biased, "mlp_bias": biased}
    found["sinks"] = flags.words("softmax-type") == ["learnable"]
    found |= _norms_and_positions(flags)
    if "num-experts" in flags:
        found["moe"] = {**_mixture(flags, found["ffn"]), "router_bias": biased, "expert_bias": biased}
        dense = not all(megatron_model.mixtures(found["moe"], found["layers"]))
        found["mlp_bias"] = biased and dense
    return found


def _usual_width(flags: Reading, hidden: int) -> int:
    """The MLP's width where none is given: ``4 h``, or for SwiGLU ``8 h / 3`` down to a multiple of 64, or up to one
    that is stated.
    """
    if "swiglu" in flags and "multiple-of" in flags:
        width = int(int(4 * hidden * 2 / 3) * flags("hidden-dim-multiplier", 1.0))
        multiple = int(flags("multiple-of"))
        return -(-width // multiple) * multiple
    return int((4 * hidden * 2 / 3) / 64) * 64 if "swiglu" in flags else 4 * hidden


def _activation(flags: Reading) -> str | None:
    """The MLP's function; None for a gate that a model's record has no word for.

    Without a gate it is GELU: by tanh in the kernel that adds biases, by the error function without that.
    """
    if "swiglu" in flags:
        return "swiglu"
    if "quick-geglu" in flags:
        return "clamped-swiglu" if [flags(name, 0.0) for name in _CLAMPED] == [1.0, 7.0] else None
    if "squared-relu" in flags:
        return "squared-relu"
    return "gelu" if "disable-bias-linear" in flags or "no-bias-gelu-fusion" in flags else "gelu-tanh"


def _norms_and_positions(flags: Reading) -> dict[str, Any]:
    """What norms add, and learned or rotary positions; Megatron's defaults where an option is left out."""
    norms: dict[str, Any] = {"norm_epsilon": flags("norm-epsilon", 1e-5)}
    kind = ["rope"] if "use-rotary-position-embeddings" in flags else flags.words("position-embedding-type")
    if kind in (None, ["learned_absolute"]):
        return {**norms, "learned_positions": flags("max-position-embeddings", 0)}
    if kind == ["none"]:
        return {**norms, "positions": "none"}
    if kind != ["rope"]:
        return norms
    rotary = {"base": flags("rotary-base", 1e4), "share": flags("rotary-percent")}
    skips = flags("no-rope-freq") if "".join(flags.words("no-rope-freq") or []).isdecimal() else None
    rotary |= {"skips": skips} if skips else {}
    if "use-rope-scaling" in flags:
        rotary |= {"scaling": "llama3", "factor": flags("rope-scaling-factor", 8.0), "original": 8192}
        return {**norms, "rotary": rotary}
    factor = flags("rotary-scaling-factor", 1.0)
    if "multi-latent-attention" in flags and factor != 1:
        rotary |= {"mscale": flags("mscale", 1.0), "mscale_all_dim": flags("mscale-all-dim", 0.0)}
        rotary |= {"scaling": "yarn", "factor": factor, "original": 4096}
    return {**norms, "rotary": rotary}


def _attention(flags: Reading, layers: int) -> dict[str, Any]:
    """Latent attention and windows; the width of a head is then the latent's own."""
    found: dict[str, Any] = {}
    widths = {o.says.removeprefix("shape.latent."): o.name for o in flags.table.starting("shape.latent.")}
    if "multi-latent-attention" in flags:
        latent = {field: flags(name, _LATENT[field]) for field, name in widths.items()}
        found |= {"latent": latent, "head_dim": latent["nope_dim"]}
    elif given := flags.options.keys() & {*widths.values()}:
        raise WrongQuestion(f"--{min(given)}: goes with --multi-latent-attention")
    if "window-size" in flags:
        found |= _window(flags.options, layers)
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
        # Every second layer is written either way; the library says it without inversion.
        return {} if every == 1 else {"window": {**window, "every": every or 1, "inverted": every > 2}}
    wanted = _listed(frequency, "window-attn-skip-freq")
    for every, inverted in ((n, i) for n in range(1, layers + 1) for i in (False, True)):
        shape = {"layers": layers, "window": {"every": every, "inverted": inverted}}
        if megatron_model.windowed(shape) == wanted:
            return {"window": {**window, "every": every, "inverted": inverted}}
    raise WrongQuestion(f"--window-attn-skip-freq {frequency:.60}: no rhythm of {layers} layers, which a plan needs")


def _mixture(flags: Reading, ffn: int) -> dict[str, Any]:
    moe: dict[str, Any] = {"experts_per_token": 2, "ffn": ffn, **flags.sizes("shape.moe."), "router": _router(flags)}
    moe |= {"latent": flags("moe-latent-size") or 0} if PATTERN in flags else {}
    moe |= {"shared_gate": True} if "moe-shared-expert-gate" in flags else {}
    frequency = "".join(flags.options.get("moe-layer-freq", ["1"]))
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


def _router(flags: Reading) -> dict[str, Any] | None:
    """How tokens are sent; None for a balancing of another kind (sinkhorn, several losses at once)."""
    balances = {**flags.table.words("moe-router-load-balancing-type"), "global_aux_loss": "batch"}
    kinds = flags.options.get("moe-router-load-balancing-type", ["aux_loss"])
    if len(kinds) != 1 or len(flags.options.get("moe-aux-loss-coeff", ["0"])) != 1 or kinds[0] not in balances:
        return None
    sigmoid = flags.words("moe-router-score-function") == ["sigmoid"]
    loss = flags("moe-aux-loss-coeff")
    return {
        "score": "sigmoid" if sigmoid else "softmax",
        "normalised": flags("moe-router-topk", 2) > 1 if sigmoid else "moe-router-pre-softmax" not in flags,
        "scaling": flags("moe-router-topk-scaling-factor"),
        "groups": flags("moe-router-num-groups"),
        "groups_per_token": flags("moe-router-group-topk", 1),
        "bias_rate": flags("moe-router-bias-update-rate", 1e-3) if "moe-router-enable-expert-bias" in flags else 0.0,
        "balance": balances[kinds[0]] if loss else "none",
        "balance_loss": loss,
        "z_loss": flags("moe-z-loss-coeff"),
        "capacity": flags("moe-expert-capacity-factor", 1.0) if "moe-expert-capacity-factor" in flags else None,
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


# ---- a pattern of layers (``--hybrid-layer-pattern MEM*E|MEMEM``) ----------------------------------------------------


def completed(flags: Options, program: str) -> Options:
    """The options, with the number of layers that a pattern says.

    Raises:
        WrongQuestion: a program that needs a pattern has none, or builds another model; or no pattern that a plan has.
    """
    if PATTERN not in flags:
        if program in megatron_hybrid.PROGRAMS:
            raise WrongQuestion(f"{program} without --{PATTERN}: which layers it trains is not said")
        return flags
    if program == "pretrain_gpt.py":
        raise WrongQuestion(f"pretrain_gpt.py with --{PATTERN}: take {megatron_hybrid.PROGRAMS[0]}, which builds it")
    if "pipeline-model-parallel-layout" in flags:
        raise WrongQuestion(f"--{PATTERN} with --pipeline-model-parallel-layout: bars in the pattern are its stages")
    return {**flags, "num-layers": [str(sum(map(len, _segments(flags))))]}


def _segments(flags: Options) -> list[str]:
    text = "".join(flags[PATTERN])
    for letter in text:
        if letter in _OTHERS:
            raise WrongQuestion(f"--{PATTERN}: {letter!r}, {_OTHERS[letter]}, cannot be taken over")
        if letter != "|" and letter not in LETTERS:
            raise WrongQuestion(
                f"--{PATTERN}: {letter!r} is no layer; it can be {' '.join(LETTERS)}, and | between stages"
            )
    segments = text.split("|")
    if not all(segments) or len(text) > 2 * MOST_LAYERS:
        raise WrongQuestion(f"--{PATTERN} {text:.60}: every stage needs a layer, {MOST_LAYERS:,} in all at most")
    return segments


def chunks(flags: Options) -> list[int] | None:
    """Layers of every pipeline chunk; None where there is no pattern, or it has no bars and other options cut it.

    Raises:
        WrongQuestion: without bars, layers that cannot be cut evenly.
    """
    sizes = [len(segment) for segment in _segments(flags)] if PATTERN in flags else []
    pp = degree(flags, "pipeline-model-parallel-size")
    if len(sizes) > 1 or pp == 1 or not sizes or _ENDS & flags.keys():
        return sizes if len(sizes) > 1 else None
    if sizes[0] % pp:
        raise WrongQuestion(f"--{PATTERN}: {sizes[0]} layers without bars, which {pp} stages do not divide")
    return [sizes[0] // pp] * pp


def patterned(flags: Options) -> dict[str, Any]:
    """Fields of a model whose blocks follow a pattern; nothing without one."""
    if PATTERN not in flags:
        return {}
    blocks = [LETTERS[letter] for letter in "".join(_segments(flags))]
    found: dict[str, Any] = {
        "mixers": once([mixer for mixer, _ in blocks]),
        "feeds": once([feed for _, feed in blocks]),
        "norms_per_layer": 1,
    }
    if any(mixer == "recurrent" for mixer, _ in blocks):
        sizes = {field: degree(flags, name, _MAMBA.get(name, 1)) for name, field in STATES.items()}
        if "mamba-num-heads" not in flags:  # twice the model's width
            sizes["heads"] = max(2 * degree(flags, "hidden-size") // sizes["value_dim"], 1)
        found["recurrence"] = {**megatron_hybrid.FIXED, **sizes}
    return found
