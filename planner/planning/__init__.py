"""Plans for one pool of nodes: searched, verified, explained, compared."""

from planner.planning.run import best, estimate, plan, second_opinion

__all__ = ["best", "estimate", "plan", "second_opinion"]
