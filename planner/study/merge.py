"""The answers of several machines as one: shards of one study, joined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.planning import document
from planner.schema.study import StudyResult, Trial
from planner.study.answer import document as answer
from planner.study.program import optuna_storage
from planner.study.program.evaluation import Evaluator
from planner.study.question.study import Study


def load(path: Path) -> StudyResult:
    """A study's document from a file.

    Raises:
        WrongQuestion: no such file, or not such a document.
    """
    found = document.load_document(path)
    if not isinstance(found, StudyResult):
        raise WrongQuestion(f"{path}: kind is {found.kind!r}; expected study (clusterwright design STUDY.toml -o FILE)")
    return found


def merge(catalog: Catalog, study: Study, paths: Sequence[Path], *, explained: bool = True) -> StudyResult:
    """One answer from the documents of a study's shards.

    Raises:
        WrongQuestion: documents of another study, or one shard given twice.
    """
    asked = _plain(answer.question(study))
    points: dict[tuple[Any, ...], Trial] = {}
    shards: list[int] = []
    parts: set[int] = set()
    for path in paths:
        found = load(path)
        changed = list(optuna_storage.differences(_plain(found.question), asked))
        if changed:
            lines = "\n  ".join(changed[:8])
            raise WrongQuestion(f"{path}: of another study, or of this one before it changed:\n  {lines}")
        if set(found.search.shards) & set(shards):
            raise WrongQuestion(f"{path}: shard {found.search.shards[0]} appears twice")
        shards += found.search.shards
        parts.add(found.search.of_shards)
        for each in found.trials:
            points.setdefault(tuple(each.axes.values()), each)
    if len(parts - {0}) > 1:
        raise WrongQuestion(f"shards of studies with different numbers of shards: {', '.join(map(str, sorted(parts)))}")
    of = max(parts)
    joined = sorted(points.values(), key=lambda each: each.number)
    whole = len(joined) == study.size
    method = answer.SearchMethod(
        name="enumerated" if whole else "merged", exact=whole, seed=0, shards=() if whole else tuple(sorted(shards)),
        of_shards=0 if whole else of,
    )  # fmt: skip
    return answer.result(catalog, Evaluator(catalog, study), joined, method, {}, explained=explained)


def _plain(section: Any) -> Any:
    return json.loads(json.dumps(document.dump(section)))
