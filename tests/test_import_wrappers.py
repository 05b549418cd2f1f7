"""Commands in jobs of Kubernetes, SkyPilot, dstack, in notebooks and pages are read, with the machines around them."""

import json
import textwrap
from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers.reading.imported_plan import plan
from planner.launchers.reading.source import detect, read
from planner.launchers.reading.started import Started
from planner.launchers.reading.wrappers import opened

OPTIONS = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 2 --bf16 --train-iters 10 "
    "--use-distributed-optimizer"
)
COMMAND = f"torchrun --nnodes=$NNODES --nproc_per_node=8 pretrain_gpt.py {OPTIONS}"
CONTAINER = """
      - name: main
        image: train
        env: [{name: NNODES, value: "4"}, {name: TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}]
        resources: {limits: {nvidia.com/gpu: 8}}
"""
SHELL = CONTAINER + f'        command: [bash, -c, "pip install x && {COMMAND}"]\n'
WORDS = CONTAINER + "        command:\n" + "".join(
    f"        - {json.dumps(word)}\n" for word in COMMAND.replace("$NNODES", "$(NNODES)").split()
)  # fmt: skip
PYTORCHJOB = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {{spec: {{containers: [{{command: [x], resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
    Worker:
      replicas: 3
      template:
       spec:
        containers:{textwrap.indent(SHELL, "    ")}"""
JOBSET = f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
  - replicas: 2
    template:
     spec:
      parallelism: 2
      template:
       spec:
        initContainers: [{{name: i, command: [echo, --num-layers, "1"]}}]
        containers:{textwrap.indent(WORDS, "    ")}"""
TRAINJOB = f"""apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  trainer:
    numNodes: 4
    resourcesPerNode: {{limits: {{nvidia.com/gpu: "8"}}}}
    command: ["bash", "-c", "{COMMAND.replace("$NNODES", "$PET_NNODES")}"]
"""
CONFIGMAP = f"""apiVersion: v1
kind: ConfigMap
data:
  train.sh: |
    {COMMAND}
---
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 4
  template:
   spec:
    containers:{CONTAINER}        args: ["bash", "/scripts/train.sh"]
"""
SKYPILOT = f"""resources: {{accelerators: "H100:8"}}
num_nodes: 4
setup: pip install torch
run: |
  N=`echo "$SKYPILOT_NODE_IPS" | wc -l`
  {COMMAND.replace("$NNODES", "$N")}
"""
DSTACK = f"""type: task
nodes: 4
env: [A=b]
commands:
  - {COMMAND.replace("$NNODES", "$DSTACK_NODES_NUM")}
resources: {{gpu: "H100:8"}}
"""
AZURE = f"""$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: {COMMAND.replace("$NNODES", "4")} --seed ${{{{inputs.seed}}}}
inputs: {{seed: 7}}
environment: azureml:train
resources: {{instance_count: 4}}
distribution: {{type: pytorch, process_count_per_instance: 8}}
"""
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "source": ["nodes = 2 * 2\n", "!pip install torch"]},
            {"cell_type": "code", "source": "!" + COMMAND.replace("$NNODES", "{nodes}")},
        ]
    }
)
PAGE = f"# Train\n\n```bash\n$ pip install deepspeed\n```\n\n```\n$ {COMMAND.replace('$NNODES', '4')}\n```\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", PYTORCHJOB), ("b.yaml", JOBSET), ("c.yaml", TRAINJOB), ("d.yaml", CONFIGMAP), ("e.yaml", SKYPILOT),
        ("f.dstack.yml", DSTACK), ("g.yml", AZURE), ("h.ipynb", NOTEBOOK), ("README.md", PAGE),
    ],
)  # fmt: skip
def test_command_and_machines_of_a_job_are_read(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)

    with opened(str(path), Started()) as (command, started, job):
        assert job is not None
        found = job.says(read(detect(command), command, started))

    assert (found.settings["tp"], found.batch, found.sequence, found.ranks) == (2, 64, 4096, 32)
    assert "its command was read" in found.assumed[0]


def test_machines_of_a_job_that_differ_from_the_cluster_are_said(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SKYPILOT)

    present = plan(None, str(tmp_path / "job.yaml"), ["dgx-h100:2"], model="llama2-7b")

    assert "the command starts 32 ranks; predicted on 16" in present.differs


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "job.yaml",
            "apiVersion: v1\nkind: Job\nspec:\n  {{- if .Values.gpu }}\n  x: 1\n  {{- end }}\n",
            "helm template",
        ),
        ("README.md", PAGE + PAGE.replace("--bf16", "--fp16"), "2 commands that train .*--arg 1"),
        ("README.md", "```bash\npip install deepspeed\ngit clone x/train.py\n```\n", "no command in it"),
        ("x.ipynb", '{"cells": []}', "no command in it"),
        ("Makefile", f"train:\n\t{COMMAND}\n", "make -n TARGET"),
        ("two.yaml", SKYPILOT + "---\n" + SKYPILOT.replace("--bf16", "--fp16"), "2 commands that train"),
    ],
)
def test_files_without_one_command_are_refused(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(WrongQuestion, match=reason):
        plan(None, str(tmp_path / name), ["dgx-h100:2"])


def test_one_of_several_commands_is_taken_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(PAGE + PAGE.replace("--bf16", "--fp16"))

    with opened(str(tmp_path / "README.md"), Started(("2",))) as (command, started, _):
        assert read(detect(command), command, started).precision == "fp16"


@pytest.mark.parametrize(
    ("command", "micro"),
    [
        ("llamafactory-cli train conf/sft.yaml", 2),
        ("FORCE_TORCHRUN=1 llamafactory-cli train conf/sft.yaml per_device_train_batch_size=4 learning_rate=1e-5", 4),
        ("torchrun --nnodes 2 --nproc_per_node 8 src/train.py conf/sft.yaml", 2),
        ("accelerate launch --num_processes 16 -m axolotl.cli.train conf/axolotl.yml --micro-batch-size 8", 8),
        ("axolotl train conf/axolotl.yml --micro_batch_size=1", 1),
    ],
)
def test_file_that_a_command_names_is_read_with_what_stands_behind_it(command: str, micro: int, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    lora = "lora_rank: 8\nper_device_train_batch_size: 2\ncutoff_len: 1024\nbf16: true\n"
    (tmp_path / "conf" / "sft.yaml").write_text("model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\n" + lora)
    (tmp_path / "conf" / "axolotl.yml").write_text(
        "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 2\nsequence_len: 1024\n"
    )
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")

    found = read(detect(str(tmp_path / "run.sh")), str(tmp_path / "run.sh"))

    assert (found.model, found.settings["micro"], found.sequence, found.rank) == ("llama3-8b", micro, 1024, 8)
    assert found.ranks == (16 if "launch" in command.split()[1:2] or "torchrun" in command else None)


def test_file_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(WrongQuestion, match="--file"):
        read("trainer", "llamafactory-cli train nowhere/sft.yaml", Started(folder=tmp_path))


AWS = (
    "torchrun --nproc_per_node=8 --nnodes=2 /fsdp/train.py --max_context_width=8192 --num_key_value_heads=8 "
    "--intermediate_size=14336 --hidden_width=4096 --num_layers=32 --num_heads=32 --model_type=llama_v3 "
    "--train_batch_size=1 --sharding_strategy=hybrid --max_steps=50 --checkpoint_freq=50"
)


def test_awss_example_of_fsdp_states_its_shape() -> None:
    found = read(detect(AWS), AWS + " --offload_activations=1")

    assert (found.shape["ffn"], found.shape["kv_heads"], found.shape["vocab"]) == (14336, 8, 50432)
    assert (found.ranks, found.sequence, found.settings["recompute"]) == (16, 8192, "full")
    assert (found.settings["zero"], found.settings["zero_scope"], found.precision) == (3, "node", "bf16")
    assert "activations are moved to host memory" in found.differs[0]
    without = read("aws-fsdp", f"{AWS} --gradient_checkpointing=0 --mixed_precision=bf16")
    assert (without.settings["recompute"], without.precision) == ("full", "bf16")
    assert "leaves out" in without.differs[0]
    for words in ("--model_type=gpt_neox", "--cpu_offload=1", "--new_kernel=1"):
        with pytest.raises(WrongQuestion, match=words[2:].partition("=")[0]):
            read("aws-fsdp", f"{AWS} {words}")


def test_manifests_whose_aliases_grow_without_end_are_refused(tmp_path: Path) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    (tmp_path / "job.yaml").write_text(f"apiVersion: v1\nkind: Job\na0: &a0 [1]\n{levels}")

    with pytest.raises(WrongQuestion, match="aliases"):
        plan(None, str(tmp_path / "job.yaml"), ["dgx-h100:2"])


LEADER = f"""apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 4
    leaderTemplate:
     spec:
      containers:{WORDS}
    workerTemplate:
     spec:
      containers:{WORDS}"""
UNEVEN = PYTORCHJOB.replace("limits: {nvidia.com/gpu: 8}}}]", "limits: {nvidia.com/gpu: 4}}}]")


@pytest.mark.parametrize(
    ("text", "nodes", "accelerators"),
    [
        (JOBSET, 4, 8),
        (LEADER, 4, 8),
        (UNEVEN, None, None),
        (PYTORCHJOB.replace("spec:\n", 'spec:\n  nprocPerNode: "4"\n', 1), 4, 4),
        (CONFIGMAP.replace("nvidia.com/gpu: 8", "nvidia.com/mig-1g.10gb: 7"), None, None),
        (SKYPILOT.replace('"H100:8"', "{H100: 8, A100: 4}"), 4, None),
    ],
)
def test_machines_are_counted_as_the_scheduler_does(
    text: str, nodes: int | None, accelerators: int | None, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(text)

    with opened(str(tmp_path / "job.yaml"), Started()) as (_, _, job):
        assert job is not None
        assert (job.nodes, job.accelerators) == (nodes, accelerators)


@pytest.mark.parametrize(
    ("text", "given", "tp"),
    [
        # A side-car's variables are its own; those that are asked for lead.
        (SHELL.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP"), {}, 4),
        (SHELL.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP"), {"TP": "1"}, 1),
    ],
)
def test_variables_belong_to_their_container(text: str, given: dict[str, str], tp: int, tmp_path: Path) -> None:
    text = text.replace("env: [", 'env: [{name: TP, value: "4"}, ')
    side = "\n      - name: side\n        env: [{name: TP, value: '8'}]\n        command: [sleep, '1']\n"
    (tmp_path / "job.yaml").write_text(
        f"apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n   spec:\n    containers:{text}{side}"
    )

    with opened(str(tmp_path / "job.yaml"), Started(environment=given)) as (command, started, _):
        assert read(detect(command), command, started).settings["tp"] == tp


def test_script_of_a_config_map_keeps_the_command_around_it(tmp_path: Path) -> None:
    text = CONFIGMAP.replace('["bash", "/scripts/train.sh"]', '["bash", "-c", "export TP=4; bash /scripts/train.sh 1"]')
    text = text.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP")
    (tmp_path / "job.yaml").write_text(text.replace("--micro-batch-size 1", "--micro-batch-size $1"))

    with opened(str(tmp_path / "job.yaml"), Started()) as (command, started, _):
        found = read(detect(command), command, started)

    assert (found.settings["tp"], found.settings["micro"]) == (4, 1)


def test_notebooks_command_has_what_the_cells_before_it_set(tmp_path: Path) -> None:
    command = COMMAND.replace("$NNODES", "4").replace("parallel-size 2", "parallel-size {TP}")
    cells = ["TP = 4", f"!{command}", "TP = 8"]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}))

    with opened(str(tmp_path / "a.ipynb"), Started()) as (command, started, _):
        assert read(detect(command), command, started).settings["tp"] == 4
