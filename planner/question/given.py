"""What Python may give in place of a text, and the plain form of it that a question is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.base.progress import Progress as Progress
from planner.catalog.cluster import pools_of
from planner.schema.hardware import Cluster, Node
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult


@dataclass(frozen=True, slots=True)
class InZone:
    """A cluster's record, and the zone that it stands in: what ``FILE.toml@zone`` says of a file."""

    cluster: Cluster
    zone: str


Named = str | Path | Cluster | InZone
"""A cluster: ``dgx-h100:16``, a file, or the record."""
Machines = Named | Node
"""What a question may be about: a cluster by name, file or record; a node's record is one of it."""
Planned = PlanSet | Plan | Procurement
Kept = Planned | StudyResult | ImagePlan | RLPlanSet
"""Every kind of document that is written."""
Source = str | Path | Planned
"""A document, or the file that holds one."""
Launched = Source | RLPlanSet
"""A document that may be written for a launcher, or the file that holds one."""


def listed(given: Named | Sequence[Named]) -> list[Named]:
    """One cluster as a list of one; a file of pools as its pools."""
    clusters = [given] if isinstance(given, str | Path | Cluster | InZone) else list(given)
    return [pool for c in clusters for pool in (pools_of(str(c)) if isinstance(c, str | Path) else [c])]


def texts(given: str | Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
    """One text or several, or axes with their values, as texts."""
    if isinstance(given, Mapping):
        return tuple(f"{axis}={spelled(value)}" for axis, value in given.items())
    return (given,) if isinstance(given, str) else tuple(given)


def spelled(value: object) -> str:
    """A value as a pin spells it: several between ``|``, switches as on and off."""
    if isinstance(value, list | tuple):
        return "|".join(map(spelled, value))
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def joined(given: str | Sequence[str] | None) -> str | None:
    """Several words as one text, with commas."""
    return given if given is None or isinstance(given, str) else ",".join(given)


def counted(given: str | Mapping[str, int] | None) -> str | None:
    """``{"A100": 4, "V100": 8}`` as ``A100:4,V100:8``."""
    return ",".join(f"{kind}:{count}" for kind, count in given.items()) if isinstance(given, Mapping) else given


def lengths(given: str | Path | Sequence[float] | None) -> str | tuple[float, ...] | None:
    """Lengths of texts, or the text or file that states them."""
    return str(given) if isinstance(given, str | Path) else None if given is None else tuple(given)


def path(given: str | Path | None) -> Path | None:
    """A file or a folder, that of a user's home spelled out."""
    return None if given is None else Path(given).expanduser()
