"""Volcano: ``volcano.yaml``, a gang of one task a pool. ``batch.volcano.sh/v1alpha1``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.launchers import plan_facts, quoting, start
from planner.launchers.kubernetes import jobset, pods
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.plan import Plan

NAME = "volcano.yaml"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A job of which all pods start or none; each pod is a node and knows its number in its task."""
    name = quoting.slug(plan.workload.model)
    first, tasks = 0, []
    for index in range(len(plan.cluster.pools)):
        tasks.append(_task(plan, job, values, name, index, first))
        first += plan.cluster.pools[index].count
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": values["namespace"]},
        "spec": {
            "minAvailable": plan_facts.nodes(plan),
            "schedulerName": "volcano",
            "queue": values["queue"],
            "plugins": {"svc": [], "env": []},
            "tasks": tasks,
        },
    }
    return replace(job, files={**job.files, NAME: quoting.yaml(document)}, start=f"kubectl apply -f {NAME}")


def _task(plan: Plan, job: LaunchJob, values: Values, name: str, index: int, first: int) -> dict[str, Any]:
    """One pool; its pods' ranks follow those of the pools before it."""
    pool = plan.cluster.pools[index]
    script = (
        f"export NODE_RANK=$((${{VC_TASK_INDEX:?set by the env plugin}} + {first}))\n"
        f"export MASTER_ADDR={name}-pool-0-0.{name}\n"
        f"export NPROC_PER_NODE={pool.accelerators_per_node}\n" + start.self_contained(plan, job)
    )
    pod = {
        "restartPolicy": "Never",
        **jobset.node_selector(plan, index, values),
        **pods.pod(job, pods.devices(pool), script, values),
    }
    return {"name": f"pool-{index}", "replicas": pool.count, "template": {"spec": pod}}


EXPORTER = by_table(
    "volcano", emit=emit, refuses=plan_facts.resources_are_known, loses=jobset.loses, of_pools=jobset.of_pools
)
