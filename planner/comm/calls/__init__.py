"""Every collective of a plan's step, over one pool or several."""
