"""What a check finds, what it looks at, and how two numbers are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from planner.base.errors import ClusterwrightError
from planner.schema.plan import Plan
from planner.schema.workload import Model
from planner.verify.model import LayerShape, LayerWork, layer_work, layers, work

TOLERANCE = 1e-9
"""Relative: what rounding may make of sums taken in another order."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing in a plan that cannot be."""

    name: str
    """Name of the check, as in :data:`planner.verify.CHECKS`."""
    says: str

    def __str__(self) -> str:
        return f"{self.name}: {self.says}"


class Inconsistent(ClusterwrightError):
    """A document says what cannot be; it never left this program so."""

    exit_code = 2

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        super().__init__("\n".join(str(violation) for violation in violations))


@dataclass(frozen=True)
class Claim:
    """A plan whose model could be read."""

    plan: Plan
    model: Model

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step and replica, from the batch's own numbers: ``batch / (dp micro)``."""
        batch = self.plan.batch
        return batch.global_ // max(self.plan.parallelism.dp * batch.micro, 1)

    @property
    def tokens(self) -> float:
        """Tokens per micro-batch that a tensor-parallel group works on: ``micro sequence / cp``."""
        return self.plan.batch.micro * self.plan.workload.sequence / self.plan.parallelism.cp

    @property
    def element(self) -> float:
        """Bytes of an activation: 4 in 32 bit, else 2."""
        return 4.0 if self.plan.precision in ("fp32", "tf32") else 2.0

    @property
    def master_bytes(self) -> float:
        """Bytes of a weight's fp32 copy: weights that are fp32 themselves, and not gathered from it, have none."""
        working = self.plan.runtime.bytes_per_parameter["gathers_working_copy"] > 0
        return 0.0 if self.element > 2 and not working else float(self.plan.workload.optimizer["master_bytes"])

    @property
    def step_tokens(self) -> int:
        """Tokens of a step: ``batch sequence``."""
        return self.plan.batch.global_ * self.plan.workload.sequence

    @cached_property
    def work(self) -> LayerWork:
        """Multiply-adds of a token; of texts of L tokens in a pack the mean over tokens, each L times."""
        w = self.plan.workload
        texts = w.texts or (float(w.sequence),)
        text_work = [work(self.model, text, w.mtp_layers or 0) for text in texts]
        scores, states = (
            math.fsum(text * getattr(one, name) for text, one in zip(texts, text_work, strict=True)) / math.fsum(texts)
            for name in ("scores", "states")
        )
        return LayerWork(text_work[0].products, scores, states)

    def layer_work(self, layer: LayerShape) -> float:
        """Multiply-adds of a token in one layer, without what a causal mask hides; of packed texts as :attr:`work`."""
        w = self.plan.workload
        texts = w.texts or (float(w.sequence),)
        text_work = [(text, layer_work(self.model, layer, text)) for text in texts]
        seen = math.fsum(text * (x.scores / (2 if self.model.causal else 1) + x.states) for text, x in text_work)
        return text_work[0][1].products + seen / math.fsum(texts)

    @property
    def run_seconds(self) -> float:
        """Seconds of the whole run, from its days."""
        return self.plan.money.days * 86400.0

    @cached_property
    def layers(self) -> tuple[LayerShape, ...]:
        """All blocks in order: the model's, then those of multi-token prediction, each like the last."""
        shapes = layers(self.model)
        return (*shapes, *shapes[-1:] * (self.plan.workload.mtp_layers or 0))

    @property
    def folded(self) -> bool:
        """Whether each rank holds a chunk from either end of the model."""
        return self.plan.parallelism.schedule in FOLDED

    @property
    def head_stage(self) -> int:
        """The stage with the head."""
        return 0 if self.folded else len(self.placed) - 1

    @cached_property
    def placed(self) -> tuple[tuple[LayerShape, ...], ...]:
        """The layers of every pipeline stage, in the model's order.

        Chunk v of stage i is the ``(v pp + i)``-th of the model; a stage's chunks differ by one layer at most unless it
        says what they hold. The first stage is short in its first chunks (where the embedding is), every other in its
        last. In a V second chunks go backwards, and the last of all is the first to be short.
        """
        p = self.plan.parallelism
        every = self.layers
        placed: list[list[LayerShape]] = [[] for _ in p.stages]
        start = 0
        for chunk in range(p.vpp):
            for index, stage in reversed(list(enumerate(p.stages))) if chunk and self.folded else enumerate(p.stages):
                fewest, more = divmod(stage.layers, p.vpp)
                longer = chunk >= p.vpp - more if index == 0 and not self.folded else chunk < more
                size = stage.chunks[chunk] if stage.chunks and len(stage.chunks) == p.vpp else fewest + longer
                placed[index] += every[start : start + size]
                start += size
        return tuple(tuple(stage) for stage in placed)


FOLDED = ("zbv", "dualpipe-v")
"""Schedules that cut the model into a V."""
Check = Callable[[Claim], Iterator[str]]
"""Yields a sentence for everything that is wrong; its function's name is the check's."""


def findings(checks: Iterable[tuple[str, Iterator[str]]]) -> Iterator[Violation]:
    """What checks by name say. Figures that somebody edited may be such that a check can't compute: it says that."""
    for name, sentences in checks:
        try:
            yield from (Violation(name, says) for says in sentences)
        except (ArithmeticError, LookupError, ValueError) as error:
            yield Violation(name, f"no figure follows from what is stated ({error})")


def same(one: float, other: float) -> bool:
    """Equal to the tolerance, relative to the larger."""
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=0.0)


def unless_same(what: str, stated: float, derived: float) -> Iterator[str]:
    """A sentence if the stated figure is not the derived one."""
    if not same(stated, derived):
        yield f"{what} is {stated:.12g}, and {derived:.12g} follows from the plan"
