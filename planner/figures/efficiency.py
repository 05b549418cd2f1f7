"""Which fitted efficiencies hold for an accelerator or a runtime's release, and what was fallen back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.catalog import BUILT_IN, Catalog
from planner.cost.figures import Stack
from planner.cost.nearness import OwnRuns
from planner.figures import cost_inputs, own_runs
from planner.schema.efficiency import AcceleratorEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Entry, Runtime

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Efficiencies, and the entries they came from."""

    accelerator: AcceleratorEfficiency
    runtime: RuntimeEfficiency
    notes: tuple[str, ...]
    """What was not measured itself, and what a user's own catalog replaces, in words."""
    own: OwnRuns | None = None
    """A site's runs under the runtime."""
    uncompiled: RuntimeEfficiency | None = None
    """The runtime's without compilation, where some of its schedules need that."""

    def without_compiler(self, runtime: Runtime, release: str, accelerator: Accelerator) -> Stack | None:
        """The figures of kernels and a loss that no compiler fuses, where some schedules of the runtime need that."""
        if self.uncompiled is None:
            return None
        return cost_inputs.stack(replace(runtime, fused_loss_since=""), self.uncompiled, release, accelerator)


def runtime_keys(names: tuple[str, ...], release: str, mode: str, generation: str) -> tuple[str, ...]:
    """Ids under which a runtime's efficiencies may stand, the most particular first; of several names the first's.

    ``name+mode``, ``name@release/generation``, ``name@release``, ``name/generation`` (kernels that were not written for
    a generation), ``name``.
    """
    return tuple(
        f"{name}{of}"
        for name in names
        for of in (f"+{mode}", f"@{release}/{generation}", f"@{release}", f"/{generation}", "")
    )


def accelerator_keys(accelerator: Accelerator) -> tuple[str, ...]:
    """Ids under which an accelerator's efficiencies may stand, the most particular first: its own, its generation, its
    vendor.
    """
    return (accelerator.id, accelerator.generation, accelerator.vendor)


def reached(catalog: Catalog, accelerator: Accelerator, runtime: Runtime, release: str) -> Efficiency:
    """An accelerator's own entry, else its generation's, its vendor's, or the default; a release's own entry, else its
    runtime's.
    """
    parts = catalog.accelerator_efficiencies
    notes = []
    part_id, generation, vendor = accelerator_keys(accelerator)
    part = parts.get(part_id) or parts.get(generation)
    if part is None:
        part = parts.get(vendor) or parts[DEFAULT]
        like = f"what {vendor}'s others are taken to" if vendor in parts else "what others do"
        notes.append(f"nothing measured on {generation}: kernels and links reach {like}")
    stacks = catalog.runtime_efficiencies
    keys = runtime_keys(runtime.known_as, release, "", accelerator.generation)
    stack = next((stacks[key] for key in keys if key in stacks), None)
    if stack is None:
        stack = stacks[DEFAULT]
        notes.append(f"nothing measured with {runtime.id}: overlap and overheads as in other runtimes")
    eager = (
        runtime_keys(runtime.known_as, release, "eager", accelerator.generation) if runtime.splits_uncompiled else ()
    )
    uncompiled = next((stacks[key] for key in eager if key in stacks), None)
    notes += _replaced(catalog, "accelerator_efficiencies", part, "kernels and links")
    notes += _replaced(catalog, "runtime_efficiencies", stack, "overlap and overheads")
    own_ = own_runs.read(catalog).get(own_runs.runtime_of(stack.id))
    return Efficiency(part, stack, tuple(notes), own_, uncompiled)


def _replaced(catalog: Catalog, kind: str, entry: Entry, what: str) -> list[str]:
    """Says of an entry that is not the built-in one whose it is."""
    if len(catalog.layers) < 2 or (origin := catalog.origins_of(kind)[entry.id]) == BUILT_IN:
        return []
    return [f"{what} as in {origin} ({entry.source.partition(';')[0]})"]


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """What predictions are made with: the catalog's entries, or candidates of a fit."""

    accelerators: Mapping[str, AcceleratorEfficiency]
    runtimes: Mapping[str, RuntimeEfficiency]
    own: Mapping[str, OwnRuns] = field(default_factory=dict)
    """A site's runs, by runtime."""

    @staticmethod
    def of(catalog: Catalog) -> Efficiencies:
        """The catalog's."""
        return Efficiencies(catalog.accelerator_efficiencies, catalog.runtime_efficiencies, own_runs.read(catalog))

    def accelerator(self, part: Accelerator) -> AcceleratorEfficiency:
        """An accelerator's own entry, its generation's, its vendor's, or the default."""
        keys = (*accelerator_keys(part), DEFAULT)
        return next(self.accelerators[key] for key in keys if key in self.accelerators)

    def runtime(self, names: tuple[str, ...], release: str, mode: str, generation: str) -> RuntimeEfficiency:
        """The most particular entry there is, or the default."""
        keys = (*runtime_keys(names, release, mode, generation), DEFAULT)
        return next(self.runtimes[key] for key in keys if key in self.runtimes)
