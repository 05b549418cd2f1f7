"""Shell scripts as the commands that they start: read without running, or run in a sandbox."""
