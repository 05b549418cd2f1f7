"""The library of workloads beyond transformers: convolutional networks and recommenders by id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from planner.base.errors import WrongQuestion, suggestion
from planner.base.resources import data
from planner.models import files
from planner.schema.workload import ConvolutionNetwork, Recommender

NETWORKS = "resnet.toml"
RECOMMENDERS = "dlrm.toml"
FILES = (NETWORKS, RECOMMENDERS)
"""Files of ``models/`` that hold no transformers."""
Found = TypeVar("Found", ConvolutionNetwork, Recommender)


@cache
def networks() -> dict[str, ConvolutionNetwork]:
    """Convolutional networks by id."""
    path = data("models") / NETWORKS
    return {entry: files.record(ConvolutionNetwork, path, entry) for entry in files.tables(path)}


@cache
def recommenders() -> dict[str, Recommender]:
    """Recommenders by id.

    Raises:
        WrongQuestion: an entry whose figures do not agree with each other.
    """
    path = data("models") / RECOMMENDERS
    records = {entry: files.record(Recommender, path, entry) for entry in files.tables(path)}
    for entry, model in records.items():
        for problem in _problems(model):
            raise WrongQuestion(f"{path}: {entry}.{problem}")
    return records


def _problems(model: Recommender) -> list[str]:
    wrong = []
    if len(model.lookups) != len(model.tables):
        wrong.append(f"lookups: {len(model.lookups)} figures for {len(model.tables)} tables")
    if not model.bottom or model.bottom[-1] != model.embedding:
        wrong.append(f"bottom: the last width must be the embedding's, {model.embedding}")
    if bool(model.cross_layers) != bool(model.cross_rank):
        wrong.append("cross_rank: a cross network has both layers and a rank")
    return wrong


def others() -> dict[str, ConvolutionNetwork | Recommender]:
    """All of them by id."""
    return {**networks(), **recommenders()}


def ids() -> list[str]:
    """Ids of all of them."""
    return [entry for file in FILES for entry in files.headers(data("models") / file)]


def what(name: str) -> str:
    """What an id is, in words; empty if it is none of these."""
    kinds = {NETWORKS: "convolutional network", RECOMMENDERS: "recommender"}
    return next((kinds[file] for file in FILES if name in files.headers(data("models") / file)), "")


def network(name: str) -> ConvolutionNetwork:
    """One convolutional network; :class:`WrongQuestion` if there is none of that id."""
    return _found("convolutional network", name, networks())


def recommender(name: str) -> Recommender:
    """One recommender; :class:`WrongQuestion` if there is none of that id."""
    return _found("recommender", name, recommenders())


def _found(kind: str, name: str, known: Mapping[str, Found]) -> Found:
    if name not in known:
        raise WrongQuestion(f"no {kind} {name!r}.{suggestion(name, known)}")
    return known[name]
