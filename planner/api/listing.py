"""What the catalog and the model library hold: records in a row, which are a table too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from planner.api.entry import entry
from planner.catalog import Catalog, load
from planner.launchers import EXPORTERS
from planner.launchers.target import Exporter
from planner.models import workload
from planner.models.parameters import parameters
from planner.schema.hardware import Accelerator, Fabric, Node, Price, Region, Runtime
from planner.schema.record import Parts
from planner.schema.workload import Model

T = TypeVar("T")


@entry
def list_accelerators(*, catalog: str | Path | None = None) -> Parts[Accelerator]:
    """Every accelerator of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> float(list_accelerators().to_frame().set_index("id").loc["H100-SXM5-80GB", "memory_bytes"]) / 2**30
    80.0
    """
    return _listed(_loaded(catalog).accelerators, _accelerator)


@entry
def list_nodes(*, catalog: str | Path | None = None) -> Parts[Node]:
    """Every server, rack and cloud instance of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> [node.id for node in list_nodes() if node.accelerator == "H100-SXM5-80GB" and node.kind == "server"]
    ['dgx-h100', 'hgx-h100']
    """
    return _listed(_loaded(catalog).nodes, _node)


@entry
def list_fabrics(*, catalog: str | Path | None = None) -> Parts[Fabric]:
    """Every network between nodes of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> any(fabric.id == "infiniband-ndr" for fabric in list_fabrics())
    True
    """
    return _listed(_loaded(catalog).fabrics, _scalars)


@entry
def list_regions(*, catalog: str | Path | None = None) -> Parts[Region]:
    """Every region of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> any(region.id == "us" for region in list_regions())
    True
    """
    return _listed(_loaded(catalog).regions, _scalars)


@entry
def list_runtimes(*, catalog: str | Path | None = None) -> Parts[Runtime]:
    """Every training framework of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> any(runtime.id == "megatron-core" for runtime in list_runtimes())
    True
    """
    return _listed(_loaded(catalog).runtimes, lambda x: {"id": x.id, "name": x.name, "newest_release": x.releases[-1]})


@entry
def list_targets() -> Parts[Exporter]:
    """Every target of :func:`export`, to be chained with ``+``: what writes the files, and a table of it.

    Raises:
        TypeError: it takes no arguments.

    >>> any(target.name == "megatron" for target in list_targets())
    True
    """
    names = ("name", "role", "version", "level", "title")
    return _listed(EXPORTERS, lambda each: {name: getattr(each, name) for name in names})


@entry
def list_models(*, folder: str | Path | None = None) -> Parts[Model]:
    """Every transformer of the library: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> "llama3-8b" in [model.id for model in list_models()]
    True
    """
    return _listed(workload.library(None if folder is None else Path(folder)), _model)


def _loaded(catalog: str | Path | None) -> Catalog:
    return load(None if catalog is None else Path(catalog))


def _listed(found: Mapping[str, T], row: Callable[[T], dict[str, Any]]) -> Parts[T]:
    """Entries by id as records, and what of each stands in a row."""
    return Parts(found.values(), list(map(row, found.values())))


def _accelerator(each: Accelerator) -> dict[str, Any]:
    return {
        "id": each.id,
        "vendor": each.vendor,
        "generation": each.generation,
        "year": each.year,
        "bf16_flops_per_s": each.peak.get("bf16"),
        "memory_bytes": each.memory,
        "memory_bytes_per_s": each.memory_bandwidth,
        "scaleup_bytes_per_s": each.scaleup.bandwidth,
        "power_w": each.tdp,
        "purchase_usd": _usd(each.prices, "purchase"),
    }


def _node(each: Node) -> dict[str, Any]:
    return {
        "id": each.id,
        "kind": each.kind,
        "provider": each.provider,
        "accelerator": each.accelerator,
        "accelerators": each.accelerators,
        "nics": each.nics,
        "nic_bytes_per_s": each.nic_bandwidth,
        "fabric": each.fabric,
        "power_w": each.max_power,
        "purchase_usd": _usd(each.prices, "purchase"),
        "on_demand_usd_per_hour": _usd(each.prices, "on-demand"),
    }


def _model(each: Model) -> dict[str, Any]:
    counted = parameters(each)
    return {
        "id": each.id,
        "family": each.family,
        "layers": each.layers,
        "hidden": each.hidden,
        "parameters": counted.total,
        "active_parameters": counted.active,
        "seq_tokens": each.sequence,
        "batch_sequences": each.batch,
    }


UNITS = {
    "nic_bandwidth": "nic_bytes_per_s",
    "latency": "latency_s",
    "electricity": "electricity_usd_per_kwh",
    "carbon": "carbon_gco2e_per_kwh",
}
"""Field of an entry -> its column."""


def _scalars(each: Fabric | Region) -> dict[str, Any]:
    """The numbers and words of an entry, those with a unit under a name that says it."""
    plain = {name: value for name, value in vars(each).items() if isinstance(value, str | int | float)}
    return {UNITS.get(name, name): value for name, value in plain.items() if name not in ("source", "date", "notes")}


def _usd(prices: Iterable[Price], basis: str) -> float | None:
    """The first price of that kind."""
    return next((price.usd for price in prices if price.basis == basis), None)
