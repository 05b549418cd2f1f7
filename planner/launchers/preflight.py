"""``preflight.py``: a check of the machines, which ``start.sh`` runs first, with the figures of the plan.

Nodes alike (accelerator, count, driver, NCCL), memory free, products a second of every rank, and an all-reduce and an
all-to-all inside a node and over all nodes against the links of the plan's cluster: about two minutes.
"""

from __future__ import annotations

from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts, quoting, torchrun
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, Values
from planner.schema.plan import Plan, Pool

NAME = "preflight.py"


def added(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The job with the check in its folder and before its program.

    Raises:
        WrongQuestion: the accelerators are none that PyTorch and NCCL run on.
    """
    pools = plan.cluster.pools
    if other := [pool.accelerator for pool in pools if pool.vendor not in ("NVIDIA", "AMD")]:
        raise WrongQuestion(f"--preflight: it measures by PyTorch and NCCL (or RCCL), which {other[0]} does not run")
    fabric = plan.cluster.fabric
    listed = "".join(f"    {_planned(pool, fabric.oversubscription)!r},\n" for pool in pools)
    text = script(NAME, POOLS=f"[\n{listed}]")
    words = (*torchrun.rendezvous(plan, values), NAME)
    lines = (quoting.command(words), '[ "${PREFLIGHT:-}" != only ] || exit 0')
    return replace(
        job,
        files={**job.files, NAME: text},
        needed=(*job.needed, NAME),
        first=(*job.first, *lines),
    )


def _planned(pool: Pool, oversubscription: float) -> dict[str, object]:
    """What is expected of a pool: counts, memory in bytes, and bytes/s of an accelerator's and of a node's links."""
    nodes, per_host = plan_facts.hosts(pool)
    adapters = pool.nics_per_node * per_host / pool.accelerators_per_node
    return {
        "nodes": nodes,
        "per_node": per_host,
        "accelerator": pool.accelerator,
        "memory": pool.accelerator_memory_bytes,
        "scaleup": pool.scaleup_bytes_per_s,
        "adapters": adapters * (pool.nic_bytes_per_s or 0.0) / oversubscription,
    }
