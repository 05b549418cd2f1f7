"""Axes of a plan as keywords: of a dictionary of pins, and of a function.

A type checker reads these, so that they are written out; tests/test_questions.py holds them to :mod:`planner.axes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

UNSET: Any = None
"""What an axis is that a question does not name."""


class Axes(TypedDict, total=False):
    """Axes of a plan. Several values to try are a list, a text (``"1|2"``) or a range (``"1..8"``)."""

    tp: int | str | Sequence[int]
    pp: int | str | Sequence[int]
    vpp: int | str | Sequence[int]
    cp: int | str | Sequence[int]
    ep: int | str | Sequence[int]
    etp: int | str | Sequence[int]
    cp_algorithm: str
    schedule: str | Sequence[str]
    dp: int | str | Sequence[int]
    micro: int | str | Sequence[int]
    zero: int | str | Sequence[int]
    zero_scope: str
    recompute: str | Sequence[str]
    sequence_parallel: bool | str
    tp_overlap: bool | str
    dp_overlap: bool | str
    p2p_overlap: bool | str
    ep_overlap: bool | str
    rank_order: str
    offload: str
    offload_overlap: bool | str
    activation_offload: str
    graphs: str
    dispatcher: str
    placement: str
    attention_kernel: str | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class GivenAxes:
    """Every axis as a keyword of :func:`planner.estimate`."""

    tp: int | str | Sequence[int] = UNSET
    pp: int | str | Sequence[int] = UNSET
    vpp: int | str | Sequence[int] = UNSET
    cp: int | str | Sequence[int] = UNSET
    ep: int | str | Sequence[int] = UNSET
    etp: int | str | Sequence[int] = UNSET
    cp_algorithm: str = UNSET
    schedule: str | Sequence[str] = UNSET
    dp: int | str | Sequence[int] = UNSET
    micro: int | str | Sequence[int] = UNSET
    zero: int | str | Sequence[int] = UNSET
    zero_scope: str = UNSET
    recompute: str | Sequence[str] = UNSET
    sequence_parallel: bool | str = UNSET
    tp_overlap: bool | str = UNSET
    dp_overlap: bool | str = UNSET
    p2p_overlap: bool | str = UNSET
    ep_overlap: bool | str = UNSET
    rank_order: str = UNSET
    offload: str = UNSET
    offload_overlap: bool | str = UNSET
    activation_offload: str = UNSET
    graphs: str = UNSET
    dispatcher: str = UNSET
    placement: str = UNSET
    attention_kernel: str | Sequence[str] = UNSET

    def given(self) -> dict[str, object]:
        """Axis -> value of those that the question names."""
        values = {name: getattr(self, name) for name in Axes.__annotations__}
        return {name: value for name, value in values.items() if value is not UNSET}
