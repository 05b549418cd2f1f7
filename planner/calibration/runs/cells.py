"""Cells of a runs file: text to numbers, or a reason why the row cannot be predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping

LARGEST = 1e30
"""Nothing that a run has is more, and products of a few such cells are still numbers."""


class Unpredictable(Exception):
    """A row that cannot be predicted, and why."""


def number(row: Mapping[str, str], name: str) -> float | None:
    """A cell as a number that can be one of a run; None if it is empty or none."""
    text = (row.get(name) or "").strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if abs(value) <= LARGEST else None


def required(row: Mapping[str, str], name: str) -> float:
    """A cell that must be a positive number."""
    value = number(row, name)
    if value is None or value <= 0:
        raise Unpredictable(f"{name} is not stated")
    return value


def whole(row: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A cell as a count of at least one."""
    value = number(row, name)
    return default if value is None or value < 1 else int(value)
