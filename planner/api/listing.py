"""What the catalog and the model library hold: records in a row, which are a table too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.api.entry import entry
from planner.catalog import load
from planner.models import workload
from planner.models.parameters import parameters
from planner.schema.hardware import Accelerator, Node, Price
from planner.schema.record import Parts
from planner.schema.workload import Model


@entry
def list_accelerators(*, catalog: str | Path | None = None) -> Parts[Accelerator]:
    """Every accelerator of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> float(list_accelerators().to_frame().set_index("id").loc["H100-SXM5-80GB", "memory_bytes"]) / 2**30
    80.0
    """
    found = load(None if catalog is None else Path(catalog)).accelerators.values()
    return Parts(found, [_accelerator(each) for each in found])


@entry
def list_nodes(*, catalog: str | Path | None = None) -> Parts[Node]:
    """Every server, rack and cloud instance of the catalog: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> [node.id for node in list_nodes() if node.accelerator == "H100-SXM5-80GB" and node.kind == "server"]
    ['dgx-h100', 'hgx-h100']
    """
    found = load(None if catalog is None else Path(catalog)).nodes.values()
    return Parts(found, [_node(each) for each in found])


@entry
def list_models(*, folder: str | Path | None = None) -> Parts[Model]:
    """Every transformer of the library: records, and with ``to_frame()`` a table.

    Raises:
        WrongQuestion: no such folder, or a file in it that is malformed.

    >>> "llama3-8b" in [model.id for model in list_models()]
    True
    """
    found = workload.library(None if folder is None else Path(folder)).values()
    return Parts(found, [_model(each) for each in found])


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


def _usd(prices: Iterable[Price], basis: str) -> float | None:
    """The first price of that kind."""
    return next((price.usd for price in prices if price.basis == basis), None)
