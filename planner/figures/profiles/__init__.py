"""Layer times measured elsewhere: read from files, checked, kept in a catalog overlay, looked up for a question."""
