"""``clusterwright plan``, ``estimate`` and ``explain`` as they are typed.

Whole answers are kept in ``golden/transcripts``; after a change that is meant, ``CLUSTERWRIGHT_REGENERATE=1 pytest
tests/test_plan_command.py`` writes them anew.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.commands.screen import typeset
from planner.planning import document
from planner.question.values import batches, whole_numbers
from planner.space.rules import RULES, Rule
from tests.asking import Answer, ask
from tests.sweeps import sweep

TRANSCRIPTS = Path(__file__).parent / "golden" / "transcripts"
SMALL = "llama3-8b --cluster dgx-h100:4"
FEW = f"{SMALL} --pin cp=1,micro=1"
QUESTIONS = {
    "limits": ["plan llama3-8b --cluster dgx-h100:8 --deadline '60 d' --max-cost '$1M' --pin tp=2..4 --top 2"],
    "dense": ["plan llama3-70b --cluster dgx-h100:16"],
    "estimate": ["estimate llama3-70b --cluster dgx-h100:16 tp=8 pp=4 vpp=5 recompute=selective"],
    "mixture": ["plan mixtral-8x7b --cluster dgx-h100:8 --precision fp8 --top 3"],
    "explain": [f"plan {SMALL} --top 2 -o plan.json", "explain plan.json", "explain plan.json --rank 2"],
    "counts": ["plan llama3-8b --cluster dgx-h100:1..8 --objective cost --top 3"],
    "wrong-question": [
        "plan llama3-70 --cluster dgx-h100:16",
        "plan llama3-70b --cluster dgx-h10:16",
        "plan llama3-70b --cluster dgx-h100",
        "plan llama3-70b --cluster dgx-h100:16 --pin tp=3",
        "plan llama3-70b --cluster dgx-h100:16 --pin tp=16",
        "plan llama3-70b --cluster dgx-h100:16 --pin ep=4",
        "plan llama3-70b --cluster dgx-h100:16 --runtime fsdp --pin tp=8",
        "plan llama3-70b --cluster dgx-a100-80gb:16 --precision fp8",
        "plan llama3-70b --cluster dgx-h100:16 --deadline 30",
        "estimate llama3-70b --cluster dgx-h100:16 micro=7",
        "estimate llama3-70b --cluster dgx-h100:16 sequence_parallel=on",
    ],
    "adapters": ["plan llama3-8b --cluster p5.4xlarge:1 --method lora --rank 8 --tokens 1B --top 2"],
    "sharded": ["plan llama3-8b --cluster dgx-a100-80gb:2 --runtime fsdp2 --batch 256 --top 2"],
    "no-answer": [
        "plan llama3.1-405b --cluster dgx-a100-40gb:4",
        f"plan {SMALL} --deadline '10 d'",
        f"plan {SMALL} --max-cost '$20k'",
        "plan llama3-8b --cluster dgx-h100:1..8 --deadline '20 d' --max-cost '$100k'",
        "plan llama3-8b --cluster dgx-h100:200000",
    ],
    "estimate-too-large": ["estimate llama3-70b --cluster dgx-h100:16 tp=2 pp=2"],
}
"""Name of a transcript -> the commands in it."""


pytestmark = pytest.mark.usefixtures("folder")


@sweep("name", QUESTIONS, every=2)
def test_transcripts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for line in QUESTIONS[name]:
        answer = ask(capsys, line)
        shown.append(f"$ clusterwright {line}\n{answer.report}{answer.err}[{answer.code}]\n")
    transcript, path = "\n".join(shown), TRANSCRIPTS / f"{name}.txt"
    if os.environ.get("CLUSTERWRIGHT_REGENERATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(transcript, encoding="utf-8")
    assert transcript == path.read_text(encoding="utf-8"), "CLUSTERWRIGHT_REGENERATE=1 if this is meant"


@sweep("name", QUESTIONS)
def test_the_answer_has_at_most_twelve_lines_of_eighty_columns(name: str) -> None:
    """What was asked and the block, as a terminal of 80 columns folds them; not the table, nor empty lines."""
    answers = (TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8").split("$ clusterwright ")
    for answer in answers:
        paragraphs = answer.partition("\n")[2].split("\n\n")
        block = [part for part in paragraphs if part.startswith(("Recommended ", "Configuration "))]
        lines = "\n".join([paragraphs[0], *block]).splitlines() if block else []
        assert len([folded for line in lines for folded in typeset.fold(line, 80)]) <= 12, answer


def plans(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.err
    found: list[dict[str, Any]] = answer.document["plans"]
    return found


def printed(answer: Answer) -> str:
    """The report without what follows it."""
    assert answer.code == 0, answer.err
    return answer.out.partition("\nNext ")[0].rstrip()


# ---- the document ----------------------------------------------------------------------------------------------------


@sweep(
    "line",
    [f"plan {FEW}", f"plan {SMALL} --pin zero=1 --precision fp8,bf16", f"estimate {SMALL} tp=2 recompute=full"],
    every=3,
)
def test_two_runs_give_the_same_bytes_but_for_meta(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = ask(capsys, f"{line} --json"), ask(capsys, f"{line} --json")
    assert list(first.document) == list(second.document)
    without = [re.sub(r'"meta": \{[^}]*\}', '"meta": {}', answer.out) for answer in (first, second)]
    assert without[0] == without[1]
    assert without[0] != first.out


def test_the_file_holds_what_json_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, f"plan {FEW} --json -o plan.json")
    assert shown.out == Path("plan.json").read_text(encoding="utf-8")
    assert [path.name for path in Path.cwd().iterdir()] == ["plan.json"]


def test_python_gives_what_the_command_line_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = document.dump(planner.plan("llama3-8b", "dgx-h100:4", top=2, pin=("tp=2",), objective="cost"))
    found.pop("meta")
    assert found == ask(capsys, f"plan {SMALL} --top 2 --pin tp=2 --objective cost --json").document
    found = document.dump(planner.estimate("llama3-8b", "dgx-h100:4", ["tp=2", "pp=2"]))
    found.pop("meta")
    assert found == ask(capsys, f"estimate {SMALL} tp=2 pp=2 --json").document


# ---- explain ---------------------------------------------------------------------------------------------------------


@sweep(
    "line",
    [f"plan {FEW}", "plan llama3-8b --cluster dgx-h100:1..4", f"plan {SMALL} --deadline '90 d' --price '$2/h'"],
    every=3,
)
def test_explain_prints_the_same_report(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = printed(ask(capsys, f"{line} -o plan.json --force -v"))
    assert printed(ask(capsys, "explain plan.json -v")) == report


def test_explain_prints_an_estimate_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    estimated = ask(capsys, f"estimate {SMALL} micro=2 -o plan.json -v")
    assert estimated.code == 1 and "does not fit" in estimated.out
    assert printed(ask(capsys, "explain plan.json -v")) == estimated.out.partition("\nNext ")[0].rstrip()


def test_explain_prints_the_plan_of_a_rank(capsys: pytest.CaptureFixture[str]) -> None:
    third = plans(ask(capsys, f"plan {FEW} --json -o plan.json"))[2]
    assert ask(capsys, "explain plan.json --rank 3 --json").document == third
    Path("third.json").write_text(json.dumps(third), encoding="utf-8")
    assert ask(capsys, "explain third.json").out == ask(capsys, "explain plan.json --rank 3").out


# ---- what can be asked -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_top_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    many = plans(ask(capsys, f"plan {SMALL} --top 12 --json"))
    assert [plan["rank"] for plan in many] == list(range(1, 13))
    assert [plan["prediction"] for plan in plans(ask(capsys, f"plan {SMALL} --top 3 --json"))] == [
        plan["prediction"] for plan in many[:3]
    ]


@pytest.mark.slow
def test_all_lists_what_differs_in_switches_only(capsys: pytest.CaptureFixture[str]) -> None:
    def degrees(plan: dict[str, Any]) -> str:
        return str([plan["axes"][axis] for axis in ("tp", "pp", "cp", "ep", "recompute")])

    alike = "--pin activation_offload=none,attention_kernel=none,graphs=none --top 8 --json"
    folded = [degrees(plan) for plan in plans(ask(capsys, f"plan {SMALL} {alike}"))]
    every = [degrees(plan) for plan in plans(ask(capsys, f"plan {SMALL} {alike} --all"))]
    assert len(set(folded)) == 8 > len(set(every))
    assert "equivalent ones are grouped" in ask(capsys, f"plan {SMALL} -v").out
    assert "equivalent ones are grouped" not in ask(capsys, f"plan {SMALL} --all -v").out


@pytest.mark.slow
def test_a_range_of_counts_shows_the_best_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan llama3-70b --cluster dgx-h100:1..16 --objective cost --pin tp=8,cp=1"
    answer = ask(capsys, f"{line} -o plan.json")
    assert re.search(r"^nodes +best plan +step", answer.out, re.MULTILINE)
    written = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    front = written["front"]
    counts = [point["accelerators"] // 8 for point in front]
    assert counts == sorted(counts) and counts[-1] == 16
    cheapest = min(point["usd_total"] for point in front)
    tried = [plan["money"]["usd_total"] for plan in written["plans"]]
    assert any(cost == pytest.approx(cheapest) for cost in tried)
    # On fewer nodes than the table starts with, nothing fits.
    for count in range(1, counts[0]):
        assert ask(capsys, f"plan llama3-70b --cluster dgx-h100:{count} --pin tp=8,cp=1").code == 1


@pytest.mark.slow
@sweep(
    ("objective", "figure"),
    [
        ("time", lambda plan: plan["money"]["days"]),
        ("cost", lambda plan: plan["money"]["usd_total"]),
        ("energy", lambda plan: plan["energy"]["energy_j"]),
        ("tokens-per-dollar", lambda plan: -plan["money"]["tokens_per_usd"]),
    ],
    ci=3,
)
def test_plans_are_ranked_by_the_objective(objective: str, figure: Any, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"plan llama3-8b --cluster dgx-h100:2..4 --top 20 --objective {objective} --json"
    values = [figure(plan) for plan in plans(ask(capsys, line))]
    assert values[1:] == pytest.approx(sorted(values[1:])), "after the plan to run"


@pytest.mark.slow
def test_plans_keep_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan llama3-8b --cluster dgx-h100:1..32 --top 30 --deadline '20 d' --max-cost '$300k' --json"
    for plan in plans(ask(capsys, line)):
        assert plan["money"]["days"] <= 20 and plan["money"]["usd_total"] <= 300e3
        limits = {limit["name"]: limit for limit in plan["constraints"]}
        assert limits["deadline"]["limit"] == 20 * 86400 and limits["budget"]["limit"] == 300e3


def test_pins_hold(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"plan {SMALL} --top 20 --pin tp=2..4,micro=1|2 --pin recompute=selective --pin dp_overlap=on --json"
    for plan in plans(ask(capsys, line)):
        assert 2 <= plan["axes"]["tp"] <= 4
        assert plan["axes"]["micro"] in (1, 2)
        assert plan["axes"]["recompute"] == "selective"
        assert plan["axes"]["dp_overlap"] or plan["axes"]["dp"] * plan["axes"]["cp"] == 1


def test_stages_inside_replicas_need_both(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are no stages or no replicas, ranks have their usual order, which another pin leaves out."""
    asked = "plan llama3.2-1b --cluster dgx-a100-80gb:1 --top 20 --pin rank_order=tp-cp-ep-pp-dp,micro=1"
    for plan in plans(ask(capsys, f"{asked} --json")):
        p = plan["axes"]
        assert p["rank_order"] == "tp-cp-ep-pp-dp" and p["pp"] > 1 and p["dp"] * p["cp"] > 1
    refusal = ask(capsys, f"{asked} --pin pp=1")
    assert refusal.code == 2 and "that goes with pp and dp above 1" in refusal.err


def test_heads_that_do_not_divide_are_waived_by_name_and_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """gpt2 has 12 heads: 8 ranks hold 1.5 each on average. What else a plan says is checked as ever."""
    question = "plan gpt2 --cluster dgx-h100:1 --pin tp=8 --top 1 --waive"
    found = plans(ask(capsys, f"{question} heads_divide --waive kv_heads_divide --json"))[0]
    assert found["axes"]["tp"] == 8 and found["waived"] == ["heads_divide", "kv_heads_divide"]
    path = tmp_path / "plan.json"
    answer = ask(capsys, f"{question} heads_divide --waive kv_heads_divide -o {path} -v")
    assert "Waived         heads_divide, kv_heads_divide: costed as if all parts were equal" in answer.out
    assert ask(capsys, f"explain {path}").code == 0
    for target in ("megatron", "slurm"):
        refusal = ask(capsys, f"export {path} --to {target} -o {tmp_path / 'job'}")
        assert refusal.code == 2 and "no launcher splits so" in refusal.err
    # What was waived and holds anyway is not recorded; what a document does not say, or may not, is found.
    assert "waived" not in plans(ask(capsys, "plan gpt2 --cluster dgx-h100:1 --top 1 --waive heads_divide --json"))[0]
    for waived in (["heads_divide"], ["heads_divide", "kv_heads_divide", "batch_divides"]):
        changed = json.loads(path.read_text(encoding="utf-8"))
        changed["plans"][0]["waived"] = waived
        (tmp_path / "changed.json").write_text(json.dumps(changed), encoding="utf-8")
        assert "tensor_divides" in ask(capsys, f"explain {tmp_path / 'changed.json'}").err
    pools = "plan gpt2 --cluster dgx-h100:1 --cluster dgx-a100-80gb:1 --waive heads_divide"
    assert "not over several pools" in ask(capsys, pools).err


def test_a_waived_rule_is_waived(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, f"plan {SMALL} --pin tp=16").code == 2
    assert plans(ask(capsys, f"plan {FEW} --pin tp=16 --waive tp_in_domain --json"))[0]["axes"]["tp"] == 16


@pytest.mark.slow
@sweep("rule", RULES, ids=lambda rule: rule.name)
def test_a_waived_rule_leaves_plans_that_hold(rule: Rule, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be waived is refused: the plan would not add up, and the checker would stop it."""
    answer = ask(capsys, f"plan llama3.2-1b --cluster dgx-h100:3 --waive {rule.name} --json")
    assert answer.code == (0 if rule.waivable else 2)
    assert rule.waivable or f"--waive {rule.name}: a plan does not add up unless" in answer.err


@pytest.mark.slow
def test_a_range_of_up_to_16_counts_is_tried_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, "plan llama3-8b --cluster dgx-h100:5..9 --objective cost --top 1 --json").document
    assert [point["accelerators"] // 8 for point in found["front"]] == [5, 6, 7, 8, 9]
    assert found["plans"][0]["cluster"]["pools"][0]["count"] == 8, "which the ends are not"


@sweep(
    ("text", "tried"),
    [
        ("7", (7,)),
        ("3..8", (3, 4, 5, 6, 7, 8)),
        ("8..64", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("8..200", (8, 16, 32, 64, 128, 200)),
        ("1..16", tuple(range(1, 17))),
        ("3..20", (3, 6, 9, 12, 15, 18, 20)),
    ],
)
def test_ranges_of_counts(text: str, tried: tuple[int, ...]) -> None:
    assert whole_numbers("--cluster", text, text) == tried


def test_ranges_of_batches_double() -> None:
    assert batches(1, "64..128") == (64, 128) and batches(1, "8..20") == (8, 16, 20)


@pytest.mark.slow
def test_a_range_of_batches_compares_by_all_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    found = plans(ask(capsys, f"plan {SMALL} --batch 64..1024 --top 20 --json"))
    assert {plan["axes"]["batch"] for plan in found} <= {64, 128, 256, 512, 1024}
    days = [plan["money"]["days"] for plan in found]
    assert days[1:] == pytest.approx(sorted(days[1:])), "after the plan to run"


# ---- prices, catalogs, clusters, models ------------------------------------------------------------------------------


def test_a_price_that_is_given_is_the_price(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plans(ask(capsys, f"plan {SMALL} --price '$2.00/h' --json"))[0]
    assert plan["money"]["usd_per_hour"] == 2.0 * 32
    assert plan["money"]["usd_total"] == pytest.approx(64 * 24 * plan["money"]["days"])
    assert plan["money"]["price"]["source"] == "--price"


@pytest.mark.slow
def test_the_basis_chooses_among_the_prices(capsys: pytest.CaptureFixture[str]) -> None:
    money = {
        basis: plans(ask(capsys, f"plan {SMALL} --basis {basis} --json"))[0]["money"] for basis in ("on-demand", "spot")
    }
    assert {basis: found["price"]["basis"] for basis, found in money.items()} == {
        "on-demand": "on-demand",
        "spot": "spot",
    }
    assert money["spot"]["usd_total"] < money["on-demand"]["usd_total"]


LAB = """
[lab]
extends = "dgx-h100"
name = "Our lab"
"""
CLUSTER = """
name = "our lab"
count = 2
node = "dgx-a100-80gb"
fabric = "infiniband-hdr"
region = "us"

[[prices]]
basis = "on-demand"
usd = "$12"
date = "2026-11"
source = "our contract"
"""


def test_a_catalog_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own/nodes").mkdir(parents=True)
    Path("own/nodes/lab.toml").write_text(LAB)
    plan = plans(ask(capsys, "plan llama3-8b --cluster lab:4 --catalog own --json"))[0]
    assert plan["cluster"]["pools"][0]["node"] == "lab"
    assert any(origin.startswith("catalog --catalog") for origin in plan["generator"]["inputs"])


def test_a_cluster_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.toml").write_text(CLUSTER)
    plan = plans(ask(capsys, "plan llama3-8b --cluster lab.toml --json"))[0]
    assert (plan["cluster"]["name"], plan["cluster"]["accelerators"]) == ("our lab", 16)
    assert plan["cluster"]["fabric"]["id"] == "infiniband-hdr"
    assert plan["money"]["price"]["usd_per_hour"] == 12
    assert "cluster lab.toml" in plan["generator"]["inputs"]
    # What the command line says is stronger than the file.
    plan = plans(ask(capsys, "plan llama3-8b --cluster lab.toml --fabric roce-100g --region us-texas --json"))[0]
    assert (plan["cluster"]["fabric"]["id"], plan["cluster"]["region"]) == ("roce-100g", "us-texas")
    assert plan["cluster"]["pools"][0]["nic_bytes_per_s"] == plan["cluster"]["fabric"]["nic_bytes_per_s"] == 12.5e9


def test_a_model_from_hugging_face(capsys: pytest.CaptureFixture[str]) -> None:
    configs = json.loads((Path(__file__).parent / "data" / "huggingface_configs.json").read_text(encoding="utf-8"))
    Path("config.json").write_text(json.dumps(configs["models"]["llama3-8b"]["config"]), encoding="utf-8")
    own = plans(ask(capsys, "plan config.json --cluster dgx-h100:4 --batch 512 --tokens 1T --seq 8192 --json"))[0]
    library = plans(ask(capsys, f"plan {SMALL} --batch 512 --tokens 1T --seq 8192 --json"))[0]
    assert own["workload"]["parameters"] == library["workload"]["parameters"]
    assert own["prediction"] == library["prediction"]


@pytest.mark.slow
@sweep(
    "line",
    [
        "plan llama3.2-1b --cluster p5.4xlarge:1",
        "plan llama3-8b --cluster dgx-h100:3",
        "plan llama3-8b --cluster dgx-h100:7 --batch 448",
        "plan llama3-70b --cluster gb200-nvl72:2",
        "plan llama3-8b --cluster tpu-v5p-4:16 --runtime maxtext",
        "plan llama3-8b --cluster tpu-v6e-8:8 --runtime maxtext",
        "plan llama3-8b --cluster dgx-h100:16 --batch 1",
        "plan llama3-8b --cluster dgx-h100:4 --seq 131072 --batch 32",
        "plan llama3-8b --cluster dgx-h100:4 --seq 8191",
        "plan llama3-8b --cluster dgx-h100:2 --tokens 9k",
        "plan llama2-7b --cluster ws-8xrtx3090:2 --method lora --batch 64",
        "plan mpt-1b --cluster ws-2xrtx4090:1",
    ],
)
def test_odd_clusters_and_workloads_get_plans(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    for plan in plans(ask(capsys, f"{line} --json")):
        p, pool = plan["axes"], plan["cluster"]["pools"][0]
        assert p["tp"] * p["pp"] * p["cp"] * p["dp"] == pool["count"] * pool["accelerators_per_node"]
        assert plan["axes"]["micro"] * plan["batch"]["accumulation"] * p["dp"] == plan["axes"]["batch"]
        assert plan["prediction"]["memory"]["total_bytes"] <= plan["prediction"]["memory"]["capacity_bytes"]


def test_prices_of_several_pools_may_stand_in_several_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one alone counted, without a word."""
    asked = "plan gpt2-medium --cluster dgx-v100:1 --cluster t4-4:1"
    said = ask(capsys, f"{asked} --price 'dgx-v100=$1/h' --price 't4-4=$2/h'").out
    assert "dgx-v100 at $8.00/h" in said or "t4-4 at $8.00/h" in said
    both = ask(capsys, f"{asked} --price 'dgx-v100=$1/h,t4-4=$2/h'").out
    assert said.partition("Search")[0] == both.partition("Search")[0]


def test_deadline_is_said_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    said = ask(capsys, "plan llama3-8b --cluster dgx-h100:2 --tokens 100B --deadline '7.5 d' --pin tp=1,pp=1,cp=1").out
    line = next(line for line in said.splitlines() if line.startswith("Deadline"))
    assert "7.5 d: kept by the median, not at the slow end (80 %: " in line
