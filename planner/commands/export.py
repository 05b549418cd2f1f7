"""``clusterwright export``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.commands import offered

if TYPE_CHECKING:
    from planner.launchers import Bundle
    from planner.launchers.target import Exporter
    from planner.schema.plan import Plan


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--to", "target", required=True, metavar="TARGET", help="megatron, megatron+slurm, ...; list: all.")
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="DIR", help="Folder (default: FILE-TARGET).")
@click.option("--rank", type=int, metavar="N", help="Only this plan of a set (default: a folder for each).")
@offered.options
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Set a value that a plan does not have.")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="The plan's cluster, if it came from a file (astra-sim: its nodes and accelerators).",
)
@click.option("--force", is_flag=True, help="Replace a folder that export wrote.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def export(
    file: Path | None,
    target: str,
    output: Path | None,
    rank: int | None,
    workload: str | None,
    alternative: int | None,
    given: tuple[str, ...],
    cluster: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the plan or the plans in FILE (or one of an offer) as the files of a launcher.

    Targets chain: a trainer (what runs), an environment (NCCL settings), a scheduler (on which nodes).

    \b
      clusterwright export plan.json --to megatron+slurm
      clusterwright export plan.json --to torchtitan --rank 2 --set save=/checkpoints
      clusterwright export offer.json --workload base --to megatron+slurm
      clusterwright export plan.json --to astra-sim
      clusterwright export --to list
    """  # noqa: D301 - click reads the control character itself
    from planner import launchers as room

    if target == "list":
        _list(as_json)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE': a plan that clusterwright plan -o FILE wrote.")
    plain = target == "astra-sim"
    if cluster is not None and not plain:
        raise click.UsageError("--cluster is for astra-sim: launchers find all they need in the plan.")
    exporters = () if plain else room.parts(target)
    plans, alone = _plans(file, rank, workload, alternative)
    bundles, refused = (
        _simulated(plans, alone, cluster) if plain else _bundles(plans, exporters, _settings(given), alone)
    )
    whose = f"-{re.sub(r'[^A-Za-z0-9._]+', '-', workload)}" if workload else ""
    folder = output or Path(f"{file.name.removesuffix('.json')}{whose}-{target}")
    room.write(folder, bundles, replace=force)
    if as_json:
        _as_json(folder, bundles, refused)
    else:
        _report(folder, bundles, refused)


def _plans(file: Path, rank: int | None, workload: str | None, alternative: int | None) -> tuple[Sequence[Plan], bool]:
    """The plans to write, each checked; and whether it is one that goes into the folder itself.

    An estimate that does not fit is refused here: it would only stop on the cluster.
    """
    from planner import document, verify
    from planner.base.errors import WrongQuestion
    from planner.schema.plan import PlanSet
    from planner.schema.procurement import Procurement

    if rank is not None and rank < 1:
        raise WrongQuestion(f"--rank {rank}: plans are counted from 1")
    found = document.load_any(file)
    offered.fits(found, file, rank=rank, workload=workload, alternative=alternative)
    if isinstance(found, Procurement):
        offered.check(found)
        found = document.offered(found, workload, alternative or 1, str(file))
    alone = not isinstance(found, PlanSet) or rank is not None or len(found.plans) == 1
    plans = (document.chosen(found, rank or 1, str(file)),) if alone else found.plans  # type: ignore[union-attr]
    for plan in plans:
        verify.check(plan, may_exceed_limits=True)
        _fits(plan)
        verify.check(plan)
    return plans, alone


def _fits(plan: Plan) -> None:
    """An estimate may say more than its limits; started, it would only stop on the cluster."""
    from planner.base.errors import WrongQuestion
    from planner.base.units import format_bytes, format_seconds, format_usd

    said = {"B": format_bytes, "s": format_seconds, "USD": format_usd}
    over = [
        f"{k.name} {said[k.unit](k.value)}, the limit is {said[k.unit](k.limit)}"
        for k in plan.constraints
        if k.value > k.limit and k.unit in said
    ]
    if over:
        raise WrongQuestion(
            f"plan {plan.rank} does not fit: {'; '.join(over)}; it would only stop on the cluster (clusterwright plan "
            "finds one that fits)"
        )


def _settings(given: Sequence[str]) -> dict[str, str]:
    from planner.base.errors import WrongQuestion

    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongQuestion(f"--set {text}: write NAME=VALUE")
        if name in found:
            raise WrongQuestion(f"--set {name}: given twice")
        found[name] = value
    return found


def _bundles(
    plans: Sequence[Plan], exporters: Sequence[Exporter], given: dict[str, str], alone: bool
) -> tuple[dict[str, Bundle], list[str]]:
    """Folder's name -> its files; and why the plans that a target cannot express are left out (unless all are)."""
    from planner import launchers as room
    from planner.base.errors import WrongQuestion

    made, refused = {}, []
    for plan in plans:
        try:
            made["" if alone else f"rank-{plan.rank}"] = room.bundle(
                plan, exporters, room.of_its_pools(given, plan, plans)
            )
        except WrongQuestion as error:
            refused.append(str(error))
    if not made:
        raise WrongQuestion("\n".join(refused[:1] if len(set(refused)) == 1 else refused))
    return made, refused


def _simulated(plans: Sequence[Plan], alone: bool, file: Path | None) -> tuple[dict[str, Bundle], list[str]]:
    """As :func:`_bundles`, for a simulator instead of a launcher."""
    from planner import catalog
    from planner.base.errors import WrongQuestion
    from planner.launchers import astra_sim
    from planner.planning import by_layer

    known, made, refused = catalog.load(), {}, []
    own = None if file is None else catalog.cluster_from_file(file.expanduser(), known)
    for plan in plans:
        try:
            made["" if alone else f"rank-{plan.rank}"] = astra_sim.bundle(plan, by_layer.of_plan(known, plan, own))
        except WrongQuestion as error:
            refused.append(str(error))
    if not made:
        raise WrongQuestion("\n".join(refused))
    return made, refused


def _report(folder: Path, bundles: dict[str, Bundle], refused: list[str]) -> None:
    from planner.commands.screen import render

    for name, bundle in bundles.items():
        render.labelled("Wrote", f"{folder / name}: {', '.join(bundle.files)}")
    starts = {name: [bundle.start] for name, bundle in bundles.items()}
    missing = {
        name: [f"<{s.name}>: {s.says} (--set {s.name}=...)" for s in bundle.missing] for name, bundle in bundles.items()
    }
    losses = {name: [f"{loss.field}: {loss.why}" for loss in bundle.losses] for name, bundle in bundles.items()}
    for label, lines in (("Start", starts), ("Fill in", missing), ("Not expressed", losses)):
        render.labelled(label, *_merged(lines))
    render.labelled("Excluded", *refused)


def _merged(lines: dict[str, list[str]]) -> list[str]:
    """Every line of any folder once, followed by the folders it holds for unless it holds for all of them."""
    folders: dict[str, list[str]] = {}
    for name, each in lines.items():
        for line in dict.fromkeys(each):
            folders.setdefault(line, []).append(name)
    return [line if len(names) == len(lines) else f"{line} ({', '.join(names)})" for line, names in folders.items()]


def _as_json(folder: Path, bundles: dict[str, Bundle], refused: list[str]) -> None:
    import json

    from planner.commands.screen import render

    written = {str(folder / name): json.loads(bundle.files["target.json"]) for name, bundle in bundles.items()}
    render.json({"kind": "export", "folders": written, "left_out": refused})


def _list(as_json: bool) -> None:
    from planner.commands.screen import render
    from planner.launchers import EXPORTERS
    from planner.launchers.bundle import says

    if as_json:
        render.json(
            {
                name: {
                    "title": e.title,
                    "version": e.version,
                    "role": e.role,
                    "level": e.level,
                    "expresses": {axis: says(allowed) for axis, allowed in e.expresses.items()},
                    "settings": {s.name: s.says for s in e.settings},
                }
                for name, e in EXPORTERS.items()
            }
        )
        return
    rows = [(name, e.role, e.version, e.level, e.title, _limits(e)) for name, e in EXPORTERS.items()]
    headers = ("target", "role", "version", "tested", "writes", "limits")
    render.table(headers, rows, align="llllll", priority=("limits", "version", "tested"))
    render.text()
    render.text("astra-sim writes the text workload and network of a simulator; it does not chain.")
    render.text(
        "Chain a trainer, an environment and a scheduler with +: megatron+slurm. --json lists what each expresses."
    )


def _limits(exporter: Exporter) -> str:
    """What a target cannot express, in short: axes that stay at 1, and lists."""
    from planner.launchers.bundle import says

    limited = {axis: allowed for axis, allowed in exporter.expresses.items() if allowed != "any"}
    ones = [axis for axis, allowed in limited.items() if allowed == (1,)]
    short = [f"{'/'.join(ones)} 1"] if ones else []
    short += [f"{axis} {says(limited[axis])}" for axis in ("zero", "precision", "family") if axis in limited]
    return "; ".join(short)
