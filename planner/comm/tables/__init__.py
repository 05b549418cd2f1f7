"""Measured times of collectives: made here, imported, kept."""
