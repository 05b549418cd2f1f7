"""A site's profile and extra arguments reach the files of every scheduler."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.launchers import EXPORTERS, bundle, parts
from planner.launchers.benchmark import short
from planner.launchers.bundle import Bundle
from planner.site import profile
from planner.site.profile import KubernetesProfile, SiteProfile
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan
from tests.sweeps import sweep
from tests.words import worded

DENSE = plan(Case("megatron-core", "llama3-8b", "dgx-h100:2", "tp=2"))
PROFILE = """
before = ["module load cuda"]
[container]
image = "registry.example/train:1"
mounts = ["/data:/data:ro", "/folder/ours:/ours"]
shared_memory = "64 GiB"
[slurm]
partition = "gpu"
account = "research"
qos = "high"
constraint = "h100&ib"
switches = 2
containers = "pyxis"
[kubernetes]
namespace = "train"
queue = "night"
claims = ["shared:/checkpoints"]
resources = { "rdma/ib" = 8 }
capabilities = ["IPC_LOCK"]
host_network = true
[storage]
checkpoints = "/checkpoints"
logs = "/checkpoints/logs"
[environment]
NCCL_IB_HCA = "mlx5"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> SiteProfile:
    path = tmp_path_factory.mktemp("site") / "site.toml"
    path.write_text(PROFILE, encoding="utf-8")
    return profile.read(path)


def made(target: str, site: SiteProfile | None = None, **settings: str) -> Bundle:
    usual = {name: value for name, value in given(target).items() if name not in ("image", "save")}
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return bundle(DENSE, parts(target), usual | named, site=site)


def pod(target: str, site: SiteProfile | None = None) -> dict[str, Any]:
    """The first pod of a Kubernetes resource, whichever it is."""
    files = made(f"megatron+{target}", site).files
    spec = yaml.safe_load(files[f"{target}.yaml"])["spec"]
    if target == "jobset":
        found = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    elif target == "volcano":
        found = spec["tasks"][0]["template"]["spec"]
    elif target == "rayjob":
        found = spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
    else:
        found = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


@sweep("target", ["jobset", "volcano", "pytorchjob", "rayjob"])
def test_pods_have_devices_folders_and_memory(target: str, site: SiteProfile) -> None:
    spec = pod(target, site)
    (own,) = spec["containers"]
    assert own["image"] == "registry.example/train:1"
    assert own["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}
    assert own["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert spec["hostNetwork"] is True
    mounted = {mount["name"]: mount for mount in own["volumeMounts"]}
    held = {volume["name"]: volume for volume in spec["volumes"]}
    assert mounted.keys() == held.keys()
    assert {mount["mountPath"] for mount in mounted.values()} == {"/dev/shm", "/data", "/ours", "/checkpoints"}
    assert [mount["mountPath"] for mount in mounted.values() if mount.get("readOnly")] == ["/data"]
    assert held["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(64 * 2**30)}
    assert held["claim-0"]["persistentVolumeClaim"]["claimName"] == "shared"
    assert held["mount-1"]["hostPath"]["path"] == "/folder/ours"


@sweep("target", ["jobset", "volcano", "pytorchjob", "rayjob"])
def test_without_a_site_pods_have_memory_for_nccl(target: str) -> None:
    spec = pod(target)
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == ["/dev/shm"]
    assert spec["volumes"] == [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    assert "hostNetwork" not in spec


def test_queues_and_namespaces(site: SiteProfile) -> None:
    jobset = yaml.safe_load(made("megatron+jobset", site).files["jobset.yaml"])
    assert jobset["metadata"]["namespace"] == "train"
    assert jobset["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "night"}
    volcano = yaml.safe_load(made("megatron+volcano", site).files["volcano.yaml"])
    assert volcano["spec"]["queue"] == "night"


@sweep("target", ["jobset", "pytorchjob", "rayjob", "volcano"])
def test_kai_places_pods_where_the_site_names_its_topology(target: str) -> None:
    """It sees pods that name it alone, and their job's queue and topology. Volcano's jobs name Volcano."""
    kai = SiteProfile(kubernetes=KubernetesProfile(queue="night", topology="rack", kai_topology="racks"))
    by_kai = target != "volcano"

    metadata = yaml.safe_load(made(f"megatron+{target}", kai).files[f"{target}.yaml"])["metadata"]

    assert (pod(target, kai).get("schedulerName") == "kai-scheduler") is by_kai
    assert (metadata.get("labels") == {"kai.scheduler/queue": "night"}) is by_kai
    assert (metadata.get("annotations", {}).get("kai.scheduler/topology") == "racks") is by_kai
    assert ("Volcano places" in str(made(f"megatron+{target}", kai).losses)) is not by_kai


def test_jobs_begin_anew_only_where_checkpoints_outlive_them(site: SiteProfile) -> None:
    def restarts(found: Bundle) -> int:
        return int(yaml.safe_load(found.files["jobset.yaml"])["spec"]["failurePolicy"]["maxRestarts"])

    kept = made("megatron+jobset", site)
    assert restarts(kept) == 3
    assert "--load /checkpoints/llama3-8b" in kept.files["start.sh"]
    lost = made("megatron+jobset", site, save="/elsewhere")
    assert restarts(lost) == 0
    assert "/elsewhere is inside the pods" in str(lost.losses)
    near = made("megatron+jobset", site, save="/checkpoints-2")
    assert restarts(near) == 0


@pytest.mark.parametrize("target", ["ray-train", "rayjob"])
def test_ray_begins_anew_only_where_checkpoints_outlive_a_node(target: str, site: SiteProfile) -> None:
    assert "\nRESTARTS = 3\n" in made(f"megatron+{target}", site).files["ray_train.py"]
    lost = made(f"megatron+{target}", site, save="/checkpoints-2")
    assert "\nRESTARTS = 0\n" in lost.files["ray_train.py"]
    assert "nothing is restarted" in str(lost.losses)


def test_slurm_gets_the_sites_options(site: SiteProfile) -> None:
    text = made("megatron+slurm", site).files["job.sbatch"]
    for line in ("--partition=gpu", "--account=research", "--qos=high", "--constraint=h100&ib", "--switches=2"):
        assert f"#SBATCH {line}\n" in text
    assert "#SBATCH --output=/checkpoints/logs/%x-%j.log\n" in text
    assert "--container-image=registry.example/train:1" in text
    mounted = "/data:/data:ro,/folder/ours:/ours,/checkpoints:/checkpoints"  # the site's checkpoints outlive a job
    assert f'--container-mounts={mounted},"$PWD:$PWD"' in text


def test_settings_given_lead_over_the_sites(site: SiteProfile) -> None:
    assert "#SBATCH --partition=other\n" in made("megatron+slurm", site, partition="other").files["job.sbatch"]


def test_an_image_that_nothing_starts_is_told(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[container]\nimage = "train:1"\n', encoding="utf-8")
    found = made("megatron+slurm", profile.read(path))
    assert "--container-image" not in found.files["job.sbatch"]
    assert "no container is started" in str(found.losses)


def test_environment_and_commands_stand_in_the_script(site: SiteProfile) -> None:
    """The plan's own variables lead: it needs what it sets."""
    script = made("megatron", site).files["start.sh"]
    assert script.index("export NCCL_IB_HCA=mlx5") < script.index("module load cuda") < script.index("exec torchrun")
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in script


def test_clouds_get_the_image(site: SiteProfile) -> None:
    task = yaml.safe_load(made("megatron+skypilot", site).files["task.yaml"])
    assert task["resources"]["image_id"] == "docker:registry.example/train:1"
    other = yaml.safe_load(made("megatron+dstack", site).files["task.dstack.yml"])
    assert (other["image"], other["resources"]["shm_size"]) == ("registry.example/train:1", "64GB")
    assert other["volumes"] == ["/data:/data:ro", "/folder/ours:/ours"]


def test_a_trainjob_leaves_volumes_to_its_runtime(site: SiteProfile) -> None:
    assert "those of the runtime torch-distributed" in str(made("megatron+trainjob", site).losses)


# ---- extra arguments -------------------------------------------------------------------------------------------------


@sweep("name", [e.name for e in EXPORTERS.values() if e.role == "trainer"])
def test_every_trainer_takes_extra_arguments(name: str) -> None:
    assert "extra-args" in {setting.name for setting in EXPORTERS[name].settings}


def test_extra_arguments_come_last_as_data() -> None:
    script = made("megatron", extra_args="--seed 7 --name '$(rm -rf x) y'").files["start.sh"]
    assert script.endswith("  --seed 7 \\\n  --name '$(rm -rf x) y'\n")
    assert not made("megatron", extra_args="--seed 7").losses


def test_what_contradicts_the_plan_is_told() -> None:
    found = made("megatron", extra_args="--micro-batch-size 9 --bf16 --seq-length=4096")
    told = [loss.why for loss in found.losses if loss.field == "extra-args"]
    assert told == [
        f"--micro-batch-size 9 overrides the plan's {DENSE.batch.micro}",
        "--seq-length 4096 overrides the plan's 8192",
    ]


def test_a_quote_that_does_not_end_is_refused() -> None:
    with pytest.raises(WrongQuestion, match='--set extra-args=--seed "7: No closing quotation'):
        made("megatron", extra_args='--seed "7')


# ---- benchmarks ------------------------------------------------------------------------------------------------------


def test_a_job_that_only_measures_begins_once_and_ends_soon(site: SiteProfile) -> None:
    usual = {name: value for name, value in given("megatron+jobset").items() if name not in ("image", "save")}
    jobset = bundle(DENSE, parts("megatron+jobset"), usual, short, site=site)
    assert yaml.safe_load(jobset.files["jobset.yaml"])["spec"]["failurePolicy"]["maxRestarts"] == 0
    usual = {name: value for name, value in given("megatron+slurm").items() if name not in ("image", "save")}
    slurm = bundle(DENSE, parts("megatron+slurm"), usual | {"extra-args": "--seed 7"}, short, site=site)
    assert "#SBATCH --time=0-00:30:00\n" in slurm.files["job.sbatch"]
    assert slurm.files["start.sh"].endswith("--seed 7\n")
    assert not slurm.losses


# ---- wrong profiles --------------------------------------------------------------------------------------------------


@worded("site.profiles")
def test_a_wrong_profile_is_refused(text: str, tmp_path: Path) -> str:
    path = tmp_path / "site.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion) as told:
        profile.read(path)
    return str(told.value)


def test_a_sbatch_line_takes_no_spaces(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[slurm]\nqos = "high --uid=0"\n', encoding="utf-8")
    with pytest.raises(WrongQuestion, match="only on a #SBATCH line"):
        made("megatron+slurm", profile.read(path))


def test_the_command_line_takes_a_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", str(tmp_path / "ours")]) == 0
    (tmp_path / "ours" / "site.toml").write_text(PROFILE, encoding="utf-8")
    planned = tmp_path / "plan.json"
    assert main(["plan", "llama3-8b", "--cluster", "dgx-h100:2", "-o", str(planned)]) == 0
    capsys.readouterr()
    asked = ["export", str(planned), "--rank", "1", "--to", "megatron+jobset", "-o", str(tmp_path / "job")]
    assert main([*asked, "--site", str(tmp_path / "ours"), "--benchmark"]) == 0
    assert "claimName: shared" in (tmp_path / "job" / "jobset.yaml").read_text(encoding="utf-8")
    assert main([*asked, "--force", "--site", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


@sweep("name", ["A_b", "a.b", "-a", "a-", "a" * 64, "ns space", "ünder"])
def test_a_namespace_that_kubernetes_refuses(name: str) -> None:
    with pytest.raises(WrongQuestion, match=r"--set namespace=.*: Kubernetes takes up to 63"):
        bundle(DENSE, parts("megatron+rayjob"), given("megatron+rayjob") | {"namespace": name})
