"""The catalog: built-in entries with the user's own over them, read when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from planner.base.errors import WrongQuestion, same_but_case, suggestion
from planner.base.reading import short_hash
from planner.base.resources import data, own
from planner.catalog.checked_records import TYPES, build, dangling, hint
from planner.catalog.files import FOLDERS, FileProblem, FileRecord, misplaced, read_entries, read_prices
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Entry, Fabric, Node, Region, Runtime

T = TypeVar("T")
Kind = TypeVar("Kind", bound=Entry)
BUILT_IN = "built-in"
_SHOWN = 10
"""Problems that one error message lists; `catalog check` lists all."""


class UnknownName(WrongQuestion):
    """A name that is in no catalog; the message gives the nearest ones that are."""

    def __init__(self, kind: str, name: str, choices: Mapping[str, object], listing: str = "") -> None:
        hint = suggestion(name, choices)
        super().__init__(f"no {kind} {name!r}.{hint} ({listing or f'clusterwright catalog list {kind}s'})")


@dataclass(frozen=True)
class CatalogLayer:
    """One catalog folder, and what to call it."""

    origin: str
    folder: Path


def _entries(kind: type[Kind]) -> cached_property[Mapping[str, Kind]]:
    """A catalog's entries of one kind by id, read when they are first used."""
    folder = next(name for name, record in TYPES.items() if record is kind)
    return cached_property(lambda catalog: catalog._built(folder))


@dataclass(frozen=True)
class Catalog:
    """Everything that can be chosen. A kind is read and checked when it is first used.

    Every access raises :class:`WrongQuestion`, naming file, line and key, if a file of that kind is wrong.
    """

    layers: tuple[CatalogLayer, ...]
    """Weakest first: an entry of a later one replaces that of an earlier one."""

    def holding(self, nodes: Iterable[Node]) -> Catalog:
        """A catalog with these nodes in place of those with their ids."""
        catalog = replace(self)
        catalog.__dict__["nodes"] = {**self.nodes, **{node.id: node for node in nodes}}
        return catalog

    accelerators = _entries(Accelerator)
    """Accelerators by id."""
    nodes = _entries(Node)
    """Nodes by id."""
    fabrics = _entries(Fabric)
    """Fabrics by id."""
    regions = _entries(Region)
    """Regions by id."""
    runtimes = _entries(Runtime)
    """Runtimes by id."""
    accelerator_efficiencies = _entries(AcceleratorEfficiency)
    """What kernels and links reach, by accelerator or generation."""
    runtime_efficiencies = _entries(RuntimeEfficiency)
    """What frameworks make of them, by runtime or ``runtime@release``."""
    collective_efficiencies = _entries(CollectiveEfficiency)
    """What collective libraries reach in a domain, by accelerator, generation or topology, and operation."""
    fabric_efficiencies = _entries(FabricEfficiency)
    """What they reach between domains, by fabric or kind of fabric."""

    def entries(self, kind: str) -> Mapping[str, Entry]:
        """The entries of one of :data:`~planner.catalog.files.FOLDERS`, by id."""
        return cast("Mapping[str, Entry]", getattr(self, kind))

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator with this id; :class:`UnknownName` if there is none."""
        return _found("accelerator", name, self.accelerators)

    def node(self, name: str) -> Node:
        """The node with this id; :class:`UnknownName` if there is none."""
        return _found("node", name, self.nodes)

    def fabric(self, name: str) -> Fabric:
        """The fabric with this id; :class:`UnknownName` if there is none."""
        return _found("fabric", name, self.fabrics)

    def region(self, name: str) -> Region:
        """The region with this id; :class:`UnknownName` if there is none."""
        return _found("region", name, self.regions)

    def runtime(self, name: str) -> Runtime:
        """The runtime with this id; :class:`UnknownName` if there is none."""
        return _found("runtime", name, self.runtimes)

    @cached_property
    def origins(self) -> Mapping[str, Mapping[str, str]]:
        """Kind -> id -> where the entry comes from: ``built-in`` or a file."""
        return {kind: self.origins_of(kind) for kind in FOLDERS}

    def origins_of(self, kind: str) -> Mapping[str, str]:
        """As :attr:`origins`, for one kind."""
        self.entries(kind)
        return {name: record.origin for name, record in merged(self.layers, kind, []).items()}

    def versions(self) -> dict[str, str]:
        """Origin -> short hash of the folder's files: what a plan records of the catalogs that it was made from."""
        return {layer.origin: _hash(layer.folder) for layer in self.layers}

    def _built(self, kind: str) -> dict[str, Entry]:
        problems: list[FileProblem] = []
        records = merged(self.layers, kind, problems)
        built = {name: build(TYPES[kind], name, record, problems) for name, record in records.items()}
        if problems:
            raise WrongQuestion(format_problems(problems))
        return {name: entry for name, entry in built.items() if entry is not None}


def load(extra: Path | None = None, site: Path | None = None) -> Catalog:
    """The built-in catalog under the user's own: config folder < ``CLUSTERWRIGHT_CATALOG`` < site < `extra`.

    The config folder is ``clusterwright/catalog`` in ``$XDG_CONFIG_HOME`` or ``~/.config``; it need not exist. A site's
    catalog is ``catalog`` in the folder `site`, or in ``CLUSTERWRIGHT_SITE``.

    Raises:
        WrongQuestion: a folder that was named does not exist, or holds things that no catalog has.
    """
    layers = [CatalogLayer(BUILT_IN, data("hardware_catalog"))]
    if config := own("catalog"):
        layers.append(_own(config, "config folder"))
    if named := os.environ.get("CLUSTERWRIGHT_CATALOG"):
        layers.append(_own(Path(named), "CLUSTERWRIGHT_CATALOG"))
    if site is not None or os.environ.get("CLUSTERWRIGHT_SITE"):
        folder = site or Path(os.environ["CLUSTERWRIGHT_SITE"])
        layers.append(_own(folder.expanduser() / "catalog", "site"))
    if extra is not None:
        layers.append(_own(extra, "--catalog"))
    return _builtin() if len(layers) == 1 else Catalog(tuple(layers))


def version() -> str:
    """Short hash of the built-in catalog: every file's name and bytes."""
    return _hash(data("hardware_catalog"))


def problems(folder: Path) -> list[FileProblem]:
    """Every problem of a catalog folder at once, in order of file and line.

    Raises:
        WrongQuestion: there is no such folder.
    """
    if not folder.is_dir():
        raise WrongQuestion(f"{folder}: no such catalog folder")
    base = CatalogLayer(BUILT_IN, data("hardware_catalog"))
    layer = CatalogLayer("checked", folder)
    layers = (layer,) if folder.resolve() == base.folder.resolve() else (base, layer)
    misplaced_files = misplaced(folder)
    records = {kind: merged(layers, kind, misplaced_files) for kind in FOLDERS}
    for kind in FOLDERS:
        for name, record in records[kind].items():
            build(TYPES[kind], name, record, misplaced_files)
            dangling(kind, name, record, records, misplaced_files)
    # An entry of the base may carry a price of this folder, and the other way round: the file decides.
    return sorted(
        {problem for problem in misplaced_files if folder == Path(problem.file) or folder in Path(problem.file).parents}
    )


def merged(layers: tuple[CatalogLayer, ...], kind: str, problems: list[FileProblem]) -> dict[str, FileRecord]:
    """Every entry of one kind as its strongest layer gives it, prices joined, `extends` filled in, fields unchecked."""
    records: dict[str, FileRecord] = {}
    for layer in layers:
        layer_entries = read_entries(layer.folder, kind, layer.origin, problems)
        for name in layer_entries:
            _extend(name, layer_entries, records, problems)
        records |= layer_entries
        _join_prices(layer, kind, records, problems)
    return records


def format_problems(problems: list[FileProblem], limit: int | None = _SHOWN) -> str:
    """Several problems as one message, the first `limit` of them in full."""
    lines = [str(problem) for problem in sorted(set(problems))]
    more = [f"and {len(lines) - limit} more (clusterwright catalog check DIR)"] if limit and len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def _extend(
    name: str, entries: Mapping[str, FileRecord], below: Mapping[str, FileRecord], problems: list[FileProblem]
) -> None:
    """Fills an entry that says ``extends = "other"``, after that other and whatever it extends itself."""
    waiting: dict[str, str] = {}
    while name in entries and "extends" in entries[name].fields:
        waiting[name] = str(entries[name].fields.pop("extends"))
        name = waiting[name]
    while waiting:
        name, other = waiting.popitem()
        # An entry may extend the weaker one of its own name, which it replaces.
        base = (entries.get(other) if other != name else None) or below.get(other)
        if base is not None and other not in waiting:
            _inherit(entries[name], base, name)
            continue
        file, line = entries[name].place(("extends",))
        reason = "extends itself" if base else f"no such entry{hint(other, chain(below, entries), problems)}"
        problems.append(FileProblem(file, line, f'{name}.extends = "{other}"', reason))
        entries[name].broken = True


def _inherit(record: FileRecord, base: FileRecord, name: str) -> None:
    """Fills an entry with the fields of the one that it extends; its own win."""
    inherited = {key: value for key, value in base.fields.items() if key != "prices" or "prices" not in record.fields}
    if "prices" not in record.fields:
        record.price_lines = list(base.price_lines)
    record.fields = {**inherited, **record.fields}
    stated = record.document.data.get(name, {})
    # What an entry is without has no date.
    since = inherited.get("since")
    if isinstance(since, dict) and "since" not in stated:
        none = {key.removesuffix("_zero") for key, value in stated.items() if value in ([], False, 0)}
        record.fields["since"] = {what: date for what, date in since.items() if what not in none}
    # What an entry states itself is no longer assumed.
    assumed = base.fields.get("assumed")
    if isinstance(assumed, dict) and "assumed" not in stated:
        record.fields["assumed"] = {key: why for key, why in assumed.items() if key.split(".")[0] not in stated}


def _join_prices(layer: CatalogLayer, kind: str, records: dict[str, FileRecord], problems: list[FileProblem]) -> None:
    """Add a folder's price lists to its entries; they replace weaker prices of the same basis."""
    if kind not in ("accelerators", "nodes"):
        return
    fresh: dict[str, list[Any]] = {}
    for row in read_prices(layer.folder, problems):
        if row.kind == kind:
            fresh.setdefault(row.id, []).append(row)
    for name, rows in fresh.items():
        record = records.get(name)
        if record is None:
            reason = f"no such {kind[:-1]}{hint(name, records, problems)}"
            problems.extend(FileProblem(row.file, row.line, name, reason) for row in rows)
            continue
        renewed = {row.fields.get("basis") for row in rows}
        old = record.fields.get("prices", [])
        if not isinstance(old, list):
            continue  # the entry itself will be refused
        kept = [n for n, price in enumerate(old) if not isinstance(price, dict) or price.get("basis") not in renewed]
        record.fields["prices"] = [old[n] for n in kept] + [row.fields for row in rows]
        record.price_lines = [record.price_lines[n] for n in kept] + [(row.file, row.line) for row in rows]


def _own(folder: Path, origin: str) -> CatalogLayer:
    if not folder.is_dir():
        raise WrongQuestion(f"{origin}: no such catalog folder: {folder}")
    if wrong := misplaced(folder):
        raise WrongQuestion(format_problems(wrong))
    return CatalogLayer(origin, folder)


@cache
def _builtin() -> Catalog:
    return Catalog((CatalogLayer(BUILT_IN, data("hardware_catalog")),))


def _found(kind: str, name: str, entries: Mapping[str, T]) -> T:
    spelt = name if name in entries else same_but_case(name, entries)
    if spelt is None:
        raise UnknownName(kind, name, entries)
    return entries[spelt]


def _hash(folder: Path) -> str:
    parts = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".toml", ".csv"):
            content = path.read_bytes()
            parts += [f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode(), content]
    return short_hash(b"".join(parts), 12)
