"""Published and own runs, read as one grid of columns."""
