"""The library of models and optimizers, and the workload that one question builds from them.

Built-in entries come from ``models/``. The user's own stand beside or in place of them, the later the stronger:
``~/.config/clusterwright/models``, the folder named by ``CLUSTERWRIGHT_MODELS``, one given by hand. A built-in file is
parsed when an entry of it is first asked for.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from planner.base import units
from planner.base.errors import WrongQuestion, same_but_case, suggestion
from planner.base.resources import data, own
from planner.models import blocks, families, fine_tuning, model_rules, text_lengths
from planner.models import files as model_files
from planner.schema.workload import Method, Model, Optimizer, Workload

OPTIMIZERS = "optimizers.toml"
HUB = "hub.toml"
MOST_MODULES = 16
"""Most modules of multi-token prediction; DeepSeek-V3 has one."""
MOST_IMBALANCE = 64.0
"""Largest imbalance of tokens over experts' ranks; all tokens on one of 64."""
LARGEST_BATCH = LARGEST_SEQUENCE = 10**9


class ModelLibrary(Mapping[str, Model]):
    """Models by id, each read and checked when it is first asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._models: dict[str, Model] = {}

    def __getitem__(self, entry: str) -> Model:
        if entry not in self._models:
            self._models[entry] = from_file(self._files[entry], entry)
        return self._models[entry]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, entry: object) -> bool:
        return entry in self._files

    def origin(self, entry: str) -> str:
        """Where an entry comes from: ``built-in`` or the user's file."""
        path = self._files[entry]
        return "built-in" if path.parent == data("models") else str(path)


def library(extra: Path | None = None) -> ModelLibrary:
    """All models: the built-in ones, overlaid by the user's.

    Raises:
        WrongQuestion: a folder that was named does not exist, or a file in it is malformed.
    """
    files = dict(_built_in(data("models")))
    for folder in _user_folders(extra):
        for path in _toml_files(folder):
            files.update(dict.fromkeys(model_files.tables(path), path))
    return ModelLibrary(files)


def model(entry: str, extra: Path | None = None) -> Model:
    """One model: an id of the library or of the Hugging Face hub, ``FILE.toml`` (or ``FILE.toml#id``), or a Hugging
    Face ``config.json``.

    Raises:
        WrongQuestion: no such model or file, or an entry with impossible values.
    """
    entry = _by_hub_id(entry) or entry
    name, _, chosen = entry.partition("#")
    if name.endswith((".json", ".toml")) or "/" in name or os.sep in name:
        return _from_path(Path(name).expanduser(), chosen)
    known = library(extra)
    entry = entry if entry in known else same_but_case(entry, known) or entry
    if entry not in known and (kind := families.what(entry)):
        raise WrongQuestion(
            f"{entry} is a {kind}, and this is answered for transformers; what it costs layer by layer: "
            f"clusterwright models layers {entry}"
            + (f"; how to share its images: clusterwright plan {entry}" if entry in families.networks() else "")
        )
    if entry not in known:
        raise WrongQuestion(
            f"no model {entry!r}.{suggestion(entry, [*known, *families.ids()])} (clusterwright models list)"
        )
    return known[entry]


def hub() -> dict[str, str]:
    """Checkpoint on the Hugging Face hub, ``owner/name`` -> the library's id."""
    return tomllib.loads((data("models") / HUB).read_text(encoding="utf-8"))


def _by_hub_id(entry: str) -> str | None:
    """The library's id of a checkpoint on the Hugging Face hub, ``owner/name``; None of anything else.

    Raises:
        WrongQuestion: the library does not have that checkpoint.
    """
    path = Path(entry)
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", entry) or path.suffix in (".json", ".toml") or path.exists():
        return None
    published = {name.lower(): known for name, known in hub().items()}
    if entry.lower() not in published:
        raise WrongQuestion(
            f"{entry}: no such file, and the library has no such checkpoint of the Hugging Face hub."
            f"{suggestion(path.name.lower(), list(library()))} Or download its config.json and give that file"
        )
    return published[entry.lower()]


def from_file(path: Path, entry: str) -> Model:
    """One entry of a model file, its shape checked.

    Raises:
        WrongQuestion: what is wrong with it, one line a problem.
    """
    read = model_files.record(Model, path, entry)
    if wrong := model_rules.problems(read):
        raise WrongQuestion("\n".join(f"{path}: {entry}: {problem}" for problem in wrong))
    return read


def optimizers(extra: Path | None = None) -> dict[str, Optimizer]:
    """All optimizers by id, the user's ``optimizers.toml`` overlaying the built-in one."""
    by_name: dict[str, Optimizer] = {}
    for folder in (data("models"), *_user_folders(extra)):
        path = folder / OPTIMIZERS
        if path.is_file():
            by_name |= {entry: model_files.record(Optimizer, path, entry) for entry in model_files.tables(path)}
    return by_name


TRAINERS_NAMES = {
    **dict.fromkeys(("adamw-8bit", "adamw-bnb-8bit"), "adam-8bit"),
    "paged-adamw-8bit": "paged-adam-8bit",
    "paged-adamw-32bit": "paged-adamw",
}
"""What ``optim`` of transformers' TrainingArguments calls bitsandbytes' optimizers -> an optimizer's id."""


def optimizer(entry: str, extra: Path | None = None) -> Optimizer:
    """One optimizer by id.

    Raises:
        WrongQuestion: no such optimizer.
    """
    known = optimizers(extra)
    plain = entry.lower().replace("_", "-")
    if entry not in known:
        entry = TRAINERS_NAMES.get(plain, plain if plain in known else entry)
    if entry not in known:
        raise WrongQuestion(f"no optimizer {entry!r}. It can be {', '.join(known)}.")
    return known[entry]


def workload(
    model: Model | str,
    *,
    sequence: int | None = None,
    batch: int | None = None,
    tokens: float | str | None = None,
    method: str | Method = "pretrain",
    rank: int | None = None,
    targets: Sequence[str] | None = None,
    optimizer: str | Optimizer = "adamw",
    mtp_layers: int = 0,
    imbalance: float | None = None,
    task: str = "sft",
    lengths: str | Sequence[float] | None = None,
) -> Workload:
    """What is trained: a model with sequence length, global batch (sequences), tokens, method and optimizer; texts of
    some lengths packed into the sequences.

    What is left out is :func:`planner.models.fine_tuning.usual`. A learned position table grows with the sequence, as
    trainers size it by the sequence: rows = max(rows, sequence + rows beyond the default sequence).

    Raises:
        WrongQuestion: an unknown name, or a number that is not positive and finite.
    """
    chosen = find_model(model)
    what = fine_tuning.task(chosen, task, method if isinstance(method, str) else method.kind)
    chosen = replace(chosen, labels=1, tied=False) if what == "reward" else chosen
    given = fine_tuning.usual(chosen, method if isinstance(method, str) else method.kind)
    length = given.sequence if sequence is None else fine_tuning.count("sequence", sequence, LARGEST_SEQUENCE)
    if chosen.learned_positions and length > chosen.sequence:
        beyond = max(0, chosen.learned_positions - chosen.sequence)
        chosen = replace(chosen, learned_positions=max(chosen.learned_positions, length + beyond))
    if chosen.tower and chosen.tower.images * chosen.tower.tokens > length:
        seen = f"{chosen.tower.images:,} {chosen.tower.pieces} of {chosen.tower.tokens:,} tokens"
        raise WrongQuestion(f"sequence = {length:,}: {chosen.id} has {seen} in each; take longer ones or fewer")
    if chosen.tower and what != "sft":
        raise WrongQuestion(f"task = {what!r}: the tower of {chosen.id} is priced with sft alone")
    how = method if isinstance(method, Method) else fine_tuning.method(chosen, method, rank, targets)
    if chosen.tower and chosen.tower.trained and how.kind not in ("pretrain", "finetune"):
        raise WrongQuestion(f"method = {how.name!r}: the tower of {chosen.id} is trained; take full, or a frozen tower")
    return Workload(
        model=chosen,
        sequence=length,
        batch=given.batch if batch is None else fine_tuning.count("batch", batch, LARGEST_BATCH),
        tokens=given.tokens if tokens is None else _tokens(tokens, length),
        method=how,
        optimizer=_find_optimizer(optimizer, how),
        mtp_layers=_modules(chosen, method if isinstance(method, str) else method.kind, mtp_layers),
        imbalance=_imbalance(chosen, imbalance),
        task=what,
        texts=() if lengths is None else _texts(chosen, how, what, lengths, length),
    )


def _texts(chosen: Model, how: Method, task: str, lengths: str | Sequence[float], sequence: int) -> tuple[float, ...]:
    """Lengths of texts that are packed: of a decoder's fine-tuning; pairs of answers are not."""
    if how.kind == "pretrain" or chosen.family != "decoder":
        raise WrongQuestion("--lengths: texts of a fine-tuning are packed; say which (--method full, lora, qlora ...)")
    if task != "sft":
        raise WrongQuestion(f"--lengths: no trainer packs the pairs of --task {task}; leave it out")
    return text_lengths.lengths(lengths, sequence)


def _imbalance(model: Model, given: object) -> float | None:
    """Imbalance of a mixture's tokens over ranks; experts that drop what is beyond their capacity get no more than
    that.
    """
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= MOST_IMBALANCE:
        raise WrongQuestion(f"imbalance = {given}: must be from 1 (even) to {MOST_IMBALANCE:g}")
    if model.moe is None:
        raise WrongQuestion(f"imbalance = {given:g}: {model.id} has no experts; leave it out")
    capacity = model.moe.router.capacity if model.moe.router else None
    return float(given if capacity is None else min(given, max(capacity, 1.0)))


def _modules(model: Model, method: str, count: int) -> int:
    """Multi-token prediction modules (arXiv 2412.19437): of a decoder with later layers alike, all of it trained."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise WrongQuestion(f"--mtp-layers {count!r}: must be a whole number")
    if not 0 <= count <= MOST_MODULES:
        raise WrongQuestion(f"--mtp-layers {count}: must be from 0 to {MOST_MODULES}")
    if count and (model.family != "decoder" or not blocks.alike(model)):
        raise WrongQuestion(f"--mtp-layers {count}: {model.id} is no decoder whose later layers are all identical")
    if count and not fine_tuning.trains_all(method):
        raise WrongQuestion(f"--mtp-layers {count}: {method} trains no modules; leave it out (--mtp-layers 0)")
    return count


def find_model(named: Model | str) -> Model:
    """A model by name (:func:`model`), or the record itself."""
    return model(named) if isinstance(named, str) else named


def _find_optimizer(named: Optimizer | str, what: Method) -> Optimizer:
    """An optimizer by name, or the record itself; one of whole matrices goes with training all of them."""
    chosen = optimizer(named) if isinstance(named, str) else named
    if chosen.iterations and what.kind not in ("pretrain", "finetune"):
        raise WrongQuestion(f"--optimizer {chosen.id}: --method {what.name} trains no whole model; choose adamw")
    return chosen


# ---- files -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _built_in(folder: Path) -> Mapping[str, Path]:
    return {entry: path for path in _toml_files(folder) for entry in model_files.headers(path)}


def _toml_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.toml")) if path.name not in (OPTIMIZERS, HUB, *families.FILES)]


def _user_folders(extra: Path | None) -> list[Path]:
    """The user's folders, weakest first. The default one may be missing, one that somebody named may not."""
    config = own("models")
    named = [Path(folder).expanduser() for folder in (os.environ.get("CLUSTERWRIGHT_MODELS"), extra) if folder]
    for folder in named:
        if not folder.is_dir():
            raise WrongQuestion(f"{folder}: no such folder of models")
    return [config, *named] if config else named


def _from_path(path: Path, chosen: str) -> Model:
    if not path.is_file():
        hint = suggestion(path.name, list(library()))
        raise WrongQuestion(f"{path}: no such file; a model is an id (clusterwright models list) or such a file.{hint}")
    if path.suffix == ".json":
        from planner.models import huggingface

        return huggingface.read(path)
    entries = list(model_files.tables(path))
    if not chosen and len(entries) != 1:
        raise WrongQuestion(f"{path}: holds {len(entries)} models; write {path}#ID, one of: {', '.join(entries)}")
    if chosen and chosen not in entries:
        raise WrongQuestion(f"{path}: no model {chosen!r}.{suggestion(chosen, entries)}")
    return from_file(path, chosen or entries[0])


# ---- values ----------------------------------------------------------------------------------------------------------


def _tokens(value: float | str, sequence: int) -> float:
    try:
        number = units.parse(value, "count")
    except units.UnitError as error:
        raise WrongQuestion(f"tokens = {error}") from None
    if not 1 <= number <= 1e18:
        raise WrongQuestion(f"tokens = {value!r}: must be from 1 to 1e18")
    if number < sequence:
        raise WrongQuestion(f"tokens = {value!r}: less than one sequence of {sequence:,}")
    return number
