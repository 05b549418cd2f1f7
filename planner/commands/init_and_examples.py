"""``clusterwright init`` and ``examples``: how one starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import click

from planner.base import resources, writing
from planner.base.errors import WrongQuestion, meant
from planner.commands import options

USED_BY = {
    "portfolio": ("work to buy or rent machines for", "clusterwright procure {}"),
    "study": ("a cluster whose figures may change", "clusterwright design {}"),
    "cluster": ("machines that you have", "clusterwright plan llama3-8b --cluster {}"),
}
"""A file that you edit: what it describes, and the command that reads it."""


@click.group()
def init() -> None:
    """Start a file or a folder that you keep: each holds something that works, and comments that say what to change."""


@init.command(short_help="Make DIR a site: a profile and a journal of measured runs.")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def site(folder: Path) -> None:
    """Make DIR a site: its profile for exports (site.toml) and a journal of its measured runs (runs.csv).

    Commands take it with --site DIR, or from the environment variable CLUSTERWRIGHT_SITE.

    \b
      clusterwright init site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import render
    from planner.site import folder as folders

    written = folders.init(folder, folders.HEADER)
    render.labelled("Wrote", *(str(path) for path in written))
    render.labelled("Next", f"edit {written[0]}", f"clusterwright plan ... --site {folder}")


def _writer(kind: str) -> Callable[..., None]:
    """What writes the commented file of a kind."""

    def write(output: Path) -> None:
        from planner.commands.screen import render

        template = resources.data("examples") / "templates" / f"{kind}.toml"
        writing.write(output, template.read_text(encoding="utf-8"), replace=True)
        render.labelled("Wrote", str(output))
        render.labelled("Next", f"edit {output}", USED_BY[kind][1].format(output))

    return write


for _kind, (_what, _used) in USED_BY.items():
    _own = f"my-{_kind}.toml"
    _help = f"Write a commented file of {_what}.\n\n\b\n  clusterwright init {_kind} {_own}\n  {_used.format(_own)}"
    init.command(_kind, help=_help)(options.new_file(_writer(_kind)))


@click.command()
@click.argument("name", required=False)
@click.option("--all", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write all of them below DIR.")
@options.output("Write the example to a file.")
def examples(name: str | None, folder: Path | None, output: Path | None) -> None:
    """List the files that pages and helps show, print one, or write them: portfolios, studies, and measured runs.

    With --all . their commands work as they stand.

    \b
      clusterwright examples
      clusterwright examples pretrain-8b.toml -o lab.toml
      clusterwright examples --all .
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import render

    there = resources.examples()
    if folder is not None and (name or output):
        raise WrongQuestion(f"--all writes every example below {folder}: leave out {name or '-o'}")
    if output is not None and name is None:
        raise WrongQuestion(f"-o {output}: which example? clusterwright examples lists them; --all DIR writes all")
    if folder is not None:
        _write_all(there, folder)
    elif name is None:
        rows = [[full, _about(path)] for full, path in there.items()]
        render.table(["example", "about"], rows, folded="about")
        render.text()
        render.labelled("Next", "clusterwright examples --all . writes them where the pages' commands look for them")
    elif output is None:
        render.verbatim(_example(name, there).read_text(encoding="utf-8"))
    else:
        writing.write(output, _example(name, there).read_text(encoding="utf-8"), replace=True)
        render.labelled("Wrote", str(output))


def _write_all(there: dict[str, Path], folder: Path) -> None:
    """Writes every example below a folder, or none if one of them stands there with other content."""
    from planner.commands.screen import render

    texts = {folder / full: path.read_text(encoding="utf-8") for full, path in there.items()}
    new = {place: text for place, text in texts.items() if not _is(place, text)}
    for place in (each for each in new if each.parent.exists()):
        writing.may_write(place, replace=click.get_current_context().meta["force"])
    for place, text in new.items():
        writing.make_folder(place.parent)
        writing.write(place, text, replace=True)
    render.labelled("Wrote", *map(str, new) if new else ("nothing: all are there",))


def _is(place: Path, text: str) -> bool:
    return place.is_file() and place.read_bytes() == text.encode()


def _about(path: Path) -> str:
    """The first sentence of a file, where that says what it is for; of a table, its rows and how its header begins."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines))
    first = re.match(r".*?[.?!](?= |$)", comment)
    return first[0] if first else comment or f"{len(lines) - 1:,} rows: {lines[0][:60]} ..."


def _example(name: str, there: dict[str, Path]) -> Path:
    """The example of that name, with or without its folder and ending."""
    for full, path in there.items():
        if name in (full, path.name, path.stem):
            return path
    hint = meant(name, [path.stem for path in there.values()], "clusterwright examples lists them", most=3)
    raise WrongQuestion(f"no example {name!r}; {hint}")
