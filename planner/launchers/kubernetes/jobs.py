"""Jobs of Kubernetes' operators that give a pod its node's number themselves: PyTorchJob, TrainJob, Volcano.

``kubeflow.org/v1`` (training-operator 1.9), a master and workers; ``trainer.kubeflow.org/v1alpha1`` on a runtime that
the cluster has; ``batch.volcano.sh/v1alpha1``, a gang of one task a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import plan_facts, quoting, start
from planner.launchers.kubernetes import jobset, pods
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.plan import Plan

PYTORCHJOB = "pytorchjob.yaml"
_PYTORCHJOB_RANKS = """export NODE_RANK="${PET_NODE_RANK:-${RANK:?set by the operator}}"
export MASTER_ADDR="${PET_MASTER_ADDR:-${MASTER_ADDR:?set by the operator}}"
"""


def pytorchjob(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A PyTorchJob: one node a replica; the operator says which."""
    pool = plan.cluster.pools[0]
    again, lost = pods.restarts(job, values)
    # The operator looks for a container of this name.
    pod = pods.pod(job, pods.devices(pool), _PYTORCHJOB_RANKS + start.self_contained(plan, job), values, name="pytorch")

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
    files, start_with = {**job.files, PYTORCHJOB: quoting.yaml(document)}, f"kubectl apply -f {PYTORCHJOB}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *lost))


TRAINJOB = "trainjob.yaml"
_TRAINJOB_RANKS = """export NODE_RANK="${PET_NODE_RANK:-${JOB_COMPLETION_INDEX:-0}}"
export MASTER_ADDR="${PET_MASTER_ADDR:?set by the torch runtime}"
"""


def trainjob(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A TrainJob: one node a pod; the torch runtime says which, in ``PET_*``."""
    pool = plan.cluster.pools[0]
    made = pods.container(values["image"], _TRAINJOB_RANKS + start.self_contained(plan, job))
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
    files, start_with = {**job.files, TRAINJOB: quoting.yaml(document)}, f"kubectl apply -f {TRAINJOB}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *_left_to_the_runtime(job, values)))


def _left_to_the_runtime(job: LaunchJob, values: Values) -> Iterator[Loss]:
    site = job.site
    if site.container.mounts or site.kubernetes.claims or site.kubernetes.capabilities or site.kubernetes.host_network:
        why = f"volumes, capabilities and network of pods are those of the runtime {values['runtime']}"
        yield Loss("site", why)


VOLCANO = "volcano.yaml"


def volcano(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
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
    return replace(job, files={**job.files, VOLCANO: quoting.yaml(document)}, start=f"kubectl apply -f {VOLCANO}")


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


EXPORTERS = (
    by_table("trainjob", emit=trainjob, refuses=plan_facts.resources_are_known),
    by_table("pytorchjob", emit=pytorchjob, refuses=plan_facts.resources_are_known),
    by_table(
        "volcano",
        emit=volcano,
        refuses=plan_facts.resources_are_known,
        loses=jobset.loses,
        of_pools=jobset.of_pools,
    ),
)
