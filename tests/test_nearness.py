"""What a site's own runs were off by shifts plans near them: in the search, in documents, in what is read back."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.commands.command_line import main
from planner.cost.nearness import (
    DOUBLED,
    NEAR,
    OTHER,
    SCATTER,
    SITE,
    OwnRuns,
    RunConfiguration,
    scatters,
    shift,
    weighed,
)
from planner.figures import own_runs
from planner.planning import document
from planner.schema.plan import Plan
from planner.verify import violations
from tests.test_own_runs import wrote
from tests.words import worded

HERE = {"model": "4096x14336x32", "generation": "hopper", "precision": "bf16", "recompute": "none"}
COUNTS = {"accelerators": 8, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "micro": 1}
SLOW = [
    {"id": "a", "tp": "2", "global_batch_seqs": "64", "step_time_s": "9.6"},
    {"id": "b", "tp": "2", "global_batch_seqs": "96", "step_time_s": "14.4"},
    {"id": "c", "tp": "8", "global_batch_seqs": "128", "step_time_s": "15.4"},
]


def runs(*each: dict[str, Any], off: list[float]) -> OwnRuns:
    """Runs here, but for what is given of each."""
    rows = [{**HERE, **COUNTS, **one} for one in each]
    at = RunConfiguration(**{name: np.array([row[name] for row in rows]) for name in rows[0]})
    return weighed(at, np.array(off), np.full(len(off), SCATTER))


def plan_at(**other: Any) -> RunConfiguration:
    return RunConfiguration(**{**HERE, **COUNTS, **other})


# ---- the formula -----------------------------------------------------------------------------------------------------


def test_it_is_the_mean_of_a_normal_variable_given_the_runs() -> None:
    """Conditioned one run after the other, as a filter does, in place of one linear system."""
    points = [{"tp": 2}, {"tp": 8, "precision": "fp8"}, {"pp": 4, "accelerators": 64, "recompute": "full"}]
    off = [0.1, -0.2, 0.3]
    asked = {"tp": 4}
    places = [{**HERE, **COUNTS, **each} for each in (*points, asked)]

    def alike(one: dict[str, Any], other: dict[str, Any]) -> float:
        far = sum(each for name, each in OTHER.items() if one[name] != other[name])
        return math.exp(-far - sum(each * abs(math.log2(one[n] / other[n])) for n, each in DOUBLED.items()))

    covariance = np.array([[SITE**2 + NEAR**2 * alike(a, b) for b in places] for a in places])
    mean = np.zeros(len(places))
    for i, seen in enumerate(off):
        gain = covariance[:, i] / (covariance[i, i] + SCATTER**2)
        mean = mean + gain * (seen - mean[i])
        covariance = covariance - np.outer(gain, covariance[i])
    found = runs(*points, off=off)
    assert found.shared + shift(found, plan_at(**asked)) == pytest.approx(mean[-1], abs=1e-12)


def test_the_nearer_a_plan_the_more_a_run_says_of_it() -> None:
    found = runs({}, off=[0.2])
    shifts = [
        float(shift(found, plan_at(**other)))
        for other in ({}, {"micro": 2}, {"tp": 4}, {"tp": 8}, {"tp": 8, "precision": "fp8"}, {"model": "another"})
    ]
    assert shifts[0] == max(shifts) > shifts[1] > shifts[2] > shifts[3] > shifts[4] > 0
    assert found.shared + shifts[0] < 0.2
    assert shifts[5] == pytest.approx(shifts[0] * math.exp(-OTHER["model"]))


def test_repeated_runs_make_surer() -> None:
    once, often = runs({}, off=[0.2]), runs(*[{}] * 20, off=[0.2] * 20)
    here = plan_at()
    assert 0.13 < once.shared + shift(once, here) < often.shared + shift(often, here) < 0.2


def test_a_run_that_broke_pulls_the_rest_little() -> None:
    """One at three times what is predicted among others that are 10 % slower; and alone."""
    points = [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 8}]
    at, off = runs(*points, off=[0.0] * 4).at, np.array([0.1, 0.1, 1.1, 0.1])
    found = weighed(at, off, scatters(at, off))
    assert list(found.scatter > 3 * SCATTER) == [False, False, True, False]
    assert found.shared + shift(found, plan_at(tp=4)) == pytest.approx(0.1, abs=0.04)
    alone = at.at(np.array([0]))
    assert weighed(alone, off[2:3], scatters(alone, off[2:3])).shared < 0.1
    same = weighed(at, np.full(4, 0.1), scatters(at, np.full(4, 0.1)))
    assert np.all(same.scatter == SCATTER) and same.shared > 0.05


# ---- the file --------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_to_the_bit(tmp_path: Path) -> None:
    found = runs({"tp": 2}, {"tp": 8, "precision": "fp8"}, off=[0.1, -1 / 3])
    own_runs.write(tmp_path, {"nemo": found}, "two runs", "site.csv")
    again = own_runs.read(load(tmp_path))["nemo"]
    assert np.array_equal(again.residual, found.residual) and np.array_equal(again.weight, found.weight)
    assert own_runs.listed(again) == own_runs.listed(found)


@worded("nearness.files", read=json.loads)
def test_a_file_that_no_fit_wrote_is_refused(cell: tuple[str, str], tmp_path: Path) -> WrongQuestion:
    column, value = cell
    path = own_runs.write(tmp_path, {"nemo": runs({}, off=[0.1])}, "a run", "site.csv")
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, row)
        table.writeheader()
        table.writerow(row | {column: value})
    with pytest.raises(WrongQuestion) as raised:
        own_runs.read(load(tmp_path))
    return raised.value


def test_other_tables_and_too_many_runs_are_refused(tmp_path: Path) -> None:
    path = own_runs.write(tmp_path, {"nemo": runs(*[{}] * 101, off=[0.0] * 101)}, "many", "site.csv")
    with pytest.raises(WrongQuestion, match="101 runs of nemo; at most 100"):
        own_runs.read(load(tmp_path))
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(WrongQuestion, match="no own runs"):
        own_runs.read(load(tmp_path))


def test_a_cell_longer_than_any_is_refused(tmp_path: Path) -> None:
    path = own_runs.write(tmp_path, {"nemo": runs({}, off=[0.1])}, "x" * 200_000, "site.csv")
    with pytest.raises(WrongQuestion, match=r"site\.csv:2: field larger"):
        own_runs.read(load(tmp_path))
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(WrongQuestion, match="no own runs"):
        own_runs.read(load(tmp_path))


@pytest.mark.parametrize("step", ["80000", "0.003"])
def test_what_is_written_of_runs_far_off_is_read_again(tmp_path: Path, step: str) -> None:
    """A time in other units than seconds: its run is far off, and pulls others little."""
    given = wrote(tmp_path, *SLOW, {"id": "d", "tp": "4", "step_time_s": step})
    assert main(["calibrate", str(given), "--site", "-o", str(tmp_path / "catalog")]) == 0
    (found,) = own_runs.read(load(tmp_path / "catalog")).values()
    assert 8 < np.abs(found.residual[3]) <= own_runs.FURTHEST and found.scatter[3] > 1
    assert abs(found.shared) < 0.3


# ---- plans of a site -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog fitted to three runs, slower than predicted with tp 2 and about as predicted with tp 8."""
    folder = tmp_path_factory.mktemp("site")
    assert main(["calibrate", str(wrote(folder, *SLOW)), "--site", "-o", str(folder / "catalog")]) == 0
    return folder / "catalog"


def estimated(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["estimate", "llama3-8b", "--cluster", "dgx-h100:1", "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["plans"][0]
    return found


def ratio(capsys: pytest.CaptureFixture[str], site: Path, *options: str) -> float:
    """The predicted step with the site over that without."""
    with_it, without = estimated(capsys, *options, "--catalog", str(site)), estimated(capsys, *options)
    return float(with_it["prediction"]["step_time_s"] / without["prediction"]["step_time_s"])


def test_plans_near_slow_runs_are_slower_than_plans_far_from_them(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = ratio(capsys, site, "tp=2", "zero=1")
    far = ratio(capsys, site, "tp=1", "pp=8", "zero=1", "micro=4", "recompute=full")
    assert near > far + 0.02 > 1.02


def test_validate_predicts_what_plan_does(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, path = wrote(tmp_path, SLOW[0] | {"zero_stage": "1"}), tmp_path / "each.csv"
    assert main(["validate", str(rows), "-o", str(path), "--catalog", str(site)]) == 0
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    options = ("tp=2", "zero=1", "tp_overlap=off", "dp_overlap=on", "recompute=none", "precision=bf16", "micro=1")
    found = estimated(capsys, *options, "--batch", "64", "--runtime", "megatron-core@2026", "--catalog", str(site))
    assert float(row["predicted_s"]) == pytest.approx(found["prediction"]["step_time_s"], rel=0.01)
    assert ratio(capsys, site, *options, "--batch", "64", "--runtime", "megatron-core@2026") > 1.05


def test_every_figure_of_own_runs_is_checked(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = estimated(capsys, "tp=2", "zero=1", "--catalog", str(site))

    def holds(changed: dict[str, Any]) -> bool:
        try:
            plan = document.parse({**found, "prediction": {**found["prediction"], "own_runs": changed}}, "test")
        except WrongQuestion:
            return False
        assert isinstance(plan, Plan)
        return not violations(plan)

    own = found["prediction"]["own_runs"]
    assert holds(own)
    assert not holds({**own, "runs": own["runs"][:2]})
    assert not holds({**own, "other": own["other"] | {"lab": 1.0}})
    for name in ("shared_factor", "near_factor", "without_s", "site", "near"):
        assert not holds({**own, name: own[name] * 1.001}), name
    for table in ("other", "doubled"):
        used = {name: value for name, value in own[table].items() if name == "tp"}
        assert all(not holds({**own, table: own[table] | {name: value * 1.01}}) for name, value in used.items())
    for number, run in enumerate(own["runs"]):
        for name, value in run.items():
            wrong = value + "x" if isinstance(value, str) else value * 1.01 if isinstance(value, float) else 2 * value
            runs = [*own["runs"][:number], run | {name: wrong}, *own["runs"][number + 1 :]]
            assert not holds({**own, "runs": runs}), (number, name)


@pytest.mark.slow
def test_a_plan_of_a_site_is_priced_again_as_it_was(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plans.json"
    assert main(["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--catalog", str(site), "-o", str(path)]) == 0
    assert main(["explain", str(path), "--recheck", "--catalog", str(site)]) == 0
    assert main(["explain", str(path), "--recheck"]) == 1
    assert main(["comm", "show", str(path), "--catalog", str(site)]) == 0


def test_runs_faster_than_their_hardware_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast = [{"id": n, "tp": n, "global_batch_seqs": "64", "step_time_s": "2.0"} for n in ("1", "2", "4")]
    assert main(["calibrate", str(wrote(tmp_path, *fast, *fast)), "--site", "-o", str(tmp_path / "catalog")]) == 0
    asked = ["llama3-8b", "--cluster", "dgx-h100:1", "--batch", "64", "--catalog", str(tmp_path / "catalog")]
    capsys.readouterr()
    assert main(["estimate", *asked, "tp=2", "zero=1"]) == 2
    assert "by the site's own runs a plan is faster than its hardware" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_faster_than_their_hardware_are_told_over_several_pools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one factor on every plan it is the site's doing, too: no defect of the program."""
    fast = [{"id": n, "tp": n, "global_batch_seqs": "64", "step_time_s": "1.0"} for n in ("1", "2", "4")]
    assert main(["calibrate", str(wrote(tmp_path, *fast, *fast)), "--site", "-o", str(tmp_path / "catalog")]) == 0
    asked = ["llama3-8b", "--cluster", "dgx-h100:1", "--cluster", "dgx-a100-80gb:1", "--batch", "64"]
    capsys.readouterr()
    assert main(["plan", *asked, "--catalog", str(tmp_path / "catalog")]) == 2
    told = capsys.readouterr().err
    assert "by the site's own runs a plan is faster than its hardware" in told and "learn or calibrate again" in told


@pytest.mark.slow
def test_over_several_pools_a_site_that_is_faster_shortens_stages_and_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each stage and each cause, as the step: what a plan says of them adds up to it."""
    quick = [{"id": n, "tp": n, "global_batch_seqs": "64", "step_time_s": "4.2"} for n in ("1", "2", "4")]
    folder, path = tmp_path / "catalog", tmp_path / "plans.json"
    assert main(["calibrate", str(wrote(tmp_path, *quick, *quick)), "--site", "-o", str(folder)]) == 0
    asked = ["llama3-8b", "--cluster", "dgx-h100:1", "--cluster", "dgx-a100-80gb:1", "--batch", "64"]
    capsys.readouterr()
    assert main(["plan", *asked, "--any-pipelines", "--catalog", str(folder), "-o", str(path)]) == 0
    (plan,) = [each for each in json.loads(path.read_text())["plans"] if each["rank"] == 1]
    groups, step = plan["parallelism"]["groups"], plan["prediction"]["step_time_s"]
    assert len(groups) > 1 and sum(plan["prediction"]["breakdown"].values()) == pytest.approx(step)
    for group in groups:
        (stage,) = group["stages"]
        assert 0.8 < group["micro_batches"] * stage["time_s"] / step < 1


@pytest.mark.slow
@pytest.mark.thorough
def test_over_several_pools_every_plan_is_shifted_by_the_same_factor(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--cluster", "dgx-a100-80gb:1", "--json"]

    def answer(folder: Path | None) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*asked, *(["--catalog", str(folder)] if folder else [])]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    found = answer(site)
    for plan in found["plans"]:
        assert "own_runs" not in plan["prediction"]
        assert any("own runs shift every plan by the same factor" in each["why"] for each in plan["assumptions"])
    assert found["plans"][0]["prediction"]["step_time_s"] > 1.01 * answer(None)["plans"][0]["prediction"]["step_time_s"]
