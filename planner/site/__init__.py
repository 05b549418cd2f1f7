"""What one site knows: its profile (``site.toml``), its measured runs (``runs.csv``) and what was fitted to them."""
