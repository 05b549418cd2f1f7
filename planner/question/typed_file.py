"""A question file (TOML) to typed records, and the tables that question files share: training, ownership.

What is wrong is collected, so that one message tells it all, each with file, line and key, or the flag that said it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from pydantic import ConfigDict, Field, InstanceOf

from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.reading import short_hash
from planner.base.typed import Misfit, Where, missing, reads, record
from planner.catalog import Catalog
from planner.catalog.files import FileProblem, TomlDocument, read_document
from planner.cost.money import DAYS_PER_YEAR
from planner.cost.ownership import Ownership
from planner.models import workload
from planner.question.plan_options import PlanOptions
from planner.question.values import TABLE, Money, PositiveShare, Residual, Several, Share, span
from planner.schema.workload import Model

T = TypeVar("T")


def opened(path: Path) -> TomlDocument:
    """A question file as TOML.

    Raises:
        WrongQuestion: it cannot be read, or is no TOML.
    """
    problems: list[FileProblem] = []
    document = read_document(path, problems)
    if document is None:
        raise WrongQuestion("\n".join(str(problem) for problem in problems))
    return document


@dataclass(kw_only=True)
class TypedFile:
    """Reads records out of a file and collects what is wrong with it."""

    document: TomlDocument
    flags: Mapping[Where, str] = field(default_factory=dict)
    """Keys that a flag of the command line set in place of the file -> the flag, which then is to blame."""
    problems: list[FileProblem] = field(default_factory=list)

    def wrong(self, where: Where, reason: str) -> None:
        """Notes a problem at a key."""
        if where in self.flags:
            self.problems.append(FileProblem("", 0, self.flags[where], reason))
            return
        key = ".".join(str(part) for part in where)
        self.problems.append(FileProblem(str(self.document.path), self.document.line(where), key, reason))

    def record(self, kind: type[T], context: object = None) -> T | None:
        """The whole file as a record of this kind; None, its problems noted, if it is none."""
        found: T | None = None
        with self.noting():
            found = record(kind, self.document.data, context)
        return found

    @contextmanager
    def noting(self, *where: str | int) -> Iterator[None]:
        """Notes what is found wrong inside, as of the value at a key."""
        try:
            yield
        except Misfit as misfit:
            for each in misfit.found:
                shown = "".join(f"{value!r}: " for value in each.value if not each.names_value)
                self.wrong((*where, *each.where), shown + each.reason)
        except (ClusterwrightError, ValueError) as error:
            self.wrong(where, str(error))

    def inputs(self, what: str, catalog: Catalog) -> dict[str, str]:
        """What an answer rests on: this file and every folder of the catalog -> a short hash of it."""
        digest = short_hash(self.document.text.encode())
        return {f"{what} {self.document.path.name}": digest, **catalog.inputs()}

    def done(self) -> None:
        """Ends the reading.

        Raises:
            WrongQuestion: every problem that was noted, in the order of the file.
        """
        if self.problems:
            raise WrongQuestion("\n".join(str(problem) for problem in sorted(set(self.problems))))


def _known(named: object) -> str | Model:
    """A model's name that means one; a record, which no file can hold, as Python gave it."""
    if isinstance(named, Model):
        return named
    workload.model(str(named))
    return str(named)


Integer = Annotated[int, Field(strict=True)]


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """The keys that ``[[workloads]]`` of every question file have, each as ``clusterwright plan`` takes it."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    model: Annotated[str | InstanceOf[Model], reads(_known), missing('write for example model = "llama3-8b"')]
    batch: str | None = None
    seq: Annotated[Integer | None, Field(alias="sequence")] = None
    mtp_layers: Integer = 0
    imbalance: float | None = None
    tokens: str | None = None
    method: str = "pretrain"
    task: str = "sft"
    rank: Integer | None = None
    optimizer: str = "adamw"
    runtime: str | None = None
    precision: str | None = None
    pin: Annotated[Several[str], Field(alias="pins")] = ()

    def options(self, *more: str) -> PlanOptions:
        """The same as a question to ``clusterwright plan``, with `more` keys of a record that extends this one."""
        names = [field.name for field in fields(TrainingTable) if field.name != "model"]
        return PlanOptions(**{name: getattr(self, name) for name in (*names, *more)})


@dataclass(frozen=True, kw_only=True)
class OwnershipTable(Ownership):
    """The table ``[ownership]``; what it leaves out is as usual."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    interest: Share = Ownership.interest
    life_years: Annotated[float, reads(lambda text: span(text) / DAYS_PER_YEAR), Field(alias="life")] = (
        Ownership.life_years
    )
    residual: Residual = Ownership.residual
    load: Share = Ownership.load
    colocation_usd_per_kw_month: Annotated[Money, Field(alias="colocation_per_kw_month")] = (
        Ownership.colocation_usd_per_kw_month
    )
    maintenance: Share = Ownership.maintenance
    staff_usd_per_accelerator_year: Annotated[Money, Field(alias="staff_per_accelerator_year")] = (
        Ownership.staff_usd_per_accelerator_year
    )
    availability: PositiveShare = Ownership.availability
