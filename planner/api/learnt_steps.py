"""``learn`` of a log of RL post-training, from Python and the command line."""

from __future__ import annotations

from planner.api.learning import log_files, of_site
from planner.base.errors import WrongQuestion
from planner.planning import document
from planner.question.document_options import LearnQuestion
from planner.question.given import path
from planner.rl import learned, phase_names
from planner.schema.rl import RLPlanSet
from planner.schema.rl_site import RLLesson

OF_OTHERS = ("step_time", "oom", "failed", "set")
"""Options of ``learn`` that say nothing of a post-training."""


def is_asked(asked: LearnQuestion) -> bool:
    """Whether what ran is a plan of post-training.

    Raises:
        WrongQuestion: the plan cannot be read.
    """
    plan = path(asked.plan)
    return plan is not None and plan.expanduser().is_file() and document.is_post_training(plan.expanduser())


def lesson(asked: LearnQuestion) -> RLLesson:
    """What a log of a plan of post-training teaches its site; ``dry_run`` writes nothing.

    Raises:
        WrongQuestion: no site, no log or several, options of other trainings, an edited plan, or a log not of it.
    """
    for name in OF_OTHERS:
        if getattr(asked, name):
            raise WrongQuestion(f"--{name.replace('_', '-')}: says nothing of post-training; name its LOG")
    logs = log_files(asked)
    if len(logs) != 1:
        raise WrongQuestion(f"{asked.plan}: name the LOG of one run of it; {len(logs)} are named")
    file = path(asked.plan)
    assert file is not None, "is_asked says that there is one"
    if not document.is_as_written(file.expanduser()):
        raise WrongQuestion(
            f"{file}: edited since it was written, so it is no prediction to learn from; make it again "
            "(clusterwright plan ... -o FILE) and learn with that"
        )
    answer = document.load_document(file.expanduser())
    assert isinstance(answer, RLPlanSet), "is_asked says that it is one"
    rank = asked.rank or 1
    if not 1 <= rank <= len(answer.plans):
        raise WrongQuestion(f"--rank {rank}: {file} holds placements 1 to {len(answer.plans)}")
    site = of_site(path(asked.site))
    taken = phase_names.measured(logs[0])
    run = learned.PlanRun(answer, answer.plans[rank - 1], taken)
    return learned.lesson(site.folder, site.profile.name, run, accept=asked.accept, write=not asked.dry_run)
