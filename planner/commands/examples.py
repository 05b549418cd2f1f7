"""``clusterwright examples``."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import click

from planner.base import resources, writing
from planner.base.errors import WrongQuestion, meant
from planner.commands import options


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
        render.verbatim(_named(name, there).read_text(encoding="utf-8"))
    else:
        writing.write(output, _named(name, there).read_text(encoding="utf-8"), replace=True)
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


def _named(name: str, there: dict[str, Path]) -> Path:
    """The example of that name, with or without its folder and ending.

    Raises:
        WrongQuestion: there is none.
    """
    for full, path in there.items():
        if name in (full, path.name, path.stem):
            return path
    hint = meant(name, [path.stem for path in there.values()], "clusterwright examples lists them", most=3)
    raise WrongQuestion(f"no example {name!r}; {hint}")
