"""Kubeflow TrainJob: ``trainjob.yaml`` on a runtime that the cluster has. ``trainer.kubeflow.org/v1alpha1``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import plan_facts, quoting, start
from planner.launchers.kubernetes import pods
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.plan import Plan

NAME = "trainjob.yaml"
_RANKS = """export NODE_RANK="${PET_NODE_RANK:-${JOB_COMPLETION_INDEX:-0}}"
export MASTER_ADDR="${PET_MASTER_ADDR:?set by the torch runtime}"
"""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A TrainJob: one node a pod; the torch runtime says which, in ``PET_*``."""
    pool = plan.cluster.pools[0]
    made = pods.container(values["image"], _RANKS + start.self_contained(plan, job))
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": pods.metadata(job, quoting.slug(plan.workload.model), values),
        "spec": {
            "runtimeRef": {"name": values["runtime"]},
            "trainer": {
                "numNodes": pool.count,
                "numProcPerNode": pool.accelerators_per_node,
                **made,
                "resourcesPerNode": pods.resources(job, pods.devices(pool)),
            },
        },
    }
    files, start_with = {**job.files, NAME: quoting.yaml(document)}, f"kubectl apply -f {NAME}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *_left_to_the_runtime(job, values)))


def _left_to_the_runtime(job: LaunchJob, values: Values) -> Iterator[Loss]:
    site = job.site
    if site.container.mounts or site.kubernetes.claims or site.kubernetes.capabilities or site.kubernetes.host_network:
        why = f"volumes, capabilities and network of pods are those of the runtime {values['runtime']}"
        yield Loss("site", why)


EXPORTER = by_table("trainjob", emit=emit, refuses=plan_facts.resources_are_known)
