"""Which library carries which collective of a plan, and why, as records of its document."""

from __future__ import annotations

from planner.schema.record import Record, Sparse


class CommunicationRule(Record):
    """What to use for one kind of call."""

    op: str
    group: str
    bytes_min: float
    bytes_max: float
    backend: str
    algorithm: str
    """Empty: the library's own choice."""
    protocol: str
    ranks: int | None = None
    """Ranks of the group; not in documents of before 2026-12, where a rule holds for any."""
    pools: Sparse[tuple[int, ...]] = None
    """All pools of the group's ranks, where they matter; a rule without pools applies to any."""


class CallChoice(Record):
    """What one kind of call of the step uses, and what it would have used."""

    op: str
    group: str
    ranks: int
    bytes: float
    """Bytes of one call."""
    count: float
    """Calls a step."""
    choice: str
    """Back end with algorithm and protocol."""
    runner_up: str
    """The next best, empty where there is no other."""
    alone_s: float
    """Seconds of one call, by the table."""
    base_s: float
    """Seconds of one call with `base`."""
    extrapolated: bool
    """Whether the table has no measurement near (sizes or ranks beyond its own)."""
    saved_s: float
    """Seconds of the step that are saved: what of it showed, times what the choice saves."""
    pools: Sparse[tuple[int, ...]] = None
    """Pools of its ranks; only in plans over several."""


class CommunicationChoice(Record):
    """How the rules were chosen."""

    table: str
    """Where the times come from: a file's name, or the model."""
    sha256: str
    """SHA-256 of that file, first 16 digits."""
    base: str
    """The best single choice of back end: what a plan without rules would use."""
    live: tuple[str, ...]
    """Back ends in use."""
    most: int
    """Back ends that may be live."""
    margin: float
    """A call leaves the base only for a gain of more than this share, and beyond the spread of the measurements."""
    gap: float
    """How much better, at most, another choice could be under the same table (relative)."""
    saved_s: float
    """Seconds of the step that are saved over `base`."""
    step_time_s: float
    """The plan's step with it."""
    calls: tuple[CallChoice, ...]
    switch_s: float | None = None
    """Host time of a change of back end, of a choice by a table."""
    launcher: str | None = None
    """What follows the rules: the router, or NCCL's tuner plugin."""
    sms: float | None = None
    """SMs that further back ends could keep busy, where that was limited."""

    @property
    def modelled(self) -> bool:
        """Whether the times come from the model: of a file, whatever its name, there is a digest."""
        return self.table == "modelled" and not self.sha256
