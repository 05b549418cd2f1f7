"""``clusterwright models``: which models can be planned for, what one is, and how a config.json becomes one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands import completion

if TYPE_CHECKING:
    from planner.schema.workload import ConvolutionNetwork, Model, Recommender

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FOLDER = click.option(
    "--models", "extra", type=click.Path(path_type=Path), metavar="DIR", help="A models folder of your own."
)


@click.group()
def models() -> None:
    """List and show models, also layer by layer; import a config.json."""


@models.command("list")
@FOLDER
@JSON
def list_(extra: Path | None, as_json: bool) -> None:
    """List every model, with its parameters and where it comes from.

    Transformers come first; convolutional networks and recommenders, which `models layers` supports, follow.
    """
    from planner.commands.screen import families_view, render
    from planner.commands.screen import models_view as view
    from planner.models import families
    from planner.models.workload import library
    from planner.schema.listings import ModelList

    known = library(extra)
    others = [found for entry, found in families.others().items() if entry not in known]
    if as_json:
        rows = [view.summary(known[entry], known.origin(entry)) for entry in known]
        render.record(ModelList(models=(*rows, *map(families_view.summary, others))))
        return
    table = [view.row(known[entry], known.origin(entry)) for entry in sorted(known, key=view.natural)]
    render.table(view.HEADERS, table, align=view.ALIGN, priority=view.PRIORITY)
    render.text()
    others.sort(key=lambda found: (families_view.family(found), view.natural(found.id)))
    table = [families_view.row(found) for found in others]
    render.table(families_view.HEADERS, table, align=families_view.ALIGN, priority=families_view.PRIORITY)


@models.command()
@click.argument("entry", metavar="ID|FILE", shell_complete=completion.models)
@FOLDER
@JSON
def show(entry: str, extra: Path | None, as_json: bool) -> None:
    """Show one model: its shape, parameters, work per token, and memory for states by method.

    FILE is a .toml (FILE.toml#ID where it holds several) or a Hugging Face config.json. Of a convolutional network or
    a recommender: its parameters and its work per sample.
    """
    from planner.commands.screen import models_view as view
    from planner.commands.screen import render
    from planner.models import families
    from planner.models.workload import library, model

    if families.what(entry) and entry not in library(extra):
        _show_other(families.others()[entry], as_json=as_json)
        return
    found = model(entry, extra)
    if as_json:
        render.json(view.document(found))
        return
    _print(found)


@models.command("import")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH/config.json")
@click.option("--id", "entry", metavar="ID", help="Id of the model; else taken from the file or its folder.")
@click.option(
    "--images", metavar="N[@PIXELS]", help="Images of a sequence: its frozen tower, too; @PIXELS on a side of each."
)
@click.option("--audio", metavar="N[@SECONDS]", help="Clips of sound of a sequence, likewise; seconds of each.")
@click.option("--train-tower", is_flag=True, help="With --images or --audio: the tower is trained, not frozen.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.toml", help="Write the entry there.")
@click.option("--force", is_flag=True, help="Replace FILE.toml if it exists.")
@JSON
def import_(path: Path, entry: str | None, output: Path | None, force: bool, as_json: bool, **tower: Any) -> None:
    """Turn a Hugging Face config.json (or the folder that holds one) into a model.

    Without -o the entry is printed. With -o it is written, and every command takes FILE.toml for a model. Of a model
    with vision or hearing the text part is read; with --images or --audio its tower, too.
    """
    from planner.base import writing
    from planner.commands.screen import models_view as view
    from planner.commands.screen import render
    from planner.models import files, huggingface

    images, audio, train_tower = tower["images"], tower["audio"], tower["train_tower"]
    if images is not None and audio is not None:
        raise click.UsageError("--images and --audio: one tower stands before the decoder; give one of them")
    if train_tower and images is None and audio is None:
        raise click.UsageError("--train-tower goes with --images N or --audio N: without, the text part alone is read")
    asked = huggingface.asked(images, train_tower) if images is not None else None
    asked = huggingface.heard(audio, train_tower) if audio is not None else asked
    found = huggingface.read(path / "config.json" if path.is_dir() else path, entry, asked)
    text = files.dump(found)
    if output is not None:
        if output.suffix != ".toml":
            raise click.UsageError(f"-o {output}: the file's name must end in .toml")
        writing.write(output, text, replace=force)
    if as_json:
        render.json(view.document(found))
    elif output is None:
        render.verbatim(text)
    else:
        _print(found)
        render.text()
        render.labelled("Written", str(output))
        render.labelled("Next", f"clusterwright plan {output} --cluster dgx-h100:16")


@models.command()
@click.argument("entry", metavar="ID|FILE", shell_complete=completion.models)
@click.option("--on", "node", default="dgx-h100", show_default=True, metavar="NODE", help="Where it runs.")
@click.option("--precision", default="bf16", show_default=True, metavar="P", help="bf16, fp16, fp8, tf32, fp32.")
@click.option("--tp", type=click.IntRange(1), default=1, metavar="N", help="Tensor-parallel ranks.")
@click.option("--ep", type=click.IntRange(1), default=1, metavar="N", help="Expert-parallel ranks.")
@click.option("--dp", type=click.IntRange(1), default=1, metavar="N", help="Data-parallel ranks.")
@click.option("--micro", type=click.IntRange(1), metavar="N", help="Sequences, images or samples of a rank at a time.")
@click.option("--seq", "sequence", type=click.IntRange(1), metavar="N", help="Tokens per sequence.")
@click.option("--sp", "sequence_parallel", is_flag=True, help="Sequence parallelism.")
@click.option(
    "--tables",
    type=click.Choice(["even", "table", "column", "row"]),
    default="even",
    help="How the tables of a recommender are sharded over ranks.",
)
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="FILE.txt", help="Write as ASTRA-sim's text.")
@click.option("--force", is_flag=True, help="Replace FILE.txt if it exists.")
@JSON
def layers(entry: str, micro: int | None, output: Path | None, force: bool, as_json: bool, **asked: Any) -> None:
    """Print a model layer by layer: FLOPs, bytes, seconds and collectives of each pass, of one micro-batch on one rank.

    Seconds come from the cost model of the plans. Bytes count what the on-chip buffer makes kernels
    read again. FILE may be a .toml, a config.json, or an ASTRA-sim text workload (.txt).

    \b
      clusterwright models layers llama3-8b --tp 8 --dp 4
      clusterwright models layers resnet50 --on dgx-a100-80gb --dp 64
      clusterwright models layers dlrm-criteo1tb --dp 64 --tables table --json
    """  # noqa: D301 - click reads the control character itself
    from planner import catalog
    from planner.commands.screen import layers_view as view
    from planner.commands.screen import render
    from planner.planning import by_layer

    if entry.endswith(".txt"):
        _simulated(Path(entry), as_json)
        return
    known = catalog.load()
    cut = by_layer.LayerOptions(micro=micro or 0, **asked)
    found = by_layer.layered(known, entry, cut)
    if output is not None:
        from planner.base import writing
        from planner.launchers import astra_sim

        writing.write(output, astra_sim.written(astra_sim.of_layers(found)), replace=force)
    if as_json:
        render.json(view.document(found, cut))
        return
    for line in view.heading(found, cut):
        render.text(line)
    render.text()
    render.table(view.HEADERS, view.rows(found), align=view.ALIGN, priority=view.PRIORITY)
    render.text()
    for label, line in view.closing(found):
        render.labelled(label, line)


def _simulated(path: Path, as_json: bool) -> None:
    """An ASTRA-sim text workload."""
    from planner.commands.screen import layers_view as view
    from planner.commands.screen import render
    from planner.launchers import astra_sim

    found = astra_sim.read(path)
    if as_json:
        render.json(view.text_document(found))
        return
    if found.loop:
        render.text(found.loop)
    render.table(view.TEXT_HEADERS, view.text_rows(found), align="lrrrl")


def _show_other(found: ConvolutionNetwork | Recommender, *, as_json: bool) -> None:
    """A convolutional network or a recommender."""
    from planner.commands.screen import families_view as view
    from planner.commands.screen import render

    if as_json:
        render.json(view.document(found))
        return
    render.text(f"{found.name} ({found.id})")
    render.table(["field", "value", ""], view.sheet(found), align="lll", folded="")
    render.text()
    render.table(["parameters", "number", "share"], view.counts(found), align="lrr")
    render.text()
    render.labelled("Work", view.work(found))
    if memory := view.memory(found):
        render.labelled("Memory", memory)
    render.labelled("Source", f"{found.source}{f', {found.date}' if found.date else ''}")
    render.labelled("Next", f"clusterwright models layers {found.id} --dp 8")


def _print(found: Model) -> None:
    from planner.commands.screen import models_view as view
    from planner.commands.screen import render

    render.text(f"{found.name} ({found.id})")
    render.table(["field", "value", ""], view.sheet(found), align="lll", folded="")
    render.text()
    render.table(["parameters", "number", "share"], view.counts(found), align="lrr")
    render.text()
    render.table(view.STATES_HEADERS, view.states(found), align="lrrrrr")
    render.text()
    render.labelled("Work", view.work(found))
    render.labelled("Source", f"{found.source}{f', {found.date}' if found.date else ''}")
    if found.notes:
        render.labelled("Notes", found.notes)
