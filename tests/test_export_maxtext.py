"""MaxText on TPUs: what a plan becomes, what it is refused for, and the slices that Kubernetes is asked for."""

from dataclasses import replace

import pytest
import yaml

from planner import api
from planner.launchers import EXPORTERS, bundle, maxtext, parts, tpu
from planner.launchers.benchmark import short
from planner.launchers.bundle import refusals
from planner.schema.plan import Plan
from tests.answered_once import answered_once

GIVEN = {"train-file": "gs://b/x.jsonl", "tokenizer-model": "m", "save": "gs://b/out", "image": "i", "load": "gs://b/w"}


@answered_once
def plan(model: str, cluster: str, pins: str = "") -> Plan:
    """Under MaxText."""
    return api.estimate(model, cluster, pins.split(), runtime="maxtext").plans[0]


def said(whole: Plan) -> dict[str, str]:
    """Key -> value on the command line."""
    made = bundle(whole, parts("maxtext"), {k: v for k, v in GIVEN.items() if k != "image"})
    lines = made.files["start.sh"].split("maxtext.trainers.pre_train.train", 1)[1].replace("\\\n", " ").split()
    return dict(word.strip("'").split("=", 1) for word in lines)


@pytest.mark.parametrize(
    ("accelerator", "chips", "torus"),
    [
        *(("TPU-v5p", chips, torus) for chips, torus in ((4, "2x2x1"), (32, "2x4x4"), (64, "4x4x4"), (640, "4x8x20"))),
        *(("TPU-v4", chips, torus) for chips, torus in ((128, "4x4x8"), (512, "8x8x8"), (2048, "8x16x16"), (12, ""))),
        *(("TPU-v6e", chips, torus) for chips, torus in ((1, "1x1"), (8, "2x4"), (128, "8x16"), (256, "16x16"))),
        *(("TPU-v5e", chips, torus) for chips, torus in ((512, ""), (24, ""))),
    ],
)
def test_a_slice_is_a_torus(accelerator: str, chips: int, torus: str) -> None:
    assert tpu.topology(accelerator, chips) == torus


def test_slices_are_pods_and_hosts_hold_four_chips() -> None:
    """A pod of v6e is 256 chips; a host of one has four, or eight where it is the whole slice."""
    whole = plan("llama3-8b", "tpu-v6e-8:64", "tp=2")
    assert (tpu.slices(whole), tpu.chips(whole), tpu.hosts(whole)) == (2, 256, 64)
    alone = plan("llama3-8b", "tpu-v6e-8:1", "tp=2")
    assert (tpu.slices(alone), tpu.chips(alone), tpu.hosts(alone)) == (1, 8, 1)


def test_the_innermost_axes_fill_a_slice() -> None:
    found = said(plan("llama3-8b", "tpu-v6e-8:64", "tp=2"))
    assert (found["ici_tensor_parallelism"], found["dcn_tensor_parallelism"]) == ("2", "1")
    assert (found["ici_fsdp_parallelism"], found["dcn_fsdp_parallelism"]) == ("128", "2")
    assert found["num_slices"] == "2"


def test_a_device_takes_its_share_of_a_micro_batch() -> None:
    found = said(plan("llama3.1-8b", "tpu-v5p-4:16", "tp=4 micro=2"))
    assert float(found["per_device_batch_size"]) == 0.5
    assert int(found["gradient_accumulation_steps"]) * 32 == 1024
    staged = said(plan("llama3.1-8b", "tpu-v5p-4:16", "pp=2 micro=2"))
    assert (staged["num_layers_per_pipeline_stage"], staged["num_pipeline_microbatches"]) == ("16", "16")
    assert float(staged["per_device_batch_size"]) == 16


def test_sigmoid_routers_go_by_the_name_that_maxtext_routes_by() -> None:
    found = said(plan("moonlight-16b-a3b", "tpu-v5p-4:16", "ep=8"))
    assert (found["model_name"], found["override_model_config"]) == ("deepseek3-671b", "true")
    assert (found["num_experts"], found["routed_scaling_factor"]) == ("64", "2.446")


@pytest.mark.parametrize(
    ("model", "cluster", "pins", "why"),
    [
        ("gpt3-175b", "tpu-v5p-4:64", "", "the activation"),
        ("gpt-oss-20b", "tpu-v5p-4:16", "ep=8", "no block there"),
        ("deepseek-v2-lite", "tpu-v5p-4:16", "ep=8", "sigmoid scores"),
        ("llama3.2-1b", "tpu-v6e-8:1", "", "stretched 8 times there, the model's 32"),
        ("llama3.1-8b", "tpu-v3-4:8", "", "two devices"),
        ("llama3.1-8b", "dgx-h100:2", "", "it runs on accelerators of google"),
    ],
)
def test_what_another_model_or_no_slice_would_be_is_refused(model: str, cluster: str, pins: str, why: str) -> None:
    assert why in "; ".join(refusals(plan(model, cluster, pins), EXPORTERS["maxtext"]))


def test_a_ring_needs_sequences_of_its_square() -> None:
    whole = plan("llama3.1-8b", "tpu-v5p-4:16", "cp=2 micro=2")
    assert not [*refusals(whole, EXPORTERS["maxtext"])]
    odd = replace(whole, workload=replace(whole.workload, sequence=8198))
    assert "a ring of 2 ranks needs sequences that divide by 4" in "; ".join(refusals(odd, EXPORTERS["maxtext"]))


def test_a_jobset_asks_for_slices() -> None:
    made = bundle(plan("llama3-8b", "tpu-v6e-8:64", "tp=2"), parts("maxtext+jobset"), GIVEN | {"load": "gs://b/w"})
    document = yaml.safe_load(made.files["jobset.yaml"])
    (job,) = document["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    assert document["spec"]["failurePolicy"]["maxRestarts"] == 3  # A bucket outlives its pods.
    assert document["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
    }
    assert (job["replicas"], spec["parallelism"], spec["completions"]) == (2, 64, 64)
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": 4}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "16x16",
    }
    for other in ("trainjob", "pytorchjob", "volcano"):
        assert "no Kubernetes resource is known" in "; ".join(
            refusals(plan("llama3-8b", "tpu-v6e-8:64", "tp=2"), EXPORTERS[other])
        )


def test_fifty_steps_read_nothing_and_save_nothing() -> None:
    whole = plan("llama3.1-8b", "tpu-v5p-4:16")
    made = bundle(whole, parts("maxtext"), {}, short)
    script = made.files["start.sh"]
    assert "steps=50" in script and "dataset_type=synthetic" in script and "enable_checkpointing=false" in script
    assert "hf_train_files" not in script and "checkpoint_period" not in script


def test_what_is_set_besides_and_contradicts_is_said() -> None:
    made = bundle(
        plan("llama3.1-8b", "tpu-v5p-4:16"), parts("maxtext"), {"extra-args": "remat_policy=full log_period=1"}
    )
    assert any(loss.field == "extra-args" and "remat_policy full" in loss.why for loss in made.losses)


def test_every_policy_has_its_name() -> None:
    assert set(maxtext.TABLE.options["remat_policy"].values) == set(maxtext.EXPORTER.expresses["recompute"])
