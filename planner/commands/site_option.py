"""The option that names a site's folder."""

from __future__ import annotations

from pathlib import Path

import click

option = click.option(
    "--site",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Your site: its profile, its measured runs and what was fitted to them (or CLUSTERWRIGHT_SITE).",
)
"""``--site DIR``."""
