"""``clusterwright completion``."""

from __future__ import annotations

import click

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

    from planner.commands import PROGRAM, cli

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
