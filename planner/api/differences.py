"""Two documents leaf by leaf: which of their values differ."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SAME = 1e-12
"""Relative: what two machines' floating-point libraries may make of one formula."""
LARGEST = sys.float_info.max
"""Whole numbers beyond have no float to compare."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A leaf of a document that has another value today."""

    path: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.before)} in the document, {_shown(self.now)} today"


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else f"{value!r:.80}"


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every place in a document that holds nothing else, with what stands there."""
    if isinstance(value, Mapping | list) and value:
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def differences(before: object, now: object) -> Iterator[Difference]:
    """Leaves that are not the same in two documents; what one of them lacks is None there."""
    old, new = dict(leaves(before)), dict(leaves(now))
    for path in [*old, *(path for path in new if path not in old)]:
        if not _same(old.get(path), new.get(path)):
            yield Difference(path, old.get(path), new.get(path))


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if isinstance(one, int) and isinstance(other, int):
            return one == other  # also where no float is as large
        return one == other or (max(abs(one), abs(other)) < LARGEST and math.isclose(one, other, rel_tol=SAME))
    return one == other
