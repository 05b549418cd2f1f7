"""Audio towers of the Hugging Face hub, by the `model_type` of the whole model (classes of transformers 5.23.0).

All are encoders like Whisper's (arXiv 2212.04356): 100 frames of a mel spectrogram a second, convolutions that leave a
half or an eighth of them as positions, transformer blocks with LayerNorm.
"""

from __future__ import annotations

from typing import Any

from planner.models.huggingface.config_values import Reader
from planner.models.huggingface.towers import Encoder, TowerAsked, Towers, pieces

SECONDS = 30
"""Length of a clip where the question does not say it: the window that Whisper's encoder was trained on."""
LONGEST = 36_000
"""Ten hours."""
_FRAMES = 100
"""Frames of a second: hops of 160 samples at 16 kHz (the feature extractors' hop_length and sampling_rate)."""
_CHANNELS = 3 * 3
"""Weights between two channels of a two-dimensional convolution."""


def heard(text: str, trained: bool = False) -> TowerAsked:
    """``N`` or ``N@SECONDS`` as written behind --audio, and whether the tower is trained.

    Raises:
        WrongQuestion: it is something else, or out of range.
    """
    wrong = f"--audio {text!r}: must be N or N@SECONDS"
    clips, seconds = pieces(text, LONGEST, wrong, "SECONDS", f"--audio 4@{SECONDS}")
    return TowerAsked(clips, seconds, trained, sound=True)


def _blocks(config: Reader, *, layers: str, hidden: str, ffn: str, biases: int) -> Encoder:
    """Blocks with so many biases as wide as the model in attention; two LayerNorms, and the MLP's two biases."""
    h = config.whole(hidden)
    f = config.whole(ffn)
    return Encoder(config.layers(layers), h, f, False, (biases + 1 + 4) * h + f)


def _whisper(config: Reader, *, short: bool) -> tuple[Encoder, int, int]:
    """The blocks; parameters, and multiply-adds a position, of two convolutions of three frames (the second halves)."""
    names = ("d_model", "encoder_ffn_dim", "encoder_layers") if short else _LONG
    encoder = _blocks(config, hidden=names[0], ffn=names[1], layers=names[2], biases=3)  # keys have none
    h = encoder.hidden
    mel = config.whole("num_mel_bins")
    return encoder, 3 * h * (mel + h) + 2 * h, 3 * h * (2 * mel + h)


_LONG = ("hidden_size", "intermediate_size", "num_hidden_layers")


def _clip(encoder: Encoder, seconds: int, positions: int, tokens: int, **more: float) -> dict[str, Any]:
    tower_fields = encoder.fields(positions, tokens, int(more["joining"]), int(more["parameters"]), more["attended"])
    return {**tower_fields, "seconds": seconds}


def _qwen2_5(whole: Reader, config: Reader, text: int, seconds: int) -> dict[str, Any]:
    """Windows of so many positions; the mean of two becomes a token. Two more embeddings mark a clip's ends."""
    (encoder, weights, per_token), seconds = _whisper(config, short=True), seconds or SECONDS
    n = seconds * _FRAMES // 2
    out = config.whole("output_dim")
    h = encoder.hidden
    more = weights + 2 * h + 2 * out + h * out + out
    attended = min(config.whole("n_window"), n)
    return _clip(
        encoder, seconds, n, n // 2, joining=n * per_token + n // 2 * h * out, parameters=more, attended=attended
    )


def _qwen3(whole: Reader, config: Reader, text: int, seconds: int) -> dict[str, Any]:
    """Three convolutions of chunks over time and bins, each leaves a half of both; every position becomes a token, and
    sees `n_window_infer` frames.
    """
    encoder = _blocks(config, hidden="d_model", ffn="encoder_ffn_dim", layers="encoder_layers", biases=4)
    h = encoder.hidden
    c = config.whole("downsample_hidden_size")
    out = config.whole("output_dim")
    seconds = seconds or SECONDS
    chunk = 2 * config.whole("n_window")
    bins = config.whole("num_mel_bins")
    chunks = -(-seconds * _FRAMES // chunk)
    wide = bins
    long = chunk
    work = 0
    for channels in (1, c, c):
        wide = -(-wide // 2)
        long = -(-long // 2)
        work += chunks * wide * long * _CHANNELS * channels * c
    n = chunks * long
    joined = wide * c * h + h * h + h * out
    more = _CHANNELS * (c + 2 * c * c) + 3 * c + 2 * h + joined + h + out
    attended = min(config.whole("n_window_infer") // chunk * long, n)
    return _clip(encoder, seconds, n, n, joining=work + n * joined, parameters=more, attended=attended)


def _windows(config: Reader, seconds: int) -> tuple[int, int]:
    """(whole windows that a clip is padded to, positions of one), which learned positions are for."""
    longest = config.whole("max_source_positions")
    return -(-seconds * _FRAMES // (2 * longest)), longest


def _voxtral(whole: Reader, config: Reader, text: int, seconds: int) -> dict[str, Any]:
    """Clips are padded to whole windows; as many positions as the MLP is wider become a token by two products."""
    (encoder, weights, per_token), seconds = _whisper(config, short=False), seconds or SECONDS
    (windows, longest), h, f = _windows(config, seconds), encoder.hidden, encoder.ffn
    n = windows * longest
    tokens = n * h // f
    joined = f * text + text * text
    more = weights + longest * h + 2 * h + joined
    return _clip(
        encoder, seconds, n, tokens, joining=n * per_token + tokens * joined, parameters=more, attended=longest
    )


def _qwen2(whole: Reader, config: Reader, text: int, seconds: int) -> dict[str, Any]:
    """A clip has one window, padded; the mean of two positions becomes a token by one product."""
    (encoder, weights, per_token), seconds = _whisper(config, short=True), seconds or SECONDS
    (windows, n), h = _windows(config, seconds), encoder.hidden
    if windows > 1:
        raise config.wrong("max_source_positions", f"{n}: its clips have {2 * n // _FRAMES} s at most, not {seconds}")
    more = weights + n * h + 2 * h + h * text + text
    return _clip(encoder, seconds, n, n // 2, joining=n * per_token + n // 2 * h * text, parameters=more, attended=n)


_SHORT = {"d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120, "num_mel_bins": 128}
_POSITIONS = {"num_mel_bins": 128, "max_source_positions": 1500}
_DOWN = {"n_window": 50, "n_window_infer": 800, "downsample_hidden_size": 480, "output_dim": 3584}
HEARING: Towers = {
    "qwen2_audio": (_qwen2, {}, {**_SHORT, **_POSITIONS}),
    "qwen2_5_omni": (_qwen2_5, {}, {**_SHORT, "n_window": 100, "output_dim": 3584}),
    "qwen3_omni_moe": (_qwen3, {}, {**_SHORT, **_DOWN}),
    "voxtral": (_voxtral, {}, {**dict(zip(_LONG, (1280, 5120, 32), strict=True)), **_POSITIONS}),
}
