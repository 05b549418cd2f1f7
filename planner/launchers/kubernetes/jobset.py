"""Kubernetes JobSet: ``jobset.yaml``, one replicated job a pool. ``jobset.x-k8s.io/v1alpha2``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import plan_facts, quoting, start, tpu
from planner.launchers.kubernetes import pods
from planner.launchers.target import EnvironmentSetting, LaunchJob, Loss, Values, by_table, of_pool
from planner.schema.plan import Plan

NAME = "jobset.yaml"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
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
    files, start_with = {**job.files, NAME: quoting.yaml(document)}, f"kubectl apply -f {NAME}"
    return replace(job, files=files, start=start_with, losses=(*job.losses, *lost))


def _groups(plan: Plan, job: LaunchJob, values: Values, name: str) -> Iterator[dict[str, Any]]:
    """Pool after pool."""
    first = 0
    for index, pool in enumerate(plan.cluster.pools):
        yield _group(plan, job, values, name, index, first)
        first += pool.count


def _slices(plan: Plan, job: LaunchJob, values: Values) -> dict[str, Any]:
    """Slices of TPUs, one job each: GKE lays a slice's pods on hosts of one torus, and tells them of each other."""
    pool, chips, hosts = plan.cluster.pools[0], tpu.chips(plan), tpu.hosts(plan)
    script = f"export NODE_RANK=$JOB_COMPLETION_INDEX MASTER_ADDR=none\n{start.self_contained(plan, job)}"
    label, torus = tpu.LABELS[pool.accelerator], tpu.topology(pool.accelerator, chips)
    selected = {"cloud.google.com/gke-tpu-accelerator": label, "cloud.google.com/gke-tpu-topology": torus}
    own = node_selector(plan, 0, values).get("nodeSelector", {})
    resource = {tpu.RESOURCE: chips // hosts}
    pod = pods.pod(job, resource, script, values)
    template = {"spec": {"restartPolicy": "Never", "nodeSelector": selected | own, **pod}}
    counted = {"parallelism": hosts, "completions": hosts, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": "slice", "replicas": tpu.slices(plan), "template": {"spec": {**counted, "template": template}}}


def _group(plan: Plan, job: LaunchJob, values: Values, name: str, index: int, first: int) -> dict[str, Any]:
    """One pool; its pods' ranks follow those of the pools before it."""
    pool = plan.cluster.pools[index]
    script = (
        f"export NODE_RANK=$((JOB_COMPLETION_INDEX + {first}))\n"
        f"export MASTER_ADDR={name}-pool-0-0-0.{name}\n"
        f"export NPROC_PER_NODE={pool.accelerators_per_node}\n" + start.self_contained(plan, job)
    )
    pod = {
        "restartPolicy": "Never",
        **node_selector(plan, index, values),
        **pods.pod(job, pods.devices(pool), script, values),
    }
    job_template = {
        "parallelism": pool.count,
        "completions": pool.count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {"name": f"pool-{index}", "replicas": 1, "template": {"spec": job_template}}


LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
WORD = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
"""What Kubernetes takes as the name and the value of a label."""


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


def refuses(plan: Plan) -> Iterator[str]:
    """Accelerators that no device plugin offers, and slices that no pod is cut into."""
    yield from tpu.refuses(plan) if tpu.is_one(plan.cluster.pools[0]) else plan_facts.resources_are_known(plan)


ONE_SLICE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
"""Each slice's job on a node pool of its own, which is a slice (JobSet, keps/75-ExclusivePlacement)."""
EXPORTER = by_table("jobset", emit=emit, refuses=refuses, loses=loses, of_pools=of_pools)
