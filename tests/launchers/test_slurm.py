"""Real slurmctld and slurmd on loopback take the emitted batch scripts, and run them on fake nodes.

``SLURM=DIR`` names a tree with Slurm 22.05 or later: installed, or Debian's packages unpacked (slurmctld, slurmd,
slurm-client, slurm-wlm-basic-plugins, libmunge2, libhwloc15, liblua5.1-0). GPU lines are taken out: a node without GPUs
refuses them all, right or wrong.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.launchers import bundle, parts, write
from planner.schema.plan import Plan
from tests.launchers.conformance import kept
from tests.launchers.environments import given
from tests.launchers.spread import ALIKE, Case, alike, expressible, plan, two_pools

PIPED = Case("megatron-core", "llama3-8b", "dgx-h100:4", "recompute=selective pp=4")
NODES = 8
CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
PluginDir={plugins}
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 RealMemory=1000
PartitionName=gpu Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""
STUB = """#!/usr/bin/env bash
echo "$SLURMD_NODENAME $NODE_RANK $MASTER_ADDR $NPROC_PER_NODE $*"
[[ $NODE_RANK != 0 ]] || echo "pools ${SLURM_JOB_NODELIST_HET_GROUP_0-} ${SLURM_JOB_NODELIST_HET_GROUP_1-}"
"""


def _found(tree: Path, *names: str) -> Path:
    for name in names:
        for folder in ("sbin", "bin", "usr/sbin", "usr/bin"):
            if (tree / folder / name).exists():
                return tree / folder / name
    pytest.skip(f"{tree} has no {names[0]}")


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(int(probe.getsockname()[1]), 65000 - count)


class Cluster:
    """A controller and its nodes, all on this machine."""

    def __init__(self, tree: Path, folder: Path) -> None:
        plugins = next(tree.rglob("select_cons_tres.so")).parent
        port = _free_ports(NODES + 1)
        libraries = [str(plugins.parent), str(plugins)]
        self.folder, self.running = folder, list[subprocess.Popen[bytes]]()
        tools = folder / "tools"
        tools.mkdir()
        (tools / "torchrun").write_text(STUB, encoding="utf-8")
        (tools / "torchrun").chmod(0o755)
        programs = [str(_found(tree, name).parent) for name in ("sbatch", "scontrol")]
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PATH": ":".join([str(tools), *programs, os.environ["PATH"]]),
        }
        filled = CONFIGURATION.format(
            port=port,
            user="root" if os.getuid() == 0 else os.environ.get("USER", "root"),
            folder=folder,
            plugins=plugins,
            nodes=NODES,
            first=port + 1,
            last=port + NODES,
        )
        (folder / "slurm.conf").write_text(filled, encoding="utf-8")
        (folder / "state").mkdir()
        step = _found(tree, "slurmstepd", "slurmstepd-wlm")
        self._start(_found(tree, "slurmctld", "slurmctld-wlm"), "-D")
        for node in range(1, NODES + 1):
            self._start(_found(tree, "slurmd", "slurmd-wlm"), "-D", "-N", f"n{node}", "-d", str(step))
        self._wait()

    def _start(self, program: Path, *arguments: str) -> None:
        quiet = subprocess.DEVNULL
        self.running.append(subprocess.Popen([program, *arguments], env=self.environment, stdout=quiet, stderr=quiet))

    def _wait(self) -> None:
        for _ in range(120):
            said = self.run("sinfo", "-h", "-t", "idle", "-o", "%D")
            if said.stdout.strip() == str(NODES):
                return
            time.sleep(0.5)
        pytest.fail(f"Slurm did not come up: {said.stdout}{said.stderr}")

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        known = self.environment
        return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tree = os.environ.get("SLURM", "")
    if not tree:
        pytest.skip("SLURM names no tree with slurmctld and slurmd")
    made = Cluster(Path(tree), tmp_path_factory.mktemp("slurm"))
    yield made
    made.stop()


def script(whole: Plan, folder: Path, change: Callable[[str], str] = lambda text: text) -> Path:
    """The folder with its batch script, without what needs GPUs or a whole machine."""
    write(folder, {"": bundle(whole, parts("torchrun+slurm"), given("torchrun+slurm"))})
    text = (folder / "job.sbatch").read_text(encoding="utf-8")
    text = re.sub(r"^#SBATCH --gpus-per-node=.*\n", "", text, flags=re.MULTILINE).replace("--mem=0", "--mem=100")
    (folder / "job.sbatch").write_text(change(text), encoding="utf-8")
    return folder


def test_scripts_are_accepted(cluster: Cluster, tmp_path: Path) -> None:
    plans = [(asked, whole) for asked, whole in expressible("slurm") if len(whole.cluster.pools) == 1][::3]
    mixed = [(asked, whole) for asked, whole in expressible("slurm") if len(whole.cluster.pools) > 1]
    assert len(plans) + len(mixed) >= 30
    assert mixed
    options = 0
    for number, (asked, whole) in enumerate([*plans, *mixed]):
        # All plans that fit are asked for as they are; those on more nodes than there are here on the nodes there are.
        fits = sum(pool.count for pool in whole.cluster.pools) <= NODES
        folder = script(whole, tmp_path / str(number), lambda text, fits=fits: text if fits else _shrunk(text))
        said = cluster.run("sbatch", "--test-only", "job.sbatch", folder=folder)
        assert said.returncode == 0, f"{asked}: {said.stderr}"
        options = max(options, (folder / "job.sbatch").read_text(encoding="utf-8").count("#SBATCH --"))
    kept("slurm", plans=len(plans) + len(mixed), fields=options, refused=len(WRONG))


def _shrunk(text: str) -> str:
    return re.sub(r"--nodes=\d+", f"--nodes={NODES}", text)


WRONG = [
    ("--nodes=4", "--nodes=9"),
    ("--mem=100", "--mem=9000"),
    ("--time=", "--time=soon"),
    ("--ntasks-per-node=1", "--ntasks-per-node=99"),
    ("--exclusive", "--partition=none"),
    ("--exclusive", "--constraint=h100"),
    ("--exclusive", "--excluisve"),
]


@pytest.mark.parametrize(("old", "new"), WRONG)
def test_broken_scripts_are_refused(old: str, new: str, cluster: Cluster, tmp_path: Path) -> None:
    folder = script(plan(PIPED), tmp_path / "job", lambda text: text.replace(old, new))
    said = cluster.run("sbatch", "--test-only", "job.sbatch", folder=folder)
    assert said.returncode != 0, said.stderr


RUN = {
    "one pool": lambda: plan(PIPED),
    "two pools": lambda: two_pools(plan(PIPED)),
    "unlike pools": lambda: alike(*ALIKE[0]),
    "unlike pools, the other order": lambda: alike(*ALIKE[1]),
}


@pytest.mark.parametrize("name", RUN)
def test_jobs_run_on_every_node(name: str, cluster: Cluster, tmp_path: Path) -> None:
    whole = RUN[name]()
    folder = script(whole, tmp_path / "job")
    said = cluster.run("sbatch", "--wait", "--output=out.txt", "job.sbatch", folder=folder)
    lines = sorted((folder / "out.txt").read_text(encoding="utf-8").splitlines())
    assert said.returncode == 0, f"{said.stderr} {lines}"
    ran = sorted((line.split() for line in lines if line.startswith("n")), key=lambda words: int(words[1]))
    first = ran[0][0]  # not always n1: nodes of the job before may still be completing
    assert [(rank, master, each) for _, rank, master, each, *_ in ran] == [(str(n), first, "8") for n in range(4)]
    assert len({node for node, *_ in ran}) == 4
    if len(whole.cluster.pools) == 2:  # ranks are numbered pool after pool
        (pools,) = ([*line.split()[1:]] for line in lines if line.startswith("pools"))
        of_pools = [set(cluster.run("scontrol", "show", "hostnames", names).stdout.split()) for names in pools]
        assert [node in of_pools[0] for node, *_ in ran] == [True, True, False, False]
        assert [node in of_pools[1] for node, *_ in ran] == [False, False, True, True]
