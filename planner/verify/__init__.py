"""Re-derives a finished plan from its document alone: memory, divisibility, budget, power and the sum of its time.

Nothing here is shared with what made the plan: no cost function, no rule, no parameter count. Every check is a function
that states its equation; what it finds is named after it.

Not checked, since a plan does not say enough: how long each cause in the breakdown takes (only that all of them add up
and that no hardware is beaten), the exact bytes of activations and buffers (only bounds), the price and the carbon of
electricity, that a search left nothing better out (``search.proven_optimal``, ``search.gap``: take searching again, as
``explain --recheck`` does), and that tensor parallelism stays in a scale-up domain (a question may waive that rule, and
a plan records only waivers of what has to divide, in `waived`: exactly these are then left out).
"""

from planner.verify.check_plan import CHECKS, UNLIKE_CHECKS, check, least_step_time, violations
from planner.verify.finding import Inconsistent

__all__ = ["CHECKS", "UNLIKE_CHECKS", "Inconsistent", "check", "least_step_time", "violations"]
