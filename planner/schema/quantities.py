"""Field types of the records that are read from files: text with a unit in, an SI float out."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo

from planner.base import units

STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
"""Every record refuses keys that it does not know, and numbers that are none."""


SI = {"bytes": "B", "bandwidth": "B/s", "compute": "FLOP/s"}
EXAMPLES = {"B": "80 GiB", "B/s": "4.8 TB/s", "FLOP/s": "989 TFLOP/s"}
SMALLEST = 1e6
"""A bare number below was meant in another unit: the smallest of the catalog is a cache of 1.6 MB (K80)."""


def _read(dimension: str) -> BeforeValidator:
    """Reads text such as ``"80 GiB"``; a bare number only where the context says that it is SI."""
    return BeforeValidator(partial(_quantity, dimension=dimension))


def _quantity(value: Any, info: ValidationInfo, *, dimension: str) -> float:
    plain = bool(info.context) and isinstance(value, int | float)
    amount = units.parse(value, "count" if plain else dimension)
    if plain and 0 < amount < SMALLEST and (unit := SI.get(dimension)):
        raise units.UnitError(
            f"a bare number is in {unit}, and that is too little; write for example '{EXAMPLES[unit]}'"
        )
    return amount


def _field(dimension: str, **bounds: Any) -> Any:
    return Field(json_schema_extra={"unit": dimension}, **bounds)


Bytes = Annotated[float, _read("bytes"), _field("bytes", gt=0)]
Bandwidth = Annotated[float, _read("bandwidth"), _field("bandwidth", gt=0)]
"""Bytes per second, in one direction."""
Compute = Annotated[float, _read("compute"), _field("compute", gt=0)]
"""Floating-point (or integer) operations per second, dense."""
Seconds = Annotated[float, _read("time"), _field("time", ge=0)]
Watts = Annotated[float, _read("power"), _field("power", gt=0)]
Usd = Annotated[float, _read("money"), _field("money", ge=0)]
UsdPerKwh = Annotated[float, _read("energy price"), _field("energy price", ge=0)]
GramsPerKwh = Annotated[float, _read("carbon intensity"), _field("carbon intensity", ge=0)]
Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[float, _read("count"), _field("count", ge=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
