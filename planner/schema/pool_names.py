"""How the pools of a plan are called."""

from __future__ import annotations

from planner.schema import plan as schema


def pool_names(plan: schema.Plan) -> tuple[str, ...]:
    """What a plan's pools are called: their node, with its zone, numbered where that is still the same."""
    plain = [f"{pool.node}{'@' + pool.zone if pool.zone else ''}" for pool in plan.cluster.pools]
    return tuple(
        name if plain.count(name) == 1 else f"{name}#{plain[: at + 1].count(name)}" for at, name in enumerate(plain)
    )
