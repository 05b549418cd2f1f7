"""What a page is made of: sections of lines, tables, charts and drawings. Text only; the template escapes all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal


@dataclass(frozen=True, slots=True)
class Lines:
    """Labels, and what is stated under each."""

    form: ClassVar[str] = "lines"
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as a reader sees it; the first column names the row."""

    form: ClassVar[str] = "table"
    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    ids: Sequence[str] = ()
    """Of rows that a chart's points stand for, in order."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite specification, what it shows in a sentence, and the same figures as a table."""

    form: ClassVar[str] = "chart"
    title: str
    summary: str
    spec: dict[str, Any]
    table: TextTable


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines with texts; figures in pixels of the drawing."""

    form: ClassVar[str] = "drawing"
    title: str
    summary: str
    width: float
    height: float
    boxes: Sequence[Box]
    wires: Sequence[Wire]
    texts: Sequence[Caption]
    table: TextTable


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; what it stands for is its `title`."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""
    colour: int | None = None
    """Place in the palette; None: an outline."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Wire:
    """A line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Caption:
    """Caption whose base line begins (or ends) at a point."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True, slots=True)
class Sliders:
    """What is in proportion to tokens and price: a run's days and US dollars."""

    form: ClassVar[str] = "linear"
    tokens: float
    days: float
    usd_per_accelerator_hour: float | None
    accelerators: int


Block = Lines | TextTable | Chart | Drawing | Sliders


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under a heading."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Content:
    """All that a page shows of one document."""

    title: str
    origin: str
    """Its file's name, or its kind."""
    sections: Sequence[Section]
