"""``clusterwright completion``, and what a shell offers for a value: ids of the library, read off its files' headers.

Each completer takes what click hands on (context, parameter, the beginning that was typed) and gives whole words; the
imports are late and light, because a shell waits for the answer at every press of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

KINDS = ("accelerators", "fabrics", "nodes", "regions", "runtimes")
"""Names of the catalog's entries; with :data:`TARGETS`, as the library has them, which takes longer to import than one
waits (tests/test_completion.py holds both together)."""
TARGETS = (
    *("megatron", "torchtitan", "hf-trainer", "trl", "axolotl", "llama-factory", "maxtext", "megatron-bridge"),
    *("primus", "deepspeed", "accelerate", "torchrun", "nccl-tuner", "slurm"),
    *("skypilot", "dstack", "jobset", "trainjob", "pytorchjob", "volcano", "ray-train", "rayjob"),
)
"""What ``--to`` chains."""
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


OPTIMIZERS = "optimizers.toml"
"""The file of ``models/`` that holds none."""


def _ids(folder: str, files: str = "*.toml") -> list[str]:
    from planner.base.resources import data
    from planner.models.files import headers

    found = [path for path in data(folder).glob(files) if files == OPTIMIZERS or path.name != OPTIMIZERS]
    return sorted(entry for path in found for entry in headers(path))


def _beginning(words: Iterable[str], typed: str, separators: str = "") -> list[str]:
    """Those words that go on as was typed; behind the last separator, where several words are joined."""
    start = max((typed.rfind(each) + 1 for each in separators), default=0)
    return [typed[:start] + word for word in words if word.lower().startswith(typed[start:].lower())]


def of(words: Sequence[str]) -> Completer:
    """The known words that go on as was typed."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _beginning(words, incomplete)

    return complete


def _of_catalog(kind: str) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _beginning(_ids(f"hardware_catalog/{kind}"), incomplete)

    return complete


accelerators, fabrics, nodes = (_of_catalog(kind) for kind in ("accelerators", "fabrics", "nodes"))
regions, runtimes = (_of_catalog(kind) for kind in ("regions", "runtimes"))


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of models, of whatever family."""
    return _beginning(_ids("models"), incomplete)


def optimizers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of optimizers."""
    return _beginning(_ids("models", OPTIMIZERS), incomplete)


def entries(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the catalog, of whatever kind."""
    return _beginning(sorted(entry for kind in KINDS for entry in _ids(f"hardware_catalog/{kind}")), incomplete)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Targets of export, chained with ``+``."""
    alone = ("list", "astra-sim", "verl", "nemo-rl")  # trl is among the others
    return _beginning(TARGETS if "+" in incomplete else [*alone, *TARGETS], incomplete, "+")


def axes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Axes of a plan, each with its ``=``."""
    from planner.axes import PINNED

    names: Sequence[str] = [f"{axis}=" for axis in PINNED]
    return _beginning(names, incomplete, ",")


SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, models, nodes, fabrics, runtimes and targets with the Tab key.

    \b
      eval "$(clusterwright completion bash)"                                           in ~/.bashrc (bash 4.4 or newer)
      eval "$(clusterwright completion zsh)"                                            in ~/.zshrc, behind compinit
      clusterwright completion fish > ~/.config/fish/completions/clusterwright.fish
    """  # noqa: D301 - click reads the control character itself
    from click.shell_completion import get_completion_class

    from planner.commands.command_line import PROGRAM, cli

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
