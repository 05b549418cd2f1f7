"""The catalog: built-in entries with the user's own over them, read when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar, cast

from planner.base.errors import WrongQuestion, same_but_case, suggestion
from planner.base.reading import short_hash
from planner.base.resources import data, own
from planner.catalog.checking import BUILT_IN, TYPES, build, format_problems
from planner.catalog.files import FOLDERS, FileProblem, misplaced
from planner.catalog.merge_layers import CatalogLayer, merged
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Entry, Fabric, Node, Region, Runtime

T = TypeVar("T")
Kind = TypeVar("Kind", bound=Entry)


class UnknownName(WrongQuestion):
    """A name that is in no catalog; the message gives the nearest ones that are."""

    def __init__(self, kind: str, name: str, choices: Mapping[str, object], listing: str = "") -> None:
        called = [id_ for id_, entry in choices.items() if name.lower() in getattr(entry, "called", ())]
        hint = f" Did you mean {', '.join(called)}?" if called else suggestion(name, choices)
        super().__init__(f"no {kind} {name!r}.{hint} ({listing or f'clusterwright catalog list {kind}s'})")


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

    def csv_files(self, folder: str) -> list[Path]:
        """Tables in a folder of every layer, the weakest layer's first, by name."""
        return [path for layer in self.layers for path in sorted((layer.folder / folder).glob("*.csv"))]

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
        """Origin -> short hash of the folder's files."""
        return {layer.origin: _hash(layer.folder) for layer in self.layers}

    def inputs(self) -> dict[str, str]:
        """The same as an answer states it among what it rests on: ``catalog ORIGIN`` -> short hash."""
        return {f"catalog {origin}": version for origin, version in self.versions().items()}

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
        folder = (site or Path(os.environ["CLUSTERWRIGHT_SITE"])).expanduser()
        if not folder.is_dir():
            named_by = f"--site {site}" if site else f"CLUSTERWRIGHT_SITE={folder}"
            raise WrongQuestion(f"{named_by}: no such folder; make a site with: clusterwright init site {folder}")
        layers.append(_own(folder / "catalog", "site"))
    if extra is not None:
        layers.append(_own(extra, "--catalog"))
    return _builtin() if len(layers) == 1 else Catalog(tuple(layers))


def version() -> str:
    """Short hash of the built-in catalog: every file's name and bytes."""
    return _hash(data("hardware_catalog"))


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
