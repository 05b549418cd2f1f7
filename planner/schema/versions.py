"""Schema versions of documents: what is written, what is read, and a plan of version 1 as one of version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.base.errors import WrongQuestion

SCHEMA_VERSION = 2
"""The version in which plans and sets of plans are written."""
VERSIONS = {"plan": (1, SCHEMA_VERSION), "plan-set": (1, SCHEMA_VERSION)}
"""Kind -> schema versions that are read; of all others the first."""


def require_known_version(data: Mapping[str, Any], where: str) -> None:
    """Refuses a document of a schema version that this program does not read.

    Raises:
        WrongQuestion: it is of another version, or states none.
    """
    known = VERSIONS.get(str(data.get("kind")), (1,))
    version = data.get("schema_version")
    if version is True or version not in known:
        raise WrongQuestion(
            f"{where}: schema_version is {version!r:.40}, this program reads {' and '.join(map(str, known))}; "
            "write the plan again with this version (clusterwright plan ... -o FILE)"
        )


MAKERS = {
    "NVIDIA": (
        *("A10", "A30", "A40", "A80", "B200", "B300", "GB", "GH", "H100", "H20", "H80", "K80", "L4", "P100", "RTX"),
        *("T4", "Titan", "V100", "VR"),
    ),
    "AMD": ("MI",),
    "AWS": ("Trainium",),
    "Google": ("TPU",),
    "Intel": ("Gaudi",),
}
"""Maker -> how the names of its accelerators begin, which documents of version 1 have alone."""


def of_version_1(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's document of schema version 1 as the records read it: its axes stand in sections already."""
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in plan.items()}
    cut = table.get("parallelism")
    cluster = table.get("cluster")
    if isinstance(cut, dict) and cut.get("cp") != 1 and cut.get("cp_algorithm") is None:
        # The first documents do not say how context-parallel ranks share a sequence: by a ring.
        cut["cp_algorithm"] = "p2p"
    if isinstance(cluster, dict) and isinstance(pools := cluster.get("pools"), list):
        cluster["pools"] = [
            {**pool, "vendor": _maker(str(pool.get("accelerator")))} if isinstance(pool, Mapping) else pool
            for pool in pools
        ]
    return {**table, "schema_version": SCHEMA_VERSION}


def _maker(accelerator: str) -> str:
    return next((maker for maker, begins in MAKERS.items() if accelerator.startswith(begins)), "")
