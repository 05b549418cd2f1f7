"""Kubernetes: JobSet, TrainJob, PyTorchJob and Volcano's Job. A pod is a node; the script travels in its command.

Versions: ``jobset.x-k8s.io/v1alpha2``, ``trainer.kubeflow.org/v1alpha1``, ``kubeflow.org/v1``,
``batch.volcano.sh/v1alpha1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts, pods, quoting, torchrun, tpu
from planner.launchers.target import EnvironmentSetting, LaunchJob, Loss, Values, by_table, of_pool
from planner.schema.plan import Plan

ONE_SLICE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
"""Each slice's job on a node pool of its own, which is a slice (JobSet, keps/75-ExclusivePlacement)."""
LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
WORD = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
"""What Kubernetes takes as the name and the value of a label."""
JOBSET = "jobset.yaml"


def jobset(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A JobSet whose pods each are a node: the script travels in the command, with the files that it reads."""
    name = quoting.slug(plan.workload.model)
    again, lost = pods.restarts(job, values)
    on_tpus = tpu.is_one(plan.cluster.pools[0])
    groups = [_slices(plan, job, values)] if on_tpus else [*_groups(plan, job, values, name)]
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": pods.metadata(job, name, values) | ({"annotations": ONE_SLICE} if on_tpus else {}),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {"maxRestarts": again},
            "replicatedJobs": groups,
        },
    }
    files, start_with = {**job.files, JOBSET: quoting.yaml(document)}, f"kubectl apply -f {JOBSET}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *lost))


def _groups(plan: Plan, job: LaunchJob, values: Values, name: str) -> Iterator[dict[str, Any]]:
    """Pool after pool."""
    first = 0
    for index, pool in enumerate(plan.cluster.pools):
        yield _group(plan, job, values, name, index, first)
        first += plan_facts.hosts(pool)[0]


def _slices(plan: Plan, job: LaunchJob, values: Values) -> dict[str, Any]:
    """Slices of TPUs, one job each: GKE lays a slice's pods on hosts of one torus, and tells them of each other."""
    pool, chips, hosts = plan.cluster.pools[0], tpu.chips(plan), tpu.hosts(plan)
    script = f"export NODE_RANK=$JOB_COMPLETION_INDEX MASTER_ADDR=none\n{torchrun.self_contained(job)}"
    label, torus = tpu.LABELS[pool.accelerator], tpu.topology(pool.accelerator, chips)
    selected = {"cloud.google.com/gke-tpu-accelerator": label, "cloud.google.com/gke-tpu-topology": torus}
    own = node_selector(plan, 0, values).get("nodeSelector", {})
    resource = {tpu.RESOURCE: chips // hosts}
    pod = pods.pod(job, resource, script, values)
    template = {"spec": {"restartPolicy": "Never", "nodeSelector": selected | own, **pod}}
    counted = {"parallelism": hosts, "completions": hosts, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": "slice", "replicas": tpu.slices(plan), "template": {"spec": {**counted, "template": template}}}


def _group(plan: Plan, job: LaunchJob, values: Values, name: str, index: int, first: int) -> dict[str, Any]:
    """The job of one pool."""
    rank = f"$((JOB_COMPLETION_INDEX + {first}))"
    pod = _node(plan, job, values, index, rank, f"{name}-pool-0-0-0.{name}")
    count, _ = plan_facts.hosts(plan.cluster.pools[index])
    job_template = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {**pods.placed(job), "spec": {**pods.scheduled(job), **pod}},
    }
    return {"name": f"pool-{index}", "replicas": 1, "template": {"spec": job_template}}


def _node(plan: Plan, job: LaunchJob, values: Values, index: int, rank: str, first: str) -> dict[str, Any]:
    """The pod of a pool's node; ranks follow those of the pools before it. `first` is the address of node 0."""
    pool = plan.cluster.pools[index]
    script = (
        f"export NODE_RANK={rank}\n"
        f"export MASTER_ADDR={first}\n"
        f"export NPROC_PER_NODE={plan_facts.hosts(pool)[1]}\n" + torchrun.self_contained(job)
    )
    return {
        "restartPolicy": "Never",
        **node_selector(plan, index, values),
        **pods.pod(job, pods.devices(pool), script, values),
    }


def of_pools(plan: Plan) -> Iterator[EnvironmentSetting]:
    """The label of each pool's nodes."""
    for name in plan_facts.pool_names(plan):
        yield EnvironmentSetting(of_pool(name, "node-label"), f"label of the nodes of {name}, as NAME=VALUE", "")


def node_selector(plan: Plan, index: int, values: Values) -> dict[str, Any]:
    """The nodes that a pool's pods may land on; nothing where no label is given.

    Raises:
        WrongQuestion: what is given is no label.
    """
    setting = of_pool(plan_facts.pool_names(plan)[index], "node-label")
    text = values[setting]
    if not text:
        return {}
    label, equals, value = text.partition("=")
    if not equals or not LABEL.fullmatch(label) or not WORD.fullmatch(value):
        raise WrongQuestion(f"--set {setting}={quoting.line(text)}: write a label of nodes as NAME=VALUE")
    return {"nodeSelector": {label: value}}


def loses(plan: Plan) -> Iterator[Loss]:
    """Pods ask for accelerators by their number; which nodes of a vendor they land on is the cluster's choice."""
    if len({pool.accelerator for pool in plan.cluster.pools}) > 1:
        names = " ".join(f"--set {of_pool(name, 'node-label')}=..." for name in plan_facts.pool_names(plan))
        yield Loss("cluster.pools", f"pods take any nodes with accelerators unless labels select them ({names})")


def _refused_slices(plan: Plan) -> Iterator[str]:
    """Accelerators that no device plugin offers, and slices that no pod is cut into."""
    yield from tpu.refuses(plan) if tpu.is_one(plan.cluster.pools[0]) else plan_facts.resources_are_known(plan)


PYTORCHJOB = "pytorchjob.yaml"
_PYTORCHJOB_RANKS = """export NODE_RANK="${PET_NODE_RANK:-${RANK:?set by the operator}}"
export MASTER_ADDR="${PET_MASTER_ADDR:-${MASTER_ADDR:?set by the operator}}"
"""


def pytorchjob(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A PyTorchJob: one node a replica; the operator says which."""
    pool = plan.cluster.pools[0]
    nodes, per_host = plan_facts.hosts(pool)
    again, lost = pods.restarts(job, values)
    # The operator looks for a container of this name.
    pod = pods.pod(job, pods.devices(pool), _PYTORCHJOB_RANKS + torchrun.self_contained(job), values, name="pytorch")

    def replicas(count: int) -> dict[str, Any]:
        return {
            "replicas": count,
            "restartPolicy": "OnFailure" if again else "Never",
            "template": {**pods.placed(job), "spec": {**pods.scheduled(job), **pod}},
        }

    workers = {"Worker": replicas(nodes - 1)} if nodes > 1 else {}
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": pods.metadata(job, quoting.slug(plan.workload.model), values),
        "spec": {
            "nprocPerNode": str(per_host),  # a text here, a number in TrainJob
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
    nodes, per_host = plan_facts.hosts(pool)
    made = pods.container(values["image"], _TRAINJOB_RANKS + torchrun.self_contained(job))
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": pods.metadata(job, quoting.slug(plan.workload.model), values),
        "spec": {
            "runtimeRef": {"name": values["runtime"]},
            "trainer": {
                "numNodes": nodes,
                "numProcPerNode": per_host,
                **made,
                "resourcesPerNode": pods.resources(job, pods.devices(pool)),
            },
        },
    }
    files, start_with = {**job.files, TRAINJOB: quoting.yaml(document)}, f"kubectl apply -f {TRAINJOB}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *_left_to_the_runtime(job, values)))


def _left_to_the_runtime(job: LaunchJob, values: Values) -> Iterator[Loss]:
    site = job.site.kubernetes
    if job.site.container.mounts or site.claims or site.capabilities or site.host_network or site.kai_topology:
        why = f"volumes, capabilities, network and scheduler of pods are those of the runtime {values['runtime']}"
        yield Loss("site", why)


VOLCANO = "volcano.yaml"


def volcano(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A job of which all pods start or none; each pod is a node and knows its number in its task."""
    name = quoting.slug(plan.workload.model)
    first, tasks = 0, []
    for index in range(len(plan.cluster.pools)):
        tasks.append(_task(plan, job, values, name, index, first))
        first += plan_facts.hosts(plan.cluster.pools[index])[0]
    again, lost = pods.restarts(job, values)
    if job.site.kubernetes.kai_topology:
        lost = (*lost, Loss("site", "kai_topology is of another scheduler: Volcano places its jobs itself"))
    restarts = {"maxRetry": again, "policies": [{"event": "PodFailed", "action": "RestartJob"}]} if again else {}
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": values["namespace"]},
        "spec": {
            "minAvailable": plan_facts.nodes(plan),
            "schedulerName": "volcano",
            "queue": values["queue"],
            "plugins": {"svc": [], "env": []},
            **restarts,
            "tasks": tasks,
        },
    }
    files = {**job.files, VOLCANO: quoting.yaml(document)}
    return replace(job, files=files, start=f"kubectl apply -f {VOLCANO}", losses=(*job.losses, *lost))


def _task(plan: Plan, job: LaunchJob, values: Values, name: str, index: int, first: int) -> dict[str, Any]:
    """The task of one pool."""
    rank = f"$((${{VC_TASK_INDEX:?set by the env plugin}} + {first}))"
    pod = _node(plan, job, values, index, rank, f"{name}-pool-0-0.{name}")
    count, _ = plan_facts.hosts(plan.cluster.pools[index])
    return {"name": f"pool-{index}", "replicas": count, "template": {"spec": pod}}


_BY_POOL = {"loses": loses, "of_pools": of_pools}
_KNOWN = plan_facts.resources_are_known
EXPORTERS = (
    by_table("jobset", emit=jobset, refuses=_refused_slices, **_BY_POOL),
    by_table("trainjob", emit=trainjob, refuses=_KNOWN),
    by_table("pytorchjob", emit=pytorchjob, refuses=_KNOWN),
    by_table("volcano", emit=volcano, refuses=_KNOWN, **_BY_POOL),
)
