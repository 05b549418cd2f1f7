"""What may be planned to hold on an accelerator, so that it runs out of memory no more often than a stated risk.

A true peak is taken to lie around the predicted one as a logistic variable of its logarithm: its 80 % interval is
measured (:mod:`planner.figures.residual_widths`), its tails are heavier than a normal one's, since few runs were
measured.
"""

from __future__ import annotations

import math

TAIL = math.log(9.0)
"""Log odds at the end of an 80 % interval: a tenth lies beyond it, nine tenths do not."""
MOST = 0.5
"""At this risk the predicted peak, the median, is compared with the capacity: there is no slack to give up beyond."""


def usable(capacity: float, half_width: float, risk: float) -> float:
    """Bytes that a predicted peak may reach: ``capacity exp(-w ln((1 - r) / r) / ln 9)``; all of it at a risk of 50 %.

    `half_width` is that of the peak's 80 % interval, on a log scale.
    """
    return capacity * math.exp(-half_width * math.log((1.0 - risk) / risk) / TAIL)


def chance(held: float, capacity: float, half_width: float) -> float:
    """Chance that the true peak exceeds the capacity: ``1 / (1 + (capacity / held)^(ln 9 / w))``."""
    if half_width <= 0.0:
        return MOST if held == capacity else float(held > capacity)
    odds = TAIL * math.log(capacity / held) / half_width
    return 1.0 / (1.0 + math.exp(min(odds, 700.0)))
