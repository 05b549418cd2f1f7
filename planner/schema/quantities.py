"""Field types of the records that are read from files: text with a unit in, an SI float out."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from planner import units

STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
"""Every record refuses keys that it does not know, and numbers that are none."""


def _quantity(dimension: str, **bounds: Any) -> Any:
    """A float field of one dimension, e.g. ``_quantity("bytes", gt=0)`` reads ``"80 GiB"``."""
    return Annotated[
        float,
        BeforeValidator(partial(units.parse, dimension=dimension)),
        Field(json_schema_extra={"unit": dimension}, **bounds),
    ]


Bytes = _quantity("bytes", gt=0)
Bandwidth = _quantity("bandwidth", gt=0)
"""Bytes per second, in one direction."""
Compute = _quantity("compute", gt=0)
"""Floating-point (or integer) operations per second, dense."""
Seconds = _quantity("time", ge=0)
Watts = _quantity("power", gt=0)
Usd = _quantity("money", ge=0)
UsdPerKwh = _quantity("energy price", ge=0)
GramsPerKwh = _quantity("carbon intensity", ge=0)
Count = Annotated[int, Field(ge=1)]
Tokens = _quantity("count", gt=0)
Fraction = Annotated[float, Field(gt=0, le=1)]
