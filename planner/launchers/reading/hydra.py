"""Hydra's overrides and OmegaConf's YAML, which verl and NeMo-RL are configured with, to keys with dots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.base.errors import WrongQuestion

SHIPPED = re.compile(r"(one_step_off_|fully_async_)?ppo_(megatron_)?trainer(\.yaml)?")
"""Names of verl's own configurations."""
PARTS = ("legacy_data", "rollout", "hf_model", "reward", "reward_model", "rollout_correction")
"""Of which verl's own configurations are made, beside those that are named after the engine."""


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Keys with dots of mappings in mappings, with what ``${...}`` inserts."""
    whole = dict(_flat(values, before))
    return {name: _inserted(value, name, whole) for name, value in whole.items()}


def _flat(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _inserted(value: Any, name: str, values: Mapping[str, Any]) -> Any:
    """A value in which OmegaConf's ``${key}``, ``${.key}``, ``${oc.select:key,default}`` and NeMo-RL's ``${mul:a,b}``
    are put in, innermost first.
    """
    for _ in range(9):
        inner = re.search(r"\$\{([^${}]+)\}", value) if isinstance(value, str) else None
        if inner is None:
            break
        what, _, operands = inner[1].rpartition(":")
        key, *others = (part.strip() for part in operands.split(","))
        key = f"{name.rpartition('.')[0]}{key}" if key.startswith(".") else key
        if what in ("mul", "div") and others and all(re.fullmatch(r"\d{1,9}", part) for part in (key, *others[:1])):
            put: Any = int(key) * int(others[0]) if what == "mul" else int(key) // max(int(others[0]), 1)
        else:
            put = values.get(key, word(others[0]) if others else None)
        value = put if inner[0] == value else value.replace(inner[0], str(put))
    return value


def overrides(words: tuple[str, ...]) -> dict[str, Any]:
    """``key=value`` of Hydra's command line, ``+key=value`` and ``++key=value``, and ``--config-name``.

    Raises:
        WrongQuestion: a value that the text does not set.
    """
    values: dict[str, Any] = {}
    for at, text in enumerate(words):
        if text.startswith("--config-name"):
            name = text.partition("=")[2] or "".join(words[at + 1 : at + 2])
            values["model_engine"] = "megatron" if "megatron" in name else values.get("model_engine")
        key, equals, value = text.partition("=")
        if equals and re.fullmatch(r"\+{0,2}[A-Za-z_]\w*([./][\w-]+)*", key):
            values[key.lstrip("+")] = word(value)
    return values


def word(text: str) -> Any:
    """A scalar of Hydra's grammar or YAML."""
    plain = text.strip().strip("\"'")
    if plain.lower() in ("true", "false", "null", "none"):
        return {"true": True, "false": False}.get(plain.lower())
    if re.fullmatch(r"-?\d{1,15}", plain):
        return int(plain)
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+|\d+(\.\d*)?e-?\d+)", plain, re.IGNORECASE):
        return float(plain)
    return plain


def inherited_engine(defaults: Sequence[Any]) -> str | None:
    """The engine of what a YAML inherits: verl's own configurations, or the parts that these are made of.

    Raises:
        WrongQuestion: it inherits another configuration.
    """
    engine = None
    for entry in [defaults] if isinstance(defaults, str) else defaults:
        name, part = next(iter(entry.items())) if isinstance(entry, dict) and entry else (str(entry), None)
        if name == "model_engine":
            engine = str(part)
        elif SHIPPED.fullmatch(name):
            engine = "megatron" if "megatron" in name else "dp"
        elif name != "_self_" and not (part in PARTS or str(part).startswith("${model_engine}_")):
            raise WrongQuestion(
                f"--from verl: defaults {name:.60}: read are ppo_trainer and ppo_megatron_trainer; --ignore defaults "
                "prices the rest without"
            )
    return engine
