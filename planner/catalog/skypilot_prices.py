"""SkyPilot's price lists (``~/.sky/catalogs/v8/<cloud>/vms.csv``) as price rows of this catalog.

The lists are read as data, by the names of their columns, and only for prices: counts, networks and memory of a known
instance are the catalog's own, since the lists are known to be wrong about some. What cannot be mapped is listed.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.catalog.files import MAX_BYTES, PRICE_COLUMNS
from planner.catalog.loading import Catalog
from planner.schema.hardware import Node
from planner.schema.listings import CatalogImport, PriceRowRemark

REQUIRED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
HOST_ONLY = re.compile(r"(a2|a3|n1|g2)-")
"""Google's instances that are listed without their accelerators, whose price stands in a row of its own."""
TPU = re.compile(r"tpu-(v\d+[a-z]*)-(\d+)")
CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}
"""Generations that count cores in their names; the others (v5e, v6e) count chips."""
TPU_CHIP = {"v2": "TPU-v2", "v3": "TPU-v3", "v4": "TPU-v4", "v5p": "TPU-v5p", "v5e": "TPU-v5e", "v5litepod": "TPU-v5e",
            "v6e": "TPU-v6e"}  # fmt: skip
ALIASES = {
    "A100": ("A100-SXM4-40GB", "A100-PCIE-40GB"),
    "A100-80GB": ("A100-SXM4-80GB", "A100-PCIE-80GB"),
    "H100": ("H100-SXM5-80GB", "H100-PCIE-80GB"),
    "H100-MEGA": ("H100-SXM5-80GB",),
    "H200": ("H200-SXM-141GB",),
    "B200": ("B200-SXM-180GB",),
    "B300": ("B300-SXM-288GB",),
    "V100": ("V100-SXM2-16GB",),
    "V100-32GB": ("V100-SXM2-32GB",),
    "Trainium": ("Trainium1",),
    "Trainium2": ("Trainium2",),
    "RTXA6000": ("RTX-A6000",),
    "A10G": ("A10G",),
    "L4": ("L4",),
}
"""Names in the lists that mean one of several accelerators, or are spelt otherwise here."""
INSTANCE_ALIASES = {
    ("lambda", "gpu_8x_h100_sxm5"): "lambda-8x-h100",
    ("lambda", "gpu_8x_a100_80gb_sxm4"): "lambda-8x-a100-80gb",
    ("lambda", "gpu_8x_v100"): "lambda-8x-v100",
    ("lambda", "gpu_4x_a6000"): "lambda-4x-a6000",
}
MEMORY_SLACK = 0.2
"""Share by which a listed memory may differ: lists say what software sees, or the nominal size."""
_NEBIUS = re.compile(r"gpu-(h100|h200|b200)-\w+_8gpu-.*")
US = re.compile(r"us[-a-z]|eastus|westus|centralus|southcentralus|.*us\d?$")

Remarks = list[PriceRowRemark]
"""Rows that could not be used, or not as they stand."""


@dataclass(frozen=True)
class _Row:
    cloud: str
    file: str
    line: int
    instance: str
    accelerator: str
    count: float
    price: float | None
    spot: float | None
    region: str
    zone: str
    info: object

    def remark(self, reason: str, what: str | None = None) -> PriceRowRemark:
        """Why the row, which is its instance's unless `what` says of what, could not be used, or not as it stands."""
        return PriceRowRemark(
            file=self.file, line=self.line, what=self.instance if what is None else what, reason=reason
        )


def read(folder: Path, known: Catalog, imported_on: str) -> CatalogImport:
    """The prices of the catalog's cloud instances in a folder of lists.

    Arguments:
        folder: holds ``<cloud>/vms.csv``, as ``~/.sky/catalogs/v8`` does, or is one such ``<cloud>`` folder.
        known: whose instances are priced.
        imported_on: the day of the import (ISO date): the lists carry no dates.

    Raises:
        WrongQuestion: no such folder, no list in it, or a list that is none.
    """
    lists = _lists(folder)
    refused: Remarks = []
    rows = [row for cloud, path in lists for row in _rows(cloud, path, refused)]
    offers: dict[str, list[tuple[_Row, float | None, float | None]]] = defaultdict(list)
    parts = _accelerator_prices(rows)
    mended: Remarks = []
    for row in rows:
        name, price, spot = _offer(row, parts, known, refused)
        if name:
            mended += _doubts(row, known.nodes[name], price, spot)
            offers[name].append((row, price, spot))
    prices = [line for name in sorted(offers) for line in _priced(name, offers[name], imported_on, refused)]
    return CatalogImport(prices=tuple(prices), refused=tuple(refused), mended=tuple(mended))


def _doubts(row: _Row, node: Node, price: float | None, spot: float | None) -> Iterator[PriceRowRemark]:
    """What of a row is not taken at its word."""
    if row.instance and row.count != node.accelerators:
        reason = (
            f"{row.count:g} accelerators are listed; its price was taken as that of the catalog's {node.accelerators}"
        )
        yield row.remark(reason)
    if price is not None and spot is not None and spot >= price:
        reason = f"a spot price of {spot:g} USD/h, not below the {price:g} on demand: no spot price was taken"
        yield row.remark(reason, row.instance or row.accelerator)


def as_csv(imported: CatalogImport) -> str:
    """The rows as the text of a price list."""
    out = io.StringIO()
    writer = csv.DictWriter(out, PRICE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(imported.prices)
    return out.getvalue()


# ---- files -----------------------------------------------------------------------------------------------------------


def _lists(folder: Path) -> list[tuple[str, Path]]:
    if not folder.is_dir():
        raise WrongQuestion(f"{folder}: no such folder; SkyPilot keeps its lists in ~/.sky/catalogs/v8")
    single = folder / "vms.csv"
    lists = (
        [(folder.name, single)] if single.is_file() else [(p.parent.name, p) for p in sorted(folder.glob("*/vms.csv"))]
    )
    if not lists:
        raise WrongQuestion(f"{folder}: holds no <cloud>/vms.csv; SkyPilot writes them on its first use (sky check)")
    return lists


def _rows(cloud: str, path: Path, refused: Remarks) -> Iterator[_Row]:
    text = reading.text(path, "a price list", 20 * MAX_BYTES)
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise WrongQuestion(f"{path}: no column {', '.join(missing)}: not one of SkyPilot's lists of instances")
    for fields in reader:
        row = _row(cloud, str(path), reader.line_num, fields, refused)
        if row is not None:
            yield row


def _row(cloud: str, file: str, line: int, fields: Mapping[str, str | None], refused: Remarks) -> _Row | None:
    def text(name: str) -> str:
        return (fields.get(name) or "").strip()

    try:
        return _Row(
            cloud=cloud,
            file=file,
            line=line,
            instance=text("InstanceType"),
            accelerator=text("AcceleratorName"),
            count=float(text("AcceleratorCount") or 0),  # may be "8.0"
            price=_amount(text("Price")),
            spot=_amount(text("SpotPrice")),
            region=text("Region"),
            zone=text("AvailabilityZone"),
            info=_info(text("GpuInfo")),
        )
    except ValueError as error:
        what = text("InstanceType") or text("AcceleratorName")
        refused.append(PriceRowRemark(file=file, line=line, what=what, reason=str(error)))
        return None


def _amount(text: str) -> float | None:
    """A price; None where none is listed, which is normal."""
    if text == "":
        return None
    value = float(text)
    if not 0 <= value < 1e7:
        raise ValueError(f"a price of {text} USD/h")
    return value or None


def _info(text: str) -> object:
    """A Python literal on most clouds, a bare name on others; never evaluated."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def memory_mib(info: object, accelerator: str) -> float | None:
    """MiB of one accelerator, as a list states it, its known slips mended: GiB written as MiB, a Trn2 node's memory
    for a chip's.
    """
    gpus = info.get("Gpus") if isinstance(info, dict) else None
    first = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], dict) else {}
    size = first.get("MemoryInfo", {}).get("SizeInMiB") if isinstance(first.get("MemoryInfo"), dict) else None
    if not isinstance(size, int | float) or size <= 0:
        return None
    if accelerator == "Trainium2" and size > 200_000:
        return 96.0 * 1024
    return float(size) * 1024 if size < 1000 else float(size)


# ---- rows to instances -----------------------------------------------------------------------------------------------

Parts = dict[tuple[str, str, str], tuple[float | None, float | None]]


def _accelerator_prices(rows: Iterable[_Row]) -> Parts:
    """(zone, accelerator, count) -> price and spot price of Google's accelerators, which are sold beside the host."""
    return {
        (row.zone or row.region, row.accelerator, f"{row.count:g}"): (row.price, row.spot)
        for row in rows
        if row.cloud == "gcp" and not row.instance and row.accelerator
    }


def _offer(row: _Row, parts: Parts, known: Catalog, refused: Remarks) -> tuple[str, float | None, float | None]:
    """The catalog's node that a row prices, with its prices a node; an empty name where there is none."""
    if not row.accelerator:
        return "", None, None  # a host, or half of an offer
    if not row.instance:
        return _tpu(row, known, refused)
    node = _node(row, known)
    if node is None:
        refused.append(row.remark("no such instance in the catalog"))
        return "", None, None
    wanted = ALIASES.get(row.accelerator, (row.accelerator,))
    if node.accelerator not in wanted:
        reason = f"{row.accelerator} is listed, and the catalog's {node.id} has {node.accelerator}"
        refused.append(row.remark(reason))
        return "", None, None
    size = memory_mib(row.info, row.accelerator)
    held = known.accelerators[node.accelerator].memory / 2**20
    if size is not None and abs(size / held - 1) > MEMORY_SLACK:
        reason = f"{size / 1024:.0f} GiB an accelerator are listed, and {node.accelerator} has {held / 1024:.0f}"
        refused.append(row.remark(reason))
        return "", None, None
    price, spot = row.price, row.spot
    if row.cloud == "gcp" and HOST_ONLY.match(row.instance):
        part = parts.get((row.zone or row.region, row.accelerator, f"{node.accelerators:g}"))
        if part is None:
            reason = "lists the host only, and no row gives the price of its accelerators in that zone"
            refused.append(row.remark(reason))
            return "", None, None
        price = price + part[0] if price and part[0] else None
        spot = spot + part[1] if spot and part[1] else None
    # A price counts for the whole node, and the catalog knows how many accelerators that has.
    return node.id, price, spot


def _node(row: _Row, known: Catalog) -> Node | None:
    """By the provider's own name; by this catalog's where it gives one of its own."""
    nebius = _NEBIUS.fullmatch(row.instance) if row.cloud == "nebius" else None
    name = f"nebius-8x-{nebius[1]}" if nebius else INSTANCE_ALIASES.get((row.cloud, row.instance), row.instance)
    name = name.removeprefix("Standard_") if row.cloud == "azure" else name
    node = known.nodes.get(name)
    return node if node is not None and node.kind == "cloud" else None


def _tpu(row: _Row, known: Catalog, refused: Remarks) -> tuple[str, float | None, float | None]:
    """A slice by its chips: the catalog's host of that generation, at the price of its own chips."""
    match = TPU.fullmatch(row.accelerator)
    if match is None:
        return "", None, None  # an accelerator's own price, joined with its hosts
    generation = match[1]
    number = int(match[2])
    chips = number / CORES_PER_CHIP.get(generation, 1)
    chip = TPU_CHIP.get(generation)
    node = next((n for n in known.nodes.values() if n.kind == "cloud" and n.accelerator == chip), None)
    if node is None or chips <= 0:
        refused.append(row.remark("no host of that generation in the catalog", row.accelerator))
        return "", None, None
    share = node.accelerators / chips
    return node.id, row.price and row.price * share, row.spot and row.spot * share


# ---- instances to prices ---------------------------------------------------------------------------------------------


def _priced(
    name: str,
    offers: list[tuple[_Row, float | None, float | None]],
    imported_on: str,
    refused: Remarks,
) -> Iterator[dict[str, str]]:
    """The median over zones (those of the United States, if any), and the range; a spot price only where it is below
    the price on demand.
    """
    home = [offer for offer in offers if US.match(offer[0].region)] or offers
    usual = [price for _, price, _ in home if price is not None]
    spots = [spot for _, price, spot in home if spot is not None and (price is None or spot < price)]
    first = offers[0][0]
    source = f"skypilot-catalog {first.cloud}/vms.csv, imported; the list carries no date"
    regions = ", ".join(sorted({row.region for row, _, _ in home})[:3])
    for basis, prices in (("on-demand", usual), ("spot", spots)):
        if prices:
            yield {
                "kind": "node",
                "id": name,
                "basis": basis,
                "usd": f"{statistics.median(prices):.6g}",
                "region": regions,
                "date": imported_on,
                "source": source + (", median of zones" if len(prices) > 1 else ""),
                "low": f"{min(prices):.6g}" if len(prices) > 1 else "",
                "high": f"{max(prices):.6g}" if len(prices) > 1 else "",
                "assumed": "",
            }
    if not usual and not spots:
        refused.append(first.remark("no price in any zone (capacity blocks only?)", name))
