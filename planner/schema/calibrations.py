"""What ``calibrate --json`` prints: what was fitted to measured runs, kernels or collectives. Errors are fractions."""

from __future__ import annotations

from typing import Literal

from planner.schema.record import Record


class FitErrors(Record):
    """Errors of the predicted step time over some runs."""

    mape: float
    """Mean absolute relative error."""
    median_ape: float
    p90_ape: float
    bias: float
    """Mean signed relative error: positive is too slow."""
    spearman: float | None
    """Correlation of ranks."""
    interval80_coverage: float | None
    """Share of the runs inside their 80 % interval."""


class FittedFactor(Record):
    """How far a parameter moved from where the fit started."""

    name: str
    factor: float
    spread: float
    """Standard deviation of its logarithm."""


class FitToRuns(Record):
    """Efficiencies fitted to measured runs (``calibrate FILE --json``), or adapted to a site's (``--site``)."""

    kind: Literal["calibration"] = "calibration"
    schema_version: Literal[1] = 1
    rows: int
    """Runs."""
    parameters: int
    degrees_of_freedom: float
    before: FitErrors | None = None
    """With what is shipped, of a site's runs; null without a run."""
    fit: FitErrors | None
    """Errors of the runs that were fitted."""
    left_out: FitErrors | None
    """Errors of runs that the fit had not seen: each lab's in turn, of a site each run."""
    frameworks: int | None = None
    """Frameworks of a site's runs."""
    skipped: tuple[str, ...] | None = None
    """Which cross-validation was not made, and why; not of a site."""
    factors: tuple[FittedFactor, ...]
    files: tuple[str, ...] | None = None
    """That were written."""
    journal: str | None = None
    """Digest of a site's runs that were fitted."""


class KernelErrors(Record):
    """Errors over the kernels of one kind."""

    kind: str
    rows: int
    mape: float
    bias: float
    """Mean signed relative error: positive is predicted too slow."""
    prior_mape: float
    """With the entry that the fit started from."""


class FitToKernels(Record):
    """Efficiencies of an accelerator fitted to timed kernels (``calibrate --measure`` or ``--table``, ``--json``)."""

    kind: Literal["kernel-calibration"] = "kernel-calibration"
    schema_version: Literal[1] = 1
    accelerator: str
    rows: int
    degrees_of_freedom: float
    mape: float
    kinds: tuple[KernelErrors, ...]
    levels_kept: bool
    """Whether the levels of products, attention and memory stay those that whole training steps showed."""
    refused: tuple[str, ...]
    """Kernels that could not be timed, and why."""
    files: tuple[str, ...]


class CollectiveErrors(Record):
    """Errors over some collectives with what the fit started from, and with the fit."""

    what: str
    rows: int
    before: float
    after: float


class FitToCollectives(Record):
    """Efficiencies of links and fabrics fitted to timed collectives (``calibrate --collectives --json``)."""

    kind: Literal["collective-calibration"] = "collective-calibration"
    schema_version: Literal[1] = 1
    rows: int
    left_out: dict[str, int]
    """Reason -> rows."""
    entries: tuple[str, ...]
    """Entries of the catalog that were written."""
    errors: tuple[CollectiveErrors, ...]
    files: tuple[str, ...]
