"""Emitted resources against the projects' own custom resource definitions, unknown fields refused.

``CRDS=DIR`` names a folder that holds them, anywhere below: ``jobset.x-k8s.io_jobsets.yaml`` of kubernetes-sigs/jobset
and ``trainer.kubeflow.org_trainjobs.yaml`` of kubeflow/trainer. Their rules in CEL and their webhooks do not run.
"""

import copy
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from planner.export import bundle, parts
from tests.launchers.environments import given
from tests.launchers.spread import expressible

KINDS = {
    "jobset": ("jobset.x-k8s.io_jobsets.yaml", "v1alpha2"),
    "trainjob": ("trainer.kubeflow.org_trainjobs.yaml", "v1alpha1"),
    "pytorchjob": ("kubeflow.org_pytorchjobs.yaml", "v1"),
    "volcano": ("batch.volcano.sh_jobs.yaml", "v1alpha1"),
}


def strict(schema: Any) -> Any:
    """A structural schema as JSON Schema in which unknown fields are errors, as a strict server has it."""
    if isinstance(schema, list):
        return [strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    made = {key: strict(inner) for key, inner in schema.items() if not key.startswith("x-kubernetes")}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and schema.get("type") == "object" and not open_ended:
        made["additionalProperties"] = False
    return made


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    folder = os.environ.get("CRDS", "")
    if not folder:
        pytest.skip("CRDS names no folder with custom resource definitions")
    file, version = KINDS[name]
    paths = sorted(Path(folder).rglob(file))
    assert paths, f"no {file} below {folder}"
    definition = yaml.safe_load(paths[0].read_text(encoding="utf-8"))
    (found,) = (v for v in definition["spec"]["versions"] if v["name"] == version)
    schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", KINDS)
def test_resources_are_of_their_kind(name: str) -> None:
    checks = validator(name)
    plans = expressible(name)
    assert len(plans) >= 30
    for asked, whole in plans:
        made = bundle(whole, parts(f"torchrun+{name}"), given(f"torchrun+{name}")).files[f"{name}.yaml"]
        found = [
            f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in checks.iter_errors(yaml.safe_load(made))
        ]
        assert not found, f"{asked}: {found}"


BROKEN: dict[str, list[tuple[tuple[str | int, ...], str, Any]]] = {
    "jobset": [
        (("spec", "replicatedJobs", 0), "replica", 1),
        (("spec", "replicatedJobs", 0), "replicas", "one"),
        (("spec", "replicatedJobs", 0, "template", "spec"), "paralelism", 4),
        (("spec", "network"), "enableDNSHostname", True),
        (("spec", "failurePolicy"), "maxRestarts", "three"),
    ],
    "trainjob": [
        (("spec", "trainer"), "numNode", 4),
        (("spec", "trainer"), "numNodes", "four"),
        (("spec", "trainer"), "numProcPerNode", {"count": 8}),
        (("spec", "trainer"), "command", "torchrun"),
        (("spec",), "runtimeReference", {"name": "x"}),
    ],
    "pytorchjob": [
        (("spec",), "nprocPerNode", 8),
        (("spec",), "pytorchReplicaSpec", {}),
        (("spec", "pytorchReplicaSpecs", "Master"), "replicas", "one"),
        (("spec", "pytorchReplicaSpecs", "Master"), "replica", 1),
    ],
    "volcano": [
        (("spec",), "minAvailible", 4),
        (("spec",), "minAvailable", "four"),
        (("spec", "tasks", 0), "replica", 1),
        (("spec", "plugins"), "svc", "on"),
    ],
}


@pytest.mark.parametrize("name", KINDS)
def test_broken_resources_are_refused(name: str) -> None:
    checks = validator(name)
    whole = expressible(name)[0][1]
    good = yaml.safe_load(bundle(whole, parts(f"torchrun+{name}"), given(f"torchrun+{name}")).files[f"{name}.yaml"])
    for path, key, value in BROKEN[name]:
        broken = copy.deepcopy(good)
        inner = broken
        for step in path:
            inner = inner[step]
        inner[key] = value
        assert not checks.is_valid(broken), f"{name} takes {key}: {value}"
    required = {"trainjob": "runtimeRef", "pytorchjob": "pytorchReplicaSpecs"}
    if name in required:
        del good["spec"][required[name]]
        assert not checks.is_valid(good)
