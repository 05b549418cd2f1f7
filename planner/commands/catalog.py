"""``clusterwright catalog``: which hardware, prices and runtimes are known, and whether your own files are right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.commands import completion

if TYPE_CHECKING:
    from planner.catalog import Catalog, FileProblem
    from planner.schema.hardware import Entry

FOLDER = click.Path(path_type=Path)
CATALOG = click.option(
    "--catalog", "extra", type=FOLDER, metavar="DIR", help="Your own catalog folder, added to the built-in one."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, with figures in SI units.")
PROBLEMS = 2
"""Exit code of `check` when something is wrong: the same as for any wrong question."""


@click.group()
def catalog() -> None:
    """List, show and check hardware, fabrics, prices and runtimes."""


@catalog.command("list")
@click.argument("kind", required=False)
@CATALOG
@JSON
def list_(kind: str | None, extra: Path | None, as_json: bool) -> None:
    """List the entries of one KIND: accelerators, nodes, fabrics, regions or runtimes.

    Without KIND, list the number of entries of each kind and which are your own.
    """
    from planner.catalog import load
    from planner.commands.screen import render

    known = load(extra)
    if kind is None:
        _overview(known, as_json)
        return
    folder = _folder(kind)
    entries, origins = known.entries(folder), known.origins_of(folder)
    if as_json:
        rows = [{"id": name, "name": entry.name, "from": origins[name]} for name, entry in entries.items()]
        render.json({"kind": "catalog-list", "schema_version": 1, folder: rows})
        return
    from planner.commands.screen.catalog_view import FOLDED, PRIORITY, table

    headers, align, rows_of = table(folder)
    render.table(
        [*headers, "from"],
        [[*rows_of(entry), origins[name]] for name, entry in sorted(entries.items(), key=lambda item: item[0].lower())],
        align=align + "l",
        priority=["from", *PRIORITY.get(folder, ())],
        folded=FOLDED.get(folder),
    )


@catalog.command()
@click.argument("entry", metavar="[KIND/]ID", shell_complete=completion.entries)
@CATALOG
@JSON
def show(entry: str, extra: Path | None, as_json: bool) -> None:
    """Show one entry with its sources, and mark the figures that are assumed."""
    from dataclasses import asdict

    from planner.catalog import ONE, load
    from planner.commands.screen import render

    known = load(extra)
    folder, found = _find(known, entry)
    origin = known.origins_of(folder)[found.id]
    if as_json:
        # A node and a fabric have a `kind` of their own.
        shown = {"kind": "catalog-entry", "schema_version": 2, "of": folder, "from": origin, "entry": asdict(found)}
        render.json(shown)
        return
    from planner.commands.screen.catalog_view import prices, sheet

    render.text(f"{found.name} ({ONE[folder].replace('_', ' ')} {found.id}, {origin})")
    render.table(["field", "value", ""], sheet(found), align="lll")
    if rows := prices(found):
        render.text()
        render.table(["price", "USD", "region", "date", "source"], rows, align="lrlll")
    render.text()
    render.labelled("Source", f"{found.source}{f', {found.date}' if found.date else ''}")
    if found.notes:
        render.labelled("Notes", found.notes)


@catalog.command()
@click.argument("folder", type=FOLDER, required=False, metavar="[DIR]")
@CATALOG
@JSON
def check(folder: Path | None, extra: Path | None, as_json: bool) -> None:
    """Check a catalog folder and list every problem at once as file:line: key: reason.

    Without DIR, check the built-in catalog and every folder of your own that is in use.
    """
    from planner.catalog import load, problems
    from planner.commands.screen import render
    from planner.schema.listings import CatalogCheck, CatalogProblem

    if folder is not None:
        folders = [folder] if extra is None else [extra, folder]
    else:
        folders = [layer.folder for layer in load(extra).layers]
    found: list[FileProblem] = [problem for each in folders for problem in problems(each)]
    if as_json:
        render.record(CatalogCheck(problems=tuple(CatalogProblem(**problem._asdict()) for problem in found)))
    else:
        for problem in found:
            render.text(str(problem))
        render.text(_verdict(found, folders))
    if found:
        raise click.exceptions.Exit(PROBLEMS)


@catalog.command("import-prices")
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("-o", "output", type=FOLDER, metavar="CATALOG", help="Catalog folder of your own that gets the prices.")
@click.option("--date", "imported_on", metavar="DATE", help="Date to record with the prices (default: today).")
@click.option("--force", is_flag=True, help="Replace prices that were imported before.")
@CATALOG
@JSON
def import_prices(
    folder: Path, output: Path | None, imported_on: str | None, force: bool, extra: Path | None, as_json: bool
) -> None:
    """Read SkyPilot's price lists into a catalog folder of your own.

    DIR is ~/.sky/catalogs/v8 or one cloud's folder in it. Only prices of instances that the catalog knows are taken;
    what cannot be mapped is listed and skipped. Without SkyPilot, clone github.com/skypilot-org/skypilot-catalog.

    \b
      clusterwright catalog import-prices ~/.sky/catalogs/v8 -o my-catalog
      clusterwright plan llama3-8b --cluster p5.48xlarge:8 --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    from planner.base import writing
    from planner.base.errors import WrongQuestion
    from planner.catalog import load, skypilot_prices
    from planner.commands.screen import render

    day = _day("--date", imported_on)
    found = skypilot_prices.read(folder.expanduser(), load(extra), day)
    if not found.prices:
        raise WrongQuestion(f"{folder}: no price of any instance in the catalog; {len(found.refused)} rows refused")
    if output is not None:
        (output / "prices").mkdir(parents=True, exist_ok=True)
        writing.write(output / "prices" / "skypilot.csv", skypilot_prices.as_csv(found), replace=force)
    from planner.commands.screen.catalog_view import imported

    if as_json:
        render.record(found)
    else:
        imported(found, output)


@catalog.command()
@click.option("--as-of", metavar="DATE", help="Day on which ages are counted (default: today).")
@click.option("--days", type=click.IntRange(0), metavar="N", help="Age from which a price is old (default: 365).")
@CATALOG
@JSON
def stale(as_of: str | None, days: int | None, extra: Path | None, as_json: bool) -> None:
    """List prices that are old, the oldest first.

    Newer ones come from SkyPilot's price lists, on a machine with internet access:

    \b
      git clone --depth 1 https://github.com/skypilot-org/skypilot-catalog
      clusterwright catalog import-prices skypilot-catalog/catalogs/v8 -o my-catalog
      clusterwright catalog stale --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    from planner.catalog import ages, load
    from planner.commands.screen import render
    from planner.procurement.supply.prices import parts
    from planner.schema.listings import StalePrices

    day, most = _day("--as-of", as_of), ages.STALE_DAYS if days is None else days
    known = load(extra)
    found = ages.stale(known, day, most, [(part, part.usd) for part in parts(known).values()])
    if as_json:
        render.record(StalePrices(as_of=day, days=most, prices=tuple(found)))
        return
    ages_of = ["" if x.age_days is None else f"{x.age_days:,.0f} d" for x in found]
    table = [
        [x.entry, x.basis, f"${x.usd:,.2f}", x.date or "none", age, x.source]
        for x, age in zip(found, ages_of, strict=True)
    ]
    if table:
        render.table(["entry", "price", "USD", "date", "age", "source"], table, align="llrlrl", folded="source")
        render.text()
    render.text(f"{len(found)} prices older than {most} days, without a date, or of a day after {day}")


def _day(flag: str, text: str | None) -> str:
    """A date as ISO text; today where none is given."""
    from datetime import date

    from planner.base.errors import WrongQuestion
    from planner.catalog.ages import today

    try:
        return date.fromisoformat(text).isoformat() if text else today()
    except ValueError:
        raise WrongQuestion(f"{flag} {text}: no date; write for example 2026-11-20") from None


def _overview(known: Catalog, as_json: bool) -> None:
    from planner.catalog import BUILT_IN, FOLDERS, ONE
    from planner.commands.screen import render
    from planner.schema.listings import CatalogOverview, CountedEntries

    own = {kind: {n: o for n, o in known.origins_of(kind).items() if o != BUILT_IN} for kind in FOLDERS}
    counts = {kind: len(known.entries(kind)) for kind in FOLDERS}
    if as_json:
        kinds = tuple(CountedEntries(kind=kind, entries=counts[kind], own=own[kind]) for kind in FOLDERS)
        render.record(CatalogOverview(versions=known.versions(), kinds=kinds))
        return
    render.table(
        ["kind", "entries", "built-in", "yours"],
        [[kind, counts[kind], counts[kind] - len(own[kind]), len(own[kind])] for kind in FOLDERS],
        align="lrrr",
    )
    for kind in FOLDERS:
        for name, origin in own[kind].items():
            render.text(f"yours: {ONE[kind].replace('_', ' ')} {name} ({origin})")
    render.text()
    render.labelled("Next", "clusterwright catalog list nodes")


def _folder(kind: str) -> str:
    """``node`` and ``nodes`` both name the folder ``nodes``."""
    from planner.base.errors import WrongQuestion, meant
    from planner.catalog import FOLDERS, ONE

    for folder in FOLDERS:
        if kind.lower() in (folder, ONE[folder]):
            return folder
    hint = meant(kind, FOLDERS, f"there are {', '.join(FOLDERS)}.")
    raise WrongQuestion(f"no kind {kind!r}; {hint} (clusterwright catalog list)")


def _find(known: Catalog, text: str) -> tuple[str, Entry]:
    """The entry that ``ID`` or ``KIND/ID`` names, with its folder."""
    from planner.base.errors import WrongQuestion
    from planner.catalog import FOLDERS, ONE, UnknownName

    kind, slash, name = text.partition("/")
    if slash:
        folder = _folder(kind)
        entries = known.entries(folder)
        if name not in entries:
            raise UnknownName(ONE[folder].replace("_", " "), name, entries, f"clusterwright catalog list {folder}")
        return folder, entries[name]
    text = _entry_meant(known, text)
    homes = [folder for folder in FOLDERS if text in known.entries(folder)]
    # Efficiencies carry the id of what they are of: the thing itself is meant unless its kind says otherwise.
    homes = [home for home in homes if not home.endswith("_efficiencies")] or homes
    if len(homes) > 1:
        raise WrongQuestion(f"{text!r} is ambiguous; choose one of: {', '.join(f'{home}/{text}' for home in homes)}")
    if not homes:
        everything: Mapping[str, object] = {name: kind for kind in FOLDERS for name in known.entries(kind)}
        raise UnknownName("catalog entry", text, everything, "clusterwright catalog list KIND")
    return homes[0], known.entries(homes[0])[text]


def _entry_meant(known: Catalog, text: str) -> str:
    """The id itself, the one that differs in upper and lower case only, or that of the accelerator so called."""
    from planner.base.errors import WrongQuestion
    from planner.catalog import FOLDERS
    from planner.question import pools

    every = [name for kind in FOLDERS for name in known.entries(kind)]
    alike = [name for name in every if name.lower() == text.lower()]
    if text in every or alike:
        return text if text in every else alike[0]
    try:
        return pools.accelerator(known, text)
    except WrongQuestion:
        return text


def _verdict(found: list[FileProblem], folders: list[Path]) -> str:
    if not found:
        return f"No problem in {', '.join(str(folder) for folder in folders)}."
    files = len({problem.file for problem in found})
    return f"{len(found)} problem{'s' * (len(found) != 1)} in {files} file{'s' * (files != 1)}."
