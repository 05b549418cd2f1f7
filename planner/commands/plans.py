"""``clusterwright plan``, ``estimate`` and ``fit``: how to train on a cluster."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from planner.base import stopping
from planner.commands import completion, options
from planner.question import option
from planner.question.plan_options import EstimateQuestion, FitQuestion, PlanOptions, PlanQuestion
from planner.question.rl_options import RLFitQuestion, RLOptions, post_training_only
from planner.schema.choices import RLTask


@click.command(cls=options.PinsAxes)
@click.argument("model", shell_complete=completion.models)
@options.declared(PlanQuestion, "cluster", ("fabric", "site"))
@options.shown
@options.declared(PlanQuestion, ("accelerators", "all"))
@options.declared(RLOptions, ("prompts", "steps"))
def plan(model: str, cluster: tuple[str, ...], as_json: bool, output: Path | None, verbose: bool, **asked: Any) -> int:
    """Rank the ways to train MODEL on a cluster.

    MODEL is an id (clusterwright models list), a TOML file or a Hugging Face config.json. Ctrl-C ends a long search
    with the best plans so far.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16
      clusterwright plan deepseek-v3 --cluster dgx-h100:64..256 --precision fp8 --objective cost
      clusterwright plan llama3-8b --cluster my-cluster.toml --pin tp=1..4 -o plan.json
      clusterwright plan llama3-8b --cluster dgx-h100:4 --shortlist 5 --to megatron+slurm -o shortlist.json
      clusterwright plan gpt2-xl --cluster dgx-a100-40gb:4 --cluster dgx-v100:8
      clusterwright plan resnet50 --accelerators A100:4,V100:4,RTX6000:8 --batch 1024
      clusterwright plan qwen3-32b --task grpo --response 3k/8k --cluster dgx-h100:8 --cluster hgx-h20:4
    """  # noqa: D301 - click reads the control character itself
    from planner.api import answers
    from planner.commands.screen import images_view, plan_view, render

    rl = {name: asked.pop(name) for name in option.asked(RLOptions)}
    question = PlanOptions(**asked)
    if question.task in get_args(RLTask):
        from planner.api import post_training
        from planner.commands.screen import rl_view

        answer = post_training.asked_by_flags(model, cluster, rl, question)
        rl_view.deliver(answer, as_json=as_json, output=output, verbose=verbose)
        return 0
    post_training_only(rl)
    if answers.counts_images(model):
        images_view.deliver(answers.images(model, cluster, question), as_json=as_json, output=output)
        return 0
    with stopping.best_so_far() as asked_to_end:
        found = answers.plan(model, cluster, question, None if as_json else render.progress)
        code = stopping.INTERRUPTED if asked_to_end() else 0
    plan_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
    return code


@click.command(cls=options.TakesAxes)
@click.argument("model", shell_complete=completion.models)
@click.argument("settings", nargs=-1, shell_complete=completion.axes, metavar="[AXIS=VALUE]...")
@options.declared(PlanQuestion, "cluster", ("fabric", "site"))
@options.shown
@options.declared(PlanQuestion, ("accelerators", "link"))
@options.declared(RLOptions, ("prompts", "steps"))
@options.declared(EstimateQuestion, "measured")
def estimate(
    model: str,
    settings: tuple[str, ...],
    cluster: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    verbose: bool,
    **asked: Any,
) -> int:
    """Predict one given configuration of MODEL: does it fit, how fast is it, what limits it.

    An axis that is not given is neutral: degrees and micro-batch 1, nothing recomputed, overlap where the runtime
    has it, even if it is off there by itself (tp_overlap=off; import reads a job with its defaults). Over several
    pools each group of pipelines is one group=..., as plan prints it. Exits with 1 if it does not fit, or not as
    surely as --oom-risk asks. --measured says whether a step of yours is normal and what would explain one that
    is not; with --task grpo, ppo or rloo, which phase of it.

    \b
      clusterwright estimate llama3-70b --cluster dgx-h100:16 tp=4 pp=4 vpp=5
      clusterwright estimate llama3-8b --cluster dgx-a100-80gb:1 --runtime fsdp2 micro=2 recompute=full
      clusterwright estimate llama3-8b --cluster dgx-h100:4 tp=2 --measured 8.9s
      clusterwright estimate llama3-8b --cluster dgx-h100:4 tp=2 --measured train.log
      clusterwright estimate gpt2-medium --cluster t4-4:1 --cluster dgx-v100:1 group=t4-4:layers=8,dgx-v100:layers=16
      clusterwright estimate llama3.1-8b --task grpo --response 1k/4k --placement colocated --cluster dgx-h100:2 \
          recompute=full --measured generation=210,update=130
    """  # noqa: D301 - click reads the control character itself
    from planner.api import answers
    from planner.commands.screen import plan_view

    rl = {name: asked.pop(name) for name in option.asked(RLOptions)}
    given = {"settings": settings, "measured": asked.pop("measured")}
    question = PlanOptions(**asked)
    if question.task in get_args(RLTask):
        from planner.api import post_training
        from planner.commands.screen import rl_view

        answer = post_training.estimated_by_flags(model, cluster, rl | given, question)
        rl_view.deliver(answer, as_json=as_json, output=output, verbose=verbose)
        return 0 if answer.fits or answer.measured else 1
    post_training_only(rl)
    found = answers.estimate(model, cluster, settings, question, given["measured"])
    plan_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
    return 0 if found.search.feasible else 1


@click.command()
@click.argument("model", required=False, shell_complete=completion.models)
@options.declared(FitQuestion, ("on", "site"))
@options.declared(RLOptions, ("prompts", "states"), "steps")
@options.declared(RLFitQuestion, "step_time")
@options.json("Print JSON.")
def fit(model: str | None, on: str | None, most: int | None, as_json: bool, **asked: Any) -> int:
    """Which accelerators hold a fine-tuning of MODEL, or which models fit on the accelerators you have.

    Of every accelerator of the catalog, the fewest that hold it, with the rent of the run; the fewest, cheapest and
    fastest of all are marked. With --on, the largest models that fit, and how long their sequences may be. With --task
    grpo, ppo or rloo, the fewest on which a step fits, or takes --step-time at most; --on names a kind or a node.

    \b
      clusterwright fit llama3-8b --method qlora --seq 4k
      clusterwright fit --on RTX-4090:1
      clusterwright fit llama3-70b --on RTX-PRO-6000-Blackwell:2
      clusterwright fit qwen3-32b --task grpo --response 3k/8k --on H100 --step-time '10 min'
    """  # noqa: D301 - click reads the control character itself
    from planner.api import plans
    from planner.commands.screen import fit_view, render

    rl = {name: asked.pop(name) for name in ("step_time", *option.asked(RLOptions)) if name in asked}
    if asked["task"] in get_args(RLTask):
        return _fit_post_training((model, on, most), rl, asked, as_json=as_json)
    post_training_only(rl)
    with stopping.best_so_far() as asked_to_end:
        found = plans.fits(model, on, PlanOptions(**asked), most, None if as_json else render.progress)
        code = stopping.INTERRUPTED if asked_to_end() else 0
    if code:
        render.error("stopped; what was looked at until then")
    if as_json:
        render.json(fit_view.document(found))
    else:
        fit_view.show(found, on, asked)
    return code


def _fit_post_training(
    named: tuple[str | None, str | None, int | None], rl: dict[str, Any], asked: dict[str, Any], *, as_json: bool
) -> int:
    """Answer ``fit --task grpo``."""
    from planner.api import post_training_fits
    from planner.commands.screen import render, rl_fit_view

    context = click.get_current_context()

    def typed(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    # What a fine-tuning has by default and a post-training has not is refused only where it was typed.
    given = {name: value for name, value in asked.items() if typed(name)}
    model, on, most = named
    with stopping.best_so_far() as asked_to_end:
        fits = post_training_fits.by_flags(
            model, on, rl, PlanOptions(**given), most, None if as_json else render.progress
        )
        code = stopping.INTERRUPTED if asked_to_end() else 0
    if code:
        render.error("stopped; what was looked at until then")
    if as_json:
        render.json(asdict(fits))
    else:
        again = " ".join(
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
            for name, value in (given | rl).items()
            if name != "step_time" and typed(name)
        )
        rl_fit_view.show(fits, again)
    return code
