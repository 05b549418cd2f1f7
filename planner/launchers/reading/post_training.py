"""Configurations of post-training, as verl, NeMo-RL and TRL have them, to a stated step.

The tables ``rl_*.toml`` by which export writes are read backwards: of each fact the value is taken with which the
table would write what stands there. ``rl_reading.toml`` says the rest.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell.script import Branches
from planner.schema.launcher_table import FOLDER, LauncherTable, spelt

Values = Mapping[str, Any]
MEGATRON_AXES = ("tp", "cp", "pp", "vpp", "ep", "zero", "recompute", "sequence_parallel", "dispatcher", "offload",
                 "offload_overlap", "dp_overlap")  # fmt: skip
"""Axes that options of Megatron Core say."""
PADDED = "responses are padded to the longest of their micro-batch; predicted packed, which takes less"
SILENT = re.compile(
    r"(?!.*(model|adapter|lora|critic|teacher|draft|enable|length|size))(.*\.)?\w*(template|dataset|tokenizer|wandb|swanlab"
    r"|reward|penalty|coeff?|url|api|_key|_dir|path|seed|logging|logger|experiment|project|_tags?|notes)\w*"
)
"""Words of keys that speak of data, rewards, places and logs in any trainer."""
UNSET: tuple[Any, ...] = (None, False, "", (), [], {})


@dataclass(frozen=True, kw_only=True)
class StatedStep:
    """A step as a configuration states it; what it leaves open is not there."""

    model: str
    """Name or path of the policy."""
    asked: Mapping[str, Any]
    """What ``estimate --task`` is asked, by the names of its keywords."""
    settings: Mapping[str, object]
    """Axis of the trainer -> value."""
    train: int
    rollout: int | None
    """Accelerators of both roles; None: the trainer's."""
    response_cap: int
    prompt_cap: int | None
    """Tokens of the longest prompt, where it says more than the longest sequence does."""
    group_tokens: int | None
    """Tokens of a micro-batch, or ..."""
    micro_responses: int | None
    """... its responses."""
    differs: tuple[str, ...]
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What a reader says of keys that no table has."""

    left: Values
    called: Mapping[str, str]
    only: Mapping[str, list[Any]]
    otherwise: Mapping[str, str]
    understood: re.Pattern[str]
    harmless: re.Pattern[str]


@cache
def keys(source: str) -> Keys:
    """The section of a source in ``rl_reading.toml``."""
    section = tomllib.loads((FOLDER / "rl_reading.toml").read_text(encoding="utf-8"))[source]
    return Keys(
        left=section.get("left", {}),
        called=section.get("called", {}),
        only=section.get("only", {}),
        otherwise=section.get("otherwise", {}),
        understood=re.compile("|".join(section["understood"].split())),
        harmless=re.compile("|".join(section["harmless"].split())),
    )


@dataclass(frozen=True, kw_only=True)
class TrainerFlags:
    """A configuration's values by the names that tables have, and how they are read."""

    source: str
    values: Values
    rows: LauncherTable | None
    """Table of a trainer that export writes for; None where it does not."""

    @property
    def keys(self) -> Keys:
        """What the source's reader says of keys."""
        return keys(self.source)

    def get(self, name: str) -> Any:
        """What is said, or what the trainer takes where nothing is."""
        value = self.values.get(name)
        return self.keys.left.get(name) if value is None else value

    def count(self, name: str) -> int:
        """A whole number from 1.

        Raises:
            WrongQuestion: it is none.
        """
        value = self.get(name)
        if isinstance(value, bool) or not re.fullmatch(r"[1-9]\d{0,8}", str(value), re.ASCII):
            raise WrongQuestion(f"--from {self.source}: {name} is {value!s:.40}; a whole number from 1 is expected")
        return int(value)

    def count_or_none(self, name: str) -> int | None:
        """A whole number from 1, where one is said.

        Raises:
            WrongQuestion: it is none.
        """
        return None if self.get(name) is None else self.count(name)

    def measure(self, name: str) -> float:
        """A number from 0, such as a share.

        Raises:
            WrongQuestion: it is none.
        """
        value = self.get(name)
        if isinstance(value, bool) or not re.fullmatch(r"\d{0,6}\.?\d{1,9}|\d{1,6}\.", str(value), re.ASCII):
            raise WrongQuestion(f"--from {self.source}: {name} is {value!s:.40}; a number from 0 is expected")
        return float(value)

    def fact(self, fact: str) -> Any:
        """The value of a fact with which the table writes what stands there; None where that is left open.

        Raises:
            WrongQuestion: there is none.
        """
        options = [] if self.rows is None else [*self.rows.saying(fact)]
        rows = [row for row in options if row.values] or options[:1]
        if not rows:
            return None
        if not rows[0].values:
            return self.get(_plain(rows[0].name))
        words = [word for row in rows for word in (*row.values, *([row.unless] if row.unless is not None else []))]
        stated = [self.get(_plain(row.name)) for row in rows]
        for word in dict.fromkeys(map(str, words)):
            if all(_agree(row.values.get(word), value) for row, value in zip(rows, stated, strict=True)):
                return word
        if all(value in UNSET for value in stated):
            return None
        wrong = next(_plain(row.name) for row, value in zip(rows, stated, strict=True) if value not in UNSET)
        able = ", ".join(dict.fromkeys(spelt(word) for row in rows for word in row.values.values()))
        raise WrongQuestion(
            f"--from {self.source}: {wrong} {self.get(wrong)!s:.40} is no {fact.replace('_', ' ')} of a plan (it has "
            f"{able}); --ignore {wrong} prices the rest without"
        )


def _plain(name: str) -> str:
    return name.lstrip("+")


def _agree(written: Any, stated: Any) -> bool:
    """Whether a table would write what stands there; what is off need not stand there."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (written, stated))
    same = float(written) == float(stated) if numbers else spelt(written) == spelt(stated)
    return same or (written in UNSET and stated in UNSET)


def renamed(source: str, values: Values) -> dict[str, Any]:
    """Values by the names that tables have."""
    values_by_name: dict[str, Any] = {}
    for name, value in values.items():
        for pattern, called in keys(source).called.items():
            name = re.sub(pattern, called, name)
        if value is not None or name not in values_by_name:
            values_by_name[name] = value
    return values_by_name


def other_keys(flags: TrainerFlags, aside: re.Pattern[str]) -> Iterator[str]:
    """What a step is predicted without, of the keys that no table has.

    Args:
        flags: The configuration.
        aside: Keys of what the step does not have: a critic, a reference.

    Raises:
        WrongQuestion: a key that may change time or memory, and is not understood.
    """
    known = flags.keys
    notes: dict[str, list[str]] = {}
    wrong = []
    options = [*flags.rows.options.values()] if flags.rows is not None else []
    constant = {_plain(row.name): row for row in options if row.says == "job.always"}
    read = {_plain(row.name) for row in options if row.says != "job.always"}
    for name, value in flags.values.items():
        if name in read or known.understood.fullmatch(name) or aside.fullmatch(name):
            continue
        if name in constant and spelt(value) == spelt(constant[name].values["on"]):
            continue
        allowed = next((values for pattern, values in known.only.items() if re.fullmatch(pattern, name)), None)
        if allowed is not None:
            if value in UNSET or spelt(value) in map(spelt, allowed):
                continue
            wrong.append(f"{name} {value!s:.40}")
        elif what := next((what for pattern, what in known.otherwise.items() if re.fullmatch(pattern, name)), None):
            if value not in UNSET:
                notes.setdefault(what, []).append(f"{name.rpartition('.')[2]} {value!s:.40}")
        elif not known.harmless.fullmatch(name) and not SILENT.fullmatch(name) and value not in UNSET:
            wrong.append(name)
    if wrong:
        raise WrongQuestion(
            f"--from {flags.source}: {', '.join(wrong[:6])}: may change parallelism, precision, memory or batch, and "
            f"no stated step holds it; --ignore {wrong[0].partition(' ')[0]} prices the rest without"
        )
    for what, which in notes.items():
        yield f"{what} ({', '.join(dict.fromkeys(which))}); predicted without"


def only_step(source: str, steps: Sequence[StatedStep]) -> StatedStep:
    """The step of all commands that a script may start.

    Raises:
        Branches: they are of several.
    """
    if any(step != steps[0] for step in steps[1:]):
        raise Branches(
            f"--from {source}: the script may start {len(steps)} commands of different steps: set the variable that "
            "decides (--env NAME=VALUE), or read what it starts with --run-script"
        )
    return steps[0]


def settings(flags: TrainerFlags, axes: tuple[str, ...]) -> dict[str, object]:
    """Axes of the trainer as they are stated."""
    stated = {axis: flags.fact(axis) for axis in axes}
    return {axis: _word(value) for axis, value in stated.items() if value not in (None, "none")}


def _word(value: Any) -> object:
    return ("on" if value else "off") if isinstance(value, bool) else value


def other_layout(flags: TrainerFlags, prefix: str, who: str, there: bool) -> Iterator[str]:
    """Where another model is laid out otherwise than the policy, in whose layout it is predicted."""
    differ = []
    for name, value in flags.values.items():
        end = name.removeprefix(prefix)
        policy = flags.get(f"actor_rollout_ref.actor.{re.sub('^fsdp[.]', 'fsdp_config.', end)}")
        if name.startswith(prefix) and re.search(
            r"(?<!batch)(_size|_offload|ppo_.*_per_gpu|_granularity|_method|_layers)$", end
        ):
            differ += [f"{end} {value}"] if (value or policy) and value not in (policy, None, -1) else []
    if differ and there:
        yield f"{who} has {', '.join(differ)}; predicted in the policy's layout"
