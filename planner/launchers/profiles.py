"""What a site's profile and ``--set extra-args`` put into every target's files."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Container, Mapping, Sequence

from planner.base.errors import WrongQuestion
from planner.launchers import quoting
from planner.launchers.target import EnvironmentSetting, LaunchJob, Loss
from planner.schema.plan import Plan
from planner.site.profile import SiteProfile

EXTRA = EnvironmentSetting("extra-args", "arguments of the trainer, after those of the plan", "")
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
"""A label of RFC 1123, which Kubernetes requires of a namespace."""


def settings(site: SiteProfile, plan: Plan, offered: Container[str]) -> Mapping[str, str]:
    """The settings of a target that a site's profile says."""
    saved = site.storage.checkpoints
    found = {
        "image": site.container.image,
        "partition": site.slurm.partition,
        "account": site.slurm.account,
        "time-limit": site.slurm.time_limit,
        "namespace": site.kubernetes.namespace,
        "queue": site.kubernetes.queue,
        "save": saved and f"{saved.rstrip('/')}/{quoting.slug(plan.workload.model)}",
    }
    return {name: value for name, value in found.items() if value is not None and name in offered}


def words(text: str) -> list[str]:
    """``--set extra-args`` as the words of a command; nothing in them is expanded.

    Raises:
        WrongQuestion: a quote that does not end.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WrongQuestion(f"--set extra-args={quoting.line(text)}: {error}") from None


def check(name: str, value: str) -> None:
    """Refuses a value of ``--set`` that a launcher would read as another option, or stop at.

    Raises:
        WrongQuestion: such a value.
    """
    stated = f"--set {name}={quoting.line(value)}"
    whole = value.isascii() and value.isdecimal()
    if value.startswith("--") and value[2:3].isalpha() and name != EXTRA.name:
        raise WrongQuestion(f"{stated}: a launcher would read it as an option")
    if name == "lora-alpha" and value and not (whole and int(value[:9])):
        raise WrongQuestion(f"{stated}: must be a whole number from 1")
    if name == "namespace" and value and not NAMESPACE.fullmatch(value):
        raise WrongQuestion(f"{stated}: Kubernetes takes up to 63 of a-z, 0-9 and, inside, '-'")
    if name in ("lr", "rotary-base"):
        try:
            fine = 0 < float(value) < math.inf
        except ValueError:
            raise WrongQuestion(f"{stated}: not a number") from None
        if not fine:
            raise WrongQuestion(f"{stated}: must be a finite number above 0")
    if name == "rotary-base" and not float(value).is_integer():
        raise WrongQuestion(f"{stated}: must be a whole number")
    if name == "master-port" and not (whole and len(value) < 6 and 0 < int(value) < 65536):
        raise WrongQuestion(f"{stated}: must be a whole number from 1 to 65535")


def contradictions(ours: Sequence[str], extra: Sequence[str]) -> tuple[Loss, ...]:
    """What of the extra arguments says otherwise than the plan: the last one holds, and the prediction does not."""
    mine, theirs = _options(ours), _options(extra)
    return tuple(
        Loss("extra-args", f"{name} {' '.join(value)} overrides the plan's {' '.join(mine[name]) or name}".rstrip())
        for name, value in theirs.items()
        if name in mine and mine[name] != value
    )


def _options(argv: Sequence[str]) -> dict[str, list[str]]:
    """Option -> its words; ``name=value`` is an option, too, as OmegaConf has it."""
    found: dict[str, list[str]] = {}
    name = ""
    for text in argv:
        if text.startswith("--") or re.match(r"[A-Za-z_][\w.]*=", text):
            name, equals, value = text.partition("=")
            name = f"--{name.removeprefix('--')}"
            found[name] = [value] if equals else []
        elif name:
            found[name].append(text)
    return found


def persistent(job: LaunchJob, path: str) -> bool:
    """Whether a folder outlives its pod: it lies in a mount or a claim of the site, or in a store of objects."""
    if "://" in path:
        return True
    mounts = [mount.split(":")[1] for mount in job.site.container.mounts]
    claims = [claim.partition(":")[2] for claim in job.site.kubernetes.claims]
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in (*mounts, *claims))
