"""A study's answer from its own document again: every point that was tried, evaluated anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.catalog.files import TomlDocument
from planner.schema.study import StudyResult, Trial
from planner.study.answer import document as answer
from planner.study.program import trials
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import Point, Study


def again(catalog: Catalog, found: StudyResult, where: str) -> StudyResult:
    """The answer that its points give today; which points trials chose, and the hash of the file, are the document's.

    Raises:
        WrongQuestion: it states no question, or one that the catalog does not know.
        NoAnswer: a point is none of the study's, or none trains every workload within the constraints.
    """
    if found.asked is None:
        raise WrongQuestion(f"{where}: it was written before studies stated their question: ask again instead")
    study, search = reading.study(TomlDocument(Path("study"), "", found.asked.study), catalog), found.search
    evaluator = Evaluator(catalog, study)
    points = [_point(study, each, found, where) for each in found.trials]
    tried = [
        answer.trial(study, each.number, study.values(point), trials.stored(outcome))
        for each, point, outcome in zip(found.trials, points, evaluator.many(points), strict=True)
    ]
    exact = search.method == "enumerated" and search.of_shards <= 1
    method = answer.SearchMethod(
        name=search.method, exact=exact, seed=search.seed, shards=search.shards, of_shards=search.of_shards
    )
    made = answer.result(catalog, evaluator, tried, method, found.meta, explained=found.asked.explained)
    files = {name: of for name, of in found.generator.inputs.items() if name.startswith("study ")}
    inputs = files | {name: of for name, of in made.generator.inputs.items() if not name.startswith("study ")}
    return replace(made, generator=replace(made.generator, inputs=inputs))


def _point(study: Study, trial: Trial, found: StudyResult, where: str) -> Point:
    """Where a trial was: an enumerated one by its number, else by its values."""
    if found.search.method in ("enumerated", "merged"):
        if not 0 <= trial.number < study.size:
            raise NoAnswer(f"{where}: the study has {study.size:,} points, none of number {trial.number}")
        return study.point(trial.number)
    try:
        return study.place(trial.axes)
    except ValueError as error:
        raise NoAnswer(f"{where}: trial {trial.number} is no point of the study: {error}") from None
