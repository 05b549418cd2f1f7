"""Layer times measured elsewhere: how they are read and checked, what they override, and what stays modelled."""

import csv
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api, catalog, cost, verify
from planner.axes.options import option_values
from planner.axes.values import recompute
from planner.base.errors import WrongQuestion
from planner.calibration.fit.frame import Frame
from planner.calibration.report import validation
from planner.calibration.runs import reading
from planner.commands.command_line import main
from planner.cost import layer_times, transformer
from planner.cost.figures import Grid, Times, stacked
from planner.cost.layer_times import LayerTable, Point
from planner.figures.efficiency import Efficiencies
from planner.figures.profiles import importing, overlay
from planner.planning import document, why_this_plan
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from planner.space.cost_grid import single_grid
from tests import oracle
from tests.cases import figures, prepared, problem_of
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
PROFILES = ROOT / "benchmarks" / "data" / "sailor_profiles.csv"
RUNS = ROOT / "benchmarks" / "data" / "sailor_runs.csv"
ON = "gh200-4:8"
HEADER = "model,accelerator,micro_batch,tp,layer_first,layer_last,forward_s,backward_s,update_s\n"
ROWS = ("0,0,0.0002,0.0001,0.001", "1,24,0.002,0.004,0.001", "25,25,0.003,0.004,0.001")
"""One micro-batch of one sequence of opt-350m on one GH200."""


def profile_file(path, rows=ROWS, start="opt-350m,GH200-96GB,1,1,", header=HEADER):
    path.write_text(header + "".join(f"{start}{row}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def known():
    return catalog.load()


@pytest.fixture(scope="module")
def folder(known, tmp_path_factory):
    """A catalog overlay with all of OPT 350M's profiles."""
    path = tmp_path_factory.mktemp("catalog")
    for profile in importing.imported(PROFILES, known, model="opt-350m").profiles:
        overlay.write(path, profile)
    return path


@pytest.fixture(scope="module")
def profile(folder):
    (found,) = (p for p in overlay.read(catalog.load(folder)) if p.accelerator == "GH200-96GB")
    return found


def with_profile(table, model="opt-350m", on=ON, runtime="deepspeed"):
    return replace(figures(model, on, runtime), profiles={"bf16": table})


def options(sequence_parallel=False, overlap=False, policy="none", zero=0, **more):
    return option_values(
        recompute=recompute(policy), sequence_parallel=sequence_parallel, tp_overlap=overlap, zero=zero, **more
    )


def layout(tp=1, micro=1, pp=1, cp=1, dp=1, batch=64, vpp=1):
    nodes = max(tp * pp * cp * dp // 4, 1)
    degrees = {"tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": 1, "etp": 1, "dp": dp, "micro": micro}
    return degrees | {"batch": batch, "nodes": nodes}


# ---- between and beyond measured points ------------------------------------------------------------------------------


TABLE = LayerTable(
    {2: (Point(1, (1.0,) * 6), Point(4, (2.5,) * 6)), 8: (Point(2, (3.0,) * 6),)}, {2: 0.5, 8: 0.25}, False, True
)


@sweep(
    ("tp", "micro", "degree", "seconds"),
    [
        (2, 1, 2, 1.0),
        (2, 2, 2, 1.5),  # linear in between
        (2, 8, 2, 5.0),  # beyond: the rate of the nearest
        (8, 1, 8, 1.5),
        (1, 4, 2, 2.5),  # another degree: the nearest one's
        (4, 4, 2, 2.5),  # of two as near the smaller
        (16, 2, 8, 3.0),
    ],
)
def test_times_between_and_beyond_what_was_measured(tp, micro, degree, seconds):
    times = layer_times.at(TABLE, tp, micro)
    assert (float(times.tp), float(times.forward)) == (degree, pytest.approx(seconds))
    assert float(times.update) == TABLE.update[degree]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    micros=st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    asked=st.lists(st.integers(1, 128), min_size=1, max_size=6),
    data=st.data(),
)
def test_interpolation_agrees_with_plain_arithmetic(micros, asked, data):
    micros = sorted(micros)
    seconds = [data.draw(st.floats(1e-6, 10.0)) for _ in micros]
    points = tuple(Point(m, (s,) * 6) for m, s in zip(micros, seconds, strict=True))
    found = layer_times.at(LayerTable({1: points}, {1: 0.0}, False, True), 1, np.array(asked)).forward
    for micro, value in zip(asked, found, strict=True):
        below = [i for i, m in enumerate(micros) if m <= micro]
        if not below or micro > micros[-1]:
            i = below[-1] if below else 0
            expected = seconds[i] * micro / micros[i]
        elif micro == micros[below[-1]]:
            expected = seconds[below[-1]]
        else:
            i = below[-1]
            share = (micro - micros[i]) / (micros[i + 1] - micros[i])
            expected = seconds[i] * (1 - share) + seconds[i + 1] * share
        assert value == pytest.approx(expected, rel=1e-12)


# ---- what is overridden ----------------------------------------------------------------------------------------------


@sweep(("tp", "micro"), [(1, 1), (2, 4), (4, 8), (4, 3)])
def test_a_layer_takes_what_was_measured(profile, tp, micro):
    grid = single_grid(with_profile(profile.table), layout(tp, micro), options())
    found, times = cost.passes(grid), layer_times.at(profile.table, tp, micro)
    body = found.layers[1]
    assert float(body.forward) == pytest.approx(float(times.forward), rel=1e-12)
    assert float(body.backward) == pytest.approx(float(times.backward), rel=1e-12)
    assert float(found.ends[0].forward) == pytest.approx(float(times.embedding_forward), rel=1e-12)
    assert float(found.ends[1].backward) == pytest.approx(float(times.head_backward), rel=1e-12)


def test_the_update_takes_what_was_measured(profile):
    grid = single_grid(with_profile(profile.table), layout(4, 1), options())
    assert cost.breakdown(grid)["optimizer"] == pytest.approx(profile.update[4], rel=0.02)


def test_measured_and_modelled_rows_are_the_shipped_file(profile):
    """The mean layer of the file, by hand."""
    with PROFILES.open(encoding="utf-8", newline="") as file:
        every = list(csv.DictReader(file))
    wanted = ("OPT-350", "GH-96", "4", "8")
    rows = [r for r in every if (r["model"], r["accelerator"], r["tp"], r["micro_batch"]) == wanted]
    body = [r for r in rows if 1 <= int(r["layer_first"]) <= 24]
    mean = sum(float(r["forward_s"]) * (int(r["layer_last"]) - int(r["layer_first"]) + 1) for r in body) / 24
    (point,) = (p for p in profile.points[4] if p.micro == 8)
    assert point.seconds[0] == pytest.approx(mean, rel=1e-5)


def test_another_degree_keeps_the_models_ratio(profile):
    only = replace(profile, points={2: profile.points[2]}, update={2: profile.update[2]})
    plain, profiled = figures("opt-350m", ON, "deepspeed"), with_profile(only.table)

    def seconds(using, tp):
        return float(cost.passes(single_grid(using, layout(tp, 4), options())).layers[1].backward)

    assert seconds(profiled, 4) / seconds(profiled, 2) == pytest.approx(seconds(plain, 4) / seconds(plain, 2))


def test_what_was_not_timed_stays_modelled(profile):
    plain, profiled = figures("opt-350m", ON, "deepspeed"), with_profile(profile.table)
    place = layout(2, 4, pp=2, dp=4, batch=128)
    before, after = (cost.breakdown(single_grid(f, place, options())) for f in (plain, profiled))
    assert after["p2p"] == before["p2p"]
    assert after["matrix"] != before["matrix"]
    one, other = (cost.evaluate(single_grid(f, place, options())) for f in (plain, profiled))
    assert one.memory == other.memory
    assert float(other.time) == pytest.approx(sum(float(v) for v in after.values()), rel=1e-12)


def test_communication_that_was_not_timed_is_added(profile):
    apart = replace(profile.table, communication=False)
    whole, without = (
        cost.passes(single_grid(with_profile(t), layout(4, 8), options())).layers[1] for t in (profile.table, apart)
    )
    modelled = transformer.layers(single_grid(figures("opt-350m", ON, "deepspeed"), layout(4, 8), options()))[1]
    assert float(without.forward - whole.forward) == pytest.approx(float(modelled.parts["tp"].forward))


def test_a_faster_accelerator_makes_measured_layers_faster(profile):
    grid = single_grid(with_profile(profile.table), layout(1, 32), options())
    assert cost.evaluate(why_this_plan.scaled(grid, "matrix FLOP/s", 1.1)).time < cost.evaluate(grid).time


# ---- in every form of the cost model ---------------------------------------------------------------------------------


PLANS = [
    (layout(4, 8, dp=8, batch=256), options()),
    (layout(2, 3, pp=2, dp=4, batch=96), options(True, True, "selective", 1)),
    (layout(8, 1, pp=2, cp=2, batch=64), options(True, False, "full")),
    (layout(1, 64, dp=16, batch=1024), options(policy="block:0.5", zero=1, offload=True)),
    (layout(2, 2, pp=4, dp=4, batch=64, vpp=2), options()),
]


@sweep("communication", [True, False])
@sweep("plan", PLANS, ids=range(len(PLANS)))
def test_the_scalar_reading_agrees(profile, plan, communication):
    table = replace(profile.table, communication=communication)
    grid = single_grid(with_profile(table), *plan)
    found, expected = cost.evaluate(grid), oracle.cost(oracle.plan(grid))
    assert float(found.time) == pytest.approx(expected.time, rel=1e-12)
    assert float(found.memory) == pytest.approx(expected.memory, rel=1e-12)
    assert float(found.time) != pytest.approx(float(cost.evaluate(replace(grid, measured=None)).time), rel=0.01)


def test_rows_with_and_without_a_profile_in_one_table(profile):
    plain, profiled = figures("opt-350m", ON, "deepspeed"), with_profile(profile.table)
    grids = [single_grid(f, *PLANS[0]) for f in (plain, profiled)]
    names = [field.name for field in fields(Grid) if field.name not in ("measured", "expanded")]
    pooled = Grid(**{name: stacked([getattr(g, name) for g in grids]) for name in names})
    times = stacked([layer_times.NOTHING, grids[1].measured.times])
    machine = {"device": pooled.device, "network": pooled.network, "stack": pooled.stack}
    found = cost.evaluate(replace(pooled, measured=replace(grids[1].measured, times=times, **machine)))
    assert [float(t) for t in found.time] == [float(cost.evaluate(g).time) for g in grids]


@pytest.mark.slow
def test_precisions_of_one_grid_use_their_own_profiles(profile):
    asked = problem_of("opt-350m", "gh200-4:2", batches=(32,), pins="precision=bf16|fp8,micro=1|4|8")
    asked = replace(asked, figures=replace(asked.figures, profiles={"bf16": profile.table}))
    for index, block in enumerate(asked.blocks):
        found = np.broadcast_to(cost.evaluate(asked.grid(index)).time, block.shape)
        for flat in np.random.default_rng(index).integers(block.size, size=20):
            *chosen, row = np.unravel_index(flat, block.shape)
            place = {axis: int(column[row]) for axis, column in block.rows.items()}
            one = single_grid(asked.figures, place, block.axes.at([int(i) for i in chosen]))
            assert (one.measured is None) == (one.device.low_precision > 0)
            assert float(cost.evaluate(one).time) == pytest.approx(found.flat[flat], rel=1e-12)


def test_the_bounded_search_is_still_exact(profile):
    asked = problem_of("opt-350m", "gh200-4:2", batches=(64,), runtime="deepspeed", pins="micro=1..8", top=10)
    asked = replace(asked, figures=replace(asked.figures, profiles={"bf16": profile.table}))
    bounded, exhaustive = (strategy.search(asked) for strategy in (Bounded(), Exhaustive()))
    assert bounded.best == exhaustive.best


# ---- questions -------------------------------------------------------------------------------------------------------


ASKED = {"cluster": "gh200-4:4", "batch": "64", "runtime": "deepspeed@2024"}


def test_a_plan_says_that_it_used_a_profile(folder, profile):
    found = api.plan("opt-350m", **ASKED, catalog=folder, top=2)
    for plan in found.plans:
        assert not verify.violations(plan)
        assert plan.generator.inputs["profile sailor_profiles.csv"] == profile.sha256
        (told,) = (a.why for a in plan.assumptions if a.what == "layer times")
        assert profile.sha256 in told
        assert profile.date in told
        assert f"{profile.rows} rows" in told
    silent = replace(found.plans[0], assumptions=())
    assert [v.name for v in verify.violations(silent)] == ["measured_times_are_told"]
    plain = api.plan("opt-350m", **ASKED, top=2)
    assert not any(a.what == "layer times" for a in plain.plans[0].assumptions)
    assert plain.plans[0].prediction.step_time_s != found.plans[0].prediction.step_time_s
    assert document.parse(json.loads(document.as_json(found)), "-") == found


def test_a_profile_of_something_else_is_not_used_and_says_why(folder):
    longer = api.estimate("opt-350m", **ASKED, settings=["tp=4"], seq=1024, catalog=folder)
    plain = api.estimate("opt-350m", **ASKED, settings=["tp=4"], seq=1024)
    assert longer.plans[0].prediction == plain.plans[0].prediction
    (told,) = (a.why for a in longer.plans[0].assumptions if a.what == "layer times")
    assert "not used" in told
    assert "2,048 tokens" in told


def test_other_models_and_accelerators_are_as_before(folder):
    on = {"cluster": "dgx-h100:1", "batch": "64"}
    assert prepared("opt-350m", "dgx-h100:1", batches=(64,)).profiles == {}
    with_, without = (api.estimate("opt-350m", **on, catalog=where) for where in (folder, None))
    assert with_.plans[0].prediction == without.plans[0].prediction


def test_validation_shows_the_gain(folder):
    layered = catalog.load(folder)
    frame = Frame(layered, reading.read(RUNS, layered), overlay.read(layered))
    gain = validation.gain(frame, Efficiencies.of(layered))
    assert gain["n"] == 15
    assert gain["measured"]["mape"] < 0.2 < gain["modelled"]["mape"]
    assert validation.gain(Frame(layered, frame.runs), Efficiencies.of(layered)) is None


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_a_profile_survives_being_written_and_read(known, folder):
    for profile in importing.imported(PROFILES, known, model="opt-350m").profiles:
        (back,) = (p for p in overlay.read(catalog.load(folder)) if p.accelerator == profile.accelerator)
        for tp, points in profile.points.items():
            assert [p.micro for p in back.points[tp]] == [p.micro for p in points]
            assert np.array([p.seconds for p in back.points[tp]]) == pytest.approx(
                np.array([p.seconds for p in points]), rel=1e-5
            )
        assert replace(back, points=profile.points, update=profile.update, origin="") == profile


def as_json(rows=ROWS, micro="1", tp="1"):
    layers = {}
    for row in rows:
        first, last, *times = row.split(",")
        layers |= {str(n): [float(t) for t in times] for n in range(int(first), int(last) + 1)}
    return {micro: {tp: layers}}


def test_csv_and_json_say_the_same(known, tmp_path):
    (tmp_path / "profile.json").write_text(json.dumps(as_json()))
    one = importing.imported(profile_file(tmp_path / "profile.csv"), known).profiles[0]
    other = importing.imported(tmp_path / "profile.json", known, "opt-350m", "GH200-96GB").profiles[0]
    assert (one.points, one.update, one.layers) == (other.points, other.update, other.layers)
    assert one.sha256 != other.sha256


BAD_CSV = {
    "unknown model": (ROWS, "opt-350,GH200-96GB,1,1,", r":2: no model 'opt-350'. Did you mean opt-350m"),
    "unknown accelerator": (ROWS, "opt-350m,GH201-96GB,1,1,", r"no accelerator 'GH201-96GB'. Did you mean GH200-96GB"),
    "negative time": ((ROWS[0], "1,24,-0.002,0.004,0.001", ROWS[2]), None, r":3: forward_s = -0.002: must be at least"),
    "no number": ((ROWS[0], "1,24,fast,0.004,0.001", ROWS[2]), None, "forward_s = 'fast': must be a number of seconds"),
    "not a number": ((ROWS[0], "1,24,nan,0.004,0.001", ROWS[2]), None, "must be a number of seconds"),
    "missing layers": (
        (ROWS[0], "1,20,0.002,0.004,0.001", ROWS[2]),
        None,
        "layer 21 is missing at tp 1, micro-batch 1",
    ),
    "no head": (ROWS[:2], None, "layer 25 is missing"),
    "too many layers": ((*ROWS, "26,30,0.002,0.004,0.001"), None, "there are 31 entries"),
    "twice": ((*ROWS, ROWS[1]), None, r":5: layer 1 at tp 1, micro-batch 1 appears twice, first at 3"),
    "no time": ((ROWS[0], "1,24,0,0.004,0.001", ROWS[2]), None, "takes no time"),
    "milliseconds": (("0,0,0.2,0.1,1", "1,24,2,4,1", "25,25,3,4,1"), None, "are the times in seconds, not milli"),
    "microseconds": (("0,0,2e-8,1e-8,1e-7", "1,24,2e-7,4e-7,0", "25,25,1e-3,1e-3,0"), None, "whose peak is"),
    "backwards": ((ROWS[0], "24,1,0.002,0.004,0.001", ROWS[2]), None, "layer_last 1 is before layer_first 24"),
    "no degree": (ROWS, "opt-350m,GH200-96GB,1,0,", "tp = 0: must be from 1"),
    "too many cells": ((*ROWS, "1,1,1,1,1,1,1"), None, "more or fewer cells"),
    "mixture": (ROWS, "mixtral-8x7b,GH200-96GB,1,1,", "mixture of experts"),
}


@sweep("name", BAD_CSV)
def test_wrong_csv_is_refused_with_its_place(name, known, tmp_path):
    rows, start, message = BAD_CSV[name]
    path = profile_file(tmp_path / "p.csv", rows, start or "opt-350m,GH200-96GB,1,1,")
    with pytest.raises(WrongQuestion, match=message) as error:
        importing.imported(path, known)
    assert str(path) in str(error.value)


FP32_BEATEN = "opt-350m,A100-SXM4-80GB,8,1,"
"""2.4 times the fp32 peak of an A100: fp32 that was computed in TF32."""


def test_times_faster_than_their_precision_are_refused(known, tmp_path):
    rows = ("0,0,0.002,0.001,0.01", "1,24,0.009,0.018,0", "25,25,0.03,0.06,0")
    path = profile_file(tmp_path / "p.csv", rows, FP32_BEATEN)
    with pytest.raises(WrongQuestion, match=r"whose peak is 19.5 in fp32: were they measured in TF32, .* or bf16"):
        importing.imported(path, known, precision="fp32")
    (right,) = importing.imported(path, known, precision="bf16").profiles
    mine = catalog.load(overlay.write(tmp_path / "mine", replace(right, precision="fp32")).parent.parent)
    with pytest.raises(WrongQuestion, match=r"whose peak is 19.5 in fp32; import it again"):
        overlay.read(mine)


BAD_JSON = {
    "a list": ("[1, 2]", "no profile: expected"),
    "another document": ('{"kind": "plan", "plans": []}', "no profile: expected"),
    "empty": ("{}", "no profile: expected"),
    "cut off": ('{"1": {"1": ', r":1: "),
    "times missing": ('{"1": {"1": {"0": 0.1}}}', "no profile: expected"),
    "one time": ('{"1": {"1": {"0": [0.1]}}}', "no profile: expected"),
    "text": ('{"1": {"1": {"0": ["a", 1, 1]}}}', "must be a number of seconds"),
    "true": ('{"1": {"1": {"0": [true, 1, 1]}}}', "must be a number of seconds"),
    "infinite": ('{"1": {"1": {"0": [Infinity, 1, 1]}}}', "must be a number of seconds"),
    "negative": ('{"1": {"1": {"0": [-1, 1, 1]}}}', "must be at least 0"),
    "no micro-batch": ('{"small": {"1": {"0": [1, 1, 1]}}}', "micro-batch = 'small'"),
    "a layer twice": ('{"1": {"1": {"0": [1, 1, 1], "0": [1, 1, 1]}}}', "appears twice"),
    "deep": ("[" * 100_000, "no profile|nested|recursion"),
}


@sweep("name", BAD_JSON)
def test_wrong_json_is_refused(name, known, tmp_path):
    text, message = BAD_JSON[name]
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(WrongQuestion, match=message):
        importing.imported(path, known, "opt-350m", "GH200-96GB")


def test_a_json_must_be_told_what_it_is_of(known, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(as_json()))
    with pytest.raises(WrongQuestion, match=r"names no model: give it \(--model ID\)"):
        importing.imported(tmp_path / "p.json", known)
    with pytest.raises(WrongQuestion, match="no accelerator"):
        importing.imported(tmp_path / "p.json", known, "opt-350m", "H1000")


def test_sailors_names_are_known(known):
    by_name = importing.imported(PROFILES, known, model="OPT-350", accelerator="GH-96").profiles
    by_id = importing.imported(PROFILES, known, model="opt-350m", accelerator="GH200-96GB").profiles
    assert by_name == by_id
    assert len(by_id) == 1


def test_a_model_that_the_file_lacks_is_named(known):
    with pytest.raises(WrongQuestion, match="no rows of llama3-70b"):
        importing.imported(PROFILES, known, model="llama3-70b")


def test_a_column_that_is_missing_or_misspelt_is_named(known, tmp_path):
    path = profile_file(tmp_path / "p.csv", header=HEADER.replace("forward_s", "forward_ms"))
    with pytest.raises(WrongQuestion, match=r"no column forward_s \(forward_ms: did you mean forward_s\?\)"):
        importing.imported(path, known)


def test_a_head_without_logits_is_left_to_the_model(known, tmp_path):
    rows = (*ROWS[:2], "25,25,0.00001,0.00001,0.001")
    found = importing.imported(profile_file(tmp_path / "p.csv", rows), known)
    assert found.profiles[0].points[1][0].seconds[4:] == (0.0, 0.0)
    assert "too fast to hold the logits" in found.notes[-1]
    using, plain = with_profile(found.profiles[0].table), figures("opt-350m", ON, "deepspeed")
    one, other = (cost.passes(single_grid(f, layout(1, 1), options())).ends[1] for f in (using, plain))
    assert float(one.forward) == float(other.forward)


def test_the_final_norm_may_stand_on_its_own(known, tmp_path):
    rows = (*ROWS[:2], "25,25,0.001,0.001,0.001", "26,26,0.002,0.003,0.001")
    one = importing.imported(profile_file(tmp_path / "p.csv", rows), known).profiles[0]
    assert one.points[1][0].seconds[4:] == pytest.approx((0.003, 0.004))


def test_what_the_file_does_not_say_is_told(known, tmp_path):
    path = profile_file(tmp_path / "p.csv")
    assert [note.partition(" not")[0] for note in importing.imported(path, known).notes] == [
        "the precision is",
        "the tokens per sequence are",
    ]
    (found,) = importing.imported(path, known, precision="fp16", sequence=1024).profiles
    assert (found.precision, found.sequence) == ("fp16", 1024)
    assert importing.imported(path, known, precision="fp16", sequence=1024).notes == ()


def test_a_hostile_file_name_stays_a_name(known, tmp_path):
    path = profile_file(tmp_path / '..;rm -rf "\x1b[31m$(x),\n=cmd.csv')
    (found,) = importing.imported(path, known).profiles
    assert found.source.isprintable()
    written = overlay.write(tmp_path / "out", found)
    assert written.parent == tmp_path / "out" / "profiles"
    assert written.name == "opt-350m-GH200-96GB-bf16-2048.csv"
    (back,) = overlay.read(catalog.load(tmp_path / "out"))
    assert back.source == found.source


def test_a_model_named_like_a_path_stays_in_its_folder(profile, tmp_path):
    written = overlay.write(tmp_path, replace(profile, model="../../x"))
    assert written.parent == tmp_path / "profiles"


@sweep(
    ("edit", "message"),
    [
        (lambda t: t.replace("forward_s", "forwards"), "no profile"),
        (lambda t: t.replace(",4,8,", ",4,8x,"), "import the profile again"),
        (lambda t: t.replace("GH200-96GB,bf16", "GH200-96GB,fp8", 1), "contradicts the first row"),
        (lambda t: "\n".join([*t.splitlines(), t.splitlines()[1]]), "must ascend"),
        (lambda t: "", "no profile"),
    ],
)
def test_an_overlay_that_was_edited_is_refused(edit, message, profile, tmp_path):
    path = overlay.write(tmp_path, profile)
    path.write_text(edit(path.read_text()))
    with pytest.raises(WrongQuestion, match=message):
        overlay.read(catalog.load(tmp_path))


# ---- the command -----------------------------------------------------------------------------------------------------


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_import_then_estimate(capsys, tmp_path):
    code, out, _ = run(capsys, "profile", "import", PROFILES, "--model", "opt-350m", "-o", tmp_path, "--json")
    told = json.loads(out)
    assert code == 0
    assert {p["accelerator"] for p in told["profiles"]} >= {"GH200-96GB", "RTX-3090"}
    assert told["skipped_rows"] > 0
    assert all(Path(p["file"]).is_file() for p in told["profiles"])
    asked = ("estimate", "opt-350m", "--cluster", "gh200-4:1", "--batch", "8", "--catalog", tmp_path)
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "layer times of opt-350m on GH200-96GB measured at 21 points, not modelled (sailor_profiles.csv" in out


def test_import_prints_what_it_took(capsys, tmp_path):
    code, out, _ = run(capsys, "profile", "import", profile_file(tmp_path / "p.csv"), "-o", tmp_path / "mine")
    assert code == 0
    assert out.splitlines()[0].split() == ["model", "accelerator", "precision", "tokens", "TP", "micro-batch", "rows"]
    assert "--catalog" in out


def test_nothing_is_written_of_a_wrong_file(capsys, tmp_path):
    path = profile_file(tmp_path / "p.csv", (*ROWS, ROWS[1]))
    code, _, err = run(capsys, "profile", "import", path, "-o", tmp_path / "mine")
    assert code == 2
    assert "appears twice" in err
    assert not (tmp_path / "mine").exists()


def test_catalog_check_knows_profiles(folder, capsys):
    code, _, _ = run(capsys, "catalog", "check", folder)
    assert code == 0


def test_validate_prints_both(folder, capsys):
    code, out, _ = run(capsys, "validate", RUNS, "--catalog", folder)
    assert code == 0
    assert "Profile        15 runs" in out


def test_every_time_has_a_column():
    assert {f"{name}_s" for name in layer_times.FIELDS} < set(overlay.COLUMNS)
    assert set(layer_times.FIELDS) < {field.name for field in fields(Times)}


def test_a_cell_that_no_csv_holds_is_refused_at_its_line(known, tmp_path):
    profile = importing.imported(profile_file(tmp_path / "p.csv"), known).profiles[0]
    path = overlay.write(tmp_path, profile)
    path.write_text(path.read_text().replace(profile.source, "x" * 200_000))
    with pytest.raises(WrongQuestion, match=r"\.csv:2: field larger than"):
        overlay._profile(path)
