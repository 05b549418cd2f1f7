"""The model's record out of the shape that a document carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.base import typed
from planner.schema.workload import Model


def read(shape: Mapping[str, Any]) -> Model:
    """The model's record, every field in its range.

    Raises:
        ValueError: a field is missing, unknown or out of range: up to ten of them, each with its key and value.
    """
    try:
        return typed.record(Model, dict(shape))
    except typed.Misfit as error:
        problems = (f"{'.'.join(map(str, finding.where))} {finding.assigned}" for finding in error.found[:10])
        raise ValueError("; ".join(problems)) from None
