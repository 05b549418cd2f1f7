"""Plans for one pool of nodes: searched, verified, explained, compared."""

from planner.planning.run import Progress, best, estimate, plan

__all__ = ["Progress", "best", "estimate", "plan"]
