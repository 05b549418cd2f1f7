"""Catalog entries as table rows: ids first, figures in the units that people say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.base import units
from planner.commands.screen import render
from planner.schema.hardware import Accelerator, Entry, Fabric, Link, Node, Region, Runtime

if TYPE_CHECKING:
    from planner.schema.listings import CatalogImport, PriceRowRemark

Row = list[str]
_NOTHING = "-"
PRIORITY = {"nodes": ["fabric"], "fabrics": ["leaf nodes"], "regions": ["price read"]}
"""Columns that a narrow terminal loses first, after where an entry is from."""
FOLDED = {"regions": "name", "runtimes": "axes"}
"""Columns that a narrow terminal breaks over lines."""


def table(folder: str) -> tuple[list[str], str, Callable[[Any], Row]]:
    """Headers, alignment and the row of an entry for one kind."""
    tables: dict[str, tuple[list[str], str, Callable[[Any], Row]]] = {
        "accelerators": (
            ["id", "year", "bf16 TFLOP/s", "memory GiB", "GB/s", "scale-up GB/s", "W"],
            "lrrrrrr",
            _accelerator,
        ),
        "nodes": (["id", "accelerators", "NICs, Gbit/s", "fabric", "price"], "llllr", _node),
        "fabrics": (["id", "per port", "latency", "topology", "leaf nodes", "oversubscription"], "lrrlrr", _fabric),
        "regions": (["id", "name", "$/kWh", "gCO2e/kWh", "PUE", "price read"], "llrrrl", _region),
        "runtimes": (["id", "name", "newest release", "axes"], "llll", _runtime),
    }
    return tables.get(folder, (["id", "of", "date"], "lll", _efficiency))


def sheet(entry: Entry) -> list[Row]:
    """Every field of an entry but for prices and prose: name, value, and why it is only assumed, if it is."""
    rows = []
    for name, value in _flat(entry):
        why = next((why for key, why in entry.assumed.items() if name == key or name.startswith(f"{key}.")), "")
        rows.append([name, _shown(name, value), f"assumed: {why}" if why else ""])
    return rows


def prices(entry: Entry) -> list[Row]:
    """The prices of an accelerator or a node."""
    rows = []
    for price in getattr(entry, "prices", ()):
        source = f"{price.source} (assumed: {price.assumed})" if price.assumed else price.source
        per = "" if price.basis == "purchase" else "/h"
        rows.append([price.basis, f"{units.format_usd(price.usd)}{per}", price.region or _NOTHING, price.date, source])
    return rows


def gbits(bandwidth: float) -> str:
    """A port's rate as it is sold: ``400 Gbit/s``."""
    return f"{8 * bandwidth / 1e9:,.4g} Gbit/s"


# ---- one row a kind --------------------------------------------------------------------------------------------------


def _accelerator(entry: Accelerator) -> Row:
    # Parts without bf16 (Volta, Turing, Pascal) train in fp16.
    half = entry.peak.get("bf16") or entry.peak.get("fp16")
    figures = (
        (half, 1e12),
        (entry.memory, 2.0**30),
        (entry.memory_bandwidth, 1e9),
        (entry.scaleup.bandwidth, 1e9),
        (entry.tdp, 1.0),
    )
    return [entry.id, str(entry.year), *(_NOTHING if x is None else f"{x / unit:,.4g}" for x, unit in figures)]


def _node(entry: Node) -> Row:
    rate = entry.nic_bandwidth
    ports = f"{entry.nics} x {8 * rate / 1e9:,.4g}" if entry.nics and rate else _NOTHING
    return [entry.id, f"{entry.accelerators} x {entry.accelerator}", ports, entry.fabric or _NOTHING, _price(entry)]


def _price(entry: Node) -> str:
    """On demand if it is rented, else the purchase price, else nothing."""
    for basis, per in (("on-demand", "/h"), ("spot", "/h spot"), ("purchase", "")):
        for price in entry.prices:
            if price.basis == basis:
                return f"{units.format_usd(price.usd)}{per}"
    return _NOTHING


def _fabric(entry: Fabric) -> Row:
    speed = _gigabytes(entry.nic_bandwidth) if entry.kind == "ici" else gbits(entry.nic_bandwidth)
    return [
        entry.id,
        speed,
        f"{entry.latency * 1e6:g} us",
        entry.topology,
        f"{entry.leaf_nodes:,}",
        f"{entry.oversubscription:g}",
    ]


def _region(entry: Region) -> Row:
    read = "assumed" if "electricity" in entry.assumed else "yes"
    return [entry.id, entry.name, f"{entry.electricity:.4f}", f"{entry.carbon:.0f}", f"{entry.pue:g}", read]


def _runtime(entry: Runtime) -> Row:
    choices = [axis for axis, values in entry.axes.items() if values == "any" or len(values) > 1]
    return [entry.id, entry.name, entry.releases[-1], " ".join(choices)]


def _efficiency(entry: Entry) -> Row:
    return [entry.id, entry.name, entry.date or _NOTHING]


# ---- one value -------------------------------------------------------------------------------------------------------


def _binary(value: float) -> str:
    return f"{value / 2**30:,.4g} GiB" if value >= 2**30 else f"{value / 2**20:,.4g} MiB"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:,.5g} GB/s"


def _watts(value: float) -> str:
    return f"{value / 1e3:,.4g} kW" if value >= 2000 else f"{value:,.4g} W"


_UNITS: dict[str, Callable[[float], str]] = {
    "memory": _binary,
    "l2": _binary,
    "host_memory": _binary,
    "local_storage": lambda value: f"{value / 1e12:g} TB",
    "memory_bandwidth": _gigabytes,
    "host_bandwidth": _gigabytes,
    "bandwidth": _gigabytes,
    "pair_bandwidth": _gigabytes,
    "nic_bandwidth": gbits,
    "tdp": _watts,
    "max_power": _watts,
    "latency": lambda value: f"{value * 1e6:g} us",
    "electricity": lambda value: f"${value:.4f}/kWh",
    "carbon": lambda value: f"{value:.0f} gCO2e/kWh",
}


def _flat(entry: Entry) -> Iterator[tuple[str, object]]:
    """Fields and values, those of links and tables dotted below their own name; what is not stated is left out."""
    for field in fields(entry):
        value = getattr(entry, field.name)
        if field.name in ("id", "name", "source", "date", "assumed", "notes", "prices") or value is None:
            continue
        if isinstance(value, Link):
            parts = ((part.name, getattr(value, part.name)) for part in fields(value))
            yield from ((f"{field.name}.{name}", part) for name, part in parts if part is not None)
        elif isinstance(value, dict):
            yield from ((f"{field.name}.{name}", part) for name, part in value.items())
        else:
            yield field.name, value


def _shown(name: str, value: object) -> str:
    """A value in the unit of its field."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_shown("", part) for part in value)
    if isinstance(value, int | float):
        head, _, tail = name.partition(".")
        if head == "peak":
            return f"{value / 1e12:,.5g} {'TOP/s' if tail == 'int8' else 'TFLOP/s'}"
        form = _UNITS.get(tail or head)
        return form(value) if form else f"{value:g}"
    return str(value)


_REFUSED_SHOWN = 8


def _listed(label: str, rows: Sequence[PriceRowRemark]) -> None:
    """Rows and their reasons, each once."""
    counted = Counter((row.what, row.reason) for row in rows)
    for (what, reason), n in counted.most_common(_REFUSED_SHOWN):
        render.text(f"{label:<10}{what}: {reason}{f' ({n} rows)' if n > 1 else ''}")
    if len(counted) > _REFUSED_SHOWN:
        render.labelled("", f"and {len(counted) - _REFUSED_SHOWN} more (--json lists every row)")


def imported(found: CatalogImport, output: Path | None) -> None:
    """What an import took and what it left out."""
    rows = [[row["id"], row["basis"], f"${float(row['usd']):,.2f}", row["low"], row["high"], row["region"]]
            for row in found.prices]  # fmt: skip
    render.table(["instance", "price", "USD/h", "low", "high", "regions"], rows, align="llrrrl")
    render.text()
    _listed("skipped", found.refused)
    _listed("fixed", found.mended)
    if output is None:
        render.labelled("Next", "-o my-catalog writes them there; plan and procure take --catalog my-catalog")
    else:
        render.labelled("Next", f"plan and procure take --catalog {output}")
