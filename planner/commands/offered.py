"""One plan out of an offer: the options that name it, and when they have a meaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from planner.schema.plan import Plan, PlanSet
    from planner.schema.procurement import Procurement

Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """``--workload`` and ``--alternative``."""
    for option in (
        click.option("--alternative", type=int, metavar="N", help="Which alternative of an offer (default: 1)."),
        click.option("--workload", metavar="NAME", help="Of an offer: whose plan."),
    ):
        command = option(command)
    return command


def fits(
    found: PlanSet | Plan | Procurement, file: Path, *, rank: int | None, workload: str | None, alternative: int | None
) -> None:
    """Refuses an option that the document has no use for.

    Raises:
        WrongQuestion: ``--rank`` for an offer, ``--workload`` or ``--alternative`` for anything else; no such
            alternative.
    """
    from planner.base.errors import WrongQuestion
    from planner.schema.procurement import Procurement

    if isinstance(found, Procurement):
        if rank is not None:
            raise WrongQuestion(f"{file}: --rank is of a set of plans; this is an offer (--alternative N)")
        count = len(found.alternatives)
        if alternative is not None and not 1 <= alternative <= count:
            raise WrongQuestion(f"{file}: no alternative {alternative}; it holds {count} (--alternative 1..{count})")
        return
    for name, value in (("--workload", workload), ("--alternative", alternative)):
        if value is not None:
            raise WrongQuestion(
                f"{file}: {name} is of an offer (clusterwright procure ... -o offer.json); this is a {found.kind}"
            )


def check(found: Procurement) -> None:
    """Lets an offer pass that holds.

    Raises:
        Inconsistent: it does not.
    """
    from planner.verify import procurement

    procurement.check(found)
