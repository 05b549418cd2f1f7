"""What of a model is trained (``--method``), how long where nothing else is said, and lengths of a fine-tuning's texts.

Lengths are stated by a file or by two figures. Whole texts are packed into sequences, and attention keeps to each (trl
1.16.0, data_utils.py, `bfd`; FlashAttention's kernels of mixed lengths, arXiv 2407.09105); they may also be sorted or
padded. Lengths are kept as quantile means: so many figures of equal weight.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import get_args

from planner.base import reading, units
from planner.base.errors import WrongQuestion, suggestion
from planner.schema.choices import Target, Task
from planner.schema.workload import MOST_TEXTS, FrozenBase, Method, Model

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


PACKED = 20
"""Texts of each of these that are packed to see how full sequences are: 2,000 texts."""
MAX_BYTES = 50_000_000
"""Largest file of lengths: some ten million texts."""
P95 = 1.6448536269514722
"""Standard deviations that 95 % of a normal distribution lie below."""


def lengths(stated: str | Sequence[float], sequence: int) -> tuple[float, ...]:
    """Quantile means of the texts' lengths in tokens, shortest first, cut at the sequence.

    Arguments:
        stated: ``600/2k`` (mean and 95th percentile, log-normal between), a file of numbers, or the lengths.
        sequence: Tokens of a packed sequence.

    Raises:
        WrongQuestion: neither, or a length below one token.
    """
    return _means(stated if isinstance(stated, str) else tuple(map(float, stated)), _stamp(stated), sequence)


@lru_cache(maxsize=32)  # `fit` asks some hundred questions of the same texts
def _means(stated: str | tuple[float, ...], stamp: tuple[int, ...], sequence: int) -> tuple[float, ...]:
    lengths = sorted(_stated(stated) if isinstance(stated, str) else stated)
    if not lengths or not all(1 <= length < math.inf for length in lengths):
        raise WrongQuestion("--lengths: texts have at least one token; a file holds one length a line")
    return quantile_means([min(length, float(sequence)) for length in lengths])


def _stamp(stated: str | Sequence[float]) -> tuple[int, ...]:
    """What changes with a file: its inode, its time and its size."""
    try:
        status = Path(stated).stat() if isinstance(stated, str) else None
    except (OSError, ValueError):
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size) if status else ()


def quantile_means(ordered: Sequence[float]) -> tuple[float, ...]:
    """At most a hundred means of equally many values each, of values in ascending order."""
    if len(ordered) <= MOST_TEXTS:
        return tuple(ordered)
    edges = [len(ordered) * i // MOST_TEXTS for i in range(MOST_TEXTS + 1)]
    return tuple(round(math.fsum(ordered[a:b]) / (b - a), 1) for a, b in pairwise(edges))


def _stated(text: str) -> list[float]:
    mean, slash, high = text.partition("/")
    try:
        return _log_normal(units.parse(mean, "count"), units.parse(high, "count")) if slash else _file(text)
    except units.UnitError:
        return _file(text)


def _file(name: str) -> list[float]:
    if not Path(name).is_file():
        raise WrongQuestion(f"--lengths {name}: no such file; or write mean and 95th percentile in tokens: 600/2000")
    words = reading.text(Path(name), "a file of lengths", MAX_BYTES).replace(",", " ").split()
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise WrongQuestion(f"--lengths {name}: one length in tokens a line; {error}") from None


def _log_normal(mean: float, high: float) -> list[float]:
    """Quantiles of the narrower log-normal distribution with this mean and 95th percentile: its width w solves
    ``w^2 / 2 - 1.645 w + ln(p95 / mean) = 0``.
    """
    most = math.exp(P95**2 / 2)
    if not 0 < mean <= high <= mean * most:
        raise WrongQuestion(
            f"--lengths {mean:g}/{high:g}: a 95th percentile is 1 to {most:.2g} times the mean; for others name a file"
        )
    width = P95 - math.sqrt(P95**2 - 2 * math.log(high / mean))
    middle = math.log(mean) - width**2 / 2
    normal = NormalDist()
    points = MOST_TEXTS * PACKED
    return [max(1.0, math.exp(middle + width * normal.inv_cdf((i + 0.5) / points))) for i in range(points)]


def mean(texts: Sequence[float]) -> float:
    """Tokens of a text."""
    return math.fsum(texts) / len(texts)


def around_token(texts: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Tokens of the text that a token is in, mean over tokens: ``sum w L^2 / sum w L``, of equal weights or some."""
    weighted_tokens = [tokens * weight for tokens, weight in zip(texts, weights or [1.0] * len(texts), strict=True)]
    return math.fsum(w * tokens for w, tokens in zip(weighted_tokens, texts, strict=True)) / math.fsum(weighted_tokens)


def filled(texts: Sequence[float], sequence: int) -> float:
    """Share of the positions that are text, of best fit in descending order: each text goes where it leaves least.

    The emptiest sequence counts as full as the next: more texts would fill it.
    """
    free: list[float] = []
    copies = PACKED * max(1, round(MOST_TEXTS / len(texts)))
    for text in sorted(texts, reverse=True):
        for _ in range(copies):
            place = bisect.bisect_left(free, text)
            left = (free.pop(place) if place < len(free) else sequence) - text
            bisect.insort(free, left)
    held = copies * math.fsum(texts)
    return held / (held + math.fsum((*free[:-1], *free[-2:-1])))


def longest_of(texts: Sequence[float], count: float) -> list[float]:
    """Weights of the texts' lengths as the longest of `count` texts: ``(i / N)^n - ((i - 1) / N)^n``."""
    size = len(texts)
    return [((i + 1) / size) ** count - (i / size) ** count for i in range(size)]


def padded(texts: Sequence[float], count: float) -> float:
    """Tokens of the longest of `count` texts, mean."""
    return math.fsum(w * text for w, text in zip(longest_of(texts, count), texts, strict=True))
