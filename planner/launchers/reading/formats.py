"""Files of trainers that a table alone says how to read (``launchers/formats.toml``)."""

from __future__ import annotations

import json
import math
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from planner.axes import AXES
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.launchers.reading import python_program
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.trainer_dialects import TARGETS, library_name, mapping

Values = Mapping[str, Any]
NO_SETTINGS = ("batch", "precision", "dp", "nodes", "cp_algorithm")
"""Axes that other fields say."""
ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "output_proj": "o"}
WHOLE = 100
"""Keys that stand as in a file of defaults from which on a file is a copy of it."""
UNSET = ("none", "null", "false", "", "[]", "{}")
"""How values are spelt that switch nothing on."""
SWITCHES: Mapping[str, Any] = {"true": True, "false": False}
"""What YAML makes of a word, for words that were inserted or come from a command."""
COUNTS = {
    *(
        "micro",
        "rank_tokens",
        "batch",
        "accumulation",
        "sequence",
        "steps",
        "rank",
        "replicas",
        "shards",
        "nodes",
        "devices",
        "dp",
    ),
    "multiple",
    "ffn_ratio",
    *(f"shape.{name}" for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab")),
    *(axis.name for axis in AXES.values() if axis.kind == "count"),
}
PADS = "sequences are as long as the longest of a micro-batch; predicted all as long as the limit (packing fills them)"
IS_PYTHON = re.compile(r"^(from [\w.]+ import|import [\w.]+|\w+ = )", re.MULTILINE)
_DURATION = re.compile(r"(\d[\d.e+]*)(ba|tok|T)?")
_INSERTED = re.compile(r"\$\{([^${}]+)\}")


@dataclass(frozen=True, slots=True)
class Format:
    """A trainer's file.

    Attributes:
        name: By which it is asked for.
        rows: Everything that its section of the table says.
    """

    name: str
    rows: Values

    @property
    def title(self) -> str:
        """What a person calls it."""
        return str(self.rows["title"])

    @property
    def says(self) -> Mapping[str, tuple[str, Values]]:
        """Key -> what it says, and its words where they are listed."""
        rows = {key: row if isinstance(row, list) else [row, {}] for key, row in self.rows["says"].items()}
        return {key: (fact, words) for key, (fact, words) in rows.items()}

    def holds(self, values: Values) -> bool:
        """Whether a file, flat, is one of its kind."""
        tops = {key.partition(".")[0] for key in values}
        inside = self.rows.get("inside", ())
        marks = self.rows.get("marks", ())  # any of the words between bars
        whole = bool(marks) and not any(tops.isdisjoint(mark.split("|")) for mark in marks)
        return whole and (not inside or not values.keys().isdisjoint(inside))


@cache
def _sections() -> dict[str, Any]:
    path = Path(__file__).resolve().parent.parent / "formats.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def formats() -> Mapping[str, Format]:
    """Name -> format, as the table has them."""
    sections = _sections()
    whole = {name: _over(sections[rows["like"]], rows) if "like" in rows else rows for name, rows in sections.items()}
    return {name: Format(name, {**sections["common"], **rows}) for name, rows in whole.items() if "says" in rows}


def _over(below: Values, above: Values) -> dict[str, Any]:
    """A section over the one that it is like, table by table."""
    inner = {name: {**rows, **above.get(name, {})} for name, rows in below.items() if isinstance(rows, dict)}
    return {**below, **above, **inner}


def mapping_of(text: str) -> dict[str, Any]:
    """A file's keys: YAML, JSON, or assignments of Python.

    Raises:
        WrongQuestion: it is none of them.
    """
    if IS_PYTHON.search(text):
        return python_program.values(text)
    return mapping(text)


@cache
def family() -> Mapping[str, Values]:
    """Trainer -> what its keys are beyond Megatron-LM's options."""
    rows: Mapping[str, Values] = _sections()["megatron-family"]
    return rows


def format_of(values: Values) -> Format | None:
    """The format of a file, flat; None where no table has it."""
    return next((kind for kind in formats().values() if kind.holds(values)), None)


def flat(values: Values, environment: Mapping[str, str], before: str = "") -> dict[str, Any]:
    """A file's sections under ``section.key``, dashes of keys as underscores, and what ``${...}`` inserts put in.

    Args:
        values: As YAML has it.
        environment: Variables that ``${NAME:default}`` may ask for.
        before: Sections around, with their dots.
    """
    whole: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{str(key).replace('-', '_')}"
        if isinstance(value, dict) and value:
            whole |= flat(value, environment, f"{name}.")
        else:
            whole[name] = value
    if before:
        return whole
    return {name: _inserted(value, name.rpartition(".")[0], whole, environment) for name, value in whole.items()}


def _inserted(value: Any, section: str, values: Values, environment: Mapping[str, str]) -> Any:
    """A value with ``${section.key}`` and ``${NAME:default}`` put in; what nobody sets stays."""

    def one(match: re.Match[str]) -> str:
        name, colon, usual = match[1].partition(":")
        if name == "multiply" and re.fullmatch(r"[\d, ]+", usual):
            return str(math.prod(map(int, usual.split(","))))
        if name.startswith("."):  # of the same section
            name = f"{section}{name}"
        if name in environment:
            return environment[name]
        known = values.get(name)
        return str(known) if known is not None and known != value else usual if colon else match[0]

    if not isinstance(value, str) or "${" not in value:
        return value
    for _ in range(4):
        value = _INSERTED.sub(one, value)
    return int(value) if re.fullmatch(r"\d{1,12}", value) else SWITCHES.get(value.lower(), value)


def read(kind: Format, values: Values) -> FoundOptions:
    """A file, flat, as axes of a plan.

    Raises:
        WrongQuestion: a key that may change what is predicted and is not understood, or a value that is not known.
    """
    values, base = _own_keys(kind, _of_its_parts(kind, values))
    _refuse(kind, values)
    stated = _facts(kind, values)
    of_runtime = kind.rows.get("usual_of", {}).get(stated.get("runtime"), {})
    facts = {**kind.rows.get("usual", {}), **of_runtime, **stated}
    zero = facts.pop("zero", None)
    replicas = facts.get("replicas", -1)
    shards = facts.get("shards", -1)
    if replicas != -1:
        zero = "node" if replicas > 1 else 3
    settings: dict[str, object] = {axis: facts[axis] for axis in AXES if axis in facts and axis not in NO_SETTINGS}
    if int(facts.get("tp", 1)) == 1:  # Megatron switches it off there
        settings.pop("sequence_parallel", None)
    if int(facts.get("ep", 1)) == 1:
        settings.pop("dispatcher", None)
    if zero == "node":
        settings |= {"zero": 3, "zero_scope": "node"}
    runtime = str(facts.get("runtime", kind.rows["runtime"]))
    runtime = "pytorch-ddp" if runtime == "fsdp" and zero == 0 else runtime
    if zero in (0, 1, 2, 3) and runtime not in ("fsdp", "fsdp2", "pytorch-ddp"):
        settings["zero"] = zero
    plain = _plain(str(facts.get("model") or ""))
    model = library_name(kind.rows.get("models", {}).get(plain, plain)) or None
    if kind.rows.get("shape_leads") and "shape.layers" in stated:
        model = None
    by_name = kind.name == "torchtune" and "lora" in str(facts.get("model"))
    adapted = by_name or (bool(facts.get("rank")) and kind.name != "torchtune")
    method = str(facts.get("method", "pretrain"))
    if adapted:
        quantised = ".qlora" in str(facts["model"]) or method == "qlora"
        method = "qlora" if quantised else "lora"
        runtime = "hf-trainer" if quantised else runtime
        settings |= {"zero": zero if zero in (0, 1, 2, 3) and not by_name else 3} if quantised else {}
    micro = _micro(kind, facts)
    shards *= int(facts.get("ep", 1)) if shards != -1 and "device_micro" in facts else 1
    degrees = math.prod(int(facts.get(axis, 1)) for axis in ("tp", "pp", "cp", "dp"))
    ranks = facts.get("nodes", 0) * facts.get("devices", 0) or (degrees if "dp" in facts else None)
    return FoundOptions(
        runtime=runtime,
        settings={**settings, "micro": micro},
        batch=facts.get("batch"),
        accumulation=facts.get("accumulation"),
        per_rank=micro * int(facts.get("accumulation", 1)),
        sequence=facts.get("sequence"),
        precision=facts.get("precision"),
        steps=_steps(facts),
        method=method,
        rank=facts.get("rank") if adapted else None,
        targets=(_targets(facts) or None) if adapted else None,
        optimizer=facts.get("optimizer"),
        shape={} if model else _shape(kind, facts),
        model=model,
        ranks=ranks,
        cp_algorithm=facts.get("cp_algorithm") if int(facts.get("cp", 1)) > 1 else None,
        degrees=(replicas, shards) if (replicas, shards) != (-1, -1) else None,
        shards=replicas if replicas > 1 else None,
        differs=tuple(_differs(kind, values, zero, "shape.moe.experts" in facts)),
        unread=sorted(name for name in values if _left(kind, name, values[name])),
        assumed=[*_assumed(kind, stated), *base],
    )


def _micro(kind: Format, facts: Values) -> int:
    """Sequences of a micro-batch: as stated, or those of each of the accelerators that share them.

    Raises:
        WrongQuestion: they are no whole number.
    """
    if facts.get("dynamic") and "rank_tokens" in facts:  # of micro-batches that hold so many tokens
        return max(int(facts["rank_tokens"]) * int(facts.get("cp", 1)) // int(facts.get("sequence", 1)), 1)
    if "device_micro" not in facts:
        return int(facts.get("micro", 1))
    text = str(facts["device_micro"])
    shared = int(facts.get("tp", 1)) * int(facts.get("cp", 1))
    micro = Fraction(text) * shared if re.fullmatch(r"\d{0,9}\.?\d{1,9}|\d{1,9}\.", text) else Fraction(0)
    if micro < 1 or micro.denominator != 1:
        raise WrongQuestion(
            f"--from {kind.name}: {text:.40} sequences an accelerator, of which {shared} share a micro-batch: a whole "
            "number of sequences is expected"
        )
    return int(micro)


def digest(key: str, value: object) -> str:
    """A key with its value, as ``[NAME.base]`` has it."""
    return short_hash(f"{key}={json.dumps(value, sort_keys=True, default=str)}".encode(), 6)


def _own_keys(kind: Format, values: Values) -> tuple[Values, list[str]]:
    """A copy of the program's whole file of defaults without what stands there as in a release, and which one."""
    base = kind.rows.get("base")
    if base is None or len(values) < WHOLE:
        return values, []
    entries = textwrap.wrap(base["pairs"], 8)
    releases_of = {entry[:6]: int(entry[6:], 16) for entry in entries}
    among = {key: releases_of.get(digest(key, value), 0) for key, value in values.items()}
    counts = [sum(bits >> place & 1 for bits in among.values()) for place in range(len(base["releases"]))]
    place = counts.index(max(counts))
    if counts[place] < WHOLE:
        return values, []
    changed = {key: value for key, value in values.items() if key in kind.rows["says"] or not among[key] >> place & 1}
    return changed, [f"{counts[place]} keys that stand as in base.yml of {base['releases'][place]}: its own defaults"]


def _of_its_parts(kind: Format, values: Values) -> Values:
    """A file without the keys that it switches off (``[NAME.parts]``: their beginning -> the switch)."""
    off = tuple(part for part, switch in kind.rows.get("parts", {}).items() if _stated(values, switch) in UNSET)
    return {key: value for key, value in values.items() if not key.startswith(off)} if off else values


def _assumed(kind: Format, stated: Values) -> Iterator[str]:
    """What of a plan is left to the program, and what it takes by itself."""
    usual = {"micro": 1, **kind.rows.get("usual", {})}
    for fact in (
        "device_micro" if "device_micro" in usual else "micro",
        "accumulation",
        "precision",
        "recompute",
        "zero",
    ):
        instead = {"accumulation": "batch", "zero": "replicas"}.get(fact)
        if fact in usual and stated.keys().isdisjoint((fact, instead)):
            value = "3 within a slice or node" if usual[fact] == "node" else usual[fact]
            yield f"{fact.replace('_', ' ')} not stated: {value}, the program's default"


def _plain(component: str) -> str:
    """Torchtune's function as a model's name: ``torchtune.models.llama3_1.lora_llama3_1_8b``."""
    return re.sub(r"^(q?lora_)", "", component.rpartition(".")[2]) if component.startswith("torchtune.") else component


def _spelt(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _stated(values: Values, key: str) -> str:
    """A value as a word; nothing where it is left out."""
    return "" if values.get(key) is None else _spelt(values[key])


def _facts(kind: Format, values: Values) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, (fact, words) in kind.says.items():
        value = values.get(key)
        text = _spelt(value)
        if fact in facts or (text in UNSET and text not in words):
            continue
        if known := {word.lower(): meaning for word, meaning in words.items()}:
            if text.lower() in known:
                facts[fact] = known[text.lower()]
            elif fact not in COUNTS:
                raise WrongQuestion(f"--from {kind.name}: {key} {text:.40}: choose {', '.join(words)}")
        if fact in COUNTS and fact not in facts:
            facts[fact] = _count(kind, key, text)
        elif not known:
            facts[fact] = int(text) if re.fullmatch(r"\d{1,12}", text) else value
    return {fact: value for fact, value in facts.items() if fact != "plain"}


def _count(kind: Format, key: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,11}(\.0)?", text):
        how = "; --env NAME=VALUE says it" if "${" in text else ""
        raise WrongQuestion(f"--from {kind.name}: {key} {text:.40}: a whole number from 1 is expected{how}")
    return int(text.removesuffix(".0"))


def _left(kind: Format, name: str, value: Any) -> bool:
    """Whether a key is set and nothing is read from it."""
    rows = kind.rows
    otherwise = {key for part in ("otherwise", "where") for keys in rows.get(part, {}).values() for key in keys}
    known = name in rows["says"] or name in rows.get("only", {}) or name in otherwise or name == rows.get("packs")
    return (
        not known
        and _spelt(value) not in UNSET
        and not any(re.fullmatch(pattern, name) for pattern in rows["harmless"])
    )


def _refuse(kind: Format, values: Values) -> None:
    left = sorted(name for name in values if _left(kind, name, values[name]))
    wrong = [name for name in left if re.fullmatch(kind.rows["matter"], name)]
    wrong += [
        key for key, only in kind.rows.get("only", {}).items() if not _changes_nothing(_spelt(values.get(key)), only)
    ]
    if wrong:
        named = ", ".join(f"{name} {_spelt(values[name]):.20}" for name in wrong[:6])
        more = f" and {len(wrong) - 6} more" if wrong[6:] else ""
        raise WrongQuestion(
            f"--from {kind.name}: {named}{more}: may change precision, memory or time, and no plan holds it; "
            f"--ignore {wrong[0]} prices the rest without"
        )


def _changes_nothing(text: str, only: str) -> bool:
    """Whether a value is one of those listed, or switches nothing on that is not on by itself."""
    return re.fullmatch(only, text) is not None or (text in UNSET and (text, only) != ("false", "true"))


def _steps(facts: Values) -> int | None:
    if facts.get("steps"):
        return int(facts["steps"])
    match = _DURATION.fullmatch(str(facts.get("duration", "")))
    if match is None:
        return None
    amount = float(match[1])
    if match[2] in ("tok", "T"):
        amount /= int(facts.get("batch", 1)) * int(facts.get("sequence", 1))
    return int(amount) or None


def _targets(facts: Values) -> tuple[str, ...]:
    given = facts.get("targets", [])
    names = [*map(str, given)] if isinstance(given, list) else [str(given)]
    targets = [target for name in names for target in ATTENTION.get(name, TARGETS.get(name, ()))]
    targets += [letter for letter in "qkvo" if facts.get(f"target.{letter}")]
    return (*targets, *(("up", "down", "gate") if facts.get("mlp_targets") else ()))


def _shape(kind: Format, facts: Values) -> dict[str, Any]:
    """Fields of the model, as far as the file says them; none where it names the model instead."""
    shape = {fact.removeprefix("shape."): value for fact, value in facts.items() if fact.startswith("shape.")}
    if not {"layers", "hidden", "heads"} <= shape.keys():
        return {}
    moe = {name.removeprefix("moe."): shape.pop(name) for name in [*shape] if name.startswith("moe.")}
    shape = _scaled(kind, shape, int(facts.get("scale", 1)))
    hidden = shape["hidden"]
    heads = shape["heads"]
    gated = shape.setdefault("gated", shape.get("activation") in ("swiglu", "geglu"))
    width = shape.get("ffn", hidden * int(facts.get("ffn_ratio", 4)))
    if gated and "gated" in kind.rows:
        parts, multiple = kind.rows["gated"]
        multiple = int(facts.get("multiple", multiple))
        width = -(-(width // parts) // multiple) * multiple
    biased = facts.get("bias.attention")
    positions = facts.get("positions")
    shape |= {} if biased is None else {"qkv_bias": biased, "output_bias": biased}
    shape |= {"qkv_bias": True} if facts.get("bias.qkv") else {}
    shape |= {} if biased is None or "mlp_bias" in shape else {"mlp_bias": biased}
    shape |= {"positions": positions} if positions in ("alibi", "none") else {}
    shape |= {"learned_positions": facts["sequence"]} if positions == "learned" and facts.get("sequence") else {}
    shape |= {"moe": {"experts_per_token": 2, "ffn": width, **moe}} if moe.get("experts", 1) > 1 else {}
    return {
        "kv_heads": heads,
        "head_dim": hidden // heads,
        **shape,
        "ffn": width,
        "dropout": bool(facts.get("dropout")),
    }


def _scaled(kind: Format, shape: dict[str, Any], scale: int) -> dict[str, Any]:
    """A shape of so many times the parameters as MaxText makes it: heads and MLP, width, and layers double in turn.

    Raises:
        WrongQuestion: it is no power of two.
    """
    turns = scale.bit_length() - 1
    if 1 << turns != scale:
        raise WrongQuestion(f"--from {kind.name}: a scale of {scale:,}: a power of two is expected")
    times = {"heads": turns + 2, "kv_heads": turns + 2, "ffn": turns + 2, "hidden": turns + 1, "layers": turns}
    return {name: value << times[name] // 3 if name in times else value for name, value in shape.items()}


def _differs(kind: Format, values: Values, zero: object, mixture: bool) -> Iterator[str]:
    for text, keys in kind.rows.get("otherwise", {}).items():
        if any(_spelt(values.get(key)) not in (*UNSET, "fp32", "float32", "-1", "-1.0") for key in keys):
            yield text
    for text, keys in kind.rows.get("where", {}).items():
        if any(
            re.fullmatch(is_so, _stated(values, key)) and (mixture or ".moe_" not in key) for key, is_so in keys.items()
        ):
            yield text
    for key, leads in kind.rows.get("overwritten", {}).items():
        one, other = (_spelt(values.get(name)).removesuffix("-mixed") for name in (key, leads))
        if one != other and not {one, other} & {*UNSET}:
            yield f"{key} {one}: the program puts {leads} in its place; predicted with {other}"
    if zero == 2 and kind.rows["runtime"] == "fsdp":
        yield "weights stay whole after the forward pass; predicted as given back"
    padded = kind.rows.get("padded", {}).items()
    if "packs" in kind.rows and all(re.fullmatch(is_so, _stated(values, key)) for key, is_so in padded):
        if not re.fullmatch(r"true|auto|[1-9][\d.]*", _stated(values, kind.rows["packs"])):
            yield PADS
