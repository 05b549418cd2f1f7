"""Placeholder until the checker is written."""

from planner.schema.plan import Plan


def check(plan: Plan) -> None:
    """Nothing yet."""
