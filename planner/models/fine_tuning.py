"""What of a model is trained (``--method``), and how long where nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from planner.base.errors import WrongQuestion, suggestion
from planner.schema.choices import Target, Task
from planner.schema.workload import FrozenBase, Method, Model

LORA_RANK = 16
LORA_TARGETS: tuple[Target, ...] = ("q", "k", "v", "o")
"""Rank and targets of the MLPerf Llama-2-70B LoRA benchmark (mlcommons/training_results_v4.0)."""
QLORA_TARGETS: tuple[Target, ...] = get_args(Target)
"""All matrices of a block, which it needs to be as good as full fine-tuning (arXiv 2305.14314, section 4)."""
ADAPTED: Mapping[str, FrozenBase] = {
    **{"lora": "", "qlora": "nf4", "qlora:int8": "int8", "qlora:fp8": "fp8"},
    **{"dora": "", "qdora": "nf4"},
}
"""Methods that train adapters -> how the weights that they freeze are quantised."""
UNTRAINABLE = ("qlora:mxfp4", "qlora:nvfp4")
"""Bases that no runtime trains adapters on: transformers 5.23.0 says so of its own (quantizers/quantizer_mxfp4.py)."""
PRETRAINING = "pretrain"
FREEZE = "freeze:N"
METHODS = (PRETRAINING, "finetune", "full", *ADAPTED, FREEZE)
"""What `--method` can be; `full` is `finetune`."""


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What a training takes of which nothing else is said."""

    sequence: int
    """Tokens per sequence."""
    batch: int
    """Global batch in sequences."""
    tokens: float
    """Tokens to train on."""


FINE_TUNED = Usual(sequence=4096, batch=16, tokens=1e7)
"""Defaults of a fine-tuning that does not say, whatever its model was made with."""
TUNED_LIKE = "a fine-tuning on ten thousand examples of 1,000 tokens"
"""Why, in words."""


def usual(model: Model, method: str) -> Usual:
    """What a training takes of which nothing else is said: the model's own, or that of a fine-tuning."""
    if method == PRETRAINING:
        return Usual(sequence=model.sequence, batch=model.batch, tokens=model.tokens)
    tokens = model.sequence if model.tower else min(FINE_TUNED.sequence, model.sequence)  # its images stand in it
    return replace(FINE_TUNED, sequence=tokens)


def method(chosen: Model, name: str, rank: int | None, targets: Sequence[str] | None) -> Method:
    """What `--method` says of a model; adapters of the usual rank on the usual matrices where nothing else is said.

    Raises:
        WrongQuestion: no such method, or a rank or matrices that the model or the method does not have.
    """
    if name in UNTRAINABLE:
        base = name.partition(":")[2]
        raise WrongQuestion(
            f"method {name!r}: no runtime trains on {base}, they make it 16 bit (--method lora) or 4: qlora"
        )
    if name.startswith("freeze") and rank is None and targets is None:
        return Method(kind="freeze", layers=_last_blocks(chosen, name.partition(":")[2]))
    if name not in METHODS:
        hint = suggestion(name, METHODS, most=1)
        raise WrongQuestion(f"no method {name!r}. It can be {', '.join(METHODS[:-1])} or {METHODS[-1]}.{hint}")
    if name in ADAPTED:
        width = count("rank", LORA_RANK if rank is None else rank, chosen.hidden)
        usual = QLORA_TARGETS if ADAPTED[name] else LORA_TARGETS
        chosen_targets = _targets(chosen, tuple(t for t in usual if t != "gate" or chosen.gated), targets)
        magnitude = name in ("dora", "qdora")
        if magnitude and chosen.moe and {"up", "down", "gate"} & set(chosen_targets):
            if targets is not None:
                raise WrongQuestion(f"method {name!r}: no magnitudes of experts; targets can be q, k, v, o")
            chosen_targets = LORA_TARGETS
        return Method(kind="lora", rank=width, targets=chosen_targets, base=ADAPTED[name], magnitude=magnitude)
    if rank is not None or targets is not None:
        raise WrongQuestion(f"method {name!r} takes no rank and no targets; LoRA does (--method lora)")
    return Method(kind="pretrain" if name == PRETRAINING else "finetune")


def trains_all(method: str) -> bool:
    """Whether a method, by name or kind, trains the whole model."""
    return method in (PRETRAINING, "finetune", "full")


def task(chosen: Model, name: str, method: str) -> Task:
    """What a training learns from.

    Raises:
        WrongQuestion: no such task, or one on pairs that is no fine-tuning of a decoder.
    """
    known: tuple[Task, ...] = get_args(Task)
    if name not in known:
        raise WrongQuestion(f"no task {name!r}. It can be {', '.join(known)}.{suggestion(name, known, most=1)}")
    if name != "sft" and (method == PRETRAINING or chosen.family != "decoder"):
        raise WrongQuestion(f"--task {name}: it fine-tunes a decoder (--method full, lora, qlora ...)")
    return next(choice for choice in known if choice == name)


def _last_blocks(chosen: Model, text: str) -> int:
    """N of ``freeze:N``, fewer than the model has.

    Raises:
        WrongQuestion: no such number, or a model with an encoder.
    """
    if chosen.family != "decoder":
        raise WrongQuestion(f"method 'freeze:{text}': trains the last blocks of a decoder, and {chosen.id} is none")
    if not text.isdecimal() or not 1 <= int(text) < chosen.layers:
        most = chosen.layers - 1
        raise WrongQuestion(f"method 'freeze:{text}': write freeze:2, from 1 to {most:,} last blocks of {chosen.id}")
    return int(text)


def _targets(chosen: Model, usual: Sequence[str], asked: Sequence[str] | None) -> tuple[Target, ...]:
    names = usual if asked is None else asked
    known: tuple[Target, ...] = get_args(Target)
    can = [target for target in known if target != "gate" or chosen.gated]
    if not names:
        raise WrongQuestion(f"LoRA needs at least one target: {', '.join(can)}")
    for name in names:
        if name not in can:
            raise WrongQuestion(f"no LoRA target {name!r} in {chosen.id}. It can be {', '.join(can)}.")
    return tuple(target for target in can if target in names)


def count(name: str, value: object, largest: int) -> int:
    """A whole number from 1 on.

    Raises:
        WrongQuestion: another value; the message starts with the name.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise WrongQuestion(f"{name} = {value!r}: must be a whole number from 1 to {largest:,}")
    return value
