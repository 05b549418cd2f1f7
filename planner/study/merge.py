"""Answers of a study from its documents: shards of several machines merged into one, and an answer rechecked by
evaluating every point of it anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.catalog.files import TomlDocument
from planner.planning import document
from planner.rl.learned import SiteSteps
from planner.schema.study import StudyResult, Trial
from planner.study import run
from planner.study.answer import document as answer
from planner.study.program import boxes, optuna_trials, trial_storage
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import Point, Study


def load(path: Path) -> StudyResult:
    """A study's document from a file.

    Raises:
        WrongQuestion: no such file, or not such a document.
    """
    answer = document.load_document(path)
    if not isinstance(answer, StudyResult):
        raise WrongQuestion(
            f"{path}: kind is {answer.kind!r}; expected study (clusterwright design STUDY.toml -o FILE)"
        )
    return answer


def merge(catalog: Catalog, study: Study, paths: Sequence[Path], *, explained: bool = True) -> StudyResult:
    """One answer from the documents of a study's shards.

    Raises:
        WrongQuestion: documents of another study, or one shard given twice.
        NoAnswer: a trial in them is no point of the study, or none trains every workload within the constraints.
    """
    asked = _plain(answer.question(study))
    points: dict[int, Trial] = {}
    shards: list[int] = []
    parts: set[int] = set()
    for path in paths:
        shard = load(path)
        changed = list(trial_storage.differences(_plain(shard.question), asked))
        if changed:
            lines = "\n  ".join(changed[:8])
            raise WrongQuestion(f"{path}: of another study, or of this one before it changed:\n  {lines}")
        if set(shard.search.shards) & set(shards):
            raise WrongQuestion(f"{path}: shard {shard.search.shards[0]} appears twice")
        shards += shard.search.shards
        parts.add(shard.search.of_shards)
        for trial in shard.trials:
            # As an enumeration numbers them: trials have numbers of their own, the same in every document.
            number = study.number(_place(study, trial, f"{path}"))
            points.setdefault(number, replace(trial, number=number))
    if len(parts - {0}) > 1:
        raise WrongQuestion(f"shards of studies with different numbers of shards: {', '.join(map(str, sorted(parts)))}")
    of = max(parts)
    joined = [points[number] for number in sorted(points)]
    whole = len(joined) == study.size
    method = answer.SearchMethod(
        name="enumerated" if whole else "merged", exact=whole, seed=0, shards=() if whole else tuple(sorted(shards)),
        of_shards=0 if whole else of,
    )  # fmt: skip
    return answer.result(catalog, Evaluator(catalog, study), joined, method, {}, explained=explained)


def _plain(section: Any) -> Any:
    return json.loads(json.dumps(document.dump(section)))


def again(catalog: Catalog, document: StudyResult, where: str, learned: SiteSteps | None = None) -> StudyResult:
    """The answer that its points give today; which points trials chose, and the hash of the file, are the document's.

    Raises:
        WrongQuestion: it states no question, or one that the catalog does not know.
        NoAnswer: a point is none of the study's, or none trains every workload within the constraints.
    """
    if document.asked is None:
        raise NoAnswer(f"{where}: it was written before studies stated their question: ask again instead")
    asked = reading.study(TomlDocument(Path(where), "", document.asked.study), catalog)
    study = reading.with_learned(asked, learned)
    evaluator = Evaluator(catalog, study)
    points = [_point(study, trial, document, where) for trial in document.trials]
    tried = [
        answer.trial(study, tried_before.number, study.values(point), optuna_trials.stored(outcome))
        for tried_before, point, outcome in zip(document.trials, points, evaluator.many(points), strict=True)
    ]
    method = _method(evaluator, document, tried)
    made = answer.result(catalog, evaluator, tried, method, document.meta, explained=document.asked.explained)
    return replace(made, generator=made.generator.with_files(document.generator, "study"))


def _method(evaluator: Evaluator, document: StudyResult, tried: list[Trial]) -> answer.SearchMethod:
    """How the points came about, as the document says; what boxes proved is proven again."""
    search, whole = document.search, {trial.number for trial in tried} == {*range(evaluator.study.size)}
    plain = answer.SearchMethod(
        name=search.method, exact=search.method == "enumerated" and search.of_shards <= 1 and whole, seed=search.seed,
        shards=search.shards, of_shards=search.of_shards, enumeration_s=search.enumeration_s,
    )  # fmt: skip
    if search.evaluated is None:
        return plain
    values = answer.costs(evaluator.study.objectives, [trial for trial in tried if trial.feasible])[:, 0]
    best = float(values.min(initial=math.inf))
    if search.exact:
        start = math.inf if search.method == "bounded" else best
        proof = boxes.search(evaluator, 2 * evaluator.study.size, best=start)
        return run.proven(evaluator, replace(plain, exact=proof.complete and proof.best >= best), proof)
    bound = None if search.regret_at_most is None else best - search.regret_at_most * abs(best)
    return replace(plain, evaluated=search.evaluated, bounded_away=search.bounded_away, bound=bound)


def _point(study: Study, trial: Trial, document: StudyResult, where: str) -> Point:
    """Where a trial was: an enumerated one by its number, else by its values."""
    if document.search.method in ("enumerated", "merged"):
        if not 0 <= trial.number < study.size:
            raise NoAnswer(f"{where}: the study has {study.size:,} points, none of number {trial.number}")
        return study.point(trial.number)
    return _place(study, trial, where)


def _place(study: Study, trial: Trial, where: str) -> Point:
    try:
        return study.place(trial.axes)
    except ValueError as error:
        raise NoAnswer(f"{where}: trial {trial.number} is no point of the study: {error}") from None
