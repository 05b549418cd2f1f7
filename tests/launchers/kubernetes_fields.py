"""Which fields a Kubernetes resource may have, where the projects' own definitions are not at hand.

``tests/golden/launchers/kubernetes_fields.txt`` has a line a field: its path below a kind, and what may stand there,
names and types alone: ``spec.replicatedJobs[].replicas integer``. ``!`` must be there; ``pod`` is the table of that
name, since all kinds hold pods; a ``map`` has keys of its own, their values are ``path{}``; ``any`` is not looked into.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "golden" / "launchers" / "kubernetes_fields.txt"
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "int-or-string": (int, str),
    "object": (dict,),
    "map": (dict,),
    "pod": (dict,),
    "array": (list,),
}
NOT_WRITTEN = {
    *("affinity", "ephemeralContainers", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "metadata"),
    *("securityContext", "valueFrom", "podFailurePolicy", "runtimePatches", "initializer", "status", "schedulingGates"),
    *("metrics", "volumeClaim", "volumeClaimPolicies", "selector", "networkPolicy", "headService", "ingressOptions"),
    *("historyServerOptions", "autoscalerOptions", "gcsFaultToleranceOptions", "deletionStrategy", "scaleStrategy"),
    *("tlsOptions", "authOptions", "upgradeStrategy", "submitterPodTemplate"),
}
"""Parts that no exporter writes: the table knows them, and does not look into them."""
VOLUMES = ("name", "configMap", "emptyDir", "hostPath", "persistentVolumeClaim")
"""What of a pod's volumes the table has; kinds that no exporter writes are unknown to it."""
HEADER = """# Fields of Kubernetes resources: kind, path, what may stand there (! must be there). Names and types alone,
# listed from the definitions of JobSet v1alpha2, TrainJob v1alpha1, PyTorchJob v1, Volcano's Job v1alpha1 and RayJob v1
# (KubeRay 1.7.0); pods from JobSet's.
"""


@cache
def table() -> dict[str, dict[str, str]]:
    """Kind -> path -> what may stand there."""
    found: dict[str, dict[str, str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            kind, path, what = line.split()
            found.setdefault(kind, {})[path] = what
    return found


def problems(kind: str, document: Mapping[str, Any]) -> list[str]:
    """What is wrong with a resource: unknown fields, values of another type, fields that are missing."""
    return [*_problems(kind, document, "")]


def _problems(kind: str, value: Mapping[str, Any], path: str) -> Iterator[str]:
    fields = table()[kind]
    for name, inner in value.items():
        here = f"{path}.{name}".lstrip(".")
        if here not in fields:
            yield f"{kind}: no field {here}"
            continue
        yield from _judged(kind, inner, here, fields[here].rstrip("!"))
    for name, what in fields.items():
        parent, _, last = name.rpartition(".")
        if what.endswith("!") and parent == path and last not in value:
            yield f"{kind}: {name} is missing"


def _judged(kind: str, value: Any, path: str, what: str) -> Iterator[str]:
    if what == "any":
        return
    if not isinstance(value, TYPES[what]) or (isinstance(value, bool) and what != "boolean"):
        yield f"{kind}: {path} is {value!r:.40}; {what} is expected"
        return
    if what == "pod":
        yield from _problems("pod", value, "")
    elif what == "object":
        yield from _problems(kind, value, path)
    elif what in ("array", "map"):
        each, items = (f"{path}[]", value) if what == "array" else (f"{path}{{}}", value.values())
        for item in items if each in table()[kind] else ():
            yield from _judged(kind, item, each, table()[kind][each])


# ---- the table from the projects' own definitions --------------------------------------------------------------------


def listed(schemas: Mapping[str, Any]) -> str:
    """The table's text from the structural schemas of all kinds."""
    lines = [f"{kind} {path} {what}" for kind, schema in schemas.items() for path, what in _fields(schema, "")]
    pod = next(found for found in map(_pod, [schemas["jobset"]]) if found)
    lines += [f"pod {path} {what}" for path, what in _fields(pod, "", within_pod=True)]
    return HEADER + "".join(f"{line}\n" for line in lines)


def _is_pod(schema: Any) -> bool:
    return (
        isinstance(schema, dict) and "containers" in schema.get("properties", {}) and "volumes" in schema["properties"]
    )


def _pod(schema: Any) -> Any:
    """The first pod in a schema."""
    if _is_pod(schema):
        return schema
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return next((found for found in map(_pod, inner) if found), None)


def _fields(schema: Any, path: str, within_pod: bool = False) -> Iterator[tuple[str, str]]:
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        if within_pod and path == "volumes[]" and name not in VOLUMES:
            continue
        need = "!" if name in schema.get("required", ()) else ""
        what = "any" if name in NOT_WRITTEN else _what(inner)
        closed = within_pod and not here.startswith(("containers", "volumes"))
        yield here, ("any" if closed and what == "object" else what) + need
        if what == "object" and not closed:
            yield from _fields(inner, here, within_pod)
        part = {"array": ("items", "[]"), "map": ("additionalProperties", "{}")}.get("" if closed else what)
        if part is not None and isinstance(inner.get(part[0]), dict):
            yield here + part[1], _what(inner[part[0]])
            if _what(inner[part[0]]) == "object":
                yield from _fields(inner[part[0]], here + part[1], within_pod)


def _what(schema: Any) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    if _is_pod(schema):
        return "pod"
    if schema.get("type") == "object":
        return "object" if "properties" in schema else "map"
    return str(schema.get("type", "any"))
