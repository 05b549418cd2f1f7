"""What a configuration says, in the planner's own words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.axes import AXES
from planner.base.errors import WrongQuestion
from planner.schema.launcher_table import FlagRow, LauncherTable

Options = dict[str, list[str]]
"""Option without its dashes -> its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOptions:
    """A configuration as axes of a plan; what it leaves open is not there."""

    runtime: str
    settings: Mapping[str, object]
    """Axis -> value, as ``estimate`` takes them."""
    batch: int | None = None
    accumulation: int | None = None
    """Micro-batches of a step and replica."""
    per_rank: int | None = None
    """Sequences of a step and replica, where the global batch follows from them."""
    samples: int | None = None
    """Sequences of all steps, where it says so ..."""
    most_tokens: int | None = None
    """... and the tokens at which it ends before."""
    degrees: tuple[int, int] | None = None
    """(replicas, shards) that have to make up the data-parallel ranks with those of cp; -1: as many as are left."""
    cp_algorithm: str | None = None
    """How context-parallel ranks share a sequence, where it says so ..."""
    cp_levels: tuple[int, ...] | None = None
    """... and ranks that exchange heads, and how many groups of these are a ring."""
    kernel: str | None = None
    """Kernel of attention, where it names one."""
    differs: Sequence[str] = ()
    """What of it is predicted otherwise."""
    sequence: int | None = None
    precision: str | None = None
    steps: int | None = None
    mtp_layers: int = 0
    method: str = "pretrain"
    task: str = "sft"
    rank: int | None = None
    """Of LoRA."""
    targets: tuple[str, ...] | None = None
    """Matrices with LoRA, where it says so."""
    optimizer: str | None = None
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a model, where the configuration has them."""
    model: str | None = None
    """Id of a model that the configuration names."""
    ranks: int | None = None
    """Processes that the command starts, where it says so."""
    shards: int | None = None
    """Ranks that share the sharded states, where it says so."""
    chunks: Sequence[int] | None = None
    """Layers of every pipeline chunk, where they are dealt by hand."""
    layers_per_chunk: int | None = None
    """Layers of every pipeline chunk, where it says that rather than the chunks of a rank."""
    unread: Sequence[str] = ()
    """Options that were not taken over."""
    assumed: Sequence[str] = ()
    """What it leaves to others, and what was put in its place."""


def measure(found: Options, name: str, default: float, *, zero: bool = False) -> float:
    """The number above zero (or, with `zero`, from zero) behind an option.

    Raises:
        WrongQuestion: it is none.
    """
    text = (found[name] or [""])[0] if name in found else str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or not (value or zero):
        raise WrongQuestion(f"--{name} {text:.40}: not a number {'of zero or more' if zero else 'above zero'}")
    return value


def number(found: Options, name: str, default: int | None = None) -> int | None:
    """The whole number behind an option.

    Raises:
        WrongQuestion: it is none.
    """
    if name not in found:
        return default
    text = found[name][0] if found[name] else ""
    try:
        return int(text)
    except ValueError:
        raise WrongQuestion(f"--{name} {text}: not a whole number") from None


def degree(found: Options, name: str, default: int = 1) -> int:
    """As :func:`number`, at least 1.

    Raises:
        WrongQuestion: it is no whole number, or below 1.
    """
    value = number(found, name, default)
    assert value is not None
    if value < 1:
        raise WrongQuestion(f"--{name} {value}: must be at least 1")
    return value


@dataclass(frozen=True, slots=True)
class Reading:
    """A command's options by what they say; a value is checked when it is asked for."""

    table: LauncherTable
    options: Options

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def __call__(self, name: str, default: Any = None) -> Any:
        """The value of an option by its format; where the command leaves it out, what is given or the launcher's own.

        Raises:
            WrongQuestion: its words are not of that format.
        """
        option = self.table.options[name]
        usual = option.unless if default is None else default
        return _value(self.options, option, usual) if name in self.options or usual is not None else None

    def words(self, name: str) -> list[str] | None:
        """The words behind an option, as they are; None where the command leaves it out."""
        return self.options.get(name)

    def degrees(self) -> dict[str, Any]:
        """Axis -> value of all options that say an axis as a count; 1 where the command leaves one out.

        Raises:
            WrongQuestion: one is no whole number from 1.
        """
        return {
            row.says: self(row.name, 1) for row in self.table.options.values() if row.is_axis and row.format == "count"
        }

    def switches(self, degrees: Mapping[str, Any]) -> dict[str, str]:
        """Axis -> value of every option that says one by being there or not, as far as degrees leave it to decide and
        ``estimate`` would not take that value by itself.

        Args:
            degrees: Those that are known; any other may be above 1.
        """
        rows = [row for row in self.table.options.values() if row.is_axis]
        options = Counter(row.says for row in rows)
        stated = {}
        for row in rows:
            if row.format != "switch" or len(row.values) > 1 or options[row.says] > 1:
                continue
            axis = AXES[row.says]
            neutral = axis.spell(axis.neutral)
            word = next(iter(row.values), "on")
            without = "on" if word == neutral else neutral
            value = word if row.name in self.options else without
            matters = axis.matters({name: degrees.get(name, 2) for name in axis.goes_with})
            assumed = axis.preferred is None and axis.unstated == value
            if (value == word != neutral) or (matters and not assumed):
                stated[axis.name] = value
        return stated

    def sizes(self, prefix: str) -> dict[str, Any]:
        """Field -> value of all stated counts whose facts begin so: ``sizes("shape.moe.")``.

        Raises:
            WrongQuestion: one is no whole number from 1.
        """
        counts = (option for option in self.table.starting(prefix) if option.format == "count")
        fields = {option.name: option.says.removeprefix(prefix) for option in counts}
        return {field: self(name) for name, field in fields.items() if name in self.options and "." not in field}


def _value(options: Options, option: FlagRow, usual: Any) -> Any:
    if option.format == "switch":
        return option.name in options
    if option.format == "count":
        return degree(options, option.name, usual)
    if option.format == "integer":
        return number(options, option.name, usual)
    if option.format in ("measure", "share"):
        return measure(options, option.name, usual, zero=option.format == "share")
    return (options.get(option.name) or [usual])[0]
