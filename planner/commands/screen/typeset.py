"""Plain-text typesetting: columns aligned on the decimal point, narrow tables, folded lines. Text in, lines out."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

GAP = "  "
EMPTY = "-"

_NUMBER = re.compile(r"([-+<>~≈]?\s?[-+]?\$?\d[\d,]*)((?:\.\d+)?\S*)(.*)")
"""Whole part, decimals with the unit that sticks to them, what follows a space: ``68``, ``.9``, `` / 80 GiB``."""
_LABEL = re.compile(r"\s*\S(?:\S| (?! ))*\s{2,}(?=\S)")
"""A label at the start of a line: words behind which at least two spaces stand."""
LONGEST_LABEL = 24
CONTINUED = 16
"""Rows of a table up to which columns that do not fit go on below: nobody reads a long list twice."""
LEAST_FOLDED = 30
"""Characters of a column that is broken over lines, at least."""
_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[^\s\d=]+(?:\s|$))")
"""The space between a number and its unit: in ``tp=8 pp=2`` there is none."""
_BREAK = "\1"
"""Stands where a word that is wider than a line may be broken: behind its commas and colons."""
_GLUE = "\0"
"""Stands for the space between a number and its unit while a line is folded, so that they stay together."""


class Table(NamedTuple):
    """A table as lines, without trailing spaces."""

    blocks: list[list[str]]
    """Side by side what fits, and below it what does not, beside the first column again; the header is a line of its
    own in each."""
    alike: list[str]
    """``TP 8``: columns of a narrow table that say the same in every row, and are said once in place of that."""
    hidden: list[str]
    """Headers of columns that had to be dropped."""


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    align: str = "",
    priority: Sequence[str | int] | None = None,
    width: int | None = None,
    folded: str | None = None,
) -> Table:
    """Lay out a table in at most `width` characters (None: as wide as it is).

    The column `folded` is broken over lines first. What does not fit still: columns that are the same in all rows are
    said once; those of `priority` are dropped if that is enough; else a short table goes on below, and a long one drops
    the others, too.
    """
    if align and len(align) != len(headers):
        raise ValueError(f"align {align!r} has {len(align)} letters for {len(headers)} columns")
    cells = [[cell(row[i]) for row in rows] for i in range(len(headers))]
    columns = [_column(header, cells[i], align[i : i + 1]) for i, header in enumerate(headers)]
    sizes = [_display_width(column[0]) for column in columns]
    broken = headers.index(folded) if folded is not None and width is not None else None
    if broken is not None:
        sizes[broken] = min(sizes[broken], LEAST_FOLDED)
    every = list(range(len(headers)))
    alike = [] if _fits(sizes, every, width) else [i for i in every[1:] if i != broken and _all_the_same(cells[i])]
    varying = [i for i in every if i not in alike]
    drop = [i for i in _drop_order(headers, priority, rest=len(rows) > CONTINUED) if i in varying]
    kept = _fitting(sizes, varying, drop, width)
    if len(rows) <= CONTINUED and not _fits(sizes, kept, width):
        kept = varying
    blocks = []
    for part in _side_by_side(sizes, kept, width):
        shown, long = columns, broken if broken in part else part[-1] if not _fits(sizes, part, width) else None
        if long and width is not None:
            room = width - sum(sizes[i] + len(GAP) for i in part if i != long)
            shown = _broken(columns, long, max(room, 1))
        lines = [GAP.join(shown[i][line] for i in part).rstrip() for line in range(len(shown[0]))]
        blocks.append([line if width is None else _clipped(line, width) for line in lines])
    once = [f"{headers[i]} {cells[i][0]}".strip() for i in alike]
    return Table(blocks, once, [headers[i] for i in varying if i not in kept])


def _all_the_same(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and len(set(cells)) == 1


def _broken(columns: Sequence[list[str]], broken: int, room: int) -> list[list[str]]:
    """The columns with the lines of one broken at spaces, and nothing in the others beside what it goes on with."""
    parts = [textwrap.wrap(text, room, break_long_words=False) or [""] for text in columns[broken]]
    size = min(room, max(_display_width(part) for each in parts for part in each))
    found: list[list[str]] = []
    for i, column in enumerate(columns):
        blank = " " * _display_width(column[0])
        if i == broken:
            found.append([_pad(part, size, right=False) for each in parts for part in each])
        else:
            found.append([line for n, each in enumerate(parts) for line in (column[n], *[blank] * (len(each) - 1))])
    return found


def cell(value: object) -> str:
    """One cell as text on one line."""
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return harmless(str(value)).strip()


def harmless(line: str) -> str:
    """The line without control characters, which could steer a terminal: they become spaces."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") else char for char in line)


def hidden_note(hidden: Sequence[str], width: int | None) -> str:
    """The line below a narrowed table that says what it left out."""
    names = [name for name in hidden if name]
    note = f"not shown: {', '.join(names)}"
    fits = names and (width is None or len(note) <= width)
    return note if fits else _clipped(f"{len(hidden)} columns not shown", width or 80)


def label_width(line: str) -> int:
    """Characters of the label that a line starts with, up to the text behind it; 0 without one."""
    match = _LABEL.match(line)
    return len(match[0]) if match and not line[0].isspace() and len(match[0]) <= LONGEST_LABEL else 0


def fold(line: str, width: int) -> list[str]:
    """Fold a line at spaces; its continuation hangs under the text behind the label, or under the line's own start."""
    indent = label_width(line) or len(line) - len(line.lstrip())
    if indent >= width // 2:
        indent = 0
    parts = re.sub(rf"\S{{{width - indent + 1},}}", lambda word: re.sub("[,:]", rf"\g<0>{_BREAK} ", word[0]), line)
    folded = textwrap.wrap(
        _NUMBER_AND_UNIT.sub(_GLUE, parts),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return [part.replace(_GLUE, " ").replace(f"{_BREAK} ", "").replace(_BREAK, "") for part in folded] or [""]


# ---- columns ---------------------------------------------------------------------------------------------------------


def _column(header: str, cells: list[str], align: str) -> list[str]:
    """A column's header and cells, all padded to the same width."""
    right = align == "r" or (not align and _numeric(cells))
    body = _on_the_point(cells) if right else cells
    size = max([_display_width(text) for text in (header, *body)])
    return [_pad(text, size, right=right) for text in (header, *body)]


def _numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers: at least one, and besides them only empty cells."""
    filled = [text for text in cells if text not in ("", EMPTY)]
    return bool(filled) and all(_NUMBER.fullmatch(text) for text in filled)


def _on_the_point(cells: Sequence[str]) -> list[str]:
    """Pad the cells so that the decimal points stand below one another; cells without a number are left alone."""
    parts = [_NUMBER.fullmatch(text) for text in cells]
    sizes = [max((len(part[group]) for part in parts if part), default=0) for group in (1, 2, 3)]
    return [
        f"{part[1]:>{sizes[0]}}{part[2]:<{sizes[1]}}{part[3]:<{sizes[2]}}" if part else text
        for part, text in zip(parts, cells, strict=True)
    ]


def _pad(text: str, size: int, *, right: bool) -> str:
    space = " " * (size - _display_width(text))
    return space + text if right else text + space


def _display_width(text: str) -> int:
    """Columns that a text takes on a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


# ---- narrow terminals ------------------------------------------------------------------------------------------------


def _drop_order(headers: Sequence[str], priority: Sequence[str | int] | None, *, rest: bool) -> list[int]:
    """Indices of the columns in the order in which they go: those named, then, if asked, the rest from the right."""
    named = [entry if isinstance(entry, int) else list(headers).index(entry) for entry in priority or ()]
    others = [i for i in range(len(headers) - 1, 0, -1) if i not in named] if rest else []
    return [i for i in (*named, *others) if i != 0]


def _fits(sizes: Sequence[int], columns: Sequence[int], width: int | None) -> bool:
    return width is None or sum(sizes[i] for i in columns) + len(GAP) * (len(columns) - 1) <= width


def _fitting(sizes: Sequence[int], columns: Sequence[int], drop: Sequence[int], width: int | None) -> list[int]:
    """Those of the columns that fit side by side after dropping as few as need be, in the given order."""
    kept = list(columns)
    for victim in drop:
        if _fits(sizes, kept, width):
            break
        kept.remove(victim)
    return kept


def _side_by_side(sizes: Sequence[int], columns: Sequence[int], width: int | None) -> list[list[int]]:
    """The columns in as many parts as the width asks for, each with the first of them."""
    first, *rest = columns
    parts = [[first]]
    for column in rest:
        if len(parts[-1]) > 1 and not _fits(sizes, [*parts[-1], column], width):
            parts.append([first])
        parts[-1].append(column)
    return parts


def _clipped(line: str, width: int) -> str:
    """Cut a line that is still too long, showing that it was cut."""
    return line if _display_width(line) <= width else line[: max(0, width - 1)] + "…"


_BLOCKS = " ▁▂▃▄▅▆▇█"


def spark(values: list[float | None]) -> str:
    """Values as a line of blocks, one each, the lowest to the highest; ``x`` where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    wide = high - low if high - low > 1e-4 * abs(high) else 0.0
    return "".join(
        "x" if value is None else _BLOCKS[1 + round((len(_BLOCKS) - 2) * (value - low) / wide)] if wide else _BLOCKS[1]
        for value in values
    )
