"""Hydra's overrides and OmegaConf's YAML, which verl and NeMo-RL are configured with, to keys with dots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.base.errors import WrongQuestion

SHIPPED = re.compile(r"(one_step_off_|fully_async_)?ppo_(megatron_)?trainer(\.yaml)?")
"""Names of verl's own configurations."""
_FOLDER = re.compile(r"((\./)?|.*\bverl/(trainer|experimental/\w+)/)config/?")
CONFIGURATION = {
    "--config-name": ("config-name", SHIPPED), "-cn": ("config-name", SHIPPED),
    "--config-path": ("config-path", _FOLDER), "-cp": ("config-path", _FOLDER),
    "--config-dir": ("config-dir", _FOLDER), "-cd": ("config-dir", _FOLDER),
}  # fmt: skip
"""Hydra's options -> what is refused by that name where it is not verl's own."""
PARTS = ("legacy_data", "rollout", "hf_model", "reward", "reward_model", "rollout_correction")
"""Of which verl's own configurations are made, beside those that are named after the engine."""


def flat(values: Mapping[str, Any], before: str = "", over: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keys with dots of mappings in mappings, with what ``${...}`` inserts; values of a command line (`over`) lead,
    are inserted, and stand as they are.
    """
    led = over or {}
    whole = {**dict(_flat(values, before)), **led}
    return {name: value if name in led else _inserted(value, name, whole) for name, value in whole.items()}


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

    Configurations of the user's own, parts that are replaced (``group@key=part``) and keys that are taken out
    (``~key``) are values, too, so that a reader refuses them by name.
    """
    values: dict[str, Any] = {}
    for at, text in enumerate(words):
        key, equals, value = text.partition("=")
        if key in CONFIGURATION:
            name = value if equals else "".join(words[at + 1 : at + 2])
            what, own = CONFIGURATION[key]
            if not own.fullmatch(name):
                values[what] = name
            elif what == "config-name":
                values["model_engine"] = "megatron" if "megatron" in name else values.get("model_engine")
        elif re.fullmatch(r"~[A-Za-z_][\w./@-]*", key):
            values[key] = "taken out"
        elif equals and re.fullmatch(r"\+{0,2}[A-Za-z_]\w*([./@][\w-]+)*", key):
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


def inherited_engine(defaults: Any) -> str | None:
    """The engine of what a YAML inherits: verl's own configurations, or the parts that these are made of.

    Raises:
        WrongQuestion: it inherits another configuration.
    """
    engine = None
    for entry in defaults if isinstance(defaults, list | tuple) else [defaults]:
        key, part = next(iter(entry.items())) if isinstance(entry, dict) and entry else (entry, None)
        name = str(key)
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
