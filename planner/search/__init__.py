"""Strategies that look for the best plans, behind one small protocol; a result says how its optimality is known."""
