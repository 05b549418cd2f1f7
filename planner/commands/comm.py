"""``clusterwright comm``: what every collective of a plan uses, measured and chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import options

_CATALOG = options.catalog("Your own hardware over the built-in catalog.")
_CLUSTER = click.option(
    "--cluster",
    type=options.PATH,
    metavar="FILE.toml",
    multiple=True,
    help="The plan's cluster, if it came from a file (again for each pool that did).",
)
_RANK = click.option("--rank", type=int, metavar="N", help="Which plan of a set (default: the recommended one).")
_JSON = options.json("Print the document instead of the table.")


@click.group()
def comm() -> None:
    """List the collectives of a plan; measure back ends, and choose one for each call."""


@comm.command()
@click.argument("file", metavar="PLAN", type=options.PATH)
@_RANK
@_CLUSTER
@_CATALOG
@_JSON
def show(file: Path, rank: int | None, cluster: tuple[Path, ...], catalog: Path | None, as_json: bool) -> None:
    """List every collective of a step of PLAN: operation, group, bytes, link and time.

    "alone" is the time of all calls if they overlapped with nothing; "exposed" is the part that the step waits for.
    Exposed times add up to the communication terms of the plan's step time.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright comm show plan.json
    """  # noqa: D301 - click reads the control character itself
    from planner import catalog as catalogs
    from planner import verify
    from planner.api import plan_sources as plans
    from planner.comm import run
    from planner.comm.calls_of_one_pool import listed
    from planner.commands.screen import comm_view, render
    from planner.question.pools import own_clusters

    plan = plans.read(file, rank)
    verify.check(plan, may_exceed_limits=True)
    known = catalogs.load(catalog)
    own = own_clusters(cluster, known)
    found = listed(plan, known, str(file), own)
    plan = run.decided(plan, known, str(file), own)
    if as_json:
        render.report(comm_view.listing(plan, found))
    else:
        comm_view.show_calls(plan, found, file, cluster)


@comm.command()
@click.argument("file", metavar="PLAN", type=options.PATH)
@click.option(
    "--table",
    "measured",
    multiple=True,
    metavar="[POOL=]FILE",
    help="Measured times (comm tune, comm import); without: NCCL's algorithms by the model. POOL, or POOL/POOL for the "
    "link between two, of a plan over several: its number or node.",
)
@click.option("--most", default=2, show_default=True, metavar="K", help="Back ends that may be live.")
@click.option("--margin", default="20 %", show_default=True, metavar="SHARE", help="Least gain that moves a call.")
@click.option("--switch", default="20 us", show_default=True, metavar="T", help="Host time of a change of back end.")
@click.option(
    "--launcher",
    type=click.Choice(["router", "nccl-tuner"]),
    default="router",
    show_default=True,
    help="What follows the rules: planner.comm.routing, or NCCL's tuner plugin alone.",
)
@click.option("--sms", type=click.IntRange(0), metavar="N", help="SMs that further back ends may keep busy.")
@options.output("Write the plan with its rules.")
@_RANK
@_CLUSTER
@_CATALOG
@_JSON
def choose(
    file: Path, measured: tuple[str, ...], cluster: tuple[Path, ...], output: Path | None, as_json: bool, **asked: Any
) -> None:
    """Pick back end, algorithm and protocol for every collective of PLAN by measured times.

    A call leaves the best single back end only for a gain beyond the margin and the spread of the measurements, and
    only if what was chosen on some rounds gained on the others. The new plan's rules are what the router
    (planner.comm.routing) and the nccl-tuner target of export follow.

    \b
      clusterwright comm choose plan.json --table table.csv -o mixed.json
      clusterwright comm show mixed.json
      clusterwright comm choose plan.json -o rules.json
      clusterwright export rules.json --to megatron+nccl-tuner+slurm -o job
    """  # noqa: D301 - click reads the control character itself
    from planner import catalog as catalogs
    from planner import verify
    from planner.api import plan_sources as plans
    from planner.base import writing
    from planner.comm import back_end_choice, run
    from planner.commands.screen import comm_view, render
    from planner.planning import document
    from planner.question.pools import own_clusters

    plan = plans.read(file, asked["rank"])
    verify.check(plan, may_exceed_limits=True)
    chosen_by = back_end_choice.ChooseOptions(
        most=_at_least_one("--most", asked["most"]),
        margin=_share("--margin", asked["margin"]),
        switch_s=_quantity("--switch", asked["switch"], "time"),
        launcher=asked["launcher"],
        free=run.free(plan, asked["sms"]),
    )
    known = catalogs.load(asked["catalog"])
    own = own_clusters(cluster, known)
    if not measured:
        found, new = run.modelled(plan, known, str(file), own)
    else:
        found, new = run.with_rules(plan, known, measured, chosen_by, str(file), own)
    verify.check(new, may_exceed_limits=True)
    if output is not None:
        writing.write(output, document.as_json(new), replace=True)
    if as_json:
        render.json(document.stamped(new))
    else:
        comm_view.show_choice(new, found, output, cluster)


_TABLE = click.option(
    "-o", "output", type=options.PATH, metavar="FILE", required=True, help="Table to write or to extend."
)


@comm.command()
@click.option("--backends", default="gloo", show_default=True, metavar="A,B", help="gloo, mpi, nccl.")
@click.option(
    "--ops",
    default="all-reduce,all-gather,reduce-scatter,all-to-all,broadcast,send-recv",
    metavar="A,B",
    help="Operations (default: all six).",
)
@click.option(
    "--sizes", default="1KiB..64MiB", show_default=True, metavar="A..B", help="Bytes, each four times the one before."
)
@click.option("--ranks", default="2", show_default=True, metavar="N,M", help="Processes on this machine.")
@click.option("--rounds", default=5, show_default=True, metavar="N", help="Times that everything is measured.")
@click.option("--mpiexec", metavar="FILE", help="Launcher of the MPI library (default: that of the mpi extra).")
@_TABLE
@_JSON
def tune(output: Path, as_json: bool, **asked: Any) -> None:
    """Measure collectives here and now, with real back ends, and write them as a table.

    Back ends take turns in every round, every result is checked, and an interrupted
    measurement continues with the same command. Another MPI library adds its rows to the same table (--mpiexec).

    \b
      clusterwright comm tune --backends gloo,mpi --ranks 2,4 -o table.csv
      clusterwright comm tune --ops all-reduce --sizes 1KiB..1MiB -o table.csv
    """  # noqa: D301 - click reads the control character itself
    from planner.comm.tables import measured_times, measuring
    from planner.commands.screen import comm_view, render

    measuring_by = measuring.MeasureOptions(
        backends=tuple(_words(asked["backends"])),
        ops=tuple(measured_times.operation(word, "--ops") for word in _words(asked["ops"])),
        sizes=_sizes(asked["sizes"]),
        ranks=tuple(_whole("--ranks", word) for word in _words(asked["ranks"])),
        rounds=_at_least_one("--rounds", asked["rounds"]),
        mpiexec=asked["mpiexec"],
    )
    found = measuring.measure(measuring_by, output, render.progress)
    if as_json:
        render.report(comm_view.table_document(found))
    else:
        comm_view.show_table(found, output)


@comm.command("import")
@click.argument("file", type=options.PATH)
@click.option(
    "--from",
    "source",
    type=click.Choice(["nccl-tests", "osu", "comms-logger", "csv"]),
    required=True,
    help="Tool that wrote the file.",
)
@click.option("--backend", metavar="NAME", help="Back end that was measured (nccl-tests: nccl).")
@click.option("--algorithm", default="", metavar="A", help="Algorithm that was forced (NCCL_ALGO).")
@click.option("--protocol", default="", metavar="P", help="Protocol that was forced (NCCL_PROTO).")
@click.option("--op", metavar="OP", help="Operation, if the file does not state it.")
@click.option("--ranks", type=click.IntRange(1), metavar="N", help="Ranks, if the file does not state them.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes, if the file does not state them.")
@_TABLE
@_JSON
def import_(file: Path, source: str, output: Path, as_json: bool, **measured: Any) -> None:
    """Add measurements made elsewhere to a table (docs/communication.md has its columns).

    \b
      clusterwright comm import all_reduce.txt --from nccl-tests -o table.csv
      clusterwright comm import osu_alltoall.txt --from osu --backend mvapich --ranks 16 -o table.csv
      clusterwright comm import comms.json --from comms-logger --backend nccl --ranks 32 -o table.csv
    """  # noqa: D301 - click reads the control character itself
    from planner.comm.tables import measured_times, nccl_tests_and_osu
    from planner.commands.screen import comm_view, render

    found = nccl_tests_and_osu.imported(file, source, nccl_tests_and_osu.ImportOptions(**measured))
    journal = measured_times.TableJournal(output)
    added = measured_times.further(journal.rows, found.rows)
    if added:
        journal.add(added)
    if as_json:
        render.report(comm_view.table_document(found))
    else:
        there = len(found.rows) - len(added)
        known = f" ({there:,} were there already)" if there else ""
        render.labelled("Added", f"{len(added):,} rows to {output}{known}, which now has {len(journal.rows):,}")
        render.labelled("Next", f"clusterwright comm choose PLAN.json --table {output} -o FILE")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(flag: str, text: str) -> int:
    from planner.base.errors import WrongQuestion

    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise WrongQuestion(f"{flag} {text}: must be a whole number above 0")
    return int(text)


def _at_least_one(flag: str, value: int) -> int:
    return _whole(flag, str(value))


def _quantity(flag: str, text: str, dimension: str) -> float:
    from planner.base import units
    from planner.base.errors import WrongQuestion

    try:
        value = units.parse(text, dimension)
    except units.UnitError as error:
        raise WrongQuestion(f"{flag} {text}: {error}") from None
    if value < 0:
        raise WrongQuestion(f"{flag} {text}: must not be negative")
    return value


def _share(flag: str, text: str) -> float:
    from planner.base.errors import WrongQuestion

    value = _quantity(flag, text, "share")
    if value >= 10:
        meant = "a share is below 1,000 %" if "%" in text else f"did you mean {text} %?"
        raise WrongQuestion(f"{flag} {text}: {meant}")
    return value


def _sizes(text: str) -> tuple[int, ...]:
    """``1KiB..64MiB`` or ``4KiB,1MiB``, in bytes."""
    from planner.base import units
    from planner.base.errors import WrongQuestion
    from planner.comm.tables.measuring import powers

    try:
        ends = [units.parse(word, "bytes") for word in (text.split("..") if ".." in text else _words(text))]
    except units.UnitError as error:
        raise WrongQuestion(f"--sizes {text}: {error}") from None
    if not ends or min(ends) < 4 or max(ends) > 2**32 or (".." in text and (len(ends) != 2 or ends[0] > ends[1])):
        raise WrongQuestion(f"--sizes {text}: from 4 B to 4 GiB, as 1KiB..64MiB or 4KiB,1MiB")
    return tuple(powers(ends[0], ends[1])) if ".." in text else tuple(int(size) for size in ends)
