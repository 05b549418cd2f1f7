"""What the project is made of is named: sources of data with their licences, packages with their hashes."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from tests.sweeps import sweep

ROOT = Path(__file__).parents[1]
SOURCE = re.compile(r"(?<![\w/.-])([A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*)@[0-9a-f]{7,40}")
"""A repository at a commit, as data files name where a figure was read."""
LICENCES = (
    *("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0"),
    *("per folder", "not stated", "published source"),
)


def noticed() -> dict[str, str]:
    """Repository (or a pattern of several) -> what NOTICE says of its licence."""
    found = {}
    for line in (ROOT / "NOTICE").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"  \S.*?\(([^()]*/[^()]*)\)\s+(\S.*)", line):
            found |= dict.fromkeys(re.split(r"[;,]\s*", match[1]), match[2])
    return found


def sources() -> dict[str, str]:
    """Repository -> a data file that names it."""
    files = (
        p for folder in ("hardware_catalog", "models", "benchmarks/data") for p in sorted((ROOT / folder).rglob("*"))
    )
    return {
        source: str(path.relative_to(ROOT))
        for path in files
        if path.suffix in (".toml", ".csv", ".json", ".md")
        for source in SOURCE.findall(path.read_text(encoding="utf-8"))
        if not source.endswith(".sh")
    }


def test_every_source_of_data_is_in_notice_with_its_licence() -> None:
    known, found = noticed(), sources()
    assert len(found) > 25
    missing = [f"{s} ({where})" for s, where in found.items() if not any(fnmatch(s, each) for each in known)]
    assert missing == []
    assert [f"{name}: {says}" for name, says in known.items() if not says.startswith(LICENCES)] == []


@sweep(("lock", "extras"), [
    ("dev", ("dev", "test", "docs")),
    ("network", ("dask", "mcp", "serve", "report")),
    ("image", ()),
])  # fmt: skip
def test_the_lock_files_hold_every_dependency_with_hashes(lock: str, extras: tuple[str, ...]) -> None:
    """The locks of developers, of the extras that face a network, and of the image.

    An extra stands in its package's name: pip 23 refuses `coverage[toml]` where only `coverage` is pinned.
    """
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    pinned = {m[1].lower(): m[2] for m in re.finditer(r"^([A-Za-z0-9_.-]+)(?:\[.*\])?==([^\s;\\]+)", text, re.M)}
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert all("--hash=sha256:" in entry for entry in entries)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    names = {re.split(r"[\[<>=;\s]", each)[0].lower() for each in wanted} - {"clusterwright"}
    assert names <= pinned.keys(), "make lock"
    assert "://" not in text, "no registry's address"
    assert "pytest-cov" not in pinned or "coverage[toml]==" in text


def test_an_audit_that_could_not_run_says_so(tmp_path: Path) -> None:
    """Without an answer there is no report, and silence is no pass."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    line = ["make", "audit", f"BIN={python.parent}", f"VENV={tmp_path}"]
    found = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode != 0 and "audit: could not run" in found.stdout


def test_the_bill_of_materials_names_every_locked_package() -> None:
    line = [sys.executable, "-m", "docs.bill_of_materials"]
    found = json.loads(subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    listed = {each["name"]: each for each in found["components"]}
    assert {"numpy", "pydantic", "highspy", "coverage", "starlette", "hatchling"} <= listed.keys()
    assert listed["numpy"]["purl"] == f"pkg:pypi/numpy@{listed['numpy']['version']}"
    assert all(re.fullmatch(r"[0-9a-f]{64}", h["content"]) for each in listed.values() for h in each["hashes"])
    assert {each["ref"] for each in found["dependencies"]} >= {"clusterwright"}
