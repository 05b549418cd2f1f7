"""What a package index shows of a release: ``python -m docs.index_page REPOSITORY TAG``, in the checkout that is built.

An index has no files beside the page, so that links of README.md become addresses of the tagged files; the own address
goes into pyproject.toml. Neither stands in the repository, which may be anywhere.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docs.site_pages import LINK

ROOT = Path(__file__).resolve().parent.parent
PICTURE = re.compile(r"(!\[[^\]]*\]\()(?!https?:)([^)\s]+)")


def linked(text: str, repository: str, tag: str) -> str:
    """A page of the repository's root with whole addresses in place of names of files."""
    shown = LINK.sub(lambda found: f"[{found[1]}]({repository}/blob/{tag}/{found[2]}{found[3] or ''})", text)
    return PICTURE.sub(lambda found: f"{found[1]}{repository}/raw/{tag}/{found[2]}", shown)


def addressed(project: str, repository: str, tag: str) -> str:
    """pyproject.toml with the addresses of a release."""
    urls = {
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
    }
    table = "\n".join(["[project.urls]", *(f'{name} = "{url}"' for name, url in urls.items())])
    return project.replace("\n[tool.", f"\n{table}\n\n[tool.", 1)


def main(repository: str, tag: str) -> None:
    """Rewrites the two files.

    Raises:
        SystemExit: an address that is none.
    """
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", repository) or not re.fullmatch(r"[\w.-]+", tag):
        raise SystemExit("python -m docs.index_page https://HOST/OWNER/NAME TAG")
    for name, changed in (("README.md", linked), ("pyproject.toml", addressed)):
        path = ROOT / name
        path.write_text(changed(path.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
