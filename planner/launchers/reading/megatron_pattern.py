"""Megatron-LM's pattern of layers (``--hybrid-layer-pattern MEM*E|MEMEM``) to a model's blocks and a plan's stages."""

from __future__ import annotations

from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_hybrid
from planner.launchers.reading.found import Options, degree
from planner.models.huggingface.pattern import LETTERS, once
from planner.schema.launcher_table import launcher_table
from planner.schema.workload import MOST_LAYERS

STATES = {o.name: o.says.removeprefix("recurrence.") for o in launcher_table("megatron").starting("recurrence.")}
"""Option -> field of a recurrence."""
OPTION = "hybrid-layer-pattern"
_OTHERS = {
    "G": "a gated delta net",
    "D": "sparse attention",
    "+": "latent attention",
    "/": "multi-token prediction",
}
_ENDS = {"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}
_USUAL = {"mamba-head-dim": 64, "mamba-num-groups": 8, "mamba-state-dim": 128}
"""Megatron's defaults (core_v0.19.0, core/transformer/transformer_config.py)."""


def completed(flags: Options, program: str) -> Options:
    """The options, with the number of layers that a pattern says.

    Raises:
        WrongQuestion: a program that needs a pattern has none, or builds another model; or no pattern that a plan has.
    """
    if OPTION not in flags:
        if program in megatron_hybrid.PROGRAMS:
            raise WrongQuestion(f"{program} without --{OPTION}: which layers it trains is not said")
        return flags
    if program == "pretrain_gpt.py":
        raise WrongQuestion(f"pretrain_gpt.py with --{OPTION}: take {megatron_hybrid.PROGRAMS[0]}, which builds it")
    if "pipeline-model-parallel-layout" in flags:
        raise WrongQuestion(f"--{OPTION} with --pipeline-model-parallel-layout: bars in the pattern are its stages")
    return {**flags, "num-layers": [str(sum(map(len, _segments(flags))))]}


def _segments(flags: Options) -> list[str]:
    text = "".join(flags[OPTION])
    for letter in text:
        if letter in _OTHERS:
            raise WrongQuestion(f"--{OPTION}: {letter!r}, {_OTHERS[letter]}, cannot be taken over")
        if letter != "|" and letter not in LETTERS:
            raise WrongQuestion(
                f"--{OPTION}: {letter!r} is no layer; it can be {' '.join(LETTERS)}, and | between stages"
            )
    segments = text.split("|")
    if not all(segments) or len(text) > 2 * MOST_LAYERS:
        raise WrongQuestion(f"--{OPTION} {text:.60}: every stage needs a layer, {MOST_LAYERS:,} in all at most")
    return segments


def chunks(flags: Options) -> list[int] | None:
    """Layers of every pipeline chunk; None where there is no pattern, or it has no bars and other options cut it.

    Raises:
        WrongQuestion: without bars, layers that cannot be cut evenly.
    """
    sizes = [len(segment) for segment in _segments(flags)] if OPTION in flags else []
    pp = degree(flags, "pipeline-model-parallel-size")
    if len(sizes) > 1 or pp == 1 or not sizes or _ENDS & flags.keys():
        return sizes if len(sizes) > 1 else None
    if sizes[0] % pp:
        raise WrongQuestion(f"--{OPTION}: {sizes[0]} layers without bars, which {pp} stages do not divide")
    return [sizes[0] // pp] * pp


def shape(flags: Options) -> dict[str, Any]:
    """Fields of a model whose blocks follow a pattern; nothing without one."""
    if OPTION not in flags:
        return {}
    blocks = [LETTERS[letter] for letter in "".join(_segments(flags))]
    found: dict[str, Any] = {
        "mixers": once([mixer for mixer, _ in blocks]),
        "feeds": once([feed for _, feed in blocks]),
        "norms_per_layer": 1,
    }
    if any(mixer == "recurrent" for mixer, _ in blocks):
        sizes = {field: degree(flags, name, _USUAL.get(name, 1)) for name, field in STATES.items()}
        if "mamba-num-heads" not in flags:  # twice the model's width
            sizes["heads"] = max(2 * degree(flags, "hidden-size") // sizes["value_dim"], 1)
        found["recurrence"] = {**megatron_hybrid.FIXED, **sizes}
    return found
