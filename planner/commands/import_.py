"""``clusterwright import``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.base.errors import WrongQuestion
from planner.commands import options

if TYPE_CHECKING:
    from planner.launchers.reading import Present


@click.command("import", context_settings={"ignore_unknown_options": True})
@click.argument("configuration")
@click.option(
    "--from",
    "source",
    type=click.Choice(["megatron", "torchtitan", "trainer", "deepspeed", "llama-factory", "axolotl"]),
    help="What the configuration is for, where it does not show.",
)
@click.option("--cluster", multiple=True, required=True, metavar="NODE:COUNT", help="Where it runs: dgx-h100:16.")
@click.option("--model", metavar="ID", help="Model, where the configuration does not state its shape.")
@click.option("--seq", type=int, metavar="N", help="Tokens per sequence, where it does not state it.")
@click.option("--batch", metavar="N", help="Global batch in sequences, where it does not state it.")
@click.option("--micro", type=int, metavar="N", help="Sequences of a forward pass, where it does not state it.")
@click.option("--tokens", metavar="N", help="Tokens to train on, e.g. 1T.")
@click.option("--precision", metavar="P", help="Precision, where it does not state it.")
@click.option("--recompute", metavar="POLICY", help="none, selective or full, where it does not state it.")
@click.option("--run-script", is_flag=True, help="Run the script in a sandbox and read what it starts (Linux).")
@click.option("--arg", "arguments", multiple=True, metavar="WORD", help="Argument that the script is started with.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Variable that the script finds set.")
@click.option("--ignore", "ignored", multiple=True, metavar="OPTION", help="Option of the command that is left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan instead of the report.")
@options.output("Write the plan to a file.")
def import_(
    configuration: str, source: str | None, cluster: tuple[str, ...], as_json: bool, output: Path | None, **asked: Any
) -> int:
    """Read CONFIGURATION into a plan with predictions: a command line, a script with one, or a trainer's own file.

    Read are commands of Megatron-LM, torchtitan and Hugging Face's Trainer (TRL, DeepSpeed-Chat), DeepSpeed's JSON,
    and the YAML of TRL, LLaMA-Factory and Axolotl.

    A command line is one word, in quotes. A script is read, not run: where it leaves open what it starts, --run-script
    runs it without network, rights or files of yours but its own folder. Exits with 1 if the plan does not fit.

    \b
      clusterwright import train.sh --from megatron --cluster dgx-h100:16 -o mine.json
      clusterwright import ds_config.json --from deepspeed --model llama3-8b --cluster dgx-a100-80gb:4
      clusterwright compare mine.json best.json
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import plan_view, render
    from planner.launchers import reading

    recompute = asked.pop("recompute")
    pinned = {} if recompute is None else {"recompute": recompute}
    variables = dict(map(_variable, asked.pop("variables")))
    ignored = frozenset(name.lstrip("-") for name in asked.pop("ignored"))
    started = reading.Started(asked.pop("arguments"), variables, asked.pop("run_script"), ignored)
    found = reading.plan(source, configuration, cluster, pinned=pinned, started=started, **asked)
    plan_view.deliver(found.plans, as_json=as_json, output=output)
    if not as_json:
        render.labelled("Read as", _read_as(found))
        render.labelled("Assumes", *found.assumed)
        render.labelled("Differs", *found.differs)
        if found.unread:
            render.labelled("Ignored", f"{', '.join(found.unread)}: a plan has no field for these")
    return 0 if found.plans.search.feasible else 1


def _read_as(found: Present) -> str:
    """What every import states: the reader, the vocabulary, the ranks, the optimizer, the batch."""
    (whole,) = found.plans.plans[:1]
    shape, batch = whole.workload.shape, whole.batch
    vocabulary = f"vocabulary {shape['vocab']:,}, " if shape.get("vocab") else ""
    return (
        f"{found.source}: {vocabulary}{whole.cluster.accelerators:,} ranks, {whole.workload.optimizer['id']}, "
        f"{batch.micro} x {batch.accumulation} sequences a rank and step"
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise WrongQuestion(f"--env {text:.40}: NAME=VALUE is expected")
    return name, value
