"""Jobs of Slurm save and end before their time limit, and a longer run is several of them."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from planner.api import plan_sources
from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts
from planner.schema.plan import Plan
from planner.site.profile import ContainerProfile, SiteProfile
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan, two_pools

DENSE = plan(Case("megatron-core", "llama3-70b", "dgx-h100:16", "tp=4 pp=4 vpp=4 cp=2"))


def of_days(whole: Plan, days: float) -> Plan:
    return replace(whole, money=replace(whole.money, days=days))


@pytest.mark.parametrize(
    ("days", "limit", "jobs"),
    [(6.0, "", 1), (20.0, "", 4), (6.0, "24 h", 7), (6.0, "1-00:00:00", 7), (6.0, "24:00:00", 7), (0.5, "4h", 4)],
)
def test_a_run_that_outlasts_a_slurm_job_is_several_one_after_the_other(days: float, limit: str, jobs: int) -> None:
    """22 days with a tenth more, of 7 each: four. 159 h of 24 h each, of which 23.7 train: 7. 14 h of 3.7 h: four."""
    settings = given("megatron+slurm") | {"time-limit": limit}
    made = bundle(of_days(DENSE, days), parts("megatron+slurm"), settings)
    assert ("#SBATCH --array=" in made.files["job.sbatch"]) == (jobs > 1)
    assert jobs == 1 or f"#SBATCH --array=1-{jobs}%1\n" in made.files["job.sbatch"]


def test_a_megatron_job_saves_and_ends_before_slurm_kills_it() -> None:
    """Of 4 h the last 900 s, two steps and a checkpoint's copy are left: told by the clock and by Slurm's signal."""
    settings = given("megatron+slurm") | {"time-limit": "4 h"}
    made = bundle(DENSE, parts("megatron+slurm"), settings)
    steps_s = 2 * DENSE.prediction.step_time_s + DENSE.money.goodput.checkpoint_blocks_s
    ends_s = int(re.findall(r"^#SBATCH --signal=USR1@(\d+)$", made.files["job.sbatch"], re.M)[0])
    assert "#SBATCH --time=0-04:00:00\n" in made.files["job.sbatch"]
    assert 900 + steps_s <= ends_s < 900 + steps_s + 1
    assert f"--exit-duration-in-mins {(4 * 3600 - ends_s) // 60} " in made.files["start.sh"]
    assert "--exit-signal-handler" in made.files["start.sh"] and "--exit-signal SIGUSR1" in made.files["start.sh"]
    # Bash hands an ignored signal on: torchrun, which has no handler of its own, would die of it.
    assert """bash -c 'trap "" USR1; NODE_RANK""" in made.files["job.sbatch"]
    assert "exit-" not in bundle(DENSE, parts("megatron"), given("megatron")).files["start.sh"]
    with pytest.raises(WrongQuestion, match="time-limit=4: '4': no unit"):
        bundle(DENSE, parts("megatron+slurm"), settings | {"time-limit": "4"})


def test_a_job_over_several_pools_queues_the_next_one_itself(tmp_path: Path) -> None:
    """Slurm has no arrays of heterogeneous jobs. The last queues none, nor does one that was requeued."""
    pair = of_days(two_pools(plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "pp=4"))), 13.0)
    script = bundle(pair, parts("torchrun+slurm"), given("torchrun+slurm")).files["job.sbatch"]
    for name in ("sbatch", "scontrol", "srun"):
        (tmp_path / name).write_text(f'#!/bin/bash\n[ {name} = sbatch ] && echo "$JOB_OF_RUN $*" >> queued || true\n')
        (tmp_path / name).chmod(0o755)
    usual = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1"}
    for more in ({}, {"JOB_OF_RUN": "2"}, {"JOB_OF_RUN": "3"}, {"SLURM_RESTART_COUNT": "1"}):
        subprocess.run(["bash", "-c", script], cwd=tmp_path, env=usual | more, check=True)
    queued = (tmp_path / "queued").read_text(encoding="utf-8").splitlines()
    assert queued == [f"{n} --dependency=afterany:7 job.sbatch" for n in (2, 3)]


def test_racks_of_one_nvlink_domain_are_their_trays_to_what_starts_jobs() -> None:
    """Two NVL72 of 18 hosts with 4 GPUs each; a rack is a segment unless the site says another."""
    racks = plan(Case("megatron-core", "qwen3-8b", "gb200-nvl72:2", "tp=8 pp=9"))
    slurm = bundle(racks, parts("megatron+slurm"), given("megatron+slurm")).files
    volcano = bundle(racks, parts("megatron+volcano"), given("megatron+volcano")).files["volcano.yaml"]

    for line in ("#SBATCH --segment=18", "#SBATCH --nodes=36", "#SBATCH --gpus-per-node=4"):
        assert f"{line}\n" in slurm["job.sbatch"]
    assert "--nnodes 36" in slurm["start.sh"] and "--nproc-per-node 4" in slurm["start.sh"]
    assert "minAvailable: 36" in volcano and "nvidia.com/gpu: 4" in volcano
    sky = yaml.safe_load(bundle(racks, parts("megatron+skypilot"), given("megatron+skypilot")).files["task.yaml"])
    assert (sky["num_nodes"], sky["resources"]["accelerators"]) == (36, "GB200:4")
    dstack = bundle(racks, parts("megatron+dstack"), given("megatron+dstack")).files["task.dstack.yml"]
    assert "nodes: 36\n" in dstack and "count: 4\n" in dstack
    assert "--segment" not in bundle(DENSE, parts("megatron+slurm"), given("megatron+slurm")).files["job.sbatch"]


def test_machines_without_an_image_install_what_they_start() -> None:
    """The releases that ``release_check.py`` takes; a site's image has them. SkyPilot mounts no folder of a node."""
    given_ = {**given("megatron+skypilot"), "megatron-lm": "/opt/it's"}
    task = yaml.safe_load(bundle(DENSE, parts("megatron+skypilot"), given_).files["task.yaml"])
    stops, install, fetch = task["setup"].splitlines()
    assert stops.startswith("set -e")
    assert install.startswith("python3 -m pip install 'torch==2.13.*' ")
    assert fetch.startswith("""[ -e '/opt/it'"'"'s' ] || git clone --depth 1 --branch core_v0.16.1 https://""")
    dstack = yaml.safe_load(bundle(DENSE, parts("megatron+dstack"), given("megatron+dstack")).files["task.dstack.yml"])
    assert re.match(r"set -e.*\npython3 -m pip install ", dstack["commands"][0])
    imaged = SiteProfile(container=ContainerProfile(image="train:26", mounts=("/data:/data",)))
    held = bundle(DENSE, parts("megatron+skypilot"), given_, site=imaged)
    assert "setup" not in held.files["task.yaml"]
    assert any(loss.field == "mounts" for loss in held.losses)


def test_one_pool_of_a_mixed_cluster_asks_for_its_type() -> None:
    """It could get the other pool's nodes; a plan of one kind of GPU asks for any, and what is set leads."""
    whole, gpus = plan(Case("megatron-core", "llama3-8b", "dgx-h100:2", "tp=2")), {}
    for name, chosen, mixed in (("mixed", {}, True), ("set", {"gpu-type": "hopper"}, True), ("alone", {}, False)):
        wanted = plan_sources.Wanted("torchrun+slurm", chosen, None, False, None, mixed=mixed)
        made, _ = plan_sources.bundles([whole], True, wanted)
        gpus[name] = re.findall("--gpus-per-node=(.*)", made[""].files["job.sbatch"])
    assert gpus == {"mixed": ["h100:8"], "set": ["hopper:8"], "alone": ["8"]}


def test_several_data_sets_are_words_of_their_own() -> None:
    """Megatron-LM takes weights and prefixes in turn; one path may hold spaces."""
    asked = given("megatron")
    mixed = bundle(DENSE, parts("megatron"), asked | {"data-path": "0.7 /data/a 0.3 /data/b"}).files["start.sh"]
    spaced = bundle(DENSE, parts("megatron"), asked | {"data-path": "/my data/a"}).files["start.sh"]
    assert "--data-path 0.7 /data/a 0.3 /data/b" in mixed and "--data-path '/my data/a'" in spaced
