"""Training logs as measurements: lines, what a framework prints on them, and which steps count."""
