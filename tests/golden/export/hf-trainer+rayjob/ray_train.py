"""Starts the plan on a Ray cluster: a worker of Ray Train on every node runs start.sh there. For Ray 2.60."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

from ray import train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

NODES = 8
RESOURCES = {"GPU": 8}
RESTARTS = 0
FILES = ["start.sh", "plan_check.py", "accelerate.yaml", "train.py", "release_check.py"]
OF_THE_WORKER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
PR_SET_PDEATHSIG = 1


def node(files):
    """Runs start.sh; Ray says the node's number, and in MASTER_ADDR the address of the first."""
    known = {name: value for name, value in os.environ.items() if name not in OF_THE_WORKER}
    known["NODE_RANK"] = str(train.get_context().get_world_rank())
    folder = Path(f"node-{known['NODE_RANK']}")
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    # With the worker ends what it started: its GPUs are free for the next attempt.
    end = ctypes.CDLL(None).prctl
    started = {"cwd": folder, "env": known, "preexec_fn": lambda: end(PR_SET_PDEATHSIG, signal.SIGTERM)}
    subprocess.run(["bash", "start.sh"], check=True, **started)


def trainer():
    """One worker a node, with all of its GPUs; the workers themselves use none."""
    return TorchTrainer(
        node,
        train_loop_config={name: Path(__file__).with_name(name).read_text(encoding="utf-8") for name in FILES},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=NODES, use_gpu=True, resources_per_worker=RESOURCES, placement_strategy="STRICT_SPREAD"
        ),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=RESTARTS)),
    )


if __name__ == "__main__":
    trainer().fit()
