"""Communication beside compute: what of it hides, and what hiding costs the work that hides it.

One law for every kind of parallelism. Communication of x seconds that a runtime starts beside w seconds of other work
hides ``min(share x, w)``: what of it is sent early enough, and never more than there is work. Its kernels hold a share
of the machine meanwhile (the toll), so hiding is never free.
"""

from __future__ import annotations

import numpy as np

from planner.cost.figures import Figure


def hidden(seconds: Figure, window: Figure, share: Figure) -> Figure:
    """Seconds of communication that run beside other work: ``min(share x, w)``.

    Arguments:
        seconds: x, what the communication takes alone.
        window: w, seconds of work that the runtime can put beside it.
        share: of the communication, what is sent early enough to hide; 0 where nothing overlaps.
    """
    return np.minimum(share * seconds, np.maximum(window, 0.0))


def shown(seconds: Figure, window: Figure, share: Figure, toll: Figure) -> Figure:
    """Seconds by which communication makes a pass longer: ``x - (1 - toll) min(share x, w)``.

    Never less when the bytes grow, and never less than the toll of what hides. `toll` is the share of the machine that
    the communication's kernels hold; other arguments as in :func:`hidden`.
    """
    return seconds - (1.0 - toll) * hidden(seconds, window, share)
