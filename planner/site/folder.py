"""A site on the disk: ``site.toml``, its journal ``runs.csv``, and ``catalog/`` with what was fitted to it."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planner.base import csv_rows, locking, writing
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.site import profile
from planner.site.profile import SiteProfile

PROFILE, RUNS, CATALOG = "site.toml", "runs.csv", "catalog"
VARIABLE = "CLUSTERWRIGHT_SITE"
"""Environment variable that names the folder where ``--site`` does not."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site's folder, with its profile read."""

    folder: Path
    profile: SiteProfile

    @property
    def runs(self) -> Path:
        """The journal of measured runs."""
        return self.folder / RUNS

    @property
    def fit(self) -> Path:
        """What the last fit to the journal found."""
        return self.folder / "fit.json"

    @property
    def catalog(self) -> Path:
        """The site's own hardware and what was fitted to its runs: a catalog folder."""
        return self.folder / CATALOG


def named(folder: Path | None) -> Site | None:
    """The site that ``--site`` or ``CLUSTERWRIGHT_SITE`` names; None if neither does.

    Raises:
        WrongQuestion: there is no such folder, it is no site's, or its profile is wrong.
    """
    if folder is not None:
        return opened(folder, f"--site {folder}")
    named_by = os.environ.get(VARIABLE)
    return opened(Path(named_by), f"{VARIABLE}={named_by}") if named_by else None


def opened(folder: Path, named_by: str) -> Site:
    """The site in a folder; `named_by` is how it was named.

    Raises:
        WrongQuestion: there is no such folder, it is no site's, or its profile is wrong.
    """
    folder = folder.expanduser()
    if folder.is_file():
        raise WrongQuestion(f"{named_by}: a file; name the folder that holds it: {folder.parent}")
    if not (folder / PROFILE).is_file():
        what = f"holds no {PROFILE}" if folder.is_dir() else "no such folder"
        raise WrongQuestion(f"{named_by}: {what}; make a site with: clusterwright init site {folder}")
    return Site(folder, profile.read(folder / PROFILE))


def init(folder: Path, header: str) -> list[Path]:
    """Makes a site's folder: a commented profile, a journal without rows, and an empty catalog.

    Arguments:
        folder: Where; it may exist, without any of the files.
        header: First line of the journal.

    Returns:
        The files written.

    Raises:
        WrongQuestion: one of the files is there already, or cannot be written.
    """
    folder = folder.expanduser()
    texts = {RUNS: header, PROFILE: profile.TEMPLATE.format(name=_slug(folder))}
    for name in reversed(texts):
        if (folder / name).exists() and not _begun(folder, header):
            raise WrongQuestion(f"{folder / name}: exists already; nothing was written")
    writing.make_folder(folder / CATALOG)
    for name, text in texts.items():
        writing.write(folder / name, text, replace=name == RUNS)
    return [folder / name for name in reversed(texts)]


def _begun(folder: Path, header: str) -> bool:
    """Whether making it was killed: a journal without rows and no profile yet, which makes the folder a site."""
    return not (folder / PROFILE).exists() and (folder / RUNS).read_text(encoding="utf-8") == header


def _slug(folder: Path) -> str:
    """A folder's name with nothing in it that TOML would escape."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(os.path.realpath(folder)).name).strip("-") or "site"


COLUMNS = (
    *("id", "source", "lab", "date", "model", "family", "task", "runtime", "framework", "release"),
    *("accelerator", "num_accelerators", "accelerators_per_node", "inter_node_network"),
    *("seq_len", "global_batch_seqs", "tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch"),
    *("zero_stage", "activation_recompute", "sequence_parallel", "precision"),
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp"),
    *("num_experts", "topk", "moe_ffn_hidden"),
    *("step_time_s", "steps", "step_time_spread", "memory_gb_per_gpu", "memory_kind", "metric"),
    *("grade", "notes"),
)
"""What a row says, in the order of the file; ``step_time_spread`` is the interquartile range over the median."""
HEADER = ",".join(COLUMNS) + "\n"
PRIVATE = ("id", "source", "lab", "date", "notes")
"""Columns that say who ran something, when, or in words of their own."""
OWN = ("id", "source", "lab", "date")
"""Columns that a site fills itself."""

Row = Mapping[str, str]


def identified(row: Row, site: str) -> dict[str, str]:
    """The row with its id: the same measurement of the same configuration has the same one."""
    identity = "\n".join(f"{column}={row.get(column, '')}" for column in COLUMNS if column not in PRIVATE)
    return {**row, "id": f"{site}-{short_hash(identity.encode(), 10)}"}


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a journal, also of one whose columns a person has extended or put in another order.

    Raises:
        WrongQuestion: it cannot be read, or lacks the columns of an id and a model.
    """
    reader = csv_rows.table(path, "a journal of runs")
    absent = [column for column in ("id", "model") if column not in (reader.fieldnames or ())]
    if absent:
        raise WrongQuestion(f"{path}:1: no column {', '.join(absent)}; the first line names the columns (docs/runs.md)")
    return [{column: text for column, text in row.items() if isinstance(column, str) and text} for row in reader]


def add(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Adds the rows whose id is not there yet, all of them or none; several writers wait for one another.

    Returns:
        The rows that were added.

    Raises:
        WrongQuestion: the journal cannot be read or written.
    """
    try:
        with _locked(path) as file:
            known = {row.get("id") for row in read(path)}
            columns = _header(path)
            fresh = [row for row in rows if row["id"] not in known]
            _append(file, _text(columns, fresh))
            return fresh
    except OSError as error:
        raise WrongQuestion(f"{path}: cannot be written: {error.strerror or error}") from None


def rewrite(path: Path, rows: Sequence[Row]) -> None:
    """Puts these rows in the place of a journal's: its columns stay, and those that it lacks come behind.

    Raises:
        WrongQuestion: it cannot be read or written.
    """
    columns = list(dict.fromkeys((*_header(path), *(column for row in rows for column in row))))
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)
    writing.write(path, header.getvalue() + _text(columns, rows), replace=True)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    with locking.Lock(path):
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            yield file
        finally:
            os.close(file)


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file), list(COLUMNS))


def _text(columns: Sequence[str], rows: Sequence[Row]) -> str:
    lines = io.StringIO()
    csv.DictWriter(lines, columns, extrasaction="ignore", lineterminator="\n").writerows(rows)
    return lines.getvalue()


def _append(file: int, text: str) -> None:
    """Writes at the end, behind the line end that somebody's editor may have left out; a full disk leaves nothing."""
    end = os.lseek(file, 0, os.SEEK_END)
    if not text:
        return
    if end and os.pread(file, 1, end - 1) != b"\n":
        text = "\n" + text
    data = text.encode()
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
