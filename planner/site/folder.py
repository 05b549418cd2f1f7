"""A site's folder on the disk: ``site.toml``, ``runs.csv``, and ``catalog/`` with what was fitted to the runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.site import profile
from planner.site.profile import SiteProfile

PROFILE, RUNS, CATALOG = "site.toml", "runs.csv", "catalog"
VARIABLE = "CLUSTERWRIGHT_SITE"
"""Environment variable that names the folder where ``--site`` does not."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site's folder, with its profile read."""

    folder: Path
    profile: SiteProfile

    @property
    def runs(self) -> Path:
        """The journal of measured runs."""
        return self.folder / RUNS

    @property
    def fit(self) -> Path:
        """What the last fit to the journal found."""
        return self.folder / "fit.json"

    @property
    def catalog(self) -> Path:
        """The site's own hardware and what was fitted to its runs: a catalog folder."""
        return self.folder / CATALOG


def named(folder: Path | None) -> Site | None:
    """The site that ``--site`` or ``CLUSTERWRIGHT_SITE`` names; None if neither does.

    Raises:
        WrongQuestion: there is no such folder, it is no site's, or its profile is wrong.
    """
    if folder is not None:
        return opened(folder, f"--site {folder}")
    named_by = os.environ.get(VARIABLE)
    return opened(Path(named_by), f"{VARIABLE}={named_by}") if named_by else None


def opened(folder: Path, named_by: str) -> Site:
    """The site in a folder; `named_by` is how it was named.

    Raises:
        WrongQuestion: there is no such folder, it is no site's, or its profile is wrong.
    """
    folder = folder.expanduser()
    if folder.is_file():
        raise WrongQuestion(f"{named_by}: a file; name the folder that holds it: {folder.parent}")
    if not (folder / PROFILE).is_file():
        what = f"holds no {PROFILE}" if folder.is_dir() else "no such folder"
        raise WrongQuestion(f"{named_by}: {what}; make a site with: clusterwright init site {folder}")
    return Site(folder, profile.read(folder / PROFILE))


def init(folder: Path, header: str) -> list[Path]:
    """Makes a site's folder: a commented profile, a journal without rows, and an empty catalog.

    Arguments:
        folder: Where; it may exist, without any of the files.
        header: First line of the journal.

    Returns:
        The files written.

    Raises:
        WrongQuestion: one of the files is there already, or cannot be written.
    """
    folder = folder.expanduser()
    texts = {RUNS: header, PROFILE: profile.TEMPLATE.format(name=_slug(folder))}
    for name in reversed(texts):
        if (folder / name).exists() and not _begun(folder, header):
            raise WrongQuestion(f"{folder / name}: exists already; nothing was written")
    writing.make_folder(folder / CATALOG)
    for name, text in texts.items():
        writing.write(folder / name, text, replace=name == RUNS)
    return [folder / name for name in reversed(texts)]


def _begun(folder: Path, header: str) -> bool:
    """Whether making it was killed: a journal without rows and no profile yet, which makes the folder a site."""
    return not (folder / PROFILE).exists() and (folder / RUNS).read_text(encoding="utf-8") == header


def _slug(folder: Path) -> str:
    """A folder's name with nothing in it that TOML would escape."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(os.path.realpath(folder)).name).strip("-") or "site"
