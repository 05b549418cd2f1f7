"""Plans over several pools of different nodes: stages, bundles, an integer program, its answer."""
