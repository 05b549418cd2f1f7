"""What a pod is, whichever resource holds it: the trainer with its node's devices, folders and shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.launchers import plan_facts, profiles
from planner.launchers.target import LaunchJob, Loss, Values
from planner.schema.plan import Pool

RESTARTS = 3
"""Of a job whose checkpoints outlive its pods."""
SHARED = "shared-memory"


def pod(
    job: LaunchJob, devices: Mapping[str, int], script: str, values: Values, name: str = "trainer"
) -> dict[str, Any]:
    """Image, command, devices and folders of one node's pod.

    NCCL talks between processes through ``/dev/shm``, of which a container has 64 MB unless it gets the node's memory.
    """
    own: dict[str, Any] = {"name": name, **container(values["image"], script), "resources": resources(job, devices)}
    own["volumeMounts"] = [{"name": SHARED, "mountPath": "/dev/shm"}, *_mounted(job)]
    if job.site.kubernetes.capabilities:
        own["securityContext"] = {"capabilities": {"add": list(job.site.kubernetes.capabilities)}}
    network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if job.site.kubernetes.host_network else {}
    size = job.site.container.shared_memory
    limit = {} if size is None else {"sizeLimit": str(round(size))}
    volumes = [{"name": SHARED, "emptyDir": {"medium": "Memory", **limit}}, *_volumes(job)]
    return {**network, "containers": [own], "volumes": volumes}


def container(image: str, script: str) -> dict[str, Any]:
    """Image and command. Kubernetes expands ``$(NAME)`` in a command and reads ``$$`` as ``$``: neither is meant."""
    return {"image": image, "command": ["bash", "-c", re.sub(r"\$(?=[$(])", "$$", script)]}


def devices(pool: Pool) -> dict[str, int]:
    """All accelerators of a node, as its device plugin calls them."""
    name = plan_facts.vendor_resource(pool)
    assert name is not None, "refused before"
    return {name: plan_facts.hosts(pool)[1]}


def resources(job: LaunchJob, devices: Mapping[str, int]) -> dict[str, Any]:
    """A pod's devices, and what else of a node the site names (RDMA devices)."""
    return {"limits": {**devices, **job.site.kubernetes.resources}}


def _mounted(job: LaunchJob) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index, text in enumerate(job.site.container.mounts):
        _, inside, *mode = text.split(":")
        found.append({"name": f"mount-{index}", "mountPath": inside, **({"readOnly": True} if mode else {})})
    for index, text in enumerate(job.site.kubernetes.claims):
        found.append({"name": f"claim-{index}", "mountPath": text.partition(":")[2]})
    return found


def _volumes(job: LaunchJob) -> list[dict[str, Any]]:
    folders = [text.split(":")[0] for text in job.site.container.mounts]
    claims = [text.partition(":")[0] for text in job.site.kubernetes.claims]
    return [
        *({"name": f"mount-{index}", "hostPath": {"path": folder}} for index, folder in enumerate(folders)),
        *({"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": c}} for index, c in enumerate(claims)),
    ]


def metadata(job: LaunchJob, name: str, values: Values) -> dict[str, Any]:
    """Name and namespace, and the queue that the site names: KAI's where KAI schedules, else Kueue's."""
    site = job.site.kubernetes
    label = "kai.scheduler/queue" if site.kai_topology else "kueue.x-k8s.io/queue-name"
    labels = {"labels": {label: site.queue}} if site.queue else {}
    return {"name": name, "namespace": values["namespace"], **labels, **_of_kai(job)}


def placed(job: LaunchJob) -> dict[str, Any]:
    """Metadata of a pod's template: the level of Kueue's topology that a pool's pods should share."""
    level = job.site.kubernetes.topology
    return {"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": level}}} if level else {}


def scheduled(job: LaunchJob) -> dict[str, Any]:
    """The scheduler of a pod: KAI where the site names its topology; it places no pods but those that name it."""
    return {"schedulerName": "kai-scheduler"} if job.site.kubernetes.kai_topology else {}


def _of_kai(job: LaunchJob) -> dict[str, Any]:
    """Annotations of the whole job: the level of topology for KAI, which reads them there
    (NVIDIA/KAI-Scheduler, pkg/podgrouper, DefaultGrouper).
    """
    level = job.site.kubernetes.topology
    name = job.site.kubernetes.kai_topology
    if name is None:
        return {}
    placed = {"kai.scheduler/topology-preferred-placement": level} if level else {}
    return {"annotations": {"kai.scheduler/topology": name, **placed}}


def restarts(job: LaunchJob, values: Values) -> tuple[int, tuple[Loss, ...]]:
    """How often a job begins anew, and what to do where it must not: without a folder that outlives its pods it would
    begin at step 0 each time.
    """
    if job.benchmark:
        return 0, ()
    if "save" in values and not profiles.persistent(job, values["save"]):
        why = f"{values['save']} is inside the pods, so nothing is restarted: mount it (site.toml: mounts or claims)"
        return 0, (Loss("checkpoints", why),)
    return RESTARTS, ()
