"""Physical parameters fitted to measured runs."""
