"""Gathers the pages of the documentation site in a folder: ``python -m docs.site_pages build/pages``.

Links between pages lead to pages, those to other files of the repository become their names: the site stands alone.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FROM = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "hardware_catalog/README.md": "catalog.md",
    "models/README.md": "models.md",
}
"""Pages that stand elsewhere in the repository, and what they are called in the site."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
PICTURE = re.compile(r"(!\[[^\]]*\]\()docs/(figures/[^)\s]+\))")
RECORDS = """# Records

What goes in and comes out of the functions in [Python](python.md): frozen records, figures in SI units.

::: planner.schema.hardware

::: planner.schema.workload

::: planner.schema.plan

::: planner.schema.plan_prediction

::: planner.base.errors
"""


def sources() -> dict[Path, str]:
    """Every page's file and its name in the site."""
    pages = {path: path.name for path in sorted((ROOT / "docs").glob("*.md")) if ".template." not in path.name}
    return pages | {ROOT / name: page for name, page in FROM.items()}


def linked(page: Path, text: str, known: dict[Path, str]) -> str:
    """A page's text with its links as the site needs them."""

    def link(found: re.Match[str]) -> str:
        shown, target, anchor = found[1], found[2], found[3] or ""
        place = Path(os.path.normpath(page.parent / target))
        if place in known:
            return f"[{shown}]({known[place]}{anchor})"
        if place.parent == ROOT / "docs" and place.suffix in (".json", ".svg"):
            return f"[{shown}]({target}{anchor})"
        return shown

    return PICTURE.sub(r"\1\2", LINK.sub(link, text))


def main(folder: Path) -> None:
    """Fills the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    known = sources()
    for page, name in known.items():
        (folder / name).write_text(linked(page, page.read_text(encoding="utf-8"), known), encoding="utf-8")
    (folder / "records.md").write_text(RECORDS, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "figures", folder / "figures")
    shutil.copytree(ROOT / "docs" / "schemas", folder / "schemas")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
