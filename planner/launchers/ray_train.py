"""Ray Train: ``ray_train.py``, a TorchTrainer with one worker a node. Written against, and tried on, Ray 2.60.0.

The worker runs ``start.sh``, so every trainer starts as it does elsewhere: Ray reserves whole nodes at once, says their
numbers and the address of the first, and begins anew what fails. KubeRay (``ray.io/v1``, 1.7.0) starts the Ray cluster
for the job, too: ``rayjob.yaml``, with a pod a node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import kubernetes, plan_facts, pods, profiles, quoting, torchrun
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.plan import Plan

NAME = "ray_train.py"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The script, to run on a Ray cluster that is there: ``ray job submit``, or on its head."""
    again, lost = _restarts(job, values)
    made = with_script(plan, job, again)
    return replace(
        made,
        start=f"ray job submit --working-dir . -- python {NAME}, or python {NAME} on the head of the Ray cluster",
        losses=(*job.losses, *lost),
    )


def with_script(plan: Plan, job: LaunchJob, again: int) -> LaunchJob:
    """The job with ``ray_train.py`` among its files; a failed job begins anew `again` times."""
    filled = {
        "NODES": plan_facts.nodes(plan),
        "GPUS": plan_facts.hosts(plan.cluster.pools[0])[1],
        "RESTARTS": again,
        "FILES": (torchrun.NAME, *job.needed),
    }
    text = script("ray_train.py", **{name: json.dumps(value) for name, value in filled.items()})
    return replace(job, files={**job.files, NAME: text})


def _restarts(job: LaunchJob, values: Values) -> tuple[int, tuple[Loss, ...]]:
    """How often a job begins anew: not from step 0, which it would without a folder that outlives its node."""
    kept = job.site.storage.checkpoints
    folder = values.get("save", "")
    if job.benchmark or not folder:
        return 0, ()
    if profiles.persistent(job, folder) or (kept and f"{folder}/".startswith(f"{kept.rstrip('/')}/")):
        return pods.RESTARTS, ()
    why = f"nothing says that {folder} outlives a node, so nothing is restarted (site.toml: [storage] checkpoints)"
    return 0, (Loss("checkpoints", why),)


def refuses(plan: Plan) -> Iterator[str]:
    """What Ray counts as a GPU; others are resources of other names."""
    yield from plan_facts.runs_on(plan, "nvidia", "amd")


RAYJOB = "rayjob.yaml"
CONFIG_MAP = "configmap.yaml"
MOUNTED = "/job"
"""Where the head, on which Ray starts the script, finds the folder."""


def rayjob(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """A RayJob, and a ConfigMap with the script and the files that it sends to the nodes."""
    name, pool = quoting.slug(plan.workload.model), plan.cluster.pools[0]
    again, lost = pods.restarts(job, values)
    job = with_script(plan, job, again)
    worker = pods.pod(job, pods.devices(pool), "", values)
    del worker["containers"][0]["command"]  # KubeRay's own starts Ray
    head = {
        **pods.scheduled(job),
        "containers": [
            {"name": "head", "image": values["image"], "volumeMounts": [{"name": "job", "mountPath": MOUNTED}]}
        ],
        "volumes": [{"name": "job", "configMap": {"name": name}}],
    }
    nodes = {
        "groupName": "nodes",
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), plan_facts.hosts(pool)[0]),
        "rayStartParams": {},
        "template": {"spec": {**pods.scheduled(job), **kubernetes.node_selector(plan, 0, values), **worker}},
    }
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}}, "workerGroupSpecs": [nodes]}
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": pods.metadata(job, name, values),
        "spec": {
            "entrypoint": f"python {MOUNTED}/{NAME}",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
        },
    }
    read = (NAME, torchrun.NAME, *job.needed)
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": values["namespace"]},
        "data": {file: job.files[file] for file in read},
    }
    files = {**job.files, CONFIG_MAP: quoting.yaml(held), RAYJOB: quoting.yaml(document)}
    return replace(job, files=files, start=f"kubectl apply -f {CONFIG_MAP} -f {RAYJOB}", losses=(*job.losses, *lost))


def refuses_rayjob(plan: Plan) -> Iterator[str]:
    """Accelerators that no device plugin offers, or that Ray does not count as GPUs."""
    yield from plan_facts.resources_are_known(plan)
    yield from refuses(plan)


EXPORTERS = (
    by_table("ray-train", emit=emit, refuses=refuses),
    by_table("rayjob", emit=rayjob, refuses=refuses_rayjob, of_pools=kubernetes.of_pools),
)
