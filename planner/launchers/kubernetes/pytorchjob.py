"""Kubeflow PyTorchJob: ``pytorchjob.yaml``, a master and workers. ``kubeflow.org/v1`` (training-operator 1.9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.launchers import plan_facts, quoting, start
from planner.launchers.kubernetes import pods
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.plan import Plan

NAME = "pytorchjob.yaml"
_RANKS = """export NODE_RANK="${PET_NODE_RANK:-${RANK:?set by the operator}}"
export MASTER_ADDR="${PET_MASTER_ADDR:-${MASTER_ADDR:?set by the operator}}"
"""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A PyTorchJob: one node a replica; the operator says which."""
    pool = plan.cluster.pools[0]
    again, lost = pods.restarts(job, values)
    # The operator looks for a container of this name.
    pod = pods.pod(job, pods.devices(pool), _RANKS + start.self_contained(plan, job), values, name="pytorch")

    def replicas(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "OnFailure" if again else "Never", "template": {"spec": pod}}

    workers = {"Worker": replicas(pool.count - 1)} if pool.count > 1 else {}
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": pods.metadata(job, quoting.slug(plan.workload.model), values),
        "spec": {
            "nprocPerNode": str(pool.accelerators_per_node),  # a text here, a number in TrainJob
            "pytorchReplicaSpecs": {"Master": replicas(1), **workers},
        },
    }
    files, start_with = {**job.files, NAME: quoting.yaml(document)}, f"kubectl apply -f {NAME}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *lost))


EXPORTER = by_table("pytorchjob", emit=emit, refuses=plan_facts.resources_are_known)
