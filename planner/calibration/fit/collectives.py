"""Timed collectives predicted and fitted, one accelerator's operation at a time.

A fit moves few figures of a prior entry (start and step of three protocols, their shares of the wire, the rate and how
it changes with the ranks, the ramp, the adding switch), each held to the prior, as
:mod:`planner.calibration.fit.least_squares` fits runs. Nothing is fitted to single rows.

How a source launched its calls is no property of links. A host that queues one call after another lets the device wait
when calls are shorter than launches: ``t = max(launch, t_links)``. Each source's launch is fitted along and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.calibration.fit.least_squares import Parameter, fit
from planner.calibration.fit.overlay import rounded
from planner.calibration.runs.collective_tables import CollectiveTable, TimedCollectives, read
from planner.catalog import Catalog
from planner.catalog.cluster import cluster
from planner.cost import nccl_algorithms
from planner.cost.collective_times import CollectiveGroup, group
from planner.cost.figures import Array, Network, stacked
from planner.cost.nccl_algorithms import NCCL_ALGORITHMS, PROTOCOLS, CollectiveLibrary
from planner.figures import cost_inputs
from planner.figures.efficiency import DEFAULT, Efficiencies
from planner.models import files
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency
from planner.schema.hardware import Accelerator, Cluster, Entry, Fabric, Topology

LEAST_BYTES = 4096
"""Smaller messages are not fitted: launches and timers are most of what is timed."""
_LARGEST_SERVER = 16
"""Accelerators; a node with more is a rack."""
FEWEST = 8
"""Rows that make a cell worth fitting."""
ROUNDS = 60
MOST = 1000
"""Accelerators beyond which rows are not fitted: no table states what halves rates there (oversubscription, hops)."""
LAUNCH, LAUNCH_SPREAD = 5e-6, 1.0
"""Seconds a source's host is taken to need between calls, below what any call takes, and how far (standard deviation
of the log): 2 to 14 us in two of three, 37 us at two deviations (a framework's eager calls)."""
_LAUNCHES = "launches"
IN_A_DOMAIN = ("ring", "nvls", "direct")
"""What NCCL takes inside one domain: its tree is a chain there, no faster than the ring."""


class CollectiveCell:
    """Rows of one operation in one domain; of one accelerator and library, or of several on links of one kind."""

    def __init__(self, rows: Sequence[TimedCollectives]) -> None:
        self.rows = tuple(rows)
        self.op, self.accelerator = rows[0].op, rows[0].accelerator
        self._adds = np.array([float(row.accelerator.adds_in_switch) for row in rows])
        self.ranks = np.array([row.ranks for row in rows])
        self.size = np.array([row.size for row in rows])
        self.measured = np.array([row.seconds for row in rows])
        sources, self.source = np.unique([row.source for row in rows], return_inverse=True)
        self.sources = len(sources)
        self._links = stacked([domain(row.accelerator) for row in rows])
        self._group = group(self._links, self.ranks, 1.0)

    def predict(self, using: Efficiencies) -> Predicted:
        """``max(launch, t_links)``, with the entry of the operation and the sources' launches that `using` holds."""
        entry: Any = using.accelerators[self.op]
        launches: Any = using.accelerators[_LAUNCHES]
        return Predicted(np.maximum(self.times(entry), launches.of(self.source)))

    def times(self, entry: CollectiveEfficiency) -> Array:
        """Seconds of every row on the links alone: the fastest of NCCL's algorithms and protocols."""
        library = CollectiveLibrary(
            protocols={self.op: cost_inputs.protocols(entry, self._links.scaleup)},
            switch=entry.switch * self._links.scaleup * self._adds,
            switch_step=entry.switch_step,
        )
        among = IN_A_DOMAIN if self.op != "send" else None
        by_method = nccl_algorithms.times(self._links, self.op, self.size, self._group, library, among)
        return np.asarray(np.min(list(by_method.values()), axis=0))


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions for every row of a cell."""

    time: Array


@dataclass(frozen=True, slots=True)
class Launches:
    """What hosts need between two calls, by the number of their source in a cell."""

    seconds: Mapping[str, float]

    def of(self, source: Array) -> Array:
        """Seconds of every row, by the numbers of their sources."""
        return np.asarray(np.array([self.seconds[str(row)] for row in range(len(self.seconds))])[source])


def domain(accelerator: Accelerator) -> Network:
    """The links of one domain as large as a group can be: no NICs."""
    link = accelerator.scaleup
    bandwidth = link.bandwidth or cost_inputs.HOST_BANDWIDTH
    return Network(
        accelerators=math.inf,
        domain=1e6,
        scaleup=bandwidth,
        scaleup_reduce=bandwidth,
        pair=link.pair_bandwidth or bandwidth,
        mesh=float(link.topology == "mesh"),
        bridged=float(link.topology == "pairs"),
        scaleup_latency=0.0,
        nic=bandwidth,
        nic_latency=0.0,
        spine=1.0,
        leaf=1e6,
        base=0.0,
        pipelining=0.0,
    )


def parameters(cell: CollectiveCell, prior: CollectiveEfficiency) -> Iterator[Parameter]:
    """What a cell's rows may move, and how far physics lets them (standard deviation of the log factor)."""

    def of(field: str, sd: float, most: float = math.inf) -> Parameter:
        return Parameter(field, "accelerators", (cell.op,), field, sd, most)

    for protocol in PROTOCOLS:
        yield of(f"base.{protocol}", 0.5)
        yield of(f"step.{protocol}", 0.7)
    yield of("share.LL", 0.3, 0.5)
    yield of("share.LL128", 0.15, 0.92)
    crowded = prior.crowding > 0
    yield of("rate", 1.0 if crowded else 0.3)
    yield of("ramp", 1.0)
    if prior.few > 0:
        yield of("few", 0.5, 1.5)
    if crowded:
        yield of("crowding", 1.0, 3.0)
    if prior.switch > 0:
        yield of("switch", 0.3)
        yield of("switch_step", 0.5)


def _launch_parameters(launches: Launches) -> Iterator[Parameter]:
    """Each source's launch: learned beside what is learned of the links."""
    for second in launches.seconds:
        yield Parameter(f"launch.{second}", "accelerators", (_LAUNCHES,), f"seconds.{second}", LAUNCH_SPREAD)


def _starts(cell: CollectiveCell, starting: Sequence[Parameter], chosen: NDArray[np.intp]) -> Iterator[Array]:
    """Where fits start: from the prior, from faster steps, and from launches as long as a source's shortest call.

    A launch shorter than every call has no slope, so a fit would never find it from below.
    """
    faster = np.array([-1.0 if parameter.name.startswith("step") else 0.0 for parameter in starting])
    hidden = np.zeros(cell.sources)
    shortest = hidden + LAUNCH
    for source in np.unique(cell.source[chosen]):
        shortest[source] = cell.measured[chosen][cell.source[chosen] == source].min()
    yield np.concatenate([0.0 * faster, hidden])
    yield np.concatenate([faster, hidden])
    yield np.concatenate([0.0 * faster, np.log(shortest / LAUNCH)])


def fitted(cell: CollectiveCell, prior: CollectiveEfficiency, rows: Array | None = None) -> CollectiveEfficiency:
    """The prior with its figures moved towards a cell's rows (all, or those that a mask names)."""
    chosen = np.flatnonzero(np.ones(len(cell.measured), dtype=bool) if rows is None else rows)
    launches = Launches({str(source): LAUNCH for source in range(cell.sources)})
    base: Any = Efficiencies({cell.op: prior, _LAUNCHES: launches}, {})  # type: ignore[dict-item] # figures are figures
    moving = tuple(parameters(cell, prior))
    moved = (*moving, *_launch_parameters(launches))
    weight = np.ones(len(chosen))
    fits = [fit(cell, base, moved, chosen, weight, start, ROUNDS) for start in _starts(cell, moving, chosen)]
    best: Any = min(fits, key=lambda source: source.loss).efficiencies.accelerators[cell.op]
    return best  # type: ignore[no-any-return]


def prior_of(entries: Mapping[str, CollectiveEfficiency], accelerator: Accelerator, op: str) -> CollectiveEfficiency:
    """The entry that a fit starts from: the generation's, or its topology's; an all-gather's for what has none.

    Raises:
        WrongQuestion: there is none for such a link.
    """
    for name in (op, "all-gather"):
        for key in cost_inputs.collective_keys(accelerator):
            if f"{key}/{name}" in entries:
                return entries[f"{key}/{name}"]
    raise WrongQuestion(f"{accelerator.id}: no prior for collectives on a {accelerator.scaleup.topology} link")


def cells(rows: Sequence[TimedCollectives], by_backend: bool = True) -> dict[tuple[str, str, str], CollectiveCell]:
    """``(hardware, backend, operation)`` -> its rows in one domain, from :data:`LEAST_BYTES`, at least `FEWEST`."""
    grouped: dict[tuple[str, str, str], list[TimedCollectives]] = {}
    for row in rows:
        if not row.node and row.size >= LEAST_BYTES and row.ranks > 1:
            key = (row.hardware or row.accelerator.id, row.backend if by_backend else "", row.op)
            grouped.setdefault(key, []).append(row)
    return {key: CollectiveCell(members) for key, members in grouped.items() if len(members) >= FEWEST}


def entries(
    rows: Sequence[TimedCollectives], priors: Mapping[str, CollectiveEfficiency], source: str, date: str
) -> dict[str, CollectiveEfficiency]:
    """Entries fitted to rows in one domain: of generations on switches, then of accelerators.

    A generation's is the prior of its accelerators', so that what a part's rows do not show is as in its kin.
    """
    by_key: dict[str, CollectiveEfficiency] = {}
    for particular in (False, True):
        grouped: dict[str, list[TimedCollectives]] = {}
        for row in rows:
            if not row.node and row.size >= LEAST_BYTES and row.ranks > 1:
                own_key, *general, _ = cost_inputs.collective_keys(row.accelerator)
                for key in [own_key] if particular else general:
                    grouped.setdefault(f"{key}/{row.op}", []).append(row)
        known = {**priors, **by_key}
        for name, members in sorted(grouped.items()):
            if len(members) >= FEWEST:
                by_key[name] = _entry(
                    name, CollectiveCell(members), known, f"{len(members)} rows of {source}, {date}", date
                )
    return by_key


def _entry(
    name: str, cell: CollectiveCell, known: Mapping[str, CollectiveEfficiency], citation: str, date: str
) -> CollectiveEfficiency:
    entry = fitted(cell, prior_of(known, cell.accelerator, cell.op))
    if not any(row.accelerator.adds_in_switch for row in cell.rows):
        entry = replace(entry, switch=0.0, switch_step=0.0)
    figures = {field.name: rounded(getattr(entry, field.name)) for field in fields(entry)}
    label = f"{name.split('/')[0]}, {cell.op}"
    return replace(entry, **{**figures, "id": name, "name": label, "source": citation, "date": date, "assumed": {}})


class Across:
    """Rows over several nodes on one fabric."""

    def __init__(
        self, rows: Sequence[TimedCollectives], catalog: Catalog, using: Mapping[str, CollectiveEfficiency]
    ) -> None:
        self.rows, self._using = tuple(rows), using
        self.measured = np.array([row.seconds for row in rows])
        kinds: dict[tuple[str, str, str, float, float], list[int]] = {}
        for place, row in enumerate(rows):
            kinds.setdefault((row.node, row.fabric, row.op, row.ranks, row.nodes), []).append(place)
        self._kinds = [(np.array(places), placed(rows[places[0]], catalog)) for places in kinds.values()]
        self._sizes = np.array([row.size for row in rows])

    def predict(self, using: Efficiencies) -> Predicted:
        """With the one fabric entry that `using` holds."""
        entry: Any = using.accelerators["fabric"]
        return Predicted(self.times({"default": entry}))

    def times(self, fabrics: Mapping[str, FabricEfficiency]) -> Array:
        """Seconds of every row: the fastest of NCCL's algorithms and protocols."""
        seconds = np.zeros(len(self.rows))
        for places, (op, made, network, g) in self._kinds:
            library = cost_inputs.library(made, self._using, fabrics)
            table = nccl_algorithms.times(network, op, self._sizes[places], g, library, (*NCCL_ALGORITHMS, "direct"))
            seconds[places] = np.min(list(table.values()), axis=0)
        return seconds


def placed(
    row: TimedCollectives, catalog: Catalog, reached: AcceleratorEfficiency | None = None
) -> tuple[str, Cluster, Network, CollectiveGroup]:
    """Where a row's ranks are: alike on its nodes, one beside the other, or one a node.

    Arguments:
        row: timed over several nodes.
        catalog: that knows them.
        reached: what its accelerators reach of their links; else the default's.
    """
    node = catalog.node(row.node)
    racks = node.accelerators > _LARGEST_SERVER  # tables count trays where the catalog counts racks
    made = cluster(catalog, row.node, math.ceil(row.ranks / node.accelerators) if racks else int(row.nodes), row.fabric)
    stride = 1.0 if racks else max(node.accelerators * row.nodes / row.ranks, 1.0)
    network = cost_inputs.network(made, reached or catalog.accelerator_efficiencies[DEFAULT])
    return row.op, made, network, group(network, row.ranks, stride)


def fitted_fabric(rows: Across, prior: FabricEfficiency, chosen: Array | None = None) -> FabricEfficiency:
    """A fabric's step, ramp and reachable NICs, by rows over several nodes (all, or those that a mask names)."""
    index = np.flatnonzero(np.ones(len(rows.measured), dtype=bool) if chosen is None else chosen)
    base: Any = Efficiencies({"fabric": prior}, {})  # type: ignore[dict-item] # figures are figures
    spread = (("hop", 1.0, math.inf), ("ramp", 0.7, math.inf), ("nic", 0.2, 1.0))
    moved = tuple(Parameter(field, "accelerators", ("fabric",), field, sd, most) for field, sd, most in spread)
    efficiencies: Any = fit(rows, base, moved, index, np.ones(len(index)), rounds=ROUNDS).efficiencies.accelerators[
        "fabric"
    ]
    return efficiencies  # type: ignore[no-any-return]


def fabric_entries(
    rows: Sequence[TimedCollectives],
    catalog: Catalog,
    using: Mapping[str, CollectiveEfficiency],
    source: str,
    date: str,
) -> dict[str, FabricEfficiency]:
    """Entries of fabrics, fitted to rows over several nodes, with what is known of the domains."""
    grouped: dict[str, list[TimedCollectives]] = {}
    for row in rows:
        if row.node and row.ranks <= MOST:
            grouped.setdefault(row.fabric, []).append(row)
    by_fabric = {}
    for name, members in sorted(grouped.items()):
        if len(members) >= FEWEST:
            fabric = catalog.fabric(name)
            entry = fitted_fabric(Across(members, catalog, using), fabric_prior(catalog.fabric_efficiencies, fabric))
            citation = f"{len(members)} rows of {source}, {date}"
            figures = {figure: rounded(getattr(entry, figure)) for figure in ("nic", "hop", "ramp")}
            by_fabric[name] = replace(
                entry, **figures, id=name, name=fabric.name, source=citation, date=date, assumed={}
            )
    return by_fabric


def fabric_prior(entries: Mapping[str, FabricEfficiency], fabric: Fabric) -> FabricEfficiency:
    """The entry that a fabric's fit starts from: its kind's, or the default."""
    return entries.get(fabric.kind) or entries[DEFAULT]


def topologies(entries: Mapping[str, CollectiveEfficiency]) -> dict[str, CollectiveEfficiency]:
    """The entries that were not fitted: what links of a topology are taken to reach."""
    return {name: entry for name, entry in entries.items() if name.split("/")[0] in get_args(Topology)}


@dataclass(frozen=True, slots=True)
class CollectiveCalibration:
    """What a table of collectives led to."""

    table: CollectiveTable
    entries: Mapping[str, CollectiveEfficiency]
    fabrics: Mapping[str, FabricEfficiency]
    errors: tuple[tuple[str, int, float, float], ...]
    """``(what, rows, MAPE before, after)``; before: with what the fit started from."""
    written: tuple[Path, ...]


def calibrate(path: Path, folder: Path, catalog: Catalog, accelerator: str | None, date: str) -> CollectiveCalibration:
    """Fits a table and writes ``collective_efficiencies`` and ``fabric_efficiencies`` below a folder.

    Starts from what topologies are taken to reach, or, for one named accelerator, from what the catalog holds for it.

    Raises:
        WrongQuestion: a malformed table, one without enough usable rows, or a file that cannot be written.
    """
    table = read(path, catalog, accelerator)
    known = catalog.collective_efficiencies
    priors = dict(known) if accelerator else topologies(known)
    entries_found = entries(table.rows, priors, path.name, date)
    parts = {key for part in catalog.accelerators.values() for key in cost_inputs.collective_keys(part)}
    fitted_here = entries_found
    entries_found = {name: entry for name, entry in entries_found.items() if name.split("/")[0] in parts}
    if accelerator:
        entries_found = {name: entry for name, entry in entries_found.items() if name.split("/")[0] == accelerator}
    fabrics = fabric_entries(table.rows, catalog, {**known, **entries_found}, path.name, date)
    if not entries_found and not fabrics:
        reasons = "; ".join(f"{count} {reason}" for reason, count in table.left_out.items())
        raise WrongQuestion(
            f"{path}: no accelerator and operation with {FEWEST} rows of 4 KiB or more"
            + (f" (excluded: {reasons}; --accelerator ID names what was timed)" if reasons else "")
        )
    errors = []
    for (hardware, _, op), cell in sorted(cells(table.rows, by_backend=False).items()):
        after = cell.times(prior_of({**priors, **fitted_here}, cell.accelerator, op))
        before = cell.times(prior_of(priors, cell.accelerator, op))
        errors.append((f"{hardware}, {op}", len(cell.rows), _mape(before, cell.measured), _mape(after, cell.measured)))
    for name, entry in fabrics.items():
        rows = Across(
            [row for row in table.rows if row.fabric == name and row.ranks <= MOST], catalog, {**known, **entries_found}
        )
        prior = fabric_prior(catalog.fabric_efficiencies, catalog.fabric(name))
        before, after = (rows.times({DEFAULT: record}) for record in (prior, entry))
        errors.append((name, len(rows.rows), _mape(before, rows.measured), _mape(after, rows.measured)))
    written = tuple(
        write_entries(folder / kind, entries_, f"{path.name}, {date}")
        for kind, entries_ in (("collective_efficiencies", entries_found), ("fabric_efficiencies", fabrics))
        if entries_
    )
    return CollectiveCalibration(table, entries_found, fabrics, tuple(errors), written)


def _mape(predicted: Array, measured: Array) -> float:
    return float(np.mean(np.abs(predicted / measured - 1.0)))


def write_entries(folder: Path, entries_found: Mapping[str, Entry], source: str) -> Path:
    """Writes ``FOLDER/fitted.toml``."""
    writing.make_folder(folder)
    header = f"# Fitted by `clusterwright calibrate --collectives`: {source}. Do not edit; fit again.\n"
    path = folder / "fitted.toml"
    writing.write(path, "\n".join([header, *map(files.dump, entries_found.values())]), replace=True)
    return path
