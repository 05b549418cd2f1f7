"""Which fitted efficiencies hold for an accelerator or a runtime's release, and what was fallen back to."""

from __future__ import annotations

from dataclasses import dataclass

from planner.catalog import Catalog
from planner.schema.efficiency import AcceleratorEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Runtime

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Reached:
    """Efficiencies, and the entries they came from."""

    accelerator: AcceleratorEfficiency
    runtime: RuntimeEfficiency
    fallbacks: tuple[str, ...]
    """What was not measured itself, in words."""


def runtime_keys(name: str, release: str, mode: str, generation: str) -> tuple[str, ...]:
    """Ids under which a runtime's efficiencies may stand, the most particular first.

    ``name+mode``, ``name@release``, ``name/generation`` (kernels that were not written for a generation), ``name``.
    """
    return (f"{name}+{mode}", f"{name}@{release}", f"{name}/{generation}", name)


def reached(catalog: Catalog, accelerator: Accelerator, runtime: Runtime, release: str) -> Reached:
    """An accelerator's own entry, else its generation's, else the default; a release's own entry, else its
    runtime's.
    """
    parts, fallbacks = catalog.accelerator_efficiencies, []
    part = parts.get(accelerator.id) or parts.get(accelerator.generation)
    if part is None:
        part = parts[DEFAULT]
        fallbacks.append(f"nothing measured on {accelerator.generation}: kernels and links reach what others do")
    stacks = catalog.runtime_efficiencies
    keys = runtime_keys(runtime.id, release, "", accelerator.generation)
    stack = next((stacks[key] for key in keys if key in stacks), None)
    if stack is None:
        stack = stacks[DEFAULT]
        fallbacks.append(f"nothing measured with {runtime.id}: overlap and overheads as in other runtimes")
    return Reached(part, stack, tuple(fallbacks))
