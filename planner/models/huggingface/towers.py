"""Vision towers of the Hugging Face hub, by the `model_type` of the whole model (classes of transformers 5.23.0).

A configuration does not say how many images or clips a sequence has, nor, of most towers, how large they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.base.errors import WrongQuestion
from planner.models.huggingface.config_values import Reader

SIDE = 1024
"""Pixels on a side of an image where neither the question nor the configuration says it: a planning default."""
LARGEST_SIDE = 32_768
MOST_IMAGES = 10_000


@dataclass(frozen=True)
class TowerAsked:
    """Images of a sequence and pixels on a side of each (0: as the configuration says); or clips, and their seconds."""

    number: int
    size: int = 0
    trained: bool = False
    sound: bool = False


def asked(text: str, trained: bool = False) -> TowerAsked:
    """``N`` or ``N@PIXELS`` as written behind --images, and whether the tower is trained.

    Raises:
        WrongQuestion: it is something else, or out of range.
    """
    images, side = pieces(text, LARGEST_SIDE, f"--images {text!r}: must be N or N@PIXELS", "PIXELS", "--images 4@1024")
    return TowerAsked(images, side, trained)


def pieces(text: str, largest: int, wrong: str, size: str, example: str) -> tuple[int, int]:
    """The two numbers of ``N[@SIZE]``; 0 for a size that is not there.

    Raises:
        WrongQuestion: it is something else, or out of range.
    """
    match = re.fullmatch(r"(\d{1,6})(?:@(\d{1,6}))?", text.strip())
    number, tokens = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not 1 <= number <= MOST_IMAGES or not 0 <= tokens <= largest:
        raise WrongQuestion(f"{wrong}, N from 1 to {MOST_IMAGES:,}, {size} to {largest:,}, as in {example}")
    return number, tokens


@dataclass(frozen=True)
class Encoder:
    """Blocks of a transformer that sees or hears."""

    layers: int
    hidden: int
    ffn: int
    gated: bool
    vectors: int
    """Biases and norms of a block."""

    patch: int = 0

    @property
    def parameters(self) -> int:
        """``L (4 h^2 + m h f + vectors)``, m matrices an MLP."""
        matrices = self.hidden * (4 * self.hidden + (2 + self.gated) * self.ffn)
        return self.layers * (matrices + self.vectors)

    def fields(self, patches: int, tokens: int, joining: int, more: int, attended: float = 0.0) -> dict[str, Any]:
        """Fields of a tower: of an image so many patches, tokens and multiply-adds outside blocks; more parameters."""
        return {
            **{"layers": self.layers, "hidden": self.hidden, "ffn": self.ffn, "gated": self.gated},
            **{"patches": patches, "attended": attended or float(patches), "tokens": tokens, "joining": joining},
            "parameters": self.parameters + more,
        }


def _encoder(config: Reader, *, layers: str, gated: bool, biases: bool, norms: int) -> Encoder:
    """The blocks; `norms` vectors of a block's two norms together."""
    h = config.whole("hidden_size")
    f = config.whole("intermediate_size")
    vectors = norms * h + biases * (5 * h + (1 + gated) * f)
    return Encoder(config.layers(layers), h, f, gated, vectors, config.whole("patch_size"))


def _square(config: Reader, patch: int, side: int, unit: int = 1) -> int:
    """Patches of a square image, cut to whole units of patches."""
    across = (side or SIDE) // (patch * unit) * unit
    if not across:
        raise config.wrong("patch_size", f"{patch}: images of {side} pixels have no patch")
    return across * across


def _fixed(config: Reader, side: int) -> int:
    """Pixels on a side where the configuration says them."""
    image_size = config.whole("image_size")
    if side not in (0, image_size):
        raise config.wrong("image_size", f"{image_size}: its images are all of that size; leave out @{side}")
    return image_size


def _qwen2_5(whole: Reader, config: Reader, text: int, side: int) -> dict[str, Any]:
    """Windows in all blocks but a few; RMSNorm, gated; four patches become a token."""
    encoder = _encoder(config, layers="depth", gated=True, biases=True, norms=2)
    unit = config.whole("spatial_merge_size")
    h = encoder.hidden
    out = config.whole("out_hidden_size")
    wide = config.whole("hidden_size") * unit**2
    n = _square(config, encoder.patch, side, unit)
    cut = 3 * config.whole("temporal_patch_size") * encoder.patch**2 * h
    window = min((config.whole("window_size") // encoder.patch) ** 2, n)
    full = len(config.items("fullatt_block_indexes"))
    merger = wide * wide + wide * out
    attended = (full * n + (encoder.layers - full) * window) / encoder.layers
    return encoder.fields(n, n // unit**2, n * cut + n // unit**2 * merger, cut + h + merger + wide + out, attended)


def _qwen3(whole: Reader, config: Reader, text: int, side: int) -> dict[str, Any]:
    """LayerNorm, learned positions; states of some blocks go to the decoder's first ones by mergers of their own."""
    encoder = _encoder(config, layers="depth", gated=False, biases=True, norms=4)
    unit = config.whole("spatial_merge_size")
    h = encoder.hidden
    out = config.whole("out_hidden_size")
    wide = config.whole("hidden_size") * unit**2
    n = _square(config, encoder.patch, side, unit)
    cut = 3 * config.whole("temporal_patch_size") * encoder.patch**2 * h
    mergers = 1 + len(config.items("deepstack_visual_indexes"))
    merger = wide * wide + wide * out
    vectors = mergers * (wide + out) + 2 * h + (mergers - 1) * 2 * wide
    more = cut + h + config.whole("num_position_embeddings") * h + mergers * merger + vectors
    return encoder.fields(n, n // unit**2, n * cut + n // unit**2 * mergers * merger, more)


def _siglip(whole: Reader, config: Reader, text: int, side: int) -> dict[str, Any]:
    """Gemma 3: images of one size, as many tokens each, one product to the decoder's width."""
    encoder = _encoder(config, layers="num_hidden_layers", gated=False, biases=True, norms=4)
    h = encoder.hidden
    n = _square(config, encoder.patch, _fixed(config, side))
    tokens = whole.whole("mm_tokens_per_image")
    cut = 3 * encoder.patch**2 * h
    return encoder.fields(n, tokens, n * cut + tokens * h * text, cut + h + n * h + 2 * h + h * text + h)


def _llama4(whole: Reader, config: Reader, text: int, side: int) -> dict[str, Any]:
    """A tile with one more position for its class; patches are shuffled into fewer, wider ones before two products."""
    encoder = _encoder(config, layers="num_hidden_layers", gated=False, biases=True, norms=4)
    h = encoder.hidden
    n = _square(config, encoder.patch, _fixed(config, side))
    first, last, out = (config.whole(f"{x}_dim") for x in ("projector_input", "projector_output", "vision_output"))
    tokens = round(n * config.number("pixel_shuffle_ratio") ** 2)
    cut = 3 * encoder.patch**2 * h
    joined = encoder.ffn * first + first * last + out * text
    return encoder.fields(n + 1, tokens, n * cut + tokens * joined, cut + h + (n + 1) * h + 4 * h + joined)


def _pixtral(whole: Reader, config: Reader, text: int, side: int) -> dict[str, Any]:
    """RMSNorm, gated, no biases; four patches are merged, then two products."""
    encoder = _encoder(config, layers="num_hidden_layers", gated=True, biases=False, norms=2)
    unit = whole.whole("spatial_merge_size")
    h = encoder.hidden
    n = _square(config, encoder.patch, side or min(SIDE, config.whole("image_size")), unit)
    cut = 3 * encoder.patch**2 * h
    joined = unit**2 * h * h + h * text + text * text
    biases = 2 * text * whole.flag("multimodal_projector_bias")
    return encoder.fields(n, n // unit**2, n * cut + n // unit**2 * joined, cut + 2 * h + joined + biases)


Derive = Callable[[Reader, Reader, int, int], dict[str, Any]]
_PATCHES = {"patch_size": 14}
_QWEN = {"spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584}
_QWEN3 = {
    **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, **_QWEN},
    **{"num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]},
}
_QWEN2_5 = {
    **{"depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "window_size": 112, **_PATCHES, **_QWEN},
    "fullatt_block_indexes": [7, 15, 23, 31],
}
Towers = Mapping[str, tuple[Derive, Mapping[str, Any], Mapping[str, Any]]]
"""`model_type` -> how its tower is read, and the defaults of its class: the whole model's, the tower's."""
SEEING: Towers = {
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_omni"), (_qwen2_5, {}, _QWEN2_5)),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe"), (_qwen3, {}, _QWEN3)),
    "gemma3": (
        _siglip,
        {"mm_tokens_per_image": 256},
        {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "image_size": 224, "patch_size": 16},
    ),
    "llama4": (
        _llama4,
        {},
        {
            **{"num_hidden_layers": 34, "hidden_size": 768, "intermediate_size": 5632, "image_size": 448, **_PATCHES},
            **{"vision_output_dim": 7680, "projector_input_dim": 4096, "projector_output_dim": 4096},
            "pixel_shuffle_ratio": 0.5,
        },
    ),
    "mistral3": (
        _pixtral,
        {"spatial_merge_size": 2, "multimodal_projector_bias": False},
        {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "image_size": 1540, **_PATCHES},
    ),
}


def tower(config: Mapping[str, Any], text: int, asked: TowerAsked, known: Towers, where: str) -> dict[str, Any]:
    """The field `tower` of a model whose decoder is `text` wide, with what is assumed of it.

    Raises:
        WrongQuestion: a model without a tower, one that is not understood, or no images or clips of that size.
    """
    kind = str(config.get("model_type"))
    sense = "audio" if asked.sound else "vision"
    whole = Reader(config, {}, where)
    if kind not in known or not isinstance(config.get(f"{sense}_config"), dict):
        others = f"such towers are understood of model_type {', '.join(known)}"
        raise whole.wrong("model_type", f"{kind!r}: it has no {sense} tower that is understood ({others})")
    derive, outer, inner = known[kind]
    fields = derive(Reader(config, outer, where), whole.nested(f"{sense}_config", inner), text, asked.size)
    what, parts = (f"clips of {fields['seconds']} s", "positions") if asked.sound else ("images", "patches")
    seen = f"{asked.number} {what} a sequence, {fields['patches']:,} {parts} and {fields['tokens']:,} tokens each"
    how = "trained, whole on every rank of the first stage, nothing of it recomputed"
    why = f"{seen}; {how if asked.trained else 'frozen, whole on every rank of the first stage, forward alone'}"
    return {"tower": fields | {"images": asked.number, "trained": asked.trained}, "assumed": {"tower": why}}
