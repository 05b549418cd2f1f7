"""Reads typed, bounded values out of a config.json, naming the key and its value in every complaint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from planner.base.errors import WrongQuestion, nearest
from planner.schema.workload import MOST_LAYERS

LARGEST = 100_000_000
"""No count in a model's shape is larger."""


Meaning = TypeVar("Meaning")


class Reader:
    """One configuration and the defaults of its class; every value is checked when it is read."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> None:
        """Read `config`, falling back on `defaults`; `where` names the file in messages."""
        self._config, self._defaults, self._where = config, defaults, where

    def has(self, key: str) -> bool:
        """Whether the file (or its class) gives the key a value other than null."""
        return self.get(key) is not None

    def get(self, key: str) -> Any:
        """The raw value: the file's, else the class's default, else None."""
        return self._config[key] if key in self._config else self._defaults.get(key)

    def whole(self, key: str, otherwise: int | None = None, *, least: int = 1) -> int:
        """A whole number from `least` to 10^8; null or missing means `otherwise`, and is refused without one."""
        value = self.get(key)
        if value is None:
            if otherwise is None:
                null = key in self._config
                raise self.wrong(key, "null: must be a whole number" if null else "missing" + self._instead(key))
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"{_shown(value)}: must be a whole number")
        if not least <= value <= LARGEST:
            raise self.wrong(key, f"{_shown(value)}: must be from {least:,} to {LARGEST:,}")
        return value

    def layers(self, key: str = "num_hidden_layers") -> int:
        """A number of blocks, small enough that each can be looked at."""
        value = self.whole(key)
        if value > MOST_LAYERS:
            raise self.wrong(key, f"{value:,}: must be from 1 to {MOST_LAYERS:,}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; missing is refused unless the class has a default."""
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{_shown(value)}: must be true or false")
        return value

    def number(self, key: str) -> float:
        """A finite number of zero or more."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
            raise self.wrong(key, f"{_shown(value)}: must be a number of zero or more")
        return float(value)

    def text(self, key: str) -> str:
        """A text."""
        value = self.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, f"{_shown(value)}: must be text")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; empty where the key is null or missing."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, f"{_shown(value)}: must be a list")
        return value

    def meaning(self, key: str, word: Any, known: Mapping[str, Meaning]) -> Meaning:
        """What a word in a list (or text) under `key` stands for."""
        if not isinstance(word, str) or word not in known:
            raise self.wrong(key, f"{_shown(word)}: not understood; it can be {', '.join(known)}")
        return known[word]

    def indices(self, key: str) -> frozenset[int]:
        """A list of blocks, counted from 0; empty where the key is null or missing."""
        values = self.items(key)
        layers = self.layers()
        for index in values:
            if type(index) is not int or not 0 <= index < layers:
                raise self.wrong(key, f"{_shown(index)}: must be blocks from 0 to {layers - 1:,}")
        return frozenset(values)

    def nested(self, key: str, defaults: Mapping[str, Any]) -> Reader:
        """An object inside this one; without it, its defaults."""
        return Reader(self.object(key), defaults, f"{self._where}: {key}")

    def object(self, key: str) -> Mapping[str, Any]:
        """An object as it stands; empty where the key is null or missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, f"{_shown(value)}: must be an object")
        return value or {}

    def wrong(self, key: str, problem: str) -> WrongQuestion:
        """The complaint about one key."""
        return WrongQuestion(f"{self._where}: {key}{'' if problem.startswith('missing') else ' ='} {problem}")

    def _instead(self, key: str) -> str:
        near = nearest(key, self._config)
        return f"; did you mean {key} by {near[0]!r}?" if near else ""


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool | None) else {True: "true", False: "false", None: "null"}[value]
    return text if len(text) <= 40 else f"{text[:37]}..."


Derive = Callable[[Reader], dict[str, Any]]


@dataclass(frozen=True)
class Architecture:
    """How one `model_type` writes its shape."""

    keys: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    derive: tuple[Derive, ...] = ()


COMMON = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "ffn": "intermediate_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}
UNTIED = {"tie_word_embeddings": False}
TIED = {"tie_word_embeddings": True}
CLASSIC = {
    "gated": False,
    "norm": "layer",
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
}
ATTENTION_BIAS = {"qkv_bias": "attention_bias", "output_bias": "attention_bias"}
