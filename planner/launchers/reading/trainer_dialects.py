"""What programs on Hugging Face's Trainer call the same things, and what their files say of how a job is sharded.

The words stand in their tables (``trainer_arguments.toml`` and those of the programs). A dialect is a program's own
defaults for them: those of transformers 5.23.0 (training_args.py), trl f2cd5771 (trl/trainer/sft_config.py,
base_config.py), LLaMA-Factory ff6d4d12 (src/llamafactory/hparams), axolotl 067b021c (src/axolotl/utils/schemas) and
DeepSpeed-Chat 83757d9c (step 1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion, malformed
from planner.models import files
from planner.models.workload import hub, library
from planner.schema.launcher_table import launcher_table

Values = Mapping[str, Any]
MOST_VALUES = 20_000
"""Values of a YAML text with its aliases written out, at most."""

WORDS = launcher_table("trainer-arguments").head
NAMES: Mapping[str, list[str]] = WORDS["names"]
"""Our name -> its names, of which the first that is set counts."""
OTHERWISE: Mapping[str, str] = {key: what for what, keys in WORDS["otherwise"].items() for key in keys}
"""Key -> what it switches on, which is predicted without."""
REFUSED: Mapping[str, str] = {key: what for what, keys in WORDS["refused"].items() for key in keys}
"""Keys that change the work or the memory, where they are set and not false."""
UNDERSTOOD = {key for keys in NAMES.values() for key in keys} | OTHERWISE.keys() | REFUSED.keys()
OPTIONS = frozenset(UNDERSTOOD - OTHERWISE.keys() | {*WORDS["keys"]["known"]})
"""By which a command is known as one of a Trainer."""
TRAINS: list[str] = WORDS["keys"]["trains"]
"""Options that only a training has."""
LIGER: list[str] = WORDS["otherwise"]["fused kernels (Liger)"]
"""Keys that switch Liger's kernels on, whose loss takes logits in chunks."""
OPTIMIZERS: Mapping[str, str] = {word: optimizer for optimizer, words in WORDS["optimizers"].items() for word in words}
NEAREST: Mapping[str, tuple[str, str]] = {
    word: (optimizer, what)
    for optimizer, kinds in WORDS["nearest"].items()
    for what, words in kinds.items()
    for word in words
}
"""An optimizer that is not priced -> the nearest that is, and what of its own differs."""
TARGETS: Mapping[str, list[str]] = WORDS["targets"]
"""Names of linear layers -> matrices of a block."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A program.

    Attributes:
        name: By which messages call it.
        defaults: Our name -> its own value where nothing is set.
        options: Sections of ``trainer_options.toml`` with its options on which nothing depends.
    """

    name: str
    defaults: Values
    options: tuple[str, ...] = ("transformers", "trl", "scripts", "hf-trainer")

    def get(self, values: Values, name: str) -> Any:
        """The value under one of its names, or its default."""
        stated = (values[key] for key in NAMES[name] if values.get(key) is not None)
        return next(stated, self.defaults.get(name))

    def adapts(self, values: Values) -> bool:
        """Whether its values ask for LoRA: by a switch or a kind of tuning, else by a rank that is stated."""
        if self.name == "llama-factory":
            return bool(values.get("finetuning_type", "lora") == "lora")
        if self.name == "axolotl":
            return values.get("adapter") in ("lora", "qlora")
        kinds = [values[name] for name in ("tuner_type", "train_type", "finetuning_type") if values.get(name)]
        if kinds:
            return bool(kinds[0] == "lora")
        switches = [true(values[name]) for name in NAMES["adapters"] if values.get(name) is not None]
        if switches or any(true(values.get(name)) for name in FULL):
            return any(switches)
        return any(count(values, name) > 0 for name in NAMES["rank"])


FULL = ("full_finetune", "full_finetuning")
"""Switches of scripts that train adapters otherwise."""
TRAINER = Dialect("trainer", WORDS["defaults"])
TRL = Dialect("trainer", launcher_table("trl").head["defaults"])
SWIFT = Dialect("trainer", WORDS["swift"], ("transformers", "ms-swift"))
CHAT = Dialect("trainer", WORDS["chat"])
"""DeepSpeed-Chat, by its own parser."""
DIALECTS = {
    "trainer": TRAINER,
    **{
        name: Dialect(name, launcher_table(name).head["defaults"], options)
        for name, options in {"llama-factory": ("transformers", "llama-factory"), "axolotl": ("axolotl",)}.items()
    },
}


def true(value: Any) -> bool:
    """Whether a value switches something on, as YAML or a command line says it."""
    return value is True or (
        isinstance(value, str) and value.lower() in ("true", "yes", "1", "unsloth", "offload", "legacy")
    )


def count(values: Values, name: str) -> int:
    """The whole number under a name, 0 where there is none.

    Raises:
        WrongQuestion: it is none.
    """
    value = values.get(name)
    if value is None or value is False:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", str(value)):
        raise WrongQuestion(f"--from trainer: {name} is {value!r:.40}; a whole number is expected")
    return int(value)


def named_file(folder: Path, name: str, given: Sequence[Path] = (), within: Path | None = None) -> str:
    """A file that a configuration names, of those that are `given`, from its own folder or one above it, or where we
    are; only what lies in `within`, or where we are, where that is stated.

    Raises:
        WrongQuestion: there is none, or it lies elsewhere.
    """
    for path in given:
        if path.name == Path(name).name:
            return files.read_text(path)
    name = re.sub(r"^(\$\{?\w+\}?|\$\(pwd\))/", "", name)  # the folder that a variable names is one of these
    for place in (folder, *[*folder.absolute().parents][:3], Path.cwd()):
        if (path := place / name).is_file():
            roots = {root.resolve() for root in (within, Path.cwd()) if root is not None} - {Path("/")}
            if within is not None and roots.isdisjoint(path.resolve().parents):
                raise WrongQuestion(f"{name:.100}: lies outside of {within}; --file {path!s:.200} if it is meant")
            return files.read_text(path)
    raise WrongQuestion(f"{name:.100}: no such file in {folder}; the configuration names it (--file says where it is)")


def mapping(text: str) -> dict[str, Any]:
    """A YAML text as a mapping, its keys as text.

    Raises:
        WrongQuestion: no YAML, no mapping, or one whose aliases (``*name``) make it grow beyond :data:`MOST_VALUES`.
    """
    import yaml

    try:
        values = yaml.load(text, yaml.SafeLoader)
        if "*" in text and written_out(values, {}) > MOST_VALUES:
            raise WrongQuestion(f"YAML whose aliases (*name) write out to more than {MOST_VALUES:,} values")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise WrongQuestion(f"not YAML: {' '.join(malformed(error).split())[:200]}") from None
    if not isinstance(values, dict):
        raise WrongQuestion("not a mapping of options in YAML")
    return {str(key): value for key, value in values.items()}


def written_out(value: Any, counted: dict[int, int]) -> int:
    """Values of a text with its aliases written out: each is counted once, and one that holds itself is endless."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counted:
        counted[id(value)] = MOST_VALUES + 1
        parts = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(written_out(part, counted) for part in parts)
    return counted[id(value)]


def library_name(name: str) -> str:
    """An id of the library for a name on the hub, in a file or of a function; a path or an unknown name as it is."""
    if not name or Path(name).exists():
        return str(Path(name) / "config.json") if name and Path(name).is_dir() else name
    name = re.sub(r"(?<=[\w-])/+((snapshots/)?[0-9a-f]{40}/?)?$", "", name)  # a folder of the hub's cache
    name = re.sub(r"(.*/)?models--(?=\w)", "", name).replace("--", "/") if "models--" in name else name
    last = name.rstrip("/").rpartition("/")[2].lower()
    own = re.sub(r"([-_](hf|instruct|chat|base|it|v0\.\d|2507|bf16))+$", "", last)
    own = re.sub(r"[-_](intermediate|step)[-_].*\d.*", "", own)  # a checkpoint on the way
    own = re.sub(r"(?<=qwen2\.5)-coder|(?<=^gemma)-1\.1", "", own)  # other weights of the same shape
    own = re.sub(r"^llama(?=-\d+b)", "llama1", own)
    plain = _letters(re.sub("^(meta|nvidia)-", "", own))
    known = next((known for known in library() if _letters(known) == plain), None)
    return known or published().get(_letters(last), name)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


@cache
def published() -> Mapping[str, str]:
    """Letters of a checkpoint's name on the hub, without its owner -> the library's id."""
    return {_letters(name.rpartition("/")[2].lower()): known for name, known in hub().items()}
