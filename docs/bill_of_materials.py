"""The packages that the project is developed and tested with, as CycloneDX JSON: ``python -m docs.bill_of_materials``.

Read from the lock files, so that it says the same on every machine: name, version, where it holds, SHA-256 of files.
https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from planner.base.version import __version__

ROOT = Path(__file__).parents[1]
LOCKS = ("dev.txt", "network.txt", "release.txt")
PINNED = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)(?: ; ([^\\\n]+?))?\s*\\\n")


def component(entry: str) -> dict[str, Any]:
    """A package of a lock file."""
    match = PINNED.match(entry)
    assert match is not None, f"not a pinned package: {entry:.60}"
    name, version, where = match.groups()
    hashes = [{"alg": "SHA-256", "content": each} for each in re.findall(r"sha256:([0-9a-f]{64})", entry)]
    found = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    more = {"properties": [{"name": "marker", "value": where}]} if where else {}
    return {**found, "bom-ref": found["purl"], "hashes": hashes, **more}


def bill() -> dict[str, Any]:
    """The whole document."""
    entries = [
        entry for lock in LOCKS
        for entry in re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements" / lock).read_text(encoding="utf-8"))
    ]  # fmt: skip
    # By name and version: a lock file that repeats a package of another one pins the same files.
    components = [*{each["bom-ref"]: each for each in map(component, entries)}.values()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = {re.split(r"[\[<>=;\s]", each)[0].lower() for each in project["dependencies"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": "clusterwright", "name": "clusterwright", "version": __version__,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": [{
            "ref": "clusterwright", "dependsOn": [each["bom-ref"] for each in components if each["name"] in direct],
        }],
    }  # fmt: skip


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=2)
    print()
