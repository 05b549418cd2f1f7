"""Emitted resources against the fields that their kinds have, unknown ones refused.

Everywhere a table of fields; with ``CRDS=DIR`` also the projects' own custom resource definitions, which stand anywhere
below that folder: ``jobset.x-k8s.io_jobsets.yaml`` of kubernetes-sigs/jobset, ``trainer.kubeflow.org_trainjobs.yaml``
of kubeflow/trainer and so on. Their rules in CEL and their webhooks do not run.
"""

import copy
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from planner.launchers import bundle, parts
from tests.launchers import kubernetes_fields
from tests.launchers.conformance import kept
from tests.launchers.environments import given
from tests.launchers.spread import EVERY, expressible

REGENERATE = os.environ.get("CLUSTERWRIGHT_REGENERATE") == "1"
KINDS = {
    "jobset": ("jobset.x-k8s.io_jobsets.yaml", "v1alpha2"),
    "trainjob": ("trainer.kubeflow.org_trainjobs.yaml", "v1alpha1"),
    "pytorchjob": ("kubeflow.org_pytorchjobs.yaml", "v1"),
    "volcano": ("batch.volcano.sh_jobs.yaml", "v1alpha1"),
    "rayjob": ("ray.io_rayjobs.yaml", "v1"),
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
def schema(name: str) -> Any:
    """The schema of a kind in its project's definition."""
    folder = os.environ.get("CRDS", "")
    if not folder:
        pytest.skip("CRDS names no folder with custom resource definitions: the table of fields alone was asked")
    file, version = KINDS[name]
    paths = sorted(Path(folder).rglob(file))
    assert paths, f"no {file} below {folder}"
    definition = yaml.safe_load(paths[0].read_text(encoding="utf-8"))
    (found,) = (v for v in definition["spec"]["versions"] if v["name"] == version)
    return found["schema"]["openAPIV3Schema"]


def by_the_table(name: str) -> Callable[[Any], list[str]]:
    return lambda document: kubernetes_fields.problems(name, document)


def by_the_definition(name: str) -> Callable[[Any], list[str]]:
    made = strict(schema(name))
    made["properties"]["metadata"] = {"type": "object"}
    checks = jsonschema.Draft202012Validator(made)
    return lambda document: [f"{e.json_path}: {e.message}" for e in checks.iter_errors(document)]


JUDGES = {"table": by_the_table, "definition": by_the_definition}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("name", KINDS)
def test_resources_are_of_their_kind(name: str, judge: str) -> None:
    problems = JUDGES[judge](name)
    plans = expressible(name)[:: 3 if judge == "table" else 1]  # the table is asked in every run of the tests
    assert len(plans) >= 30 // EVERY
    for asked, whole in plans:
        made = bundle(whole, parts(f"torchrun+{name}"), given(f"torchrun+{name}")).files[f"{name}.yaml"]
        assert not problems(yaml.safe_load(made)), asked
    if judge == "definition":
        kept(name, plans=len(plans), fields=len([*_slips(yaml.safe_load(made))]))


def test_the_table_says_what_the_definitions_say() -> None:
    text = kubernetes_fields.listed({name: schema(name) for name in KINDS})
    if REGENERATE:
        kubernetes_fields.TABLE.write_text(text, encoding="utf-8")
    assert text == kubernetes_fields.TABLE.read_text(encoding="utf-8")


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
    "rayjob": [
        (("spec",), "entryPoint", "python x.py"),
        (("spec",), "shutdownAfterJobFinishes", "yes"),
        (("spec", "rayClusterSpec"), "workerGroups", []),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0), "replicas", "four"),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0), "rayStartParams", ["num-gpus"]),
    ],
}
REQUIRED = {"trainjob": "runtimeRef", "pytorchjob": "pytorchReplicaSpecs"}
"""A field that must be there."""


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("name", KINDS)
def test_broken_resources_are_refused(name: str, judge: str) -> None:
    problems = JUDGES[judge](name)
    whole = expressible(name)[0][1]
    good = yaml.safe_load(bundle(whole, parts(f"torchrun+{name}"), given(f"torchrun+{name}")).files[f"{name}.yaml"])
    assert not problems(good)
    for path, key, value in BROKEN[name]:
        broken = copy.deepcopy(good)
        inner = broken
        for step in path:
            inner = inner[step]
        inner[key] = value
        assert problems(broken), f"{name} takes {key}: {value}"
    if name in REQUIRED:
        del good["spec"][REQUIRED[name]]
        assert problems(good)


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("name", KINDS)
def test_a_slip_in_any_field_is_found(name: str, judge: str) -> None:
    """Every key that is written, one after the other with a letter too many."""
    problems = JUDGES[judge](name)
    whole = expressible(name)[0][1]
    good = yaml.safe_load(bundle(whole, parts(f"torchrun+{name}"), given(f"torchrun+{name}")).files[f"{name}.yaml"])
    slips = [*_slips(good)]
    assert len(slips) > 10
    for where, broken in slips:
        assert problems(broken), f"{name} takes {where}"
    if judge == "definition":
        kept(name, refused=len(BROKEN[name]) + (name in REQUIRED) + len(slips))


FREE = ("metadata", "limits", "plugins", "pytorchReplicaSpecs", "rayStartParams")
"""What holds keys that a person chooses."""


def _slips(document: Any, where: tuple[str | int, ...] = ()) -> Any:
    """Copies of a document with one key of it misspelt."""
    inner = document
    for step in where:
        inner = inner[step]
    if not isinstance(inner, dict | list):
        return
    for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
        if isinstance(inner, dict) and not (where and where[-1] in FREE):
            broken = copy.deepcopy(document)
            target = broken
            for step in where:
                target = target[step]
            target[f"{key}s"] = target.pop(key)
            yield (*where, key), broken
        yield from _slips(document, (*where, key))
