"""RL post-training: rollout and training planned together."""
