"""Lengths of a fine-tuning's texts, stated by a file or by two figures, and how full the sequences are that hold them.

Whole texts are packed into sequences, and attention keeps to each (trl 1.16.0, data_utils.py, `bfd`; FlashAttention's
kernels of mixed lengths, arXiv 2407.09105); they may also be sorted or padded. Lengths are kept as quantile means: so
many figures of equal weight.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

from planner.base import reading, units
from planner.base.errors import WrongQuestion
from planner.schema.workload import MOST_TEXTS

PACKED = 20
"""Texts of each of these that are packed to see how full sequences are: 2,000 texts."""
MAX_BYTES = 50_000_000
"""Largest file of lengths: some ten million texts."""
MOST_EPOCHS = 10_000
"""Times that texts are seen, at most."""
MOST_EXAMPLES = 1e12
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
            f"--lengths {mean:g}/{high:g}: a 95th percentile is 1 to {most:.3g} times the mean; for others name a file"
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


def positions(lengths: str | Sequence[float] | None, sequence: int, examples: int | str | None, epochs: float) -> float:
    """Positions of the packed sequences that so many texts fill, seen so often, padding included.

    Args:
        lengths: The texts' lengths as :func:`lengths` takes them.
        sequence: Tokens of a packed sequence.
        examples: How many texts; where nothing is said, those of the file.
        epochs: How often each is seen.

    Raises:
        WrongQuestion: no lengths, or a number that cannot be.
    """
    flag = "--epochs" if examples is None else "--examples"
    if lengths is None:
        raise WrongQuestion(f"{flag}: how long are the texts? --lengths 600/2k (mean and 95th percentile), or a file")
    if not 0.0 < epochs <= MOST_EPOCHS:
        raise WrongQuestion(f"--epochs {epochs:g}: must be above 0 and at most {MOST_EPOCHS:,}")
    if examples is None:
        listed = _stated(lengths) if isinstance(lengths, str) else lengths
        if isinstance(lengths, str) and not Path(lengths).is_file():
            raise WrongQuestion("--epochs: of how many texts? --examples 20k, or a file of lengths")
        count = float(len(listed))
    else:
        try:
            count = units.parse(str(examples), "count")
        except units.UnitError as error:
            raise WrongQuestion(f"--examples {examples}: {error}") from None
        if not 1 <= count <= MOST_EXAMPLES or count % 1:
            raise WrongQuestion(f"--examples {examples}: must be a whole number from 1 to {MOST_EXAMPLES:,.0f}")
    texts = _means(lengths if isinstance(lengths, str) else tuple(map(float, lengths)), _stamp(lengths), sequence)
    return count * epochs * mean(texts) / filled(texts, sequence)


def filled(texts: Sequence[float], sequence: int) -> float:
    """Share of the positions that are text, of best fit in descending order: each text goes where it leaves least.

    The emptiest sequence counts as full as the next: more texts would fill it.
    """
    return _filled(tuple(texts), sequence)


@lru_cache(maxsize=32)
def _filled(texts: tuple[float, ...], sequence: int) -> float:
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
