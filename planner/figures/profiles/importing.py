"""From the rows of a file to checked profiles: names, complete layers, times that the hardware can reach."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.base.errors import WrongQuestion, suggestion
from planner.base.reading import short_hash
from planner.catalog import Catalog
from planner.cost.layer_times import Point
from planner.figures.profiles import files
from planner.figures.profiles.files import ProfileRow
from planner.figures.profiles.profile import Profile, layer_rate, peak
from planner.models.workload import library
from planner.models.workload import model as find_model
from planner.schema.hardware import Accelerator
from planner.schema.workload import PRECISIONS, Model

ACCELERATORS = {
    "GH-96": "GH200-96GB",
    "A100-40": "A100-SXM4-40GB",
    "A100-80": "A100-SXM4-80GB",
    "V100-16": "V100-SXM2-16GB",
}
"""Sailor's names of accelerators, where they differ from the catalog's."""
MODELS = {"OPT-350": "opt-350m", "OPT-30": "opt-30b", "LLAMA-3-8": "llama3-8b"}
"""Sailor's names of models, where they differ from the library's."""
DEFAULT_PRECISION = "bf16"
SLOWEST = 0.002
"""Share of the peak that the fastest layer of a profile reaches at least; less, and the times are not in seconds."""


@dataclass(frozen=True, slots=True)
class ImportedProfile:
    """What was read of a file."""

    profiles: tuple[Profile, ...]
    skipped: int
    """Rows of other models or accelerators than those asked for."""
    notes: tuple[str, ...]
    """What was left to the model, and why."""


def imported(
    path: Path,
    catalog: Catalog,
    model: str | None = None,
    accelerator: str | None = None,
    precision: str | None = None,
    sequence: int | None = None,
) -> ImportedProfile:
    """Reads and checks a file; a model, an accelerator choose rows of a CSV and say what a JSON is of.

    Raises:
        WrongQuestion: not a profile, unknown names, missing or repeated layers, impossible times.
    """
    rows = files.read(path)
    if not rows:
        raise WrongQuestion(f"{path}: no rows")
    content = path.read_bytes()
    named = _named(path, rows, catalog, model, accelerator)
    notes: list[str] = []
    profiles = []
    for (model_id, part), named_rows in sorted(named.items()):
        known = _asked_model(model) if model else find_model(model_id)
        notes += _assumed(named_rows, known, precision, sequence)
        for kind, members in sorted(_by_kind(named_rows, known, precision, sequence).items()):
            built = _built(known, catalog.accelerator(part), kind, members, notes)
            profiles.append(
                replace(
                    built,
                    source=_printable(path.name),
                    sha256=short_hash(content),
                    date=datetime.date.today().isoformat(),
                )
            )
    return ImportedProfile(tuple(profiles), len(rows) - sum(map(len, named.values())), tuple(dict.fromkeys(notes)))


def _asked_model(name: str) -> Model:
    return find_model(MODELS.get(name, name))


def _printable(text: str) -> str:
    """A file's name as one line of text."""
    return "".join(character if character.isprintable() else "?" for character in text)[:120]


# ---- names -----------------------------------------------------------------------------------------------------------


def _named(
    path: Path, rows: Iterable[ProfileRow], catalog: Catalog, model: str | None, accelerator: str | None
) -> dict[tuple[str, str], list[ProfileRow]]:
    """Rows by model and accelerator, as the library and the catalog call them; only those asked for."""
    wanted_model = _asked_model(model).id if model else None
    wanted_part = catalog.accelerator(ACCELERATORS.get(accelerator, accelerator)).id if accelerator else None
    known = library()
    by_pair = {}
    named: dict[tuple[str, str], list[ProfileRow]] = {}
    for row in rows:
        key = (row.model, row.accelerator)
        if key not in by_pair:
            by_pair[key] = (
                _resolved(row, "model", row.model, MODELS, list(known), wanted_model),
                _resolved(row, "accelerator", row.accelerator, ACCELERATORS, list(catalog.accelerators), wanted_part),
            )
        name, part = by_pair[key]
        if name and part:
            named.setdefault((name, part), []).append(row)
    if not named:
        what = " on ".join(part for part in (wanted_model, wanted_part) if part)
        raise WrongQuestion(f"{path}: no rows of {what}")
    return named


def _resolved(
    row: ProfileRow, what: str, name: str, others: Mapping[str, str], known: Sequence[str], wanted: str | None
) -> str | None:
    """The id that a name means; None for a name that is not the wanted one."""
    if not name:
        if wanted is None:
            raise WrongQuestion(f"{row.where.rpartition(':')[0]}: the file names no {what}: give it (--{what} ID)")
        return wanted
    spelling = {name.lower(): name for name in known}
    meant = spelling.get(others.get(name, name).lower())
    if wanted is not None:
        return wanted if meant == wanted or name == wanted else None
    if meant is None:
        hint = suggestion(name, known)
        raise WrongQuestion(f"{row.where}: no {what} {name!r:.40}.{hint} (--{what} ID takes its rows alone)")
    return meant


# ---- what was measured -----------------------------------------------------------------------------------------------

Kind = tuple[str, int, bool, bool]
"""Precision, sequence, sequence parallelism, whether communication is in the times."""


def _assumed(rows: Iterable[ProfileRow], model: Model, precision: str | None, sequence: int | None) -> list[str]:
    """What neither the file nor the question says, and what is taken."""
    notes = []
    if precision is None and any(not row.precision for row in rows):
        notes.append(f"the precision is not stated: taken to be {DEFAULT_PRECISION} (--precision)")
    if sequence is None and any(not row.sequence for row in rows):
        default = f"{model.sequence:,}, the default of {model.id}"
        notes.append(f"the tokens per sequence are not stated: taken to be {default} (--seq)")
    return notes


def _by_kind(
    rows: Iterable[ProfileRow], model: Model, precision: str | None, sequence: int | None
) -> dict[Kind, list[ProfileRow]]:
    by_kind: dict[Kind, list[ProfileRow]] = {}
    for row in rows:
        kind = row.precision or precision or DEFAULT_PRECISION
        if kind not in PRECISIONS:
            raise WrongQuestion(f"{row.where}: precision {kind!r:.40}: choose {', '.join(PRECISIONS)}")
        tokens = row.sequence or str(sequence or model.sequence)
        if not tokens.isdecimal() or not 0 < int(tokens) <= 10**9:
            raise WrongQuestion(f"{row.where}: sequence = {tokens!r:.40}: must be a number of tokens")
        key = (kind, int(tokens), row.sequence_parallel, row.communication)
        by_kind.setdefault(key, []).append(row)
    return by_kind


def _built(model: Model, part: Accelerator, kind: Kind, rows: Sequence[ProfileRow], notes: list[str]) -> Profile:
    """A profile, but for where it comes from."""
    if model.moe is not None:
        raise WrongQuestion(f"{rows[0].where}: {model.id} is a mixture of experts; profiles of dense models only")
    precision, sequence, sequence_parallel, communication = kind
    places: dict[tuple[int, int], dict[int, ProfileRow]] = {}
    for row in rows:
        if row.last < row.first:
            raise WrongQuestion(f"{row.where}: layer_last {row.last} is before layer_first {row.first}")
        layers = places.setdefault((row.tp, row.micro), {})
        for layer in range(row.first, row.last + 1):
            if layer in layers:
                what = f"layer {layer} at tp {row.tp}, micro-batch {row.micro}"
                raise WrongQuestion(f"{row.where}: {what} appears twice, first at {layers[layer].where.split(':')[-1]}")
            layers[layer] = row
    points: dict[int, list[Point]] = {}
    updates: dict[int, list[float]] = {}
    for (tp, micro), place_rows in sorted(places.items()):
        points.setdefault(tp, []).append(Point(micro, _seconds(model, tp, micro, place_rows)))
        updates.setdefault(tp, []).append(sum(row.update or 0.0 for row in place_rows.values()))
    checked = _possible(model, part, kind, points, rows[0], notes)
    return Profile(
        model=model.id,
        accelerator=part.id,
        precision=precision,
        sequence=sequence,
        layers=_layers(model),
        sequence_parallel=sequence_parallel,
        communication=communication,
        points={tp: tuple(points) for tp, points in checked.items()},
        update={tp: sum(seconds) / len(seconds) for tp, seconds in updates.items()},
        source="",
        sha256="",
        date="",
        rows=len(rows),
    )


def _layers(model: Model) -> int:
    return model.layers + model.encoder_layers


def _seconds(model: Model, tp: int, micro: int, rows: Mapping[int, ProfileRow]) -> tuple[float, ...]:
    """Mean layer, embedding (0) and head: what follows the layers, a final norm on its own or not."""
    count = _layers(model)
    where = next(iter(rows.values())).where
    missing = [layer for layer in range(count + 2) if layer not in rows]
    at = f"at tp {tp}, micro-batch {micro}"
    if missing or max(rows) > count + 2:
        note = f"layer {missing[0]} is missing" if missing else f"there are {max(rows) + 1} entries"
        raise WrongQuestion(
            f"{where}: {note} {at}: {model.id} has {count} layers, numbered 1 to {count} between the embedding (0) and "
            f"the head ({count + 1}, or {count + 1} and {count + 2} with a final norm of its own)"
        )
    body = [rows[layer] for layer in range(1, count + 1)]
    for row in body:
        if not row.forward or not row.backward:
            raise WrongQuestion(f"{row.where}: a layer that takes no time {at}")
    ends = [rows[layer] for layer in sorted(rows) if layer > count]
    return (
        sum(row.forward for row in body) / count,
        sum(row.backward for row in body) / count,
        rows[0].forward,
        rows[0].backward,
        sum(row.forward for row in ends),
        sum(row.backward for row in ends),
    )


def _in_another(part: Accelerator, rate: float) -> str:
    """Which precisions the times may be of, for a message."""
    able = [name for name in PRECISIONS if peak(part, name) >= rate]
    if part.peak.get("tf32", 0.0) >= rate:
        able.insert(0, "TF32, which no plan is in,")
    return f"were they measured in {' or '.join(able)} (--precision)? Or " if able else ""


def _possible(
    model: Model,
    part: Accelerator,
    kind: Kind,
    points: Mapping[int, Sequence[Point]],
    row: ProfileRow,
    notes: list[str],
) -> dict[int, list[Point]]:
    """The points with times that the accelerator can reach: ``2 tokens N / (tp t)`` FLOP/s is at most its peak in the
    precision that they are filed under.

    A head that beats the peak cannot have computed logits: its time is dropped, and the model's own used.
    """
    precision, sequence, *_ = kind
    best = 0.0
    dropped = 0
    file = row.where.rpartition(":")[0]
    limit = peak(part, precision)
    if not limit:
        raise WrongQuestion(f"{file}: {part.id} has no products in {precision}: what are the times of (--precision)?")
    possible: dict[int, list[Point]] = {}
    for tp, several in points.items():
        for point in several:
            forward, backward, *ends = point.seconds
            rate = layer_rate(model, sequence, tp, point)
            if rate > limit:
                raise WrongQuestion(
                    f"{file}: a layer of {model.id} at tp {tp}, micro-batch {point.micro} would run at "
                    f"{rate / 1e12:,.1f} TFLOP/s on {part.id}, whose peak is {limit / 1e12:,.1f} in {precision}: "
                    f"{_in_another(part, rate)}are the times in seconds, of {sequence:,} tokens, and of this model?"
                )
            best = max(best, rate / limit)
            logits = 2.0 * point.micro * sequence / tp * model.vocab * model.hidden
            if ends[2] and logits / ends[2] > limit:
                ends[2:], dropped = (0.0, 0.0), dropped + 1
            possible.setdefault(tp, []).append(Point(point.micro, (forward, backward, *ends)))
    if best < SLOWEST:
        raise WrongQuestion(
            f"{file}: the fastest layer of {model.id} would reach {100 * best:.2g} % of the peak of {part.id}: "
            "are the times in seconds, not milli- or microseconds?"
        )
    if dropped:
        note = f"{dropped} heads of {model.id} on {part.id} are too fast to hold the logits; those stay modelled"
        notes.append(note)
    return possible
