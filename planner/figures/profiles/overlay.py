"""Profiles in a catalog folder: one CSV a model and accelerator, a row a tensor-parallel degree and micro-batch."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

from planner.base import csv_rows, writing
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost.layer_times import FIELDS, Point
from planner.figures.profiles.profile import Profile, layer_rate, peak
from planner.models.workload import library

FOLDER = "profiles"
COMMON = ("model", "accelerator", "precision", "sequence", "layers", "sequence_parallel", "tp_communication")
FROM = ("source", "sha256", "date", "rows")
TIMES = tuple(f"{name}_s" for name in FIELDS)
COLUMNS = (*COMMON, "tp", "micro_batch", *TIMES, "update_s", *FROM)


def read(catalog: Catalog) -> tuple[Profile, ...]:
    """The profiles of every catalog layer, the weakest first.

    Raises:
        WrongQuestion: a file that `profile import` did not write so.
    """
    return tuple(_reachable(catalog, _profile(path)) for path in catalog.csv_files(FOLDER))


def _reachable(catalog: Catalog, profile: Profile) -> Profile:
    """The profile, if no layer beats the peak of the precision that it is filed under."""
    if profile.accelerator not in catalog.accelerators or profile.model not in library():
        return profile
    part = catalog.accelerator(profile.accelerator)
    model = library()[profile.model]
    rates = [layer_rate(model, profile.sequence, tp, point) for tp, some in profile.points.items() for point in some]
    fastest = max(rates, default=0.0)
    limit = peak(part, profile.precision)
    if fastest > limit:
        raise WrongQuestion(
            f"{profile.origin}: a layer of {model.id} would run at {fastest / 1e12:,.1f} TFLOP/s on {part.id}, whose "
            f"peak is {limit / 1e12:,.1f} in {profile.precision}; import it again in the precision that was timed "
            "(profile import --precision)"
        )
    return profile


def _profile(path: Path) -> Profile:
    columns, cells = csv_rows.read(path, "a profile")
    rows = list(cells) if columns == COLUMNS else []
    if not rows:
        raise WrongQuestion(f"{path}: no profile; clusterwright profile import writes them")
    first = rows[0].cells
    points: dict[int, list[Point]] = {}
    update: dict[int, float] = {}
    for where, row in ((line.where, line.cells) for line in rows):
        try:
            if any(row[name] != first[name] for name in (*COMMON, *FROM)):
                raise ValueError("contradicts the first row about the whole file")
            tp = int(row["tp"])
            micro = int(row["micro_batch"])
            seconds = tuple(_seconds(row[name]) for name in TIMES)
            if tp < 1 or micro < 1 or not seconds[0] or not seconds[1]:
                raise ValueError("tp, micro_batch and the layer's times must be above 0")
            if any(point.micro >= micro for point in points.get(tp, ())):
                raise ValueError("micro-batches of a tensor-parallel degree must ascend")
            points.setdefault(tp, []).append(Point(micro, seconds))
            update[tp] = _seconds(row["update_s"])
        except (TypeError, ValueError) as error:
            raise WrongQuestion(f"{where}: {error}; import the profile again") from None
    try:
        return Profile(
            model=first["model"],
            accelerator=first["accelerator"],
            precision=first["precision"],
            sequence=int(first["sequence"]),
            layers=int(first["layers"]),
            sequence_parallel=first["sequence_parallel"] == "1",
            communication=first["tp_communication"] == "1",
            points={tp: tuple(tp_points) for tp, tp_points in points.items()},
            update=update,
            source=first["source"],
            sha256=first["sha256"],
            date=first["date"],
            rows=int(first["rows"]),
            origin=str(path),
        )
    except ValueError as error:
        raise WrongQuestion(f"{path}:2: {error}; import the profile again") from None


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"{text} is no time")
    return value


def write(folder: Path, profile: Profile) -> Path:
    """Writes a profile below a catalog folder; one of the same model, accelerator, precision and sequence is replaced.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    name = f"{profile.model}-{profile.accelerator}-{profile.precision}-{profile.sequence}"
    path = folder / FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]', '-', name).lstrip('.')}.csv"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongQuestion(f"{path.parent}: cannot be written: {error.strerror or error}") from None
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    switches = {"sequence_parallel": int(profile.sequence_parallel), "tp_communication": int(profile.communication)}
    common = {name: getattr(profile, name) for name in (*COMMON, *FROM) if name not in switches} | switches
    for tp, points in sorted(profile.points.items()):
        for point in points:
            times = {name: f"{seconds:.6g}" for name, seconds in zip(TIMES, point.seconds, strict=True)}
            update = {"update_s": f"{profile.update[tp]:.6g}"}
            table.writerow({**common, "tp": tp, "micro_batch": point.micro, **times, **update})
    writing.write(path, text.getvalue(), replace=True)
    return path
