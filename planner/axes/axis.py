"""What is known of one axis of a plan; :mod:`planner.axes.table` holds all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from planner.base.errors import WrongQuestion
from planner.schema.plan import Plan
from planner.schema.plan_layout import Stated

Value = TypeVar("Value")
Kind = Literal["count", "switch", "choice", "text"]
"""How a pin is read: whole numbers and ranges, on or off, one of some words, or a text with a grammar of its own."""
SWITCH = {"1": "on", "true": "on", "yes": "on", "on": "on", "0": "off", "false": "off", "no": "off", "off": "off"}
"""What a person writes for a switch -> how a pin spells it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanAxis(Generic[Value]):
    """One axis of a plan. What else the program says of it follows from this row."""

    name: str
    """In pins, files, Python, runtimes of the catalog and documents."""
    help: str
    """What it decides, in a few words."""
    kind: Kind
    neutral: Value
    """The value of a plan that does not use it."""
    choices: tuple[str, ...] = ()
    """Every value that it has, of a kind `choice`."""
    form: str = ""
    """How values are written that are no listed words."""
    read: Callable[[str], Value]
    """The value of a text; raises :class:`WrongQuestion` where there is none."""
    spell: Callable[[Value], str] = str
    """A value as a pin writes it."""
    figures: Callable[[Value], Mapping[str, float]] = lambda value: {}
    """Figures of :class:`planner.cost.figures.Options` that a value sets; those that it leaves out are 0."""
    option: str = ""
    """The option that says it instead of a pin, or besides one."""
    joint: str = ""
    """Axes with one name here, or whose name it is, form one dimension of the search: of their values not all go
    together."""
    unstated: str | None = None
    """What `estimate` takes where nothing is said; None: whatever is fastest, or what follows from other axes."""
    preferred: str | None = None
    """What `estimate` takes instead where the runtime has it."""
    goes_with: tuple[str, ...] = ()
    """Degrees of which one must be above 1 for it to matter; none: it always does."""
    mentioned: Literal["always", "used", "never"] = "used"
    """When an answer names its value: what `estimate` takes by itself is left out."""
    plain: tuple[Stated, ...] = ()
    """Values, besides the neutral one, that need no mention."""
    of_groups: bool = False
    """Whether all groups of pipelines of a plan over several pools have one value."""
    condition: str = ""
    """What its other values go with: the answer to a pin that leaves no plan."""
    any_layout: bool = False
    """Whether each layout takes every value that the runtime has; where no pin says one, all keep the neutral one."""
    unshared: tuple[str, ...] = ()
    """Values that need a sequence whole on its rank (cp 1)."""
    undropped: tuple[str, ...] = ()
    """Values that models with dropout do not have."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Software that values need besides the runtime, as pins spell them."""
    listed: str = ""
    """Field of the accelerator's efficiencies that lists its values, beside the neutral one; empty: all of them."""
    pools: tuple[object, ...] | None = None
    """Values that plans over several pools have, as pins compare them; None: they search the axis."""
    since: Callable[[Value], Iterator[str]] = lambda value: iter(())
    """What of a runtime a value uses, as the catalog's `since` names it."""
    exported: Callable[[Any], object] = lambda stated: stated
    """What exporters declare for a stated value, where they tell fewer apart."""
    label: str = ""
    """Row of a comparison; axes with one label share a row."""
    fragment: Callable[[Any], str] = str
    """What a stated value adds to that row."""

    @property
    def dimension(self) -> str:
        """The dimension of the search that it lies on."""
        return self.joint or self.name

    def state(self, value: Value) -> Stated:
        """A value as documents state it."""
        return value if isinstance(value, int) else self.spell(value)

    def value(self, stated: Stated) -> Value:
        """The value that a document states."""
        return self.read(("on" if stated else "off") if isinstance(stated, bool) else str(stated))

    def of(self, plan: Plan) -> Stated:
        """The value that a plan states."""
        return plan.axes[self.name]

    def matters(self, degrees: Mapping[str, Any]) -> bool:
        """Whether degrees leave it something to decide."""
        return not self.goes_with or any(degrees[name] != 1 for name in self.goes_with)

    def takes(self, value: Value, *, shared: bool, dropout: bool) -> bool:
        """Whether a value goes with sequences that ranks share, and with dropout."""
        return not (shared and value in self.unshared) and not (dropout and value in self.undropped)

    def is_mentioned(self, plan: Plan) -> bool:
        """Whether an answer has to name the plan's value for `estimate` to take it."""
        if self.mentioned != "used":
            return self.mentioned == "always"
        stated = self.of(plan)
        if self.preferred is not None:
            return not stated and self.matters(plan.axes)
        return stated not in (self.state(self.neutral), *self.plain)

    def is_neutral(self, plan: Plan) -> bool:
        """Whether a plan leaves the axis as it is."""
        return self.of(plan) == self.state(self.neutral)


def switch(text: str) -> bool:
    """Whether a text says on."""
    return SWITCH[text.lower()] == "on"


def on_or_off(value: bool) -> str:
    """A switch as a pin writes it."""
    return "on" if value else "off"


def count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        WrongQuestion: it is none.
    """
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
        raise WrongQuestion(f"{text!r} is not a whole number of at least 1")
    return int(text)
