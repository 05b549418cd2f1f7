"""What faster communication is worth to a step: Amdahl's law with the communication share."""

from __future__ import annotations

import numpy as np

from planner.cost.figures import Figure


def gain(share: Figure, speedup: Figure) -> Figure:
    """Throughput gained where a share c of a step gets r times as fast: ``1/(1 - c + c/r) - 1``."""
    return 1.0 / (1.0 - share + share / speedup) - 1.0


def needed(share: Figure, wanted: Figure) -> Figure:
    """The speed-up that a gain g takes: ``r = c / (c - g / (1 + g))``; infinite unless c is above ``g / (1 + g)``."""
    room = share - wanted / (1.0 + wanted)
    return np.where(room > 0, share / np.where(room > 0, room, 1.0), np.inf)
