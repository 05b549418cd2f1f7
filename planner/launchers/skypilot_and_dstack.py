"""Tasks that find their machines by themselves: SkyPilot's ``task.yaml`` (0.14.1) and dstack's ``task.dstack.yml``
(0.22.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts, profiles, quoting, torchrun
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

SKYPILOT_TASK = "task.yaml"
SKYPILOT_NAMES: Mapping[str, str] = launcher_table("skypilot").head["accelerators"]
"""Catalog id -> SkyPilot's name."""
SKYPILOT_SCRIPT = """export NODE_RANK="$SKYPILOT_NODE_RANK"
export MASTER_ADDR="$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | head -n 1)"
bash start.sh
"""
UNMOUNTED = Loss("mounts", "SkyPilot mounts buckets and volumes, no folders of a node: add file_mounts to the task")
DSTACK_TASK = "task.dstack.yml"
DSTACK_NAMES = {accelerator: name.partition("-")[0] for accelerator, name in SKYPILOT_NAMES.items()}
"""Catalog id -> dstack's name: without the memory, which it asks for beside the name."""
DSTACK_RANKS = """export NODE_RANK="$DSTACK_NODE_RANK"
export MASTER_ADDR="$DSTACK_MASTER_NODE_IP"
"""
ENDS_ON_ERROR = "set -euo pipefail\n"
DSTACK_SHARED = "16GB"
"""Of ``/dev/shm``, where the site says nothing: enough for NCCL's buffers of a node."""


def skypilot(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A task that uploads this folder and runs ``start.sh`` on every node."""
    pool = plan.cluster.pools[0]
    nodes, per_host = plan_facts.hosts(pool)
    resources: dict[str, Any] = {"accelerators": f"{SKYPILOT_NAMES[pool.accelerator]}:{per_host}"}
    if values["infra"]:
        resources["infra"] = values["infra"]
    if plan.money.price is not None and plan.money.price.basis == "spot":
        resources["use_spot"] = True
    if job.site.container.image is not None:
        resources["image_id"] = f"docker:{job.site.container.image}"
    if nodes > 1:
        resources["network_tier"] = "best"
    setup = _setup(job)
    task = {
        "name": quoting.slug(plan.workload.model),
        "num_nodes": nodes,
        "resources": resources,
        "workdir": ".",
        **({"setup": setup} if setup else {}),
        "run": SKYPILOT_SCRIPT,
    }
    unmounted = [UNMOUNTED] if job.site.container.mounts else []
    losses = (*job.losses, *unmounted, *_unsaved(job, values, "file_mounts of the task", mounted=False))
    files = {**job.files, SKYPILOT_TASK: quoting.yaml(task)}
    return replace(job, files=files, losses=losses, start=f"sky launch {SKYPILOT_TASK}")


def _setup(job: LaunchJob) -> str:
    """Lines that install what is started, where the site has no image: the first that fails ends the job."""
    lines = job.install if job.site.container.image is None else ()
    return ENDS_ON_ERROR + "".join(f"{line}\n" for line in lines) if lines else ""


def _unsaved(job: LaunchJob, values: Values, cure: str, *, mounted: bool) -> Iterator[Loss]:
    """Checkpoints that end with their machine; where the site's mounts are `mounted`, what lies there does not."""
    saved = values.get("save", "://")
    kept = profiles.persistent(job, saved) if mounted else "://" in saved
    if not kept and not job.benchmark:
        yield Loss(
            "checkpoints", f"{saved} is on the machines' own disks and ends with them: put a volume there ({cure})"
        )


def dstack(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A distributed task; the script travels in its command, with the files that it reads.

    Raises:
        WrongQuestion: a text that dstack would expand, which it has no way to quote.
    """
    pool, container = plan.cluster.pools[0], job.site.container
    nodes, per_host = plan_facts.hosts(pool)
    memory = f"{pool.accelerator_memory_bytes / 2**30 * 0.95:.0f}GB.."
    script = (_setup(job) or ENDS_ON_ERROR) + DSTACK_RANKS + torchrun.self_contained(job).removeprefix(ENDS_ON_ERROR)
    if "${{" in script:
        raise WrongQuestion("dstack: ${{ in a name or a setting would be expanded; choose another")
    shared = container.shared_memory
    task = {
        "type": "task",
        "name": quoting.slug(plan.workload.model),
        "nodes": nodes,
        "commands": [script],
        "resources": {
            "gpu": {"name": DSTACK_NAMES[pool.accelerator], "memory": memory, "count": per_host},
            "shm_size": DSTACK_SHARED if shared is None else f"{shared / 2**30:.0f}GB",
        },
        **({"image": container.image} if container.image is not None else {}),
        **({"volumes": list(container.mounts)} if container.mounts else {}),
    }
    losses = (*job.losses, *_unsaved(job, values, "site.toml: mounts", mounted=True))
    files = {**job.files, DSTACK_TASK: quoting.yaml(task)}
    return replace(job, files=files, losses=losses, start=f"dstack apply -f {DSTACK_TASK}")


def _named(names: Mapping[str, str]) -> Callable[[Plan], Iterator[str]]:
    """What refuses accelerators without a name: the parsers would take any, and miss it only on the search."""

    def refuses(plan: Plan) -> Iterator[str]:
        for pool in plan.cluster.pools:
            if pool.accelerator not in names:
                yield f"it has no known name for {quoting.line(pool.accelerator)}"

    return refuses


SKYPILOT = by_table("skypilot", emit=skypilot, refuses=_named(SKYPILOT_NAMES))
DSTACK = by_table("dstack", emit=dstack, refuses=_named(DSTACK_NAMES))
