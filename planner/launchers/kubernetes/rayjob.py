"""KubeRay: ``rayjob.yaml``, a Ray cluster with a pod a node, and the job on it. ``ray.io/v1`` (KubeRay 1.7.0)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import plan_facts, quoting, ray_train, start
from planner.launchers.kubernetes import jobset, pods
from planner.launchers.target import LaunchJob, Values, by_table
from planner.schema.plan import Plan

NAME, FOLDER = "rayjob.yaml", "configmap.yaml"
MOUNTED = "/job"
"""Where the head, on which Ray starts the script, finds the folder."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A RayJob, and a ConfigMap with the script and the files that it sends to the nodes."""
    name, pool = quoting.slug(plan.workload.model), plan.cluster.pools[0]
    again, lost = pods.restarts(job, values)
    job = ray_train.with_script(plan, job, again)
    worker = pods.pod(job, pods.devices(pool), "", values)
    del worker["containers"][0]["command"]  # KubeRay's own starts Ray
    head = {
        "containers": [
            {"name": "head", "image": values["image"], "volumeMounts": [{"name": "job", "mountPath": MOUNTED}]}
        ],
        "volumes": [{"name": "job", "configMap": {"name": name}}],
    }
    nodes = {
        "groupName": "nodes",
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), pool.count),
        "rayStartParams": {},
        "template": {"spec": {**jobset.node_selector(plan, 0, values), **worker}},
    }
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}}, "workerGroupSpecs": [nodes]}
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": pods.metadata(job, name, values),
        "spec": {
            "entrypoint": f"python {MOUNTED}/{ray_train.NAME}",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
        },
    }
    read = (ray_train.NAME, start.NAME, *job.needed)
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": values["namespace"]},
        "data": {file: job.files[file] for file in read},
    }
    files = {**job.files, FOLDER: quoting.yaml(held), NAME: quoting.yaml(document)}
    return replace(job, files=files, start=f"kubectl apply -f {FOLDER} -f {NAME}", losses=(*job.losses, *lost))


def refuses(plan: Plan) -> Iterator[str]:
    """Accelerators that no device plugin offers, or that Ray does not count as GPUs."""
    yield from plan_facts.resources_are_known(plan)
    yield from ray_train.refuses(plan)


EXPORTER = by_table("rayjob", emit=emit, refuses=refuses, of_pools=jobset.of_pools)
