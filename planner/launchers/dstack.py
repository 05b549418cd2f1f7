"""dstack: ``task.dstack.yml`` for ``dstack apply``. Fields: dstack 0.22.5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.launchers import quoting, skypilot, start
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.plan import Plan

NAME = "task.dstack.yml"
_RANKS = """export NODE_RANK="$DSTACK_NODE_RANK"
export MASTER_ADDR="$DSTACK_MASTER_NODE_IP"
"""
ACCELERATORS = {name: known.partition("-")[0] for name, known in skypilot.ACCELERATORS.items()}
"""Catalog id -> dstack's name: without the memory, which it asks for beside the name."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A distributed task; the script travels in its command, with the files that it reads.

    Raises:
        WrongQuestion: a text that dstack would expand, which it has no way to quote.
    """
    pool = plan.cluster.pools[0]
    memory = f"{pool.accelerator_memory_bytes / 2**30 * 0.95:.0f}GB.."
    script = _RANKS + start.self_contained(plan, job)
    if "${{" in script:
        raise WrongQuestion("dstack: ${{ in a name or a setting would be expanded; choose another")
    task = {
        "type": "task",
        "name": quoting.slug(plan.workload.model),
        "nodes": pool.count,
        "commands": [script],
        "resources": {
            "gpu": {"name": ACCELERATORS[pool.accelerator], "memory": memory, "count": pool.accelerators_per_node},
            "shm_size": SHARED if job.site.container.shared_memory is None else _gigabytes(job),
        },
        **({"image": job.site.container.image} if job.site.container.image is not None else {}),
        **({"volumes": list(job.site.container.mounts)} if job.site.container.mounts else {}),
    }
    return replace(job, files={**job.files, NAME: quoting.yaml(task)}, start=f"dstack apply -f {NAME}")


SHARED = "16GB"
"""Of ``/dev/shm``, where the site says nothing: enough for NCCL's buffers of a node."""


def _gigabytes(job: LaunchJob) -> str:
    return f"{(job.site.container.shared_memory or 0) / 2**30:.0f}GB"


def refuses(plan: Plan) -> Iterator[str]:
    """Names that its parser would take although no cloud has them."""
    for pool in plan.cluster.pools:
        if pool.accelerator not in ACCELERATORS:
            yield f"it has no known name for {quoting.line(pool.accelerator)}"


EXPORTER = by_table("dstack", emit=emit, refuses=refuses)
