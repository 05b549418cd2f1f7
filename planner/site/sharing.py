"""A site's rows for others: figures and public words, nothing of who ran them, on which machines, or when.

The rules are column by column: which text a cell of a measured row may hold (``--set``), and what a shared row shows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from planner.base.errors import meant
from planner.base.units import format_many
from planner.calibration.runs import names
from planner.calibration.runs.columns import SWITCHES, TASKS
from planner.calibration.runs.reading import REQUIRED
from planner.catalog import Catalog
from planner.models.workload import library
from planner.site import row_words
from planner.site.folder import COLUMNS, OWN, Row

NEEDED = tuple(column for column in REQUIRED if column not in ("id", "source", "model"))
"""Columns without which a row says nothing to anybody."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Rows as the text of a CSV, and what of the journal is not in them."""

    text: str
    rows: int
    notes: tuple[str, ...]


def shared(rows: Sequence[Row], catalog: Catalog) -> Shared:
    """The rows with ids that are numbered, and with no cell that says more than figures and public words.

    Arguments:
        rows: Of the journal.
        catalog: The built-in one: what a site calls its own hardware is a name.
    """
    plain = [_plain(row, catalog) for row in rows]
    kept = [row for row in plain if all(row.get(column) for column in NEEDED)]
    file = io.StringIO()
    table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(row | {"id": f"shared-{number}", "source": "shared"} for number, row in enumerate(kept, 1))
    return Shared(file.getvalue(), len(kept), tuple(_notes(rows, plain, len(kept))))


def _plain(row: Row, catalog: Catalog) -> dict[str, str]:
    plain = {column: text for column, text in row.items() if text and public(column, text, catalog)}
    return {"model": f"{plain.get('layers', '')}x{plain.get('hidden', '')}", **plain}


def _notes(rows: Sequence[Row], plain: Sequence[Row], kept: int) -> list[str]:
    """Which columns lost a cell that was no figure and no public word, and how many rows are of nothing public."""
    pairs = list(zip(rows, plain, strict=True))
    lost = [
        column
        for column in COLUMNS
        if column not in OWN and any(row.get(column, "") != to.get(column, "") for row, to in pairs)
    ]
    notes = [f"cells with words of your own are left out, of {', '.join(lost)}"] if lost else []
    if fewer := len(rows) - kept:
        notes.append(
            f"{format_many(fewer, 'row')} left out: not one of the built-in accelerators, or without its counts"
        )
    return notes


COUNTS = (
    *("num_accelerators", "accelerators_per_node", "seq_len", "global_batch_seqs", "micro_batch"),
    *("tp", "pp", "vpp", "cp", "ep", "etp", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab"),
    *("num_experts", "topk", "moe_ffn_hidden", "steps"),
)
MEASURED = ("step_time_s", "step_time_spread", "memory_gb_per_gpu")
WORDS: Mapping[str, Collection[str]] = {
    "family": ("dense", "moe", "encoder", "cnn", "dlrm"),
    "task": TASKS,
    "precision": ("bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4", "tf32", "fp32"),
    "zero_stage": ("0", "1", "2", "3"),
    **dict.fromkeys(SWITCHES, ("0", "1")),
    "grade": ("A", "B", "C"),
    "metric": ("oom",),
    "memory_kind": ("max reserved", "max allocated", "analytic"),
}
"""Column -> its words; of what else it may hold, `--set` takes notes alone."""
_RECOMPUTED = re.compile(r"none|selective(:[a-z_+]{3,60})?|full|block:[1-9]\d{0,3}", re.ASCII)
_PORTS = re.compile(r"\d+\s*x\s*\d+(?:\.\d+)? ?[GT]b(?:it/s|ps)?", re.ASCII)
"""``8x400 Gb``; more than that may be somebody's name for it."""
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    **dict.fromkeys(COUNTS, (re.compile(r"[1-9]\d{0,11}", re.ASCII), "a whole number of at least 1")),
    **dict.fromkeys(MEASURED, (re.compile(r"\d{1,12}(\.\d{1,12})?(e-?\d{1,2})?", re.ASCII), "a number")),
    "activation_recompute": (_RECOMPUTED, "none, selective, selective:MODULE+MODULE, full or block:N"),
    "inter_node_network": (_PORTS, "ports and their rate, as 8x400 Gb"),
    "release": (re.compile(r"v?\d{1,6}(\.\d{1,4}){0,3}", re.ASCII), "a release, as 26.04"),
}
"""Column -> form of its text, and that in words."""


def wrong(column: str, text: str, catalog: Catalog) -> str:
    """What a cell should be where it is something else, with the nearest word that would be right; empty if it is
    right. A model's name and notes may be anything, and columns that no one here knows.
    """
    if column in ("notes", "model") or not text:
        return ""
    if column in _FORMS:
        pattern, form = _FORMS[column]
        return "" if pattern.fullmatch(text) else f"must be {form}"
    if (known := _words(column, catalog)) is None or _is_known(column, text, known):
        return ""
    listed = meant(text, known, f"{', '.join(list(known)[:8])} are known")
    return f"no such {column.replace('_', ' ')}; {listed}"


def _words(column: str, catalog: Catalog) -> Collection[str] | None:
    """The words that a column knows; None where it takes any."""
    named = {"accelerator": catalog.accelerators, "runtime": catalog.runtimes, "framework": catalog.runtimes}
    return named.get(column, WORDS.get(column))


def _is_known(column: str, text: str, known: Collection[str]) -> bool:
    if column == "accelerator":
        return names.accelerator(text, known) in known
    if column != "runtime":
        return text in known
    name, at, release = text.partition("@")
    return name in known and (not at or _FORMS["release"][0].fullmatch(release) is not None)


def public(column: str, text: str, catalog: Catalog) -> bool:
    """Whether a cell says nothing but what the words of the public catalog and library say."""
    if column == "accelerator":
        return text in catalog.accelerators  # as published tables write it may say more than it names
    if column == "model":
        return text in library()
    if column == "notes":
        return row_words.are_ours(text)
    known = _words(column, catalog)
    return (column in _FORMS or known is not None) and not wrong(column, text, catalog)
