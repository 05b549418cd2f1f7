"""Every exporter keeps the same promises: complete files, data that stays data, reasons for refusals, whole folders."""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api
from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.launchers import EXPORTERS, bundle, checks, parts, pods, torchrun, write
from planner.launchers.bundle import refusals
from planner.launchers.plan_facts import chunks
from planner.launchers.torchrun import NAME as START
from planner.planning import document
from planner.schema.digest import sealed
from planner.schema.plan import CommunicationRule, Plan
from tests.launchers.environments import given
from tests.launchers.spread import EVERY, Case, expressible, plan, two_pools, uneven
from tests.words import worded

PLANS = Path(__file__).parent / "golden" / "plans"
GOLDEN = Path(__file__).parent / "golden" / "export"
REGENERATE = os.environ.get("CLUSTERWRIGHT_REGENERATE") == "1"
DENSE = Case("megatron-core", "llama3-70b", "dgx-h100:16", "tp=4 pp=4 vpp=4 cp=2")
SHARDED = Case("fsdp2", "llama3-8b", "dgx-h100:4", "zero_scope=node tp=2")
PIPED = Case("megatron-core", "llama3-8b", "dgx-h100:4", "recompute=selective pp=4")
TRAINERS = [name for name, exporter in EXPORTERS.items() if exporter.role == "trainer"]
SCHEDULERS = [name for name, exporter in EXPORTERS.items() if exporter.role == "scheduler"]
RULE = CommunicationRule(
    op="all-reduce", group="dp", bytes_min=0, bytes_max=1e9, backend="nccl", algorithm="ring", protocol="simple"
)


def ruled(whole: Plan, *rules: CommunicationRule) -> Plan:
    return replace(whole, communication=rules or (RULE,))


def files(whole: Plan, target: str, **more: str) -> dict[str, str]:
    return dict(bundle(whole, parts(target), given(target) | more).files)


@cache
def some(name: str) -> Plan:
    """A plan that a trainer or any other target can express."""
    return plan(SHARDED) if name in ("torchtitan", "accelerate") else expressible(name)[0][1]


# ---- conformance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPORTERS)
def test_a_bundle_is_complete(name: str) -> None:
    found = expressible(name)[:: 1 if name in TRAINERS else 3]  # schedulers take every plan alike
    assert len(found) >= 30 // EVERY
    for number, (asked, whole) in enumerate(found):
        target = parts(name)
        made = bundle(whole, target, {})
        assert all(Path(file).name == file for file in made.files), asked
        said = json.loads(made.files["target.json"])
        assert said["files"] == sorted(made.files), asked
        more = [word for word in ("Weights: ", "Packages: ", "Log: ") if f"\n{word}" in made.files["README"]]
        assert len(made.files["README"].splitlines()) == 4 + len(more), asked
        assert made.start in made.files["README"], asked
        assert set(said["placeholders"]) == {setting.name for setting in made.missing}, asked
        texts = [text for file, text in made.files.items() if file not in ("README", "target.json", torchrun.PLAN)]
        for setting in made.missing:
            assert any(f"<{setting.name}>" in text for text in texts), asked
        assert number >= 5 or bundle(whole, target, {}) == made, f"{asked}: the same plan gives other bytes"
        filled = bundle(whole, target, {setting.name: "given" for setting in made.missing})
        assert not filled.missing, asked
        assert "Fill in: nothing" in filled.files["README"], asked


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_trainers_and_starters_chain(trainer: str, scheduler: str) -> None:
    if trainer == "maxtext" and scheduler not in ("slurm", "jobset"):
        with pytest.raises(WrongQuestion, match="TPU-v5p"):
            bundle(some(trainer), parts(f"{scheduler}+{trainer}"), {})
        return
    made = bundle(some(trainer), parts(f"{scheduler}+{trainer}"), {})
    assert made.target == f"{trainer}+{scheduler}"
    assert START in made.files
    assert made.start != f"bash {START}"


def test_the_plan_travels_with_its_files() -> None:
    whole = plan(DENSE)
    assert document.parse(json.loads(files(whole, "megatron")[torchrun.PLAN]), "plan.json") == whole


def test_settings_of_a_tuner_reach_every_node() -> None:
    made = files(ruled(plan(DENSE)), "megatron+nccl-tuner+jobset")
    script = container(made["jobset.yaml"])
    assert "export NCCL_TUNER_CONFIG_FILE=nccl_tuner.csv" in script
    assert "allreduce,0,1000000000,ring,simple,-1,-1,-1" in script


# ---- golden files ----------------------------------------------------------------------------------------------------

KEPT = {
    "megatron+slurm": "dense",
    "torchrun+slurm": "pools",
    "megatron": "uneven",
    "megatron-bridge+slurm": "dense",
    "megatron+skypilot": "mixture",
    "megatron+pytorchjob": "mixture",
    "deepspeed+volcano": "deepspeed",
    "deepspeed+dstack": "deepspeed",
    "torchtitan": "fsdp",
    "torchtitan+trainjob": "fsdp",
    "deepspeed": "deepspeed",
    "deepspeed+jobset": "deepspeed",
    "accelerate": "fsdp",
    "hf-trainer": "fsdp",
    "hf-trainer+slurm": "deepspeed",
    "hf-trainer+jobset": "adapters",
    "hf-trainer+rayjob": "fsdp",
    "accelerate+slurm": "deepspeed",
    "trl": "adapters",
    "axolotl": "adapters",
    "axolotl+jobset": "adapters",
    "llama-factory": "adapters",
    "torchrun": "dense",
}
"""Target -> the kept plan whose files are kept."""


@pytest.mark.parametrize(
    ("target", "case", "kept", "usual"),
    [
        ("megatron", ("megatron-core", "tp=2"), "--save-retain-interval 100000", "no warm-up, linear decay to 0"),
        ("hf-trainer", ("hf-trainer", "zero=3"), "--save_total_limit 10", "no weight decay"),
    ],
)
def test_readme_says_what_nobody_chose(target: str, case: tuple[str, str], kept: str, usual: str) -> None:
    """Checkpoints until fewer are kept, and the trainer's own schedule."""
    whole = plan(Case(case[0], "llama3-8b", "dgx-h100:2", case[1]))
    several, fewer = (
        bundle(whole, parts(target), given(target) | {"extra-args": extra}).files["README"] for extra in ("", kept)
    )

    assert f"in all, and none is deleted (--set extra-args='{kept.split()[0]} " in several
    assert "deleted" not in fewer and usual in fewer


def test_torchtitan_asks_for_the_data_and_says_the_rate() -> None:
    """It trained on C4 where nobody said otherwise."""
    files = bundle(plan(Case("fsdp2", "llama3-8b", "dgx-h100:2", "zero=3")), parts("torchtitan"), {"lr": "3e-5"}).files

    assert "Fill in: <hf-assets-path>" in files["README"] and "<dataset>" in files["README"]
    assert "--dataloader.dataset '<dataset>'" in files["start.sh"] and "lr=3e-5" in files["plan_config.py"]


@pytest.mark.parametrize("target", sorted(KEPT, key=lambda target: "+" in target))
def test_files_are_as_kept(target: str) -> None:
    """A file that the trainer's own folder keeps to the letter is not kept again; ``target.json`` names all files."""
    kept = document.chosen(document.load(PLANS / "1" / f"{KEPT[target]}.json"), 1, "")
    made = {name: text for name, text in bundle(kept, parts(target), {}).files.items() if name != torchrun.PLAN}
    if checks.NAME in made:  # the rest is a script of planner/launchers/scripts, to the letter
        made[checks.NAME] = made[checks.NAME].partition("PLANNED = ")[2].partition("}\n")[0]
    folder = GOLDEN / target
    trainer, chained, _ = target.partition("+")
    shared = texts(GOLDEN / trainer) if chained else {}
    if REGENERATE:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in made.items():
            if shared.get(name) != text:
                (folder / name).write_text(text, encoding="utf-8")
    expected = shared | texts(folder)
    assert made == {name: expected[name] for name in json.loads(expected["target.json"])["files"] if name in expected}
    assert texts(folder).keys() <= made.keys()


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} if folder.is_dir() else {}


@pytest.mark.parametrize("path", sorted(PLANS.rglob("*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_plan_ever_released_is_read(path: Path) -> None:
    assert json.loads(path.read_text(encoding="utf-8"))["schema_version"] == int(path.parent.name)
    assert document.chosen(document.load(path), 1, path.name).schema_version == 2


# ---- hostile names ---------------------------------------------------------------------------------------------------

HOSTILE: list[str] = json.loads((Path(__file__).parent / "data" / "hostile_names.json").read_text(encoding="utf-8"))
STUB = """#!/usr/bin/env bash
printf '%s\\0' "$(basename "$0")" "$@" > "$SAID"
"""


def named(whole: Plan, name: str) -> Plan:
    """The plan with the name wherever a plan has a text that a person or a file chose."""
    pools = tuple(replace(pool, node=name) for pool in whole.cluster.pools)
    return replace(
        whole,
        workload=replace(whole.workload, name=name, model=name),
        cluster=replace(whole.cluster, name=name, pools=pools, region=name),
        env={"NAME": name},
    )


def container(text: str) -> str:
    """The script of the only container of a Kubernetes document, as Kubernetes would hand it to bash."""
    made = _containers(yaml.safe_load(text))[0]
    assert made["command"][:2] == ["bash", "-c"]
    return expanded(made["command"][2])


def _containers(value: Any) -> list[dict[str, Any]]:
    """Whatever in a document has an image and a command."""
    if isinstance(value, list):
        return [made for inner in value for made in _containers(inner)]
    if not isinstance(value, dict):
        return []
    found = [value] if {"image", "command"} <= value.keys() else []
    return found + [made for inner in value.values() for made in _containers(inner)]


def expanded(text: str) -> str:
    """What Kubernetes makes of a command: ``$$`` is ``$``, and ``$(NAME)`` a variable (here: none may be left)."""
    out, rest = "", text
    while rest:
        if rest.startswith("$$"):
            out, rest = out + "$", rest[2:]
        else:
            assert not rest.startswith("$("), "Kubernetes would expand this"
            out, rest = out + rest[0], rest[1:]
    return out


def run(command: list[str], folder: Path, tools: Path, **environment: str) -> list[str]:
    """Words of the command that the last stub was called with."""
    said = tools / "said"
    path = {"PATH": f"{tools}:{os.environ['PATH']}", "SAID": str(said)}
    rank = dict.fromkeys(("NODE_RANK", "JOB_COMPLETION_INDEX", "PET_NODE_RANK", "VC_TASK_INDEX"), "0")
    rank |= dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), "node0")
    done = subprocess.run(
        command, cwd=folder, env=path | rank | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return said.read_bytes().decode().split("\0")[:-1]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of stand-ins for what the scripts start."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("torchrun", "accelerate", "python3", "primus-cli"):
        (folder / name).write_text(STUB, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


FILES = {
    "megatron-bridge": ("bridge.json", ("settings", "checkpoint.save")),
    "primus": ("primus.yaml", ("workspace",)),
    "trl": ("sft.yaml", ("output_dir",)),
    "axolotl": ("axolotl.yaml", ("output_dir",)),
    "llama-factory": ("llama_factory.yaml", ("output_dir",)),
}
"""Trainer -> the file that holds its arguments, and where the folder of checkpoints stands in it."""


def saved(folder: Path, name: str, path: tuple[str, ...]) -> str:
    """Where a file says that checkpoints are saved."""
    read = json.loads if name.endswith(".json") else yaml.safe_load
    return str(reduce(dict.__getitem__, path, read((folder / name).read_text("utf-8"))))


@pytest.mark.parametrize("name", TRAINERS)
def test_hostile_names_stay_data(name: str, tmp_path: Path, tools: Path) -> None:
    assert len(HOSTILE) >= 50
    for number, text in enumerate(HOSTILE[::EVERY]):
        hostile = {key: text for key in given(name) if key not in ("lr", "tokenizer-type")}
        folder = tmp_path / str(number)
        whole = named(some(name), text)
        if name == "megatron-bridge":  # It takes the models that it has recipes for; other names are refused.
            whole = replace(whole, workload=replace(whole.workload, model=some(name).workload.model))
        write(folder, {"": bundle(whole, parts(name), given(name) | hostile)})
        before = sorted(path.name for path in folder.iterdir())
        words = run(["bash", START], folder, tools)
        command = json.loads((folder / "target.json").read_text(encoding="utf-8"))["command"]
        known = {"$NODE_RANK": "0", "$MASTER_ADDR": "node0"}
        known |= {f"$PWD/{name}": f"{folder}/{name}" for name in ("primus.yaml", "plan_check.py")}
        expected = [known.get(word, word) for word in command]
        assert words == expected, repr(text)
        says = words if name not in FILES else [saved(folder, *FILES[name])]
        assert any(text in word for word in says), repr(text)
        assert sorted(path.name for path in folder.iterdir()) == before, f"{text!r} was run"
        assert len((folder / "README").read_text(encoding="utf-8").split("\n")) in (5, 6, 7, 8), repr(text)
        for file in folder.glob("*.json"):
            json.loads(file.read_text(encoding="utf-8"))
        for file in folder.glob("accelerate.yaml"):
            assert yaml.safe_load(file.read_text(encoding="utf-8"))["num_processes"] == some(name).cluster.accelerators
        for file in folder.glob("*.py"):
            compile(file.read_text(encoding="utf-8"), file.name, "exec")


KUBERNETES = {
    "jobset": "jobset.yaml",
    "trainjob": "trainjob.yaml",
    "pytorchjob": "pytorchjob.yaml",
    "volcano": "volcano.yaml",
}


@pytest.mark.parametrize("scheduler", KUBERNETES)
def test_hostile_names_stay_data_in_kubernetes(scheduler: str, tmp_path: Path, tools: Path) -> None:
    target = f"deepspeed+{scheduler}"
    whole = some("deepspeed")
    shapes = set()
    for number, text in enumerate(HOSTILE[::EVERY]):
        made = files(named(whole, text), target, script=text, image=text)
        folder = tmp_path / str(number)
        folder.mkdir()
        words = run(["bash", "-c", container(made[f"{scheduler}.yaml"])], folder, tools)
        assert words[words.index("29500") + 1 :][:2] == ["plan_check.py", text]
        held = sorted(path.name for path in folder.iterdir())
        assert held == ["ds_config.json", "plan_check.py", "release_check.py"], f"{text!r} was run"
        assert (folder / "ds_config.json").read_text(encoding="utf-8") == made["ds_config.json"]
        shapes.add(json.dumps(outline(yaml.safe_load(made[f"{scheduler}.yaml"]))))
    assert len(shapes) == 1, "a name changed the shape of the document"


def test_ray_sends_what_every_node_reads() -> None:
    """Whatever the names: the ConfigMap holds the files as they are, and no name is in what Ray runs."""
    scripts = set()
    for text in HOSTILE[::EVERY]:
        made = files(named(some("deepspeed"), text), "deepspeed+rayjob", script=text, image=text)
        held = yaml.safe_load(made["configmap.yaml"])["data"]
        sent = ("ray_train.py", "start.sh", "ds_config.json", "plan_check.py", "release_check.py")
        assert held == {name: made[name] for name in sent}
        spec = yaml.safe_load(made["rayjob.yaml"])["spec"]
        assert spec["entrypoint"] == "python /job/ray_train.py"
        assert spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["image"] == text
        scripts.add(made["ray_train.py"])
    assert len(scripts) == 1


def outline(value: Any) -> Any:
    """The keys and types of a document."""
    if isinstance(value, dict):
        return {key: outline(inner) for key, inner in value.items()}
    return [outline(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_hostile_names_stay_data_in_slurm_skypilot_and_dstack() -> None:
    for text in HOSTILE[::EVERY]:
        unlike = files(named(two_pools(plan(PIPED)), text), "torchrun+slurm")["job.sbatch"]
        assert len([line for line in unlike.splitlines() if line.startswith("#SBATCH")]) == 16, repr(text)
        assert subprocess.run(["bash", "-n"], input=unlike, text=True, check=False).returncode == 0
        made = files(named(plan(DENSE), text), "megatron+slurm")
        options = [line for line in made["job.sbatch"].splitlines() if line.startswith("#SBATCH")]
        assert len(options) == 10, repr(text)
        assert subprocess.run(["bash", "-n"], input=made["job.sbatch"], text=True, check=False).returncode == 0
        if any(not (c.isalnum() or c in "._-,/+") for c in text):
            with pytest.raises(WrongQuestion, match="SBATCH"):
                files(plan(DENSE), "megatron+slurm", partition=text)
        task = yaml.safe_load(files(named(plan(DENSE), text), "megatron+skypilot", infra=text)["task.yaml"])
        assert task["resources"]["infra"] == text
        assert task["num_nodes"] == 16
        task = yaml.safe_load(files(named(plan(DENSE), text), "megatron+dstack", save=text)["task.dstack.yml"])
        assert task["nodes"] == 16
        assert subprocess.run(["bash", "-n"], input=task["commands"][0], text=True, check=False).returncode == 0
    with pytest.raises(WrongQuestion, match="would be expanded"):
        files(plan(DENSE), "megatron+dstack", save="${{ secrets.token }}")


def test_a_bad_name_of_a_variable_is_refused() -> None:
    for name in ("A B", "A;B", "1A", "", "A=B", "A\nB"):
        with pytest.raises(WrongQuestion, match="not a name of an environment variable"):
            files(replace(plan(DENSE), env={name: "1"}), "megatron")


# ---- refusals --------------------------------------------------------------------------------------------------------


def why_not(whole: Plan, name: str) -> str:
    return "; ".join(refusals(whole, EXPORTERS[name]))


def changed(whole: Plan, **parallelism: Any) -> Plan:
    return replace(whole, parallelism=replace(whole.parallelism, **parallelism))


def test_a_refusal_of_a_model_names_the_runtime_that_starts_it() -> None:
    """Four norms a layer: of the model's class at Hugging Face, and without a flag of Megatron-LM."""
    whole = plan(Case("megatron-core", "gemma3-27b", "dgx-h100:4", "tp=4 zero=1"))
    with pytest.raises(
        WrongQuestion, match=r"4 norms a layer.*hf-trainer with a plan for it \(--runtime hf-trainer\)$"
    ):
        bundle(whole, parts("megatron"), {})


def test_a_refusal_names_the_rule_and_who_can() -> None:
    with pytest.raises(WrongQuestion, match=r"deepspeed: vpp 4 \(it has 1\); cp 2 \(it has 1\).*these can: megatron"):
        files(plan(DENSE), "deepspeed")


def test_a_model_of_another_family_is_refused_once() -> None:
    bert = plan(Case("pytorch-ddp", "bert-large", "dgx-a100-40gb:4", ""))
    assert why_not(bert, "megatron") == "family encoder (it has decoder)"


def test_mixed_pools_keep_their_order() -> None:
    mixed = two_pools(plan(PIPED))
    text = files(mixed, "megatron+slurm")["job.sbatch"]
    first, second = text.split("#SBATCH hetjob\n")
    assert "#SBATCH --nodes=2\n" in first
    assert "#SBATCH --nodes=2\n" in second
    assert text.count("--het-group=") == 2
    groups = yaml.safe_load(files(mixed, "megatron+jobset")["jobset.yaml"])["spec"]["replicatedJobs"]
    assert [group["name"] for group in groups] == ["pool-0", "pool-1"]
    assert "JOB_COMPLETION_INDEX + 2" in json.dumps(groups[1])
    for name in ("skypilot", "trainjob", "pytorchjob", "dstack", "ray-train", "rayjob"):
        assert "pools 2 (it has 1)" in why_not(mixed, name)
    reverse = tuple(replace(stage, pool=1 - stage.pool) for stage in mixed.parallelism.stages)
    assert "pool after pool" in why_not(changed(mixed, stages=reverse), "megatron")
    lopsided = tuple(replace(stage, pool=int(index > 0)) for index, stage in enumerate(mixed.parallelism.stages))
    assert "its stages use" in why_not(changed(mixed, stages=lopsided), "megatron")
    unlike = (replace(mixed.parallelism.stages[0], tp=2), *mixed.parallelism.stages[1:])
    assert "different tensor" in why_not(changed(mixed, stages=unlike), "megatron")


def test_stages_of_unlike_length_become_a_layout() -> None:
    whole = uneven(plan(PIPED), (6, 10, 10, 6))
    assert "Et*6|t*10|t*10|t*6L" in shlex.split(files(whole, "megatron")[START])
    assert "stages uneven (it has even)" in why_not(whole, "deepspeed")
    titan = uneven(plan(Case("fsdp2", "llama3-8b", "dgx-h100:4", "pp=2")), (14, 18))
    module = files(titan, "torchtitan")["plan_config.py"]
    assert "'layers.13'], ['layers.14'" in module
    assert "layers_per_stage" not in files(titan, "torchtitan")[START]


def test_chunks_follow_the_layers() -> None:
    whole = plan(Case("megatron-core", "llama3.1-405b", "dgx-h100:64", "tp=8 pp=16 vpp=4"))
    found = chunks(whole)
    assert len(found) == 64
    assert sum(found) == 126
    assert [sum(found[stage::16]) for stage in range(16)] == [stage.layers for stage in whole.parallelism.stages]
    assert found[0] == 1
    assert found[-1] == 1


# ---- targets and settings --------------------------------------------------------------------------------------------


@worded("export.targets")
def test_wrong_targets_are_told(target: str) -> str:
    with pytest.raises(WrongQuestion) as told:
        parts(target)
    return str(told.value)


def test_unknown_settings_are_told() -> None:
    with pytest.raises(WrongQuestion, match="did you mean data-path"):
        bundle(plan(DENSE), parts("megatron"), {"data-pth": "x"})
    with pytest.raises(WrongQuestion, match="NUL"):
        bundle(plan(DENSE), parts("megatron"), {"data-path": "a\0b"})
    with pytest.raises(WrongQuestion, match="lr=fast: not a number"):
        bundle(some("deepspeed"), parts("deepspeed"), {"lr": "fast"})


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundle(plan(DENSE), parts("megatron"), {})
    original = Path.write_text

    def full(self: Path, *args: Any, **settings: Any) -> int:
        if self.name == START:
            raise OSError(28, "No space left on device")
        return original(self, *args, **settings)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(WrongQuestion, match="No space left"):
        write(tmp_path / "out", {"": made})
    assert not [*tmp_path.iterdir()]


def test_only_its_own_folders_are_replaced(tmp_path: Path) -> None:
    made = bundle(plan(DENSE), parts("megatron"), {})
    out = tmp_path / "out"
    write(out, {"rank-1": made})
    with pytest.raises(WrongQuestion, match=r"not empty; .* --force"):
        write(out, {"": made})
    write(out, {"": made}, replace=True)
    assert sorted(path.name for path in out.iterdir()) == sorted(made.files)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "strange", ["mine.txt", "empty/", "deep/er/mine.txt", "rank-1/mine.txt", "rank-1/sub/", "rank-9/"]
)
@pytest.mark.parametrize("force", [False, True])
def test_somebodys_files_are_left_alone(strange: str, force: bool, tmp_path: Path) -> None:
    made = bundle(plan(DENSE), parts("megatron"), {})
    out = tmp_path / "out"
    write(out, {"rank-1": made})
    path = out / strange
    (path if strange.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
    if not strange.endswith("/"):
        path.write_text("notes", encoding="utf-8")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    with pytest.raises(WrongQuestion, match=r"export did not write .* choose another .* or move that away"):
        write(out, {"": made}, replace=force)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "target"}', '{"kind": "plan", "files": ["target.json"]}'])
def test_a_folder_with_another_target_json_is_not_ours(text: str, tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion, match=r"export did not write target\.json"):
        write(tmp_path, {"": bundle(plan(DENSE), parts("megatron"), {})}, replace=True)
    assert (tmp_path / "target.json").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("planted", [True, False])
def test_a_list_that_somebody_planted_gives_no_file_away(planted: bool, tmp_path: Path) -> None:
    """Whoever writes the list knows names, and not what the files hold; nor is what was edited since given away."""
    made = bundle(plan(DENSE), parts("megatron"), {})
    if planted:
        target = {"kind": "target", "files": ["thesis.docx", "target.json"], "sha256": {"thesis.docx": "0" * 16}}
        (tmp_path / "target.json").write_text(json.dumps(sealed(target)), encoding="utf-8")
        (tmp_path / "thesis.docx").write_text("years", encoding="utf-8")
    else:
        write(tmp_path, {"": made})
        write(tmp_path, {"": made}, replace=True)
        (tmp_path / "README").write_text("years", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(WrongQuestion, match=r"export did not write (thesis\.docx|README) as it is"):
        write(tmp_path, {"": made}, replace=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files move one by one where the file system can't exchange folders; the last one fails."""
    write(tmp_path, {"": bundle(plan(DENSE), parts("megatron"), {})})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    original = Path.rename

    def full(self: Path, target: Path) -> Path:
        if self.name == "target.json" and self.parent != tmp_path and ".old" not in self.parts:
            raise OSError(28, "No space left on device")
        return original(self, target)

    monkeypatch.setattr(writing, "_exchanged", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(WrongQuestion, match="No space left"):
        write(tmp_path, {"": bundle(plan(DENSE), parts("megatron+slurm"), {})}, replace=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_link_or_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    made = bundle(plan(DENSE), parts("megatron"), {})
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(WrongQuestion, match="no folder"):
            write(tmp_path / name, {"": made}, replace=True)
    with pytest.raises(WrongQuestion, match="cannot be written"):
        write(tmp_path / "file" / "inner", {"": made})
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_kubernetes_keeps_dollars(tmp_path: Path) -> None:
    script = "echo $$ $(date) $((1+2)) $HOME $$(x) $$$(y)"
    assert expanded(pods.container("image", script)["command"][2]) == script


def test_job_of_one_card_asks_for_no_ranks_and_saves_within_its_run() -> None:
    asked = {"accelerators": "RTX-4090:1", "method": "qlora", "tokens": "1M"}
    card = api.estimate("llama3-8b", settings="recompute=full micro=4", **asked)[0]

    made = bundle(card, parts("trl"), {})

    written = yaml.safe_load(made.files["sft.yaml"])
    assert (written["max_steps"], written["save_steps"]) == (16, 4)
    assert made.start == "bash start.sh" and ': "${NODE_RANK:=0}"' in made.files["start.sh"]
    assert "pip install liger-kernel" in made.files["README"] and "tee train.log" in made.files["README"]
    assert "dp_overlap" not in [loss.field for loss in made.losses]
