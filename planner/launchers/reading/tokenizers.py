"""Vocabularies of tokenizers, where a command leaves its own to one."""

from __future__ import annotations

from planner.launchers.reading.found_options import Options, number
from planner.launchers.reading.trainer_dialects import library_name
from planner.models import workload

_KINDS = {"GPT2BPETokenizer": 50_257, "Llama2Tokenizer": 32_000}
"""Kind of tokenizer -> words (megatron/training/tokenizer of core_v0.16.1): GPT-2's, Llama 2's."""
PATCHED = {
    **dict.fromkeys(("QwenTokenizer", "Qwen2Tokenizer", "Qwen3Tokenizer"), 151_643),
    **dict.fromkeys(("LLamaTokenizer", "LLama2Tokenizer", "MixtralTokenizer", "MistralTokenizer"), 32_000),
    "LLama3Tokenizer": 128_000,
    "DeepSeekV2Tokenizer": 100_000,
    "BloomTokenizerFromHF": 250_880,
    "StarcoderTokenizerFromHF": 49_152,
}
"""Tokenizer of Pai-Megatron-Patch -> words, before those that ``--extra-vocab-size`` adds
(alibaba/Pai-Megatron-Patch@a098ca5 megatron_patch/tokenizer/__init__.py; BLOOM and StarCoder whole)."""
USUAL = "GPT2BPETokenizer"
"""What ``pretrain_gpt.py`` takes where a command names none, and older releases with it."""
_NAMES = ("tokenizer-model", "tokenizer-name-or-path", "tokenizer-name", "load")
"""Options that name a tokenizer, or a model with one."""


def vocabulary(flags: Options) -> tuple[int, str] | None:
    """(words of the tokenizer, what it is) of a command; None where neither its kind nor its name is known."""
    kind = "".join(flags.get("tokenizer-type", [USUAL if {"vocab-file", "merge-file"} <= flags.keys() else ""]))
    if kind in _KINDS:
        return _KINDS[kind], kind
    patched = "".join(flags.get("patch-tokenizer-type", [])[:1])
    if patched in PATCHED:
        more = 0 if patched.endswith("FromHF") else number(flags, "extra-vocab-size", 0) or 0
        return PATCHED[patched] + more, patched
    for name in _NAMES:
        for part in reversed("".join(flags.get(name, [])).split("/")):
            if (known := library_name(part)) in workload.library():
                return workload.model(known).vocab, f"{part}, as {known} has"
    return None
