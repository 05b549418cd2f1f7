"""Plans for one pool of nodes: searched, verified, explained, compared."""

from planner.planning.run import Progress, best, estimate, plan, second_opinion

__all__ = ["Progress", "best", "estimate", "plan", "second_opinion"]
