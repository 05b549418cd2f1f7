"""Records of the catalog, to look at, to change with ``dataclasses.replace`` and to ask about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from planner import catalog as catalogs
from planner.api.entry import entry, plain
from planner.base import typed
from planner.base.errors import WrongQuestion
from planner.models import model_rules, workload
from planner.question.given import Machines, Named, listed
from planner.question.plan_options import PlanOptions
from planner.question.reading import placed
from planner.schema.hardware import Accelerator, Cluster, Node
from planner.schema.workload import Model

Record = TypeVar("Record", Cluster, Model, Node)


@entry
def model(name: str | Path, *, folder: str | Path | None = None) -> Model:
    """A model's shape: a transformer's layers, widths and defaults.

    Args:
        name: An id of the library, a TOML file, or a Hugging Face ``config.json``.
        folder: Your own models over the library.

    Raises:
        WrongQuestion: no such model or file, or an entry with impossible values.

    >>> model("llama3-8b").layers
    32
    """
    return workload.model(str(name), None if folder is None else Path(folder))


@entry
def node(name: str, *, catalog: str | Path | None = None) -> Node:
    """A server, rack or cloud instance of the catalog by its `name`, its id there.

    Raises:
        WrongQuestion: no such node; the message names the nearest.

    >>> node("dgx-h100").accelerators
    8
    """
    return _catalog(catalog).node(name)


@entry
def accelerator(name: str, *, catalog: str | Path | None = None) -> Accelerator:
    """An accelerator of the catalog by its `name`, its id there: bytes, B/s, FLOP/s, watts.

    Raises:
        WrongQuestion: no such accelerator; the message names the nearest.

    >>> accelerator("H100-SXM5-80GB").memory / 2**30
    80.0
    """
    return _catalog(catalog).accelerator(name)


@entry
def cluster(
    node: str | Path | Node,
    count: int | None = None,
    *,
    accelerator: str | Accelerator | None = None,
    fabric: str | None = None,
    region: str | None = None,
    catalog: str | Path | None = None,
) -> Cluster:
    """Nodes of one kind on one fabric.

    Args:
        node: ``dgx-h100:16``, a node's id or its record (then with a `count`), or a cluster's file.
        count: Nodes.
        accelerator: Another one in the same node.
        fabric: Id of the network between nodes; the node's usual one unless named.
        region: Id of where it runs; ``us`` unless named.
        catalog: Folder of your own hardware over the built-in catalog.

    Raises:
        WrongQuestion: an unknown name, a count out of range, or several nodes without a fabric.

    >>> faster = replace(accelerator("H100-SXM5-80GB"), memory="141 GB", memory_bandwidth=4.8e12)
    >>> cluster("dgx-h100", 16, accelerator=faster).accelerators
    128
    """
    known = _catalog(catalog)
    if isinstance(node, Node):
        wired = None if fabric is None else known.fabric(fabric)
        found = catalogs.joined(known, node, 1 if count is None else count, wired)
    else:
        named = node if count is None or isinstance(node, Path) else f"{node}:{count}"
        found, counts = placed(known, named, PlanOptions(fabric=fabric, region=region))
        if len(counts) > 1:
            raise WrongQuestion(f"{node}: one count of nodes here; plan() takes a range")
    if accelerator is not None:
        other = known.accelerator(accelerator) if isinstance(accelerator, str) else accelerator
        found = replace(found, accelerator=other, node=replace(found.node, accelerator=other.id))
    return checked(placed(known, found, PlanOptions(fabric=fabric, region=region))[0])


def as_model(given: str | Path | Model) -> str | Model:
    """A model as a question takes it; a changed record checked.

    Raises:
        WrongQuestion: a changed record that no model can have; every field that is wrong.
    """
    if not isinstance(given, Model):
        return str(given)
    found = checked(given)
    if wrong := model_rules.problems(found):
        raise WrongQuestion("\n".join(f"model.{problem}" for problem in wrong))
    return found


def as_clusters(given: Machines | Sequence[Machines]) -> list[Named]:
    """Clusters as a question takes them; changed records checked."""
    every = [given] if isinstance(given, Node) else listed(given)  # type: ignore[arg-type]
    whole = [cluster(each, 1) if isinstance(each, Node) else each for each in every]
    return [checked(each) if isinstance(each, Cluster) else each for each in whole]


def as_cluster(given: Machines) -> Cluster:
    """One cluster of the catalog, of a file, or as it is."""
    (found,) = as_clusters(given)
    return found if isinstance(found, Cluster) else placed(catalogs.load(), found, PlanOptions())[0]


def checked(record: Record) -> Record:
    """The record with texts such as ``"141 GB"`` read and every figure within its bounds.

    Raises:
        WrongQuestion: what is wrong, a line for each field.
    """
    kind = type(record)
    try:
        return typed.record(kind, plain(asdict(record)), {"si": True})
    except typed.Misfit as error:
        lines = [f"{_dotted(kind.__name__.lower(), *each.where)}{each.assigned}" for each in error.found]
        raise WrongQuestion("\n".join(lines)) from None


def _dotted(*where: str | int) -> str:
    return ".".join(map(str, where)) + " "


def _catalog(folder: str | Path | None) -> catalogs.Catalog:
    return catalogs.load(None if folder is None else Path(folder))
