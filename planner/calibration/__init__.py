"""How far predictions are from published measured runs, and the few physical parameters fitted to them."""
