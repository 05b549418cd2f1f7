"""Norms and rotary positions of a plan's model, as several trainers ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.launchers.target import Loss, Values

UNKNOWN_BASE = 500_000.0
"""Llama 3's."""


def rotary(shape: dict[str, Any]) -> dict[str, Any] | None:
    """The model's rotary positions, where they are known."""
    found: dict[str, Any] | None = shape.get("rotary")
    return found


def base(shape: dict[str, Any], values: Values) -> float:
    """Of the angles: as set, the model's own, or Llama 3's."""
    known = rotary(shape)
    return float(values["rotary-base"] or (known["base"] if known else UNKNOWN_BASE))


def unknown(shape: dict[str, Any], epsilon: str) -> Iterator[Loss]:
    """What no source said of the model, so that the launcher's own holds; `epsilon` is that of its norms."""
    if shape.get("norm_epsilon") is None:
        yield Loss("workload.shape.norm_epsilon", f"not known of this model: the launcher's {epsilon} holds")
    if rotary(shape) is None and not shape["learned_positions"]:
        assumed = f"unscaled, in every layer, base {UNKNOWN_BASE:.0f} unless --set rotary-base= overrides it"
        yield Loss("workload.shape.rotary", f"not known of this model: {assumed}")
