"""`explain --recheck`: a document made again from its own question is the same, and one that was changed is not."""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import corruptions
from planner import api, catalog
from planner.api import plan_sources, rechecking
from planner.base.errors import NoAnswer, WrongQuestion
from planner.planning import document
from planner.schema.digest import content_digest
from planner.schema.plan import PlanSet
from planner.study import run as designing
from planner.verify import Inconsistent
from tests.asking import ask
from tests.designing import TINY, TWO, study
from tests.plans import plans
from tests.sweeps import depth, sweep

KNOWN = catalog.load()
BY_ITSELF = rechecking.RecheckInputs()
ASKED: dict[str, dict[str, Any]] = {
    "own price": {"price": "$2/h"},
    "another's price": {"vendor": "AWS", "basis": "on-demand"},
    "spot": {"basis": "spot", "region": "us"},
    "counts and batches": {"cluster": "dgx-h100:1..4", "batch": "256..1024"},
    "limits": {"deadline": "9000 d", "max_cost": "$50M", "objective": "cost"},
    "noise": {"batch": "256..1024", "noise_scale": 1000},
    "precisions": {"precision": "bf16,fp8", "all": True},
    "release": {"runtime": "megatron-core@2024"},
    "fine-tuning": {"method": "lora", "rank": 8},
    "part of a node": {"cluster": (), "accelerators": "A100:4"},
    "pools": {"cluster": ("dgx-a100-40gb:1@a", "dgx-h100:1@b"), "link": "dgx-a100-40gb@a/dgx-h100@b=25 Gbit/s"},
}


@sweep("name", ["dense", "latent", "encoder-decoder", "offload", "head-counted", "old"], every=3, ci=2)
def test_a_set_asked_again_is_the_same(name: str) -> None:
    found = plans(name)
    assert rechecking.check(found, name) > 1000
    for plan in found.plans[:2]:
        assert rechecking.check(plan, name) > 200


@pytest.mark.slow
@sweep("name", ASKED, every=8, ci=3)
def test_however_it_was_asked(name: str) -> None:
    asked = {"cluster": "dgx-h100:2", "top": 2, **ASKED[name]}
    found = api.plan("llama3-8b", asked.pop("cluster"), **asked)
    rechecking.check(found, name)
    for plan in found.plans:
        rechecking.check(plan, name)


def test_what_does_not_fit_is_priced_again_too() -> None:
    rechecking.check(api.estimate("llama3-8b", "dgx-h100:1", tp=1), "estimate")


def _claiming(found: PlanSet, **search: object) -> PlanSet:
    return replace(found, search=replace(found.search, **search))  # type: ignore[arg-type]


def test_an_estimate_that_calls_itself_an_optimum_is_found_out() -> None:
    slow = api.estimate("llama3-8b", "dgx-h100:1", tp=8, recompute="full", micro=1)
    forged = _claiming(slow, candidates=79_884, feasible=33_074, costed=21_348)
    with pytest.raises(NoAnswer, match=r"search\.candidates: 79884 in the document, \d today"):
        rechecking.check(forged, "forged")
    with pytest.raises(NoAnswer, match="keeps no question"):
        rechecking.check(replace(forged, asked=None), "forged")


@sweep(
    ("cluster", "asked"),
    [
        ((), {"accelerators": {"A100": 2, "V100": 2}, "seq": "2k", "method": "lora"}),
        (("dgx-h100:1", "dgx-a100-80gb:1"), {"top": 1}),
        ("dgx-h100:2", {"contingency": 1, "pin": {"tp": 8}}),
        ("dgx-h100:2", {"shortlist": 2, "to": "megatron+slurm", "pin": {"cp": 1, "pp": "1|2", "tp": "1|2"}}),
    ],
    every=3,
    ci=2,
)
def test_questions_that_are_more_than_a_search_on_one_pool_are_asked_again(cluster: Any, asked: dict[str, Any]) -> None:
    made = api.plan("llama3-8b", cluster, **asked)
    found = document.parse_document(document.dump(made), "file")
    assert isinstance(found, PlanSet)
    rechecking.check(found, "set")
    with pytest.raises(NoAnswer, match=r"search\.(gap|candidates)"):
        rechecking.check(_claiming(found, gap=0.001, candidates=10**9), "forged")


def test_a_question_that_no_program_asks_is_told() -> None:
    found = api.estimate("llama3-8b", "dgx-h100:1", tp=8)
    assert found.asked is not None
    strange = replace(found, asked=replace(found.asked, options={"haste": 1}))
    with pytest.raises(WrongQuestion, match=r"asked\.options: .*haste"):
        rechecking.check(strange, "plan")


@pytest.mark.slow
def test_calls_that_the_model_chose_are_chosen_again() -> None:
    plan = corruptions.made("modelled calls")
    assert rechecking.check(plan, "plan") > 300
    first, *others = plan.communication_choice.calls
    changed = replace(plan.communication_choice, calls=(replace(first, count=first.count + 1), *others))
    with pytest.raises(NoAnswer, match=r"communication_choice\.calls\.0\.count"):
        rechecking.check(replace(plan, communication_choice=changed), "plan")


def test_calls_that_a_table_chose_are_chosen_again_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = corruptions.made("measured calls")
    file, renamed = tmp_path / "mixed.json", tmp_path / "times.csv"
    file.write_text(plan.to_json(), encoding="utf-8")
    renamed.write_bytes(corruptions.TIMES.read_bytes())
    kept = ask(capsys, f"explain {file} --recheck")
    assert (kept.code, "--table FILE chooses them again" in kept.out) == (0, True)
    whole = ask(capsys, f"explain {file} --recheck --table {renamed}")
    assert (whole.code, "--table" in whole.out) == (0, False)
    first, *others = plan.communication_choice.calls
    slower = replace(plan.communication_choice, calls=(replace(first, base_s=first.base_s * 2), *others))
    file.write_text(replace(plan, communication_choice=slower).to_json(), encoding="utf-8")
    assert ask(capsys, f"explain {file} --recheck").code == 0
    differs = ask(capsys, f"explain {file} --recheck --table {renamed}")
    assert (differs.code, "communication_choice.calls.0.base_s" in differs.err) == (1, True)
    renamed.write_text(renamed.read_text(encoding="utf-8").replace("e-05", "e-04"), encoding="utf-8")
    assert "communication_choice.sha256" in ask(capsys, f"explain {file} --recheck --table {renamed}").err


def test_a_table_for_what_none_chose_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plans("dense").plans[0].to_json(), encoding="utf-8")
    for line, says in (("--recheck --table t.csv", "was not chosen by a table; leave it out"),
                       ("--table t.csv", "add --recheck")):  # fmt: skip
        answer = ask(capsys, f"explain {file} {line}")
        assert (answer.code, says in answer.err) == (2, True)


def test_figures_that_differ_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plans("lora").to_json(), encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, answer.err) == (0, "")
    assert "figures are what this catalog and program make of them" in answer.out
    json.loads(ask(capsys, f"explain {file} --recheck --json").out)
    own = tmp_path / "own"
    (own / "regions").mkdir(parents=True)
    entry = '[us]\nname = "Here"\nelectricity = "0.2 USD/kWh"\ncarbon = "100 gCO2e/kWh"\npue = 1.1\nsource = "ours"\n'
    (own / "regions" / "us.toml").write_text(entry, encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck --catalog {own}")
    assert (answer.code, "plans.0.energy.carbon_kg" in answer.err) == (1, True)
    edited = json.loads(file.read_text(encoding="utf-8"))
    edited["search"]["feasible"] += 1
    file.write_text(json.dumps(edited), encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, "search.feasible" in answer.err, answer.out) == (1, True, "")


def test_what_cannot_be_asked_again_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    table = json.loads(plans("lora").to_json())
    table["plans"] = [{**plan, "cluster": _on(plan["cluster"], "my-own")} for plan in table["plans"]]
    file.write_text(json.dumps(table), encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, "give the cluster's file" in answer.err) == (2, True)
    answer = ask(capsys, f"explain {file} --cluster own.toml")
    assert (answer.code, "add --recheck" in answer.err) == (2, True)


def _on(cluster: dict[str, Any], node: str) -> dict[str, Any]:
    return {**cluster, "pools": [{**pool, "node": node} for pool in cluster["pools"]]}


@pytest.mark.slow
@sweep("kind", ["plan set", "several pools", "images", "offer"])
def test_changes_of_a_leaf_are_seen(kind: str) -> None:
    """A sample of what ``python -m benchmarks.corruptions`` does: 99 % by the digest, 95 % without it, two thirds by
    `explain` alone, which makes no search.
    """
    most = depth(24, 9)
    found = corruptions.corrupt(kind, seed=7, most=most)
    assert found["changes"] == most
    assert found["with_digest"] >= 0.99
    assert found["alone"] >= 0.95, found["unseen"]
    assert found["explained"] >= 0.66, found["seen_by"]


@pytest.mark.slow
def test_without_a_change_nothing_is_seen() -> None:
    for kind in ("plan set", "several pools", "images", "offer"):
        assert corruptions.seen_by(document.stamped(corruptions.made(kind))) == ""


def test_explain_alone_tells_a_figure_that_this_program_would_not_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Carbon follows from no other figure of a document; of another program's documents nothing is told."""
    file = tmp_path / "plan.json"
    table = document.dump(api.estimate("llama3-8b", "dgx-h100:1", tp=8))
    for changes, told in (({}, False), ({"carbon_kg": 7.0}, True), ({"carbon_kg": 7.0, "version": "0.0.9"}, False)):
        edited = json.loads(json.dumps(table))
        plan = edited["plans"][0]
        plan["energy"]["carbon_kg"] = changes.get("carbon_kg", plan["energy"]["carbon_kg"])
        plan["generator"]["version"] = changes.get("version", plan["generator"]["version"])
        file.write_text(json.dumps({**edited, "digest": content_digest(edited)}), encoding="utf-8")
        answer = ask(capsys, f"explain {file}")
        assert answer.code == 0
        assert ("not what this program makes of it: plans.0.energy.carbon_kg: 7 in the document" in answer.err) is told


@pytest.mark.slow
def test_explain_alone_has_nothing_to_say_of_an_offer_in_a_region_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On-demand machines stand in their provider's region, which no assumption of the default one belies."""
    file = tmp_path / "offer.json"
    ask(capsys, f"procure --model llama3-8b --tokens 200B --deadline 60d --node p5.48xlarge --quick -o {file}")
    assert '"region": "us-east-1"' in file.read_text(encoding="utf-8")
    assert ask(capsys, f"explain {file}").err == ""


@pytest.mark.slow
def test_machines_of_two_makers_stand_in_one_offer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their plans are by two frameworks; those of one framework still have one release."""
    file = tmp_path / "offer.json"
    ask(capsys, f"procure --model llama3-8b --tokens 200B --deadline 60d --node p5.48xlarge --node gaudi3-8 --quick "
                f"--top 3 -o {file}")  # fmt: skip
    table = json.loads(file.read_text(encoding="utf-8"))
    used = [alternative["workloads"][0]["plan"]["runtime"]["name"] for alternative in table["alternatives"]]
    assert len({*used}) == 2 and used[0] == used[1]
    assert ask(capsys, f"explain {file}").code == 0
    table["alternatives"][1]["workloads"][0]["plan"]["runtime"]["release"] = "2024"
    del table["digest"]
    with pytest.raises(Inconsistent, match="runtime: release is not one in all plans"):
        plan_sources.consistent(document.parse_document(table, "edited"))


def test_a_set_of_before_states_no_question() -> None:
    table = json.loads(plans("lora").to_json())
    assert table.pop("question")["nodes"] == [1]
    older = document.parse_document({key: value for key, value in table.items() if key != "digest"}, "old")
    assert isinstance(older, PlanSet)
    with pytest.raises(NoAnswer, match=r"keeps no question, so these cannot be made again .*: search, recommended"):
        rechecking.check(older, "old")
    table["plans"][0]["rank"] = 2
    with pytest.raises(NoAnswer, match=r"plans\.0\.rank"):
        rechecking.check(document.parse_document({k: v for k, v in table.items() if k != "digest"}, "x"), "x")


SECRET = "https://someone:hunter2@prices.example/rates"
OWN_NODES = 'name = "lab"\nnode = "dgx-a100-40gb"\ncount = 2\n'


def test_shares_of_images_are_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, file = tmp_path / "own.toml", tmp_path / "images.json"
    own.write_text(OWN_NODES, encoding="utf-8")
    asked = f"plan resnet50 --cluster {own} --cluster dgx-h100:1@b --batch 512 --oom-risk 1% -o {file}"
    assert ask(capsys, asked).code == 0
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck --cluster {own}")
    assert (answer.code, answer.err, "figures are what this catalog" in answer.out) == (0, "", True)
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, "lab" in answer.err) == (2, True)
    table = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**table, "even_step_s": 1.0}), encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck --cluster {own}")
    assert (answer.code, "even_step_s: 1 in the document" in answer.err) == (1, True)
    del table["question"], table["digest"]
    with pytest.raises(NoAnswer, match="before shares of images stated their question"):
        rechecking.check(document.parse_document(table, "old"), "old")


OURS = 'name = "ours"\ncount = 1\n[node]\nextends = "dgx-a100-80gb"\nnic_bandwidth = "100 Gbit/s"\n'


@pytest.mark.slow
@sweep(
    "line",
    [
        "plan llama3-8b --cluster lab.toml --top 1",
        "plan llama3-8b --cluster lab.toml --top 1 --contingency 1",
        "estimate llama3-8b --cluster ours.toml tp=8",
        "plan llama3-8b --cluster ours.toml --cluster dgx-h100:1 --top 1",
        "plan llama3-8b --cluster lab.toml@a --cluster ours.toml@b --top 1",
        "plan llama3-8b --cluster lab.toml --batch 256..512 --noise-scale 1000 --top 1",
        "plan resnet50 --cluster ours.toml@a --cluster dgx-h100:1@b --batch 512",
    ],
    every=3,
    ci=3,
)
def test_what_was_asked_about_clusters_of_ones_own_is_made_again_with_their_files(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same files it passes, also as one plan alone; without them it does not, and with another it is told."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("lab", OWN_NODES), ("ours", OURS), ("other", OURS.replace('"ours"', '"other"'))):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    assert ask(capsys, f"{line} -o a.json --force").code == 0
    files = " ".join(f"--cluster {name}.toml" for name in ("lab", "ours") if f"{name}.toml" in line)

    answer = ask(capsys, f"explain a.json --recheck {files}")
    assert (answer.code, answer.err) == (0, "")
    assert ask(capsys, "explain a.json --recheck").code in (1, 2)
    answer = ask(capsys, f"explain a.json --recheck {files} --cluster other.toml")
    assert (answer.code, "other" in answer.err) == (2, True), answer.err


def test_a_contingency_without_its_question_is_not_made_again() -> None:
    found = api.plan("llama3-8b", "dgx-h100:2", pin={"tp": 8}, contingency=1, top=1)
    rechecking.check(found, "set")
    with pytest.raises(NoAnswer, match="cannot be made again and prove nothing: contingency"):
        rechecking.check(replace(found, asked=None), "set")


def test_a_cluster_for_what_was_asked_about_none_is_refused() -> None:
    found = designing.design(KNOWN, study(TINY), designing.How(trials=8, explained=False))
    with pytest.raises(WrongQuestion, match="--cluster dgx-h100: study is a study, asked about no cluster"):
        rechecking.check(found, "study", rechecking.RecheckInputs(own=(api.cluster("dgx-h100", 1),)))


@pytest.mark.slow
def test_an_offer_is_solved_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, portfolio = tmp_path / "offer.json", tmp_path / "lab.toml"
    text = (corruptions.EXAMPLES / "portfolios/pretrain-8b.toml").read_text(encoding="utf-8")
    text = text.replace('"USD"', '"EUR"').replace("$5M", "5M EUR")
    portfolio.write_text(
        f'{text}\n[exchange]\nusd = 1.08\ndate = "2026-11-20"\nsource = "{SECRET}"\n', encoding="utf-8"
    )
    assert ask(capsys, f"procure {portfolio} --ways buy,on-demand --node hgx-h100 --top 1 -o {file}").code == 0
    table = json.loads(file.read_text(encoding="utf-8"))
    assert table["asked"]["nodes"] == ["hgx-h100"]
    assert table["asked"]["portfolio"]["exchange"]["source"].startswith("https://")
    assert "hunter2" not in json.dumps(table)
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, answer.err, "figures are what this catalog" in answer.out) == (0, "", True)
    table["sensitivity"][0]["value"] += 1
    file.write_text(json.dumps(table), encoding="utf-8")
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, "sensitivity.0.value" in answer.err) == (1, True)
    del table["asked"], table["digest"]
    older = document.parse_document(table, "old")
    with pytest.raises(NoAnswer, match="prove nothing: optimality"):
        rechecking.check(older, "old")


FORGED_TRIALS: dict[str, tuple[tuple[str, ...], object, str]] = {
    "experts that a dense model lacks": (("plan", "0", "layout", "ep"), 2, "of a model without experts"),
    "virtual stages of one": (("plan", "0", "layout", "vpp"), 2, "vpp 2 of one stage"),
    "no such sharding": (("plan", "0", "options", "zero"), 7, "zero is 7; 0, 1, 2, 3 would be"),
    "memory of another plan": (("plan", "0", "memory_bytes"), 2.0e9, "B of memory"),
    "another's number": (("number",), 1, "two trials have one number|is no feasible trial"),
}


@sweep("name", FORGED_TRIALS)
def test_a_trial_that_is_edited_contradicts_itself_or_the_best(name: str) -> None:
    place, value, says = FORGED_TRIALS[name]
    table = deepcopy(forged_study())
    best = table["best"][0]["number"]
    inner: Any = next(trial for trial in table["trials"] if trial["number"] == best)
    for key in place[:-1]:
        inner = inner[int(key) if key.isdecimal() else key]
    inner[place[-1]] = value
    with pytest.raises(Inconsistent, match=says):
        plan_sources.consistent(document.parse_document(table, "edited"))


@cache
def forged_study() -> dict[str, Any]:
    return document.dump(designing.design(KNOWN, study(TINY), designing.How(trials=8, explained=False)))


@pytest.mark.parametrize("text", [TINY, TWO], ids=["one objective", "two"])
def test_every_point_of_a_study_is_evaluated_again(text: str) -> None:
    found = designing.design(KNOWN, study(text), designing.How(trials=8, explained=False))
    assert rechecking.check(found, "study") > 100
    table = document.dump(found)
    table["trials"][1]["why"] = "somebody says so"
    with pytest.raises(NoAnswer, match=r"trials\.1\.why"):
        rechecking.check(document.parse_document(table, "edited"), "edited")
    table["trials"][1]["why"] = found.trials[1].why
    unused = next(trial for trial in reversed(table["trials"]) if not trial["feasible"])
    fewer = {**table, "trials": [trial for trial in table["trials"] if trial is not unused]}
    with pytest.raises(Inconsistent, match=r"search\.tried is 36, and 35 are there"):
        rechecking.check(document.parse_document(fewer, "fewer"), "fewer")
    fewer["search"] = {**table["search"], "tried": 35}
    with pytest.raises(NoAnswer, match=r"search\.exact: True in the document, False today"):
        rechecking.check(document.parse_document(fewer, "fewer"), "fewer")
    del table["asked"]
    with pytest.raises(NoAnswer, match="before studies stated their question"):
        rechecking.check(document.parse_document(table, "old"), "old")


@pytest.mark.slow
def test_memory_over_several_pools_is_made_again() -> None:
    """Bytes that are moved from activations and all that counts them: the document agrees with itself."""
    plan = api.plan("llama3-8b", ["dgx-a100-80gb:1", "dgx-h100:1"], top=1, launchable=False).plans[0]
    assert rechecking.check(plan, "plan") > 300
    spared = 0.5 * plan.prediction.memory.activations_bytes
    groups = [
        replace(
            group,
            stages=tuple(
                replace(
                    stage,
                    memory_bytes=stage.memory_bytes - spared,
                    held=stage.held and replace(stage.held, activations_bytes=stage.held.activations_bytes - spared),
                )
                for stage in group.stages
            ),
        )
        for group in plan.parallelism.groups
    ]
    with pytest.raises((NoAnswer, Inconsistent), match="memory"):
        rechecking.check(replace(plan, parallelism=replace(plan.parallelism, groups=tuple(groups))), "plan")
    made = rechecking.again(
        replace(plan, parallelism=replace(plan.parallelism, groups=tuple(groups))), "plan", BY_ITSELF
    )
    assert made == plan


@sweep(
    ("path", "value", "says"),
    [
        (("plans", 1, "workload", "shape", "rotary", "base"), 1e4, "workload: shape is not one in all plans"),
        (("plans", 0, "generator", "seed"), 7, "generator: seed"),
        (("plans", 1, "cluster", "pools", 0, "peak_flops", "fp8"), 1e12, "dgx-h100: peak_flops"),
        (("plans", 1, "cluster", "fabric", "latency_s"), 1.0, "infiniband-ndr: latency_s"),
        (("plans", 0, "money", "price", "date"), "2019-01", "the price of .*: date"),
        (("plans", 1, "assumptions", 0, "why"), "somebody says so", "has several reasons"),
        (("front", 1, "days"), 7.0, "takes 7 days by"),
        (("front", 1, "usd_total"), 7.0, "costs 7 USD in"),
        (("front", 1, "accelerators"), 15, "is for 16 accelerators, and says 15"),
    ],
)
def test_plans_of_one_set_answer_one_question(path: corruptions.Place, value: object, says: str) -> None:
    """An edit of one plan, or of one point of the front, contradicts the others: `explain` alone sees it."""
    table = document.dump(_set_of_two())
    plan_sources.consistent(document.parse_document(table, "set"))
    with pytest.raises(Inconsistent, match=f"plans_answer_one_question: .*{says}"):
        plan_sources.consistent(document.parse_document(corruptions.changed(table, path, value), "set"))


@cache
def _set_of_two() -> PlanSet:
    return api.plan("llama3-8b", "dgx-h100:2", top=2)


# ---- every document that is written is explained ---------------------------------------------------------------------


@sweep(
    ("model", "on"),
    [
        ("llama3-8b", "--cluster dgx-h100:1"),
        ("bert-large", "--cluster dgx-a100-40gb:1"),
        ("t5-large", "--cluster dgx-a100-40gb:1"),
        ("vit-l16", "--cluster dgx-a100-40gb:1"),
        ("resnet50", "--cluster dgx-a100-40gb:1"),
        ("resnet50", "--accelerators A100:4,V100:4 --batch 1024"),
    ],
    every=3,
    ci=2,
)
def test_whatever_plan_writes_is_explained(
    model: str, on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    planned = ask(capsys, f"plan {model} {on} -o {file}")
    answer = ask(capsys, f"explain {file}")
    assert (planned.code, answer.code, answer.err) == (0, 0, "")
    assert answer.out.splitlines()[0] == planned.out.splitlines()[0]
    assert json.loads(ask(capsys, f"explain {file} --json").out)["kind"] in ("plan", "image-plan")


def test_a_study_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.json"
    found = designing.design(KNOWN, study(TINY), designing.How(trials=8))
    file.write_text(found.to_json(), encoding="utf-8")
    answer = ask(capsys, f"explain {file}")
    assert (answer.code, answer.err, "Search" in answer.out) == (0, "", True)
    answer = ask(capsys, f"explain {file} --rank 1")
    assert (answer.code, "--rank is of one plan" in answer.err) == (2, True)


@sweep(
    ("path", "value", "check"),
    [
        (("pools", 0, "images"), 3, "images_add_up"),
        (("pools", 0, "fewest"), 3, "images_add_up"),
        (("step_time_s",), 9.0, "time_adds_up"),
        (("images_per_s",), 9.0, "time_adds_up"),
        (("best_pool_step_s",), 1e-9, "no_pool_alone_is_faster"),
        (("pools", 0, "memory_bytes"), 1e15, "memory_is_there"),
        (("pools", 0, "accelerators"), 0, "numbers_are_possible"),
        (("step_time_s",), 0.0, "numbers_are_possible"),
        (("batch",), -1, "numbers_are_possible"),
    ],
)
def test_shares_of_images_that_cannot_be(path: corruptions.Place, value: object, check: str) -> None:
    table = corruptions.changed(document.dump(corruptions.made("images")), path, value)
    found = document.parse_document(table, "images.json")
    with pytest.raises(Inconsistent, match=check):
        plan_sources.consistent(found)


def test_a_catalog_that_is_not_given_again_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, own = tmp_path / "plan.json", tmp_path / "own"
    own.mkdir()
    asked = f"estimate llama3-8b --cluster dgx-h100:1 --tp 8 --catalog {own}"
    assert ask(capsys, f"{asked} -o {file}").code == 0
    answer = ask(capsys, f"explain {file} --recheck")
    assert (answer.code, answer.err.splitlines()[-1].endswith("--catalog DIR")) == (1, True)
    assert ask(capsys, f"explain {file} --recheck --catalog {own}").code == 0
