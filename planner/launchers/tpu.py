"""TPU slices: chips that one torus joins, as Google's clusters name and deal them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import prod

from planner.schema.plan import Plan, Pool

LABELS = {
    "TPU-v4": "tpu-v4-podslice",
    "TPU-v5e": "tpu-v5-lite-podslice",
    "TPU-v5p": "tpu-v5p-slice",
    "TPU-v6e": "tpu-v6e-slice",
}
"""Accelerator -> label ``cloud.google.com/gke-tpu-accelerator`` of its nodes (GKE, "Plan TPUs in GKE"). Of v3 and v7x a
chip is two devices to JAX, which plans do not count."""
FLAT = ("TPU-v5e", "TPU-v6e")
"""Accelerators whose torus has two dimensions."""
HOST = 4
"""Chips of a host where a slice has several (those of v5e and v6e hold eight in slices of one host)."""
RESOURCE = "google.com/tpu"


def slices(plan: Plan) -> int:
    """Slices of the plan's pool: as many as its pods have to be, each as large.

    A pod is the leaf of the fabric; what lies beyond goes over the data-centre network.
    """
    count, pod = plan.cluster.pools[0].count, max(plan.cluster.fabric.leaf_nodes, 1)
    return next(n for n in range(1, count + 1) if count % n == 0 and count // n <= pod)


def chips(plan: Plan) -> int:
    """Chips of one slice."""
    return plan.cluster.accelerators // slices(plan)


def hosts(plan: Plan) -> int:
    """Hosts of one slice, each a pod of Kubernetes."""
    own = plan.cluster.pools[0].accelerators_per_node
    return 1 if chips(plan) <= own else chips(plan) // HOST


def topology(accelerator: str, chips: int) -> str:
    """The torus of a slice: ``4x4x8``; empty where none has as many chips.

    Flat ones: sides of powers of two up to 16, one at most twice the other. Others: below 64 chips 2 x 2 x 1 doubled,
    from there the sides are multiples of 4 and as equal as they can be (AI-Hypercomputer/maxtext e591f30c,
    utils/accelerator_to_spec_map.py).
    """
    if accelerator in FLAT:
        sides = [(a, b) for a in (1, 2, 4, 8, 16) for b in (a, 2 * a) if b <= 16]
        return next((f"{a}x{b}" for a, b in sides if a * b == chips), "")
    if chips < 64:
        return {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}.get(chips, "")
    cubes = [found for found in _thirds(chips // 64) if prod(found) * 64 == chips]
    return "x".join(str(4 * side) for side in min(cubes, key=max)) if cubes else ""


def _thirds(number: int) -> Iterator[tuple[int, ...]]:
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return (found for found in combinations_with_replacement(divisors, 3) if prod(found) == number)


def is_one(pool: Pool) -> bool:
    """Whether a pool is of TPUs."""
    return pool.vendor == "Google"


def refuses(plan: Plan) -> Iterator[str]:
    """Slices that no pod is cut into."""
    pool = plan.cluster.pools[0]
    if len(plan.cluster.pools) > 1:
        yield "TPUs in several pools: slices are identical"
    elif pool.accelerator not in LABELS:
        yield f"{pool.accelerator}: a chip is two devices there, or unknown (it has {', '.join(LABELS)})"
    elif not topology(pool.accelerator, chips(plan)):
        yield f"a slice of {chips(plan):,} chips of {pool.accelerator} has no torus"
