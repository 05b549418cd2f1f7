"""The document of two plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from planner.schema import plots
from planner.schema.plan import Plan
from planner.schema.record import Answer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Comparison(Answer[tuple[str, str, str]]):
    """What changes from the first plan to the second."""

    shown = ("plan", *Plan.shown[1:])

    kind: Literal["comparison"] = "comparison"
    schema_version: Literal[1] = 1
    questions: tuple[str, ...]
    """Why the two do not answer one question: other work or other machines."""
    differing: tuple[tuple[str, str, str], ...]
    """(axis, first, second)."""
    step: float
    """Seconds of a step, second over first, for one batch: < 1 is faster."""
    days: float
    """Days of the first's whole run, on the second less on the first."""
    usd: float | None
    """Its price, on the second less on the first."""
    tokens: float
    """Tokens per second, second over first."""
    distinguishable: bool
    """Whether the 80 % intervals of their rates lie apart."""
    plans: tuple[Plan, Plan]
    """The two."""

    def parts(self) -> Sequence[tuple[str, str, str]]:
        """The axes that differ."""
        return self.differing

    def rows(self) -> list[dict[str, Any]]:
        """A row for each of the two: every axis and figure in a column, units in its name."""
        return [{"plan": n, **plan.row()} for n, plan in zip(("first", "second"), self.plans, strict=True)]

    def rows_of(self, parts: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
        """An axis with both values as people read them."""
        return [dict(zip(("axis", "first", "second"), part, strict=True)) for part in parts]

    def plot(self) -> Axes:
        """Both steps by cause, in seconds, with matplotlib."""
        steps = (plan.prediction.breakdown for plan in self.plans)
        return plots.stacked(dict(zip(("first", "second"), steps, strict=True)), "seconds")

    def title(self) -> str:
        """How much faster the second is, and whether that can be told."""
        return (
            f"tokens/s x{self.tokens:.3f}, {self.days:+.1f} days, "
            + f"{len(self.differing)} {'axis differs' if len(self.differing) == 1 else 'axes differ'}"
            + ("" if self.distinguishable else "; the prediction cannot tell them apart")
            + (f"; other {', '.join(self.questions)}" if self.questions else "")
        )
