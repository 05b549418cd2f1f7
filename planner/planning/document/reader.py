"""JSON files back to documents: read with limits, checked, and one plan chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.base import reading, typed
from planner.base.errors import WrongQuestion, malformed, meant, warn_of_change
from planner.schema import plan as schema
from planner.schema import plan_layout
from planner.schema.digest import DIGEST, is_edited
from planner.schema.images import ImagePlan
from planner.schema.procurement import Procurement
from planner.schema.record import Report, _adapter
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult
from planner.schema.versions import SCHEMA_VERSION, require_known_version

LARGEST_FILE = 200_000_000
"""Bytes; no plan is larger."""
LARGEST_STUDY = 2_000_000_000
"""Bytes of a study with all its trials."""


def load(path: Path) -> schema.PlanSet | schema.Plan:
    """Reads a plan or a set of plans from a file.

    Raises:
        WrongQuestion: as :func:`load_any`; an offer, of which one plan must be chosen first.
    """
    answer = load_any(path)
    if isinstance(answer, Procurement):
        names = ", ".join(job.name for job in answer.alternatives[0].workloads) if answer.alternatives else ""
        raise WrongQuestion(
            f"{path}: an offer with plans for {names or 'nothing'}; take one out of it first "
            f"(clusterwright explain {path} --workload NAME --json > plan.json)"
        )
    return answer


AnyAnswer = schema.PlanSet | schema.Plan | Procurement | StudyResult | ImagePlan | RLPlanSet
"""Every kind of document that holds plans of some kind."""


def load_any(path: Path) -> schema.PlanSet | schema.Plan | Procurement:
    """Reads a plan, a set of plans or an offer from a file.

    Raises:
        WrongQuestion: no such file, not JSON (with line), another kind or version of document, unknown or missing keys.
    """
    return parse(json_file(path, LARGEST_FILE), str(path))


def load_document(path: Path) -> AnyAnswer:
    """Reads any document that holds plans: also a study, and a plan of images.

    Raises:
        WrongQuestion: as :func:`load_any`.
    """
    return parse_document(json_file(path, LARGEST_STUDY), str(path))


def load_answer(path: Path, kinds: Mapping[str, type]) -> Any:
    """Reads whatever ``-o``, ``--json`` or ``to_json`` wrote: a document of plans, a record of these further kinds, or
    a :class:`Report` on what has no record.

    Raises:
        WrongQuestion: as :func:`load_any`.
    """
    data = json_file(path, LARGEST_STUDY)
    where = str(path)
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind in REPORTS:
        assert isinstance(data, Mapping)
        return _report(kind, data, where)
    return _parsed(data, where, {**DOCUMENTS, **kinds}, REPORTS)


REPORTS = {
    "calibration": "factors",
    "collective-calibration": "errors",
    "communication": "calls",
    "communication-table": "cells",
    "kernel-calibration": "kinds",
    "lesson": "rows",
    "procurement-sweep": "points",
    "rl-validation": "rows",
    "trace-report": "rows",
    "validation": "groups",
}
"""Kinds that no record stands for -> the key of their table."""


def _report(kind: str, data: Mapping[str, Any], where: str) -> Report:
    table = data.get(REPORTS[kind])
    require_known_version(data, where)
    _warn_if_edited(data, where)
    if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
        raise WrongQuestion(f"{where}: {REPORTS[kind]}: must be a list of tables, as {kind} has it")
    return Report(document=dict(data), summary=f"{kind}, {len(table):,} {REPORTS[kind]}", table=tuple(table))


def is_as_written(path: Path) -> bool:
    """Whether a file is a document with the digest of its content: what this program wrote and nobody edited."""
    try:
        data = json_file(path, LARGEST_FILE)
    except WrongQuestion:
        return False
    return isinstance(data, Mapping) and DIGEST in data and not is_edited(data)


def is_post_training(path: Path) -> bool:
    """Whether a file holds a plan of post-training.

    Raises:
        WrongQuestion: it cannot be read.
    """
    data = json_file(path, LARGEST_FILE)
    return isinstance(data, Mapping) and data.get("kind") == "rl-plan"


def json_file(path: Path, largest: int) -> object:
    """What a file of at most `largest` bytes holds, as JSON types.

    Raises:
        WrongQuestion: no such file, too large, not JSON (with line).
    """
    if str(path).lstrip().startswith("{"):
        raise WrongQuestion("a JSON text where a file's name is expected; write it to a file first")
    text = reading.text(path, "a document", largest)
    try:
        data: object = json.loads(text, parse_constant=_not_finite)
    except json.JSONDecodeError as error:
        raise WrongQuestion(
            f"{path}:{error.lineno}: {error.msg}; a document is JSON (clusterwright plan ... -o plan.json)"
        ) from None
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"{path}: {malformed(error)}") from None
    return data


def _not_finite(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def parse(data: object, where: str) -> schema.PlanSet | schema.Plan | Procurement:
    """A document from JSON types; see :func:`load_any`."""
    answer: schema.PlanSet | schema.Plan | Procurement = _parsed(data, where, PLANS)
    return answer


def parse_document(data: object, where: str) -> AnyAnswer:
    """A document from JSON types; see :func:`load_document`."""
    answer: AnyAnswer = _parsed(data, where, DOCUMENTS)
    return answer


def parse_answer(data: object, where: str, kinds: Mapping[str, type]) -> Any:
    """A document of plans, or of these further kinds, from JSON types; see :func:`load_document`."""
    return _parsed(data, where, {**DOCUMENTS, **kinds})


PLANS: dict[str, type] = {"plan": schema.Plan, "plan-set": schema.PlanSet, "procurement": Procurement}
"""Kinds that hold plans to start."""
DOCUMENTS: dict[str, type] = {**PLANS, "study": StudyResult, "image-plan": ImagePlan, "rl-plan": RLPlanSet}
"""Kinds that ``-o`` writes and ``explain`` prints."""


def _parsed(data: object, where: str, kinds: Mapping[str, type], others: Iterable[str] = ()) -> Any:
    from pydantic import ValidationError

    if not isinstance(data, Mapping):
        raise WrongQuestion(f"{where}: not a plan: a JSON object with kind and schema_version is expected")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        problem = "no kind" if kind is None else f"kind is {kind!r:.40}"
        *most, last = [*kinds, *others]
        raise WrongQuestion(f"{where}: {problem}; expected {', '.join(most)} or {last}")
    require_known_version(data, where)
    _warn_if_edited(data, where)
    content = _with_sections({key: value for key, value in data.items() if key != DIGEST}, where)
    try:
        answer = _adapter(kinds[kind]).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        lines = [line for each in error.errors(include_url=False)[:10] for line in _in_words(kinds[kind], each, where)]
        raise WrongQuestion("\n".join(lines)) from None
    if isinstance(answer, schema.PlanSet) and answer.plans:
        if answer.recommended not in (None, *range(1, len(answer.plans) + 1)):
            raise WrongQuestion(
                f"{where}: recommended is {answer.recommended}; it holds plans 1 to {len(answer.plans)}"
            )
    return answer


def _warn_if_edited(data: Mapping[str, Any], where: str) -> None:
    if is_edited(data):
        warn_of_change(f"{where}: edited since it was written")


HOLDERS = ("plans", "contingency", "alternatives", "workloads", "best", "pareto", "plan")
"""Keys below which documents hold plans."""


def _with_sections(data: Any, where: str) -> Any:
    """A document as the records read it: its plans, of whatever version, with their axes in sections."""
    if isinstance(data, list):
        return [_with_sections(item, f"{where}.{index}") for index, item in enumerate(data)]
    if not isinstance(data, Mapping):
        return data
    if data.get("kind") == "plan":
        require_known_version(data, where)
        try:
            return plan_layout.sections(data)
        except ValueError as error:
            raise WrongQuestion(f"{where}: {error}") from None
    inner = {key: _with_sections(data[key], f"{where}.{key}") for key in HOLDERS if key in data}
    newer = {"schema_version": SCHEMA_VERSION} if data.get("kind") == "plan-set" else {}
    return {**data, **inner, **newer}


def _in_words(kind: Any, error: Mapping[str, Any], where: str) -> Iterator[str]:
    """One of pydantic's findings, a line each. What is JSON to Python and not to it has halves of characters in it."""
    if error["type"] == "json_invalid":
        yield f"{where}: half a character (a lone surrogate) in a text"
        return
    for finding in typed.explained(kind, error):
        yield ": ".join(filter(None, (where, ".".join(map(str, _in_document(finding.where))), finding.reason)))


def _in_document(where: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where a document says what records have there: axes of a plan stand in one table."""
    for axis, place in plan_layout.PLACES.items():
        outer = where[: -len(place)]
        inner = where[-len(place) :]
        in_plan = not outer or outer[-1] == "plan" or outer[-2:-1] in (("plans",), ("plan",))
        if inner == place and in_plan:
            return (*outer, "axes", axis)
    return where


def chosen(document: schema.PlanSet | schema.Plan, rank: int | None, where: str) -> schema.Plan:
    """The plan of that rank (from 1) of a set, of none named the recommended one; or the single plan itself.

    Raises:
        WrongQuestion: the set has no such rank.
    """
    if isinstance(document, schema.Plan):
        return document
    if not document.plans:
        raise WrongQuestion(f"{where}: no plan in it")
    count = len(document.plans)
    rank = (document.recommended or 1) if rank is None else rank
    if not 1 <= rank <= count:
        most = "" if count == 1 else f" to {count}"
        raise WrongQuestion(f"{where}: no plan of rank {rank}; it holds {count}: --rank 1{most}")
    return document.plans[rank - 1]


def offered(offer: Procurement, workload: str | None, alternative: int, where: str) -> schema.Plan:
    """The training plan of a workload in an alternative (from 1, one that there is) of an offer; the only workload's if
    none is named.

    Raises:
        WrongQuestion: no such workload, or none named where there are several.
    """
    jobs = offer.alternatives[alternative - 1].workloads
    plans = {job.name: job.plan for job in jobs if job.plan}
    if workload in {job.name for job in jobs if job.post_training} or not plans:
        raise WrongQuestion(
            f"{where}: {workload or jobs[0].name} is post-training; plan --task on its nodes writes its plan"
        )
    if workload is None and len(plans) == 1:
        return next(iter(plans.values()))
    if workload is None:
        raise WrongQuestion(f"{where}: whose plan? It holds those of {', '.join(plans)} (--workload NAME)")
    if workload not in plans:
        hint = meant(workload, plans, f"there are {', '.join(plans)}", most=3)
        raise WrongQuestion(f"{where}: no workload {workload!r} in it; {hint}")
    return plans[workload]
