"""The options that every question about a model and a cluster takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.base import writing
from planner.commands import completion_values, site_option

Command = TypeVar("Command", bound=Callable[..., Any])


def _forced(ctx: click.Context, _: click.Parameter, force: bool) -> None:
    ctx.meta["force"] = force


def _new(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a file that is there before the work is done, not after it."""
    writing.may_write(path, replace=ctx.meta["force"])
    return path


_FORCE = click.option(
    "--force", is_flag=True, is_eager=True, expose_value=False, callback=_forced, help="Replace FILE if it exists."
)


def output(what: str = "Write the document to a file.") -> Callable[[Command], Command]:
    """``-o FILE`` and ``--force``; the command is given `output`, a file that may be written or None."""
    file = click.option("-o", "output", type=click.Path(path_type=Path), metavar="FILE", callback=_new, help=what)
    return lambda command: file(_FORCE(command))


def new_file(command: Command) -> Command:
    """``FILE`` and ``--force``; the command is given `output`, a file that may be written."""
    return click.argument("output", type=click.Path(path_type=Path), metavar="FILE", callback=_new)(_FORCE(command))


verbose = click.option("-v", "--verbose", is_flag=True, help="List every assumption, with what changes it.")
METHODS = ("pretrain", "finetune", "full", "lora", "qlora", "qlora:int8", "qlora:fp8", "dora", "qdora", "freeze:N")
"""As :data:`planner.models.methods.METHODS`, which takes long to import."""
method = partial(
    click.option,
    "--method",
    metavar="NAME",
    show_default=True,
    shell_complete=completion_values.of(METHODS),
)
"""``--method``; the command says its default and how it is used."""
WHAT = (
    "What is trained: all (pretrain, full), adapters over frozen weights of 16 bit (lora, dora), 4 (qlora, qdora) or 8"
    " (qlora:int8, qlora:fp8), or the last N blocks (freeze:N)."
)
task = click.option(
    "--task",
    type=click.Choice(["sft", "dpo", "reward"]),
    default="sft",
    show_default=True,
    help="What a fine-tuning learns from: texts (sft), or pairs of answers (dpo; reward, a model of scores).",
)
lengths = click.option(
    "--lengths",
    metavar="MEAN/P95|FILE",
    help="Tokens of a fine-tuning's texts, packed: mean and 95th percentile (600/2k), or a file of them.",
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--cluster",
        multiple=True,
        metavar="NODE:COUNT",
        shell_complete=completion_values.nodes,
        help="Nodes to train on: dgx-h100:16, dgx-h100:8..64 to try several counts (every one of up to 16; of more,"
        " multiples or doublings of the first), or your own FILE.toml. Repeat it for one job over heterogeneous pools;"
        " NODE:COUNT@ZONE gives a pool's zone.",
    ),
    click.option(
        "--fabric",
        metavar="ID",
        shell_complete=completion_values.fabrics,
        help="Network between nodes (default: the node's usual one).",
    ),
    click.option(
        "--region",
        metavar="ID",
        shell_complete=completion_values.regions,
        help="Region for electricity prices and carbon intensity (default: us).",
    ),
    click.option(
        "--batch",
        metavar="N|A..B",
        help="Sequences a step, or a range to try (default: the model's; fine-tuning 16).",
    ),
    click.option("--seq", metavar="N", help="Tokens per sequence: 8192 or 8k (default: the model's; fine-tuning 4k)."),
    click.option("--tokens", metavar="N", help="Tokens to train on, e.g. 1T (default: the model's; fine-tuning 10M)."),
    click.option(
        "--mtp-layers",
        type=int,
        default=0,
        show_default=True,
        metavar="N",
        help="Multi-token prediction modules trained with the model (DeepSeek-V3's recipe: 1).",
    ),
    click.option(
        "--imbalance",
        type=float,
        metavar="X",
        help="Tokens of the busiest expert-parallel rank over an even share: 1.3 (default: even).",
    ),
    method(default="pretrain", help=WHAT),
    task,
    lengths,
    click.option("--rank", type=int, metavar="R", help="LoRA rank."),
    click.option(
        "--optimizer",
        default="adamw",
        show_default=True,
        metavar="ID",
        shell_complete=completion_values.optimizers,
        help="Optimizer: adamw, muon, adam-8bit, paged-adamw, paged-adam-8bit, adafactor, sgd-momentum, sgd.",
    ),
    click.option(
        "--runtime",
        metavar="ID[@RELEASE]",
        shell_complete=completion_values.runtimes,
        help="Training framework (default: megatron-core; of adapters hf-trainer-liger; newest).",
    ),
    click.option(
        "--precision",
        metavar="P",
        help="bf16, fp16, fp8, mxfp8, mxfp4, nvfp4, fp8-delayed or -blockwise, or several: bf16,fp8 (default: 16 bit).",
    ),
    click.option("--price", metavar="USD/H", help="Price per accelerator-hour: 2.10 or '$2.10/h'."),
    click.option(
        "--basis",
        type=click.Choice(["on-demand", "spot", "reserved-1y", "reserved-3y"]),
        default="on-demand",
        show_default=True,
        help="Which of the catalog's prices to use.",
    ),
    click.option("--vendor", metavar="NAME", help="Whose price (default: the node's own, else the median of all)."),
    click.option(
        "--oom-risk",
        default="5 %",
        show_default=True,
        metavar="SHARE",
        help="Highest OOM probability that a plan may have; at 50 % the median prediction must just fit.",
    ),
    click.option("--waive", multiple=True, metavar="RULE", help="Drop a rule: tp_in_domain, context_chunk, ..."),
    click.option(
        "--catalog",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Your own hardware, added to the built-in catalog.",
    ),
    site_option.option,
    click.option("--json", "as_json", is_flag=True, help="Print the document instead of the report."),
    verbose,
    output(),
)


class TakesAxes(click.Command):
    """A command on which an axis may be typed as an option, too: ``--tp 8`` for ``tp=8``."""

    as_pin = False
    """Whether settings are pins: behind ``--pin``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, axes turned into what they stand for."""
        return super().parse_args(ctx, self._with_settings(ctx, args))

    @staticmethod
    def axis_options() -> list[str]:
        """Options that stand for axes."""
        from planner.space.axes import PINNED

        return [f"--{axis.replace('_', '-')}" for axis in PINNED]

    def _with_settings(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        found, left = [], list(args)
        while left:
            option, equals, value = (word := left.pop(0)).partition("=")
            if not option.startswith("--") or option in own or option.replace("_", "-") not in self.axis_options():
                found.append(word)
                continue
            if not equals:
                value = left.pop(0) if left and not left[0].startswith("-") else ""
            found += [*(["--pin"] if self.as_pin else []), f"{option[2:]}={value}"]
        return found


class PinsAxes(TakesAxes):
    """The same, for a command that searches."""

    as_pin = True


def question(command: Command) -> Command:
    """Adds the options, in their order, to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def over_pools(command: Command) -> Command:
    """Adds what only questions over several pools say."""
    link = click.option("--link", multiple=True, metavar="A/B=RATE", help="Link between two pools: 'a/b=25 Gbit/s'.")
    return click.option(
        "--accelerators", metavar="KIND:N,..", help="Accelerators of several types: A100:4,V100:4,RTX6000:8."
    )(link(command))
