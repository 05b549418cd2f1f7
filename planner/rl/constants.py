"""Figures of rollout engines and of what measured steps say, read from data files beside this module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.base import units
from planner.base.errors import WrongQuestion, suggestion
from planner.schema.hardware import Accelerator


@dataclass(frozen=True, kw_only=True)
class EngineFigures:
    """A rollout engine. SI."""

    id: str
    name: str
    aliases: Sequence[str]
    memory_share: float
    """Share of the memory that weights and cache may fill, alone on an accelerator, ..."""
    memory_share_colocated: float
    """... and beside a trainer whose states are elsewhere meanwhile."""
    sequences: float
    """Most in flight on a replica."""
    reserved: float
    """Bytes of captured graphs and workspace."""
    prefix_caching: bool
    captured: Sequence[Sequence[float]]
    """Rows of GiB of an accelerator, and from there on the most sequences of an iteration that captured graphs launch,
    below tp=4 and from it on. Beyond, and with ``eager``, the host launches every kernel.
    """
    captured_blackwell: float = 0.0
    """On data-center Blackwell whatever its memory; 0: as the rows say."""
    eager: bool = False
    """Whether no graph is captured."""
    host: float
    """Seconds between two iterations, and ..."""
    host_sequence: float
    """... for each sequence."""
    newest: str = ""
    """The newest release that is known, as ``0.33``; empty where releases make no difference here."""
    before: Sequence[Mapping[str, Any]] = ()
    """What older releases than a table's ``release`` have in place of these, the newest table first."""
    in_batches: bool = False
    """Whether the responses in flight are all complete before others begin: engines without continuous batching."""

    def captures(self, part: Accelerator) -> tuple[float, float]:
        """Most sequences that captured graphs launch on an accelerator, below tp=4 and from it on."""
        if self.eager:
            return 0.0, 0.0
        if self.captured_blackwell and part.generation == "blackwell":
            return self.captured_blackwell, self.captured_blackwell
        _, narrow, wide = [row for row in self.captured if part.memory >= row[0] * 2**30][-1]
        return narrow, wide


@dataclass(frozen=True, kw_only=True)
class MeasuredExcess:
    """What measured steps take over the model's own figures (``fitted.toml`` says what each is)."""

    generation: float
    training: float
    training_experts: float
    other: float
    half_width: float
    unknown_lengths: float
    difference: float


@lru_cache(maxsize=4)
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


def fitted() -> MeasuredExcess:
    """The fitted figures."""
    rows = {name: value for name, value in _table("fitted.toml").items() if name != "phases"}
    return MeasuredExcess(**{k: units.parse(v, "time") if k == "other" else v for k, v in rows.items()})


def phase_widths() -> dict[str, float]:
    """Half widths of the 80 % intervals of phases, log scale."""
    return dict(_table("fitted.toml")["phases"])


def engines() -> dict[str, EngineFigures]:
    """The engines by id."""
    kinds = {"reserved": "bytes", "host": "time", "host_sequence": "time"}
    known: dict[str, EngineFigures] = {}
    for entry, table in _table("engines.toml").items():
        figures: dict[str, Any] = {k: units.parse(v, kinds[k]) if k in kinds else v for k, v in table.items()}
        known[entry] = EngineFigures(id=entry, **figures)
    return known


def at_release(figures: EngineFigures, release: str | None) -> EngineFigures:
    """An engine as of a release; the newest unless it is said.

    Raises:
        WrongQuestion: it is no release that is known, or nothing of the engine is known by release.
    """
    if release is None:
        return figures
    if not re.fullmatch(r"v?\d{1,4}(\.\d{1,4}){1,2}(rc\d{1,4}|\.(post|dev)\d{1,4})*", release, re.ASCII):
        raise WrongQuestion(f"--engine-release {release}: no release; write it as 0.8.5")
    if not figures.before:
        having = ", ".join(known.id for known in engines().values() if known.before)
        raise WrongQuestion(
            f"--engine-release {release}: {figures.name} is known as one; leave it out, or take {having}"
        )
    numbers = _numbers(release)
    newest = _numbers(figures.newest)
    if numbers[: len(newest)] > newest:
        raise WrongQuestion(
            f"--engine-release {release}: the newest {figures.name} known here is {figures.newest}; leave it out, and "
            "it is priced as that"
        )
    for table in figures.before:
        if len(numbers) == 2 and table["release"].startswith(f"{numbers[0]}.{numbers[1]}."):
            raise WrongQuestion(
                f"--engine-release {release}: {figures.name} changed in {table['release']}; write all three numbers"
            )
    older: dict[str, Any] = {}
    for table in figures.before:
        if numbers < _numbers(table["release"]):
            older |= {name: value for name, value in table.items() if name != "release"}
    return replace(figures, **older)


def _numbers(release: str) -> tuple[int, ...]:
    """Major, minor and patch, as far as they are numbers: ``0.4.6.post1`` is 0.4.6, and so is ``v0.4.6``."""
    dotted = re.match(r"v?([\d.]*\d)", release)
    return tuple(int(number) for number in dotted[1].split(".")[:3]) if dotted else ()


def engine(name: str) -> EngineFigures:
    """One engine, by its id or another of its names.

    Raises:
        WrongQuestion: no such engine; the nearest.
    """
    known = engines()
    plain = name.strip().lower()
    for figures in known.values():
        if plain == figures.id or plain in figures.aliases:
            return figures
    raise WrongQuestion(f"--engine {name}: it can be {', '.join(known)}.{suggestion(plain, known)}")
