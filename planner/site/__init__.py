"""What one site knows: its profile (``site.toml``), its measured runs (``runs.csv``), traces, and what follows."""
