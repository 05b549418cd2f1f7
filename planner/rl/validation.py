"""Errors of predicted steps of post-training on measured ones: by source, by phase, of matched pairs, and of intervals.

Rows that cannot be predicted are listed with their reasons; none is left out in silence.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from planner.base.errors import ClusterwrightError, NoAnswer
from planner.catalog import Catalog
from planner.rl import constants, measured
from planner.rl.measured import PHASES, Row, StepParts

GAIN = 0.15
"""Gain of a matched pair above which its order counts."""
MATCHED = ("source", "release", "algorithm", "model", "accelerator", "num_accelerators", "max_response",
           "precision_train", "precision_rollout")  # fmt: skip
"""What the rows of a pair share."""
Priced = tuple[Row, StepParts]


def validate(known: Catalog, rows: Sequence[Row]) -> tuple[dict[str, Any], str]:
    """The errors of groups, and a CSV of every row's prediction.

    Raises:
        NoAnswer: not one of the rows can be predicted.
    """
    priced: list[Priced] = []
    missing: list[dict[str, str]] = []
    for row in rows:
        try:
            priced.append((row, measured.parts(known, row)))
        except ClusterwrightError as error:
            missing.append({"id": row.get("id", ""), "source": row["source"], "reason": str(error)})
    if not priced:
        which = missing[0]["id"] or "without an id"
        raise NoAnswer(f"none of {len(rows):,} steps can be predicted; the first, {which}: {missing[0]['reason']}")
    table = [_line(row, parts) for row, parts in priced]
    by_source: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in table:
        by_source[line["source"]].append(line)
    document = {
        "kind": "rl-validation",
        "schema_version": 1,
        "groups": [{"name": name, **_errors(lines)} for name, lines in by_source.items()],
        "overall": _errors(table),
        "mean_by_source": fmean(_errors(lines)["mape"] for lines in by_source.values()),
        "phases": _phases(priced),
        "pairs": _pairs(table),
        "tokens": _tokens(priced),
        "infeasible": sum(not parts.fits for _, parts in priced)
        + sum("fits" in lost["reason"] or "holds" in lost["reason"] for lost in missing),
        "not_as_stated": [row["id"] for row, parts in priced if not parts.as_stated],
        "not_covered": missing,
        "rows": table,
    }
    return document, _csv(table)


def _line(row: Row, parts: StepParts) -> dict[str, Any]:
    """A row's step, measured and predicted."""
    excess = constants.fitted()
    half = excess.half_width if parts.lengths_known else excess.unknown_lengths
    predicted = parts.step(excess)
    taken = measured.number(row, "step_s") or math.nan
    return {
        "id": row.get("id", ""),
        "source": row["source"],
        "pair": "|".join(row.get(column, "") for column in MATCHED),
        "placement": parts.placement,
        "measured_s": taken,
        "predicted_s": predicted,
        "error": predicted / taken - 1.0,
        "low_s": predicted * math.exp(-half),
        "high_s": predicted * math.exp(half),
        "lengths": "stated" if parts.lengths_known else "assumed",
        **{f"predicted {name}_s": seconds for name, seconds in parts.phases(excess).items()},
    }


def _errors(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors of some rows."""
    if not lines:
        return {"n": 0, "mape": None, "median": None, "bias": None, "in_80": None}
    errors = [line["error"] for line in lines]
    return {
        "n": len(lines),
        "mape": fmean(map(abs, errors)),
        "median": median(map(abs, errors)),
        "bias": fmean(errors),
        "in_80": fmean(line["low_s"] <= line["measured_s"] <= line["high_s"] for line in lines),
    }


def _phases(priced: Sequence[Priced]) -> list[dict[str, Any]]:
    """Errors by source and phase, of colocated steps: where roles are apart, what is printed as generation is mostly a
    wait.
    """
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, parts in priced:
        predicted = parts.phases(constants.fitted())
        for name, column in PHASES.items():
            taken = measured.number(row, column)
            if parts.placement == "colocated" and taken and predicted[name]:
                errors[row["source"], name].append(predicted[name] / taken - 1.0)
    return [
        {"source": source, "phase": name, "n": len(some), "mape": fmean(map(abs, some)), "bias": fmean(some)}
        for (source, name), some in errors.items()
    ]


def _pairs(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Colocated steps beside those apart of the same job on as many accelerators: seconds of the first over the
    second's.
    """
    pairs = []
    for line in table:
        if line["placement"] != "colocated":
            continue
        for other in table:
            if other["pair"] == line["pair"] and other["placement"] != "colocated":
                taken = line["measured_s"] / other["measured_s"]
                predicted = line["predicted_s"] / other["predicted_s"]
                pairs.append({
                    "colocated": line["id"], "apart": other["id"], "measured_gain": taken, "predicted_gain": predicted,
                    "counts": abs(math.log(taken)) > math.log(1.0 + GAIN),
                    "right": (taken > 1.0) == (predicted > 1.0),
                })  # fmt: skip
    return pairs


def _tokens(priced: Sequence[Priced]) -> list[dict[str, Any]]:
    """Tokens by throughput, accelerators and seconds over those by sequences and lengths, where a row has all."""
    rows = []
    for row, parts in priced:
        rate = measured.number(row, "tokens_per_s_per_gpu")
        count = measured.number(row, "num_accelerators")
        if rate and count and parts.lengths_known and measured.number(row, "rollout_sequences"):
            product = rate * count * float(row["step_s"])
            rows.append({"id": row.get("id", ""), "ratio": product / parts.tokens})
    return rows


def _csv(table: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if table:
        writer = csv.DictWriter(text, [*table[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return text.getvalue()


def lines(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is said of the errors beside the table: a label and a text each."""
    for each in document["phases"]:
        steps = f"{each['source']}, {each['phase']}: {each['n']} steps"
        yield "Phase", f"{steps}, {each['mape']:.0%} off, bias {each['bias']:+.0%}"
    counted = [pair for pair in document["pairs"] if pair["counts"]]
    right = sum(pair["right"] for pair in counted)
    yield "Pairs", f"{right} of {len(counted)} with a gain above {GAIN:.0%} in the right order"
    for pair in counted:
        if not pair["right"]:
            gain = f"{pair['measured_gain']:.2f} measured, {pair['predicted_gain']:.2f} predicted"
            yield "", f"{pair['colocated']} over {pair['apart']}: {gain}"
    off = [each for each in document["tokens"] if abs(each["ratio"] - 1.0) > 0.06]
    beyond = "".join(f"; {each['id']} {each['ratio']:.2f}" for each in off)
    yield "Tokens", f"{len(document['tokens']) - len(off)} of {len(document['tokens'])} rows agree within 6 %{beyond}"
    yield "Fits", f"{document['infeasible']} steps that ran are predicted infeasible at a risk of 50 %"
    if others := document["not_as_stated"]:
        yield "Other layouts", f"{len(others)} steps, whose stated layouts are not legal here: {', '.join(others)}"
    for lost in document["not_covered"]:
        yield "Not covered", f"{lost['id']}: {lost['reason']}"
