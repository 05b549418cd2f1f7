"""What makes a model's shape consistent, beyond each figure's own range."""

from __future__ import annotations

from collections.abc import Iterator

from planner.models import blocks
from planner.schema.workload import GATED, Model

LARGEST = 10**15
"""Parameters; a thousand times the largest model in the library."""


def problems(model: Model) -> list[str]:
    """Everything that does not hold, one message each; empty for a consistent model."""
    wrong = [*_attention(model), *_pattern(model), *_stacks(model), *_mixture(model), *_tower(model)]
    return [*wrong, *([] if wrong else _size(model)), *_assumptions(model)]


def _attention(model: Model) -> Iterator[str]:
    if model.kv_heads > model.heads or model.heads % model.kv_heads:
        yield f"kv_heads = {model.kv_heads:,}: must divide heads = {model.heads:,}"
    full = model.full
    if full is not None and (full.kv_heads > model.heads or model.heads % full.kv_heads):
        yield f"full.kv_heads = {full.kv_heads:,}: must divide heads = {model.heads:,}"
    if full is not None and (model.latent or model.encoder_layers or not {"window", "attention"} <= {*model.mixers}):
        yield "full: goes with mixers of which some are window and others attention"
    if model.activation is not None and (model.activation in GATED) != model.gated:
        yield f"activation = {model.activation!r}: gated must be {str(not model.gated).lower()}"
    if model.positions and (model.rotary or model.learned_positions):
        yield f"positions = {model.positions!r}: there are rotary or learned ones besides"
    if model.window is not None and not model.causal:
        yield "window: a sliding window needs causal = true"


def _pattern(model: Model) -> Iterator[str]:
    """Blocks by kind, and what each kind needs."""
    for name in ("mixers", "feeds"):
        if len(getattr(model, name)) > model.layers:
            yield f"{name}: {len(getattr(model, name)):,} of them; there are {model.layers:,} layers"
    if (model.mixers or model.feeds) and model.encoder_layers:
        yield "mixers, feeds: blocks of a decoder alone"
    for kinds, need in ((("window", "csa", "hca"), "window"), (("recurrent", "both"), "recurrence")):
        if any(mixer in kinds for mixer in model.mixers) != (getattr(model, need) is not None) and (
            model.mixers or need == "recurrence"
        ):
            yield f"{need}: goes with mixers that are {' or '.join(kinds)}, and they with it"
    if model.mixers and model.window and model.window.every > 1:
        yield f"window.every = {model.window.every:,}: mixers say which blocks have the window"
    if model.feeds and ("mixture" in model.feeds) != (model.moe is not None):
        yield "moe: goes with feeds that are mixture, and they with it"
    if model.feeds and model.moe and (model.moe.every > 1 or model.moe.leading_dense_layers):
        yield "moe.every, moe.leading_dense_layers: feeds say which blocks are mixtures"
    if any((mixer, feed) == ("none", "none") for mixer, feed in blocks.blocks(model)):
        yield "mixers, feeds: a block has neither"
    if compressed := model.compressed:
        if model.latent or model.indexer or model.full or not {*model.mixers} <= {"window", "csa", "hca"}:
            yield "compressed: goes with mixers that are window, csa or hca alone"
        if model.kv_heads != 1 or model.heads % compressed.output_groups:
            yield f"compressed: kv_heads must be 1, and output_groups divide heads = {model.heads:,}"
    if bool({"csa", "hca"} & {*model.mixers}) != (model.compressed is not None):
        yield "compressed: goes with mixers that are csa or hca, and they with it"
    r = model.recurrence
    if r is not None and r.heads % r.key_heads:
        yield f"recurrence.key_heads = {r.key_heads:,}: must divide recurrence.heads = {r.heads:,}"
    if model.indexer and not model.causal:
        yield "indexer: sparse attention needs causal = true"
    if model.attention_gate and model.latent:
        yield "attention_gate: latent attention has none"


def _stacks(model: Model) -> Iterator[str]:
    if (model.family == "encoder-decoder") != bool(model.encoder_layers):
        yield f"encoder_layers = {model.encoder_layers:,}: family 'encoder-decoder' has them, the others have none"
    if model.family in ("encoder", "vision") and model.causal:
        yield f"causal = true: family {model.family!r} attends both ways"
    if model.tied and model.family == "vision":
        yield "tied = true: a vision model has no embedding to share"


def _mixture(model: Model) -> Iterator[str]:
    moe = model.moe
    if moe is None:
        return
    if moe.experts_per_token > moe.experts:
        yield f"moe.experts_per_token = {moe.experts_per_token:,}: there are {moe.experts:,} experts"
    if moe.leading_dense_layers >= model.layers:
        yield f"moe.leading_dense_layers = {moe.leading_dense_layers:,}: there are {model.layers:,} layers"
    elif moe.every > model.layers - moe.leading_dense_layers:
        yield f"moe.every = {moe.every:,}: no layer would be a mixture"
    if (router := moe.router) is not None:
        if moe.experts % router.groups or router.groups_per_token > router.groups:
            limited = f"{router.groups_per_token:,} of {router.groups:,} groups"
            yield f"moe.router: {limited}: groups must divide {moe.experts:,} experts, a token visits at most all"
        if (router.balance == "none") != (router.balance_loss == 0):
            yield f"moe.router.balance = {router.balance!r}: balance_loss is {router.balance_loss:g}"
    if moe.shared_gate and not moe.shared_ffn:
        yield "moe.shared_gate = true: there is no shared expert (moe.shared_ffn = 0)"


def _tower(model: Model) -> Iterator[str]:
    tower = model.tower
    if tower is None:
        return
    if model.family != "decoder":
        yield f"tower: goes with family 'decoder', not {model.family!r}"
    if tower.attended > tower.patches:
        yield f"tower.attended = {tower.attended:,}: there are {tower.patches:,} patches"
    least = tower.layers * tower.hidden * (4 * tower.hidden + (2 + tower.gated) * tower.ffn)
    if tower.parameters < least:
        yield f"tower.parameters = {tower.parameters:,}: its layers' products alone have {least:,}"


def _size(model: Model) -> Iterator[str]:
    from planner.models.parameters import parameters

    if (total := parameters(model).total) > LARGEST:
        yield f"{total:.1e} parameters: a model has at most {LARGEST:.0e}"


def _assumptions(model: Model) -> Iterator[str]:
    # `shape` stands for every field of the architecture together.
    known = {*model.__dataclass_fields__, "shape"}
    for name in sorted(set(model.assumed) - known):
        yield f"assumed.{name}: no such field"
