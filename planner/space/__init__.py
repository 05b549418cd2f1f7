"""The search space: axes, rules, and the open grids they span."""
