"""``explain --trace``: a real step's time, cause by cause, next to the prediction."""

import json
import sqlite3
import sys
from functools import cache
from pathlib import Path

import pytest

import clusterwright as cw
from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.commands.screen.explained import show_trace
from planner.schema.plan import Parallelism, Plan
from planner.site.trace import ranks, reading, report
from planner.site.trace.ranks import RankTrace, kind, shares
from planner.site.trace.reading import read
from tests import profiles_of_steps as made
from tests.sweeps import sweep
from tests.test_plan_schema import wrong

TRACES = Path(__file__).parent / "data" / "traces"
EIGHT = dict(tp=2, pp=1, vpp=1, cp=1, ep=1, etp=2, dp=4, dp_shard=4, rank_order="tp-cp-ep-dp-pp", schedule="none")


@cache
def plan() -> Plan:
    found = cw.estimate("llama3-8b", "dgx-h100:1", tp=2, zero=1, batch=8, seq=2048)
    return found[0]


def cut(**degrees: int) -> Parallelism:
    full = EIGHT | {"tp": 1, "etp": 1, "dp": 1} | degrees
    return Parallelism(sequence_parallel=False, zero_stage=1, zero_scope="full", stages=(), **full)  # type: ignore[arg-type]


def only(path: Path) -> RankTrace:
    """The one accelerator of a trace."""
    (found,) = read(path, plan().parallelism).ranks()
    return found


def two_steps(slower: float = 1.0) -> list[made.Event]:
    return [*made.a_step(7, 0.0, slower), *made.a_step(8, 50.0 + 50.0 * slower, slower)]


def test_every_instant_belongs_to_one_cause(tmp_path: Path) -> None:
    """By hand: see :func:`tests.profiles_of_steps.a_step`; the reduction runs 8 of its 18 ms under attention."""
    found = shares(only(made.written(tmp_path / "a.json", two_steps())))
    assert found.total == pytest.approx(0.2)
    expected = {"matrix": 0.1, "attention": 0.04, "vector": 0.01, "optimizer": 0.01, "dp": 0.02}
    assert {what: s for what, s in found.alone.items() if s > 1e-9} == pytest.approx(expected)
    assert found.hidden["dp"] == pytest.approx(0.016) and found.idle == pytest.approx(0.02)
    assert sum(found.alone.values()) + found.idle == pytest.approx(found.total)


@sweep("name", ["a.json", "a.json.gz", "indented.json"])
def test_a_trace_is_set_against_its_plan(tmp_path: Path, name: str) -> None:
    path = made.written(tmp_path / name, two_steps(), indent=2 if name == "indented.json" else None)
    found = report.explain(plan(), [path])
    assert (found.steps, found.step_s) == (2, pytest.approx(0.1))
    assert sum(row.measured_s for row in found.rows) == pytest.approx(found.step_s)
    assert sum(row.predicted_s for row in found.rows) == pytest.approx(plan().prediction.step_time_s)
    assert [abs(row.longer_s) for row in found.rows] == sorted((abs(row.longer_s) for row in found.rows), reverse=True)
    rows = {row.cause: row for row in found.rows}
    assert rows["host"].measured_s == pytest.approx(0.01) and "bound by the host: kernels run 90 %" in rows["host"].why
    assert "--manual-gc" in rows["host"].why
    assert "--overlap-grad-reduce" in rows["DP and waiting"].why and rows["DP and waiting"].hidden_s == pytest.approx(
        0.008
    )


def test_several_ranks_say_which_one_the_others_wait_for(tmp_path: Path) -> None:
    paths = [
        made.written(tmp_path / f"{rank}.json", two_steps(1.4 if rank == 5 else 1.0), rank=rank) for rank in (4, 5, 6)
    ]
    found = report.explain(plan(), paths)
    assert [each.rank for each in found.ranks] == [4, 5, 6]
    assert found.ranks[1].computing_s == pytest.approx(found.ranks[0].computing_s + 0.02)
    assert any(note.startswith("rank 5 computes") for note in found.notes)


def test_nsight_systems_is_read_too(tmp_path: Path) -> None:
    path = made.nsight(tmp_path / "a.sqlite", two_steps())
    with pytest.raises(WrongQuestion, match="no step is marked in it; say of how many it is with --steps N"):
        report.explain(plan(), [path])
    found, same = (
        report.explain(plan(), [path], 2),
        report.explain(plan(), [made.written(tmp_path / "a.json", two_steps())]),
    )
    alone, other = ({row.cause: row.measured_s for row in each.rows} for each in (found, same))
    for cause in ("matrix", "attention", "element-wise", "optimizer", "host"):
        assert alone[cause] == pytest.approx(other[cause])
    assert alone["other communication"] == pytest.approx(other["DP and waiting"])  # process groups are not in it


def an_operator(name: str, start: float, ms: float, thread: int = 1, category: str = "cpu_op") -> made.Event:
    """A call on the host, in milliseconds."""
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": 1e3 * start + 5e6, "dur": 1e3 * ms}


ON_CPU = [
    made.step(7, 0, 100),
    an_operator("aten::linear", 10, 20),
    an_operator("aten::addmm", 12, 16),
    an_operator("aten::scaled_dot_product_attention", 30, 10),
    an_operator("aten::bmm", 31, 5),
    an_operator("autograd::engine::evaluate_function: MulBackward0", 40, 10),
    an_operator("aten::mul", 42, 4),
    an_operator("gloo:all_reduce", 44, 11, thread=2, category="user_annotation"),
    an_operator("aten::copy_", 45, 9, thread=2),
    an_operator("Optimizer.step#AdamW.step", 60, 20, category="user_annotation"),
    an_operator("aten::_foreach_add_", 62, 8),
    an_operator("aten::add_", 63, 6),
]


def test_a_job_on_cpus_is_told_by_its_operators(tmp_path: Path) -> None:
    """By hand: product 20, attention 10, element-wise 4, optimizer 8, reduction 11 with 2 hidden, nothing 49."""
    found = report.explain(plan(), [made.written(tmp_path / "a.json", ON_CPU)])
    rows = {row.cause: 1e3 * row.measured_s for row in found.rows if row.measured_s}
    assert found.measured_on == "cpu" and found.step_s == pytest.approx(0.1)
    assert rows == pytest.approx(
        {"matrix": 20, "attention": 10, "element-wise": 4, "optimizer": 8, "other communication": 9, "host": 49}
    )
    assert next(row for row in found.rows if row.cause == "other communication").hidden_s == pytest.approx(0.002)
    assert {row.cause for row in found.rows if row.why} == {"host"}  # a CPU's seconds are next to none predicted
    off = [abs(row.measured_s / found.step_s - row.predicted_s / found.predicted_s) for row in found.rows]
    assert off == sorted(off, reverse=True)


def test_a_real_job_of_two_cpus_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One step of ``export --to hf-trainer --benchmark``: see ``tests/launchers/test_fifty_steps.py``; rank 0, without
    arguments of calls. Milliseconds as another program painted them, a tenth of a microsecond at a time.
    """
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tiny = cw.estimate(str(tmp_path / "config.json"), "ws-2xrtx4090:1", runtime="fsdp2", seq=256, batch=2)
    found = report.explain(tiny[0], [TRACES / "hf_trainer_on_cpu.json.gz"])
    rows = {row.cause: 1e3 * row.measured_s for row in found.rows if row.measured_s}
    expected = {"attention": 6.091, "matrix": 1.602, "optimizer": 0.652, "element-wise": 2.965, "host": 10.548}
    assert rows == pytest.approx(expected | {"DP and waiting": 29.910}, rel=2e-3)
    show_trace(found)
    said = capsys.readouterr().out
    assert "51.8 ms a step traced on CPUs" in said and "compare shares, not times" in said


def test_operators_of_a_job_on_accelerators_are_no_kernels(tmp_path: Path) -> None:
    """They only launch: of a CPU are those of a trace that names no accelerator."""
    refused = r"no kernel of an accelerator in it, \d+ events of the host; add ProfilerActivity.CUDA"
    for number, name in enumerate(("nccl:all_reduce", "cudaLaunchKernel", "aten::_flash_attention_forward")):
        with pytest.raises(WrongQuestion, match=refused):
            read(made.written(tmp_path / f"{number}.json", [*ON_CPU, an_operator(name, 20, 1)]), plan().parallelism)
    for said in ({"deviceProperties": [{"id": 0}]}, {"distributedInfo": {"backend": "nccl", "rank": 0}}):
        (tmp_path / "a.json").write_text(json.dumps({**said, "traceEvents": ON_CPU}))
        with pytest.raises(WrongQuestion, match=refused):
            read(tmp_path / "a.json", plan().parallelism)
    both = [made.written(tmp_path / "b.json", ON_CPU, rank=1), made.written(tmp_path / "c.json", two_steps())]
    with pytest.raises(
        WrongQuestion, match=r"b\.json: operators of a CPU alone, where other traces are of accelerators"
    ):
        report.explain(plan(), both)
    cpu_alone = made.nsight(tmp_path / "a.sqlite", [])
    with pytest.raises(WrongQuestion, match=r"Nsight Systems records no operators: take torch\.profiler's trace"):
        report.explain(plan(), [cpu_alone], 1)


def two_devices(slower: float, **other: int) -> list[made.Event]:
    return [*two_steps(), *made.on(two_steps(slower), **other)]


@pytest.mark.parametrize("other", [{"device": 1}, {"process": 7}], ids=["two devices", "two processes, a device each"])
def test_each_accelerator_in_an_export_counts_as_a_rank(tmp_path: Path, other: dict[str, int]) -> None:
    found = report.explain(plan(), [made.nsight(tmp_path / "a.sqlite", two_devices(1.4, **other))], 2)
    assert [(each.rank, each.device) for each in found.ranks] == [(None, 0), (None, 1)]
    assert [each.computing_s for each in found.ranks] == pytest.approx([0.08, 0.1])
    assert found.step_s == pytest.approx((0.1 + 0.12) / 2)
    assert any(note.startswith("device 1 computes 11 % longer") for note in found.notes)


def test_each_accelerator_of_a_process_counts_as_a_rank(tmp_path: Path) -> None:
    """Copies that every process leaves on the first accelerator are none."""
    stray = made.on([made.kernel(made.VECTOR, 0, 1)], device=5)
    many = two_steps() * 12
    path = made.written(tmp_path / "a.json", [*many, *made.on(many, device=3), *stray])
    found = report.explain(plan(), [path], 24)
    assert [(each.rank, each.device) for each in found.ranks] == [(None, 0), (None, 3)]
    assert any("1 accelerator with hardly a kernel left out" in note for note in found.notes)


@sweep(
    "odd",
    [
        made.kernel(made.GEMM, -5000.0, 1.0),  # in 1970
        made.kernel(made.GEMM, 3e12, 1.0),
        made.kernel(made.GEMM, 100.0, 1e12),
        made.kernel(made.REDUCE, 300.0 + 1e3 * ranks.APART, 1.0),
    ],
)
def test_what_lies_far_from_the_steps_does_not_count(tmp_path: Path, odd: made.Event) -> None:
    now = [{**each, "ts": each["ts"] + 1.7e15} for each in two_steps()]
    later = odd if odd["ts"] == 0.0 else {**odd, "ts": odd["ts"] + 1.7e15}
    found = report.explain(plan(), [made.written(tmp_path / "a.json", [now[0], later, *now[1:]])])
    assert found.step_s == pytest.approx(0.1)
    assert any("1 kernel left out: longer than 10 minutes, or so far from most" in note for note in found.notes)


def test_a_wait_of_minutes_counts(tmp_path: Path) -> None:
    late = made.kernel(made.REDUCE, 1e3 * (ranks.APART - 1), 1.0)
    found = report.explain(plan(), [made.written(tmp_path / "a.json", [*two_steps(), late])])
    assert found.step_s == pytest.approx((ranks.APART - 1 + 1e-3) / 2) and not any("left out" in n for n in found.notes)


@sweep(
    ("name", "args", "degrees", "expected"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", {}, {}, "matrix"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", {}, {}, "matrix"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>(int)", {}, {}, "matrix"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_swiGlu_sm100a", {}, {}, "matrix"),
        ("void moe::dev::finalizeKernel<moe::KernelParams<cutlass::bfloat16_t, 4, true> >(int)", {}, {}, "vector"),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90>>(int)", {}, {}, "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", {}, {}, "attention"),
        ("triton_poi_fused_silu_mul_0", {}, {}, "vector"),
        ("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<float>(int)", {}, {}, "vector"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctorMaster<float>>(int)", {}, {}, "optimizer"),
        ("void deep_ep::internode::dispatch<false, 8>(int)", {}, {"ep": 8}, "ep"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", {}, {"tp": 8}, "tp"),
        (made.REDUCE, made.group("TENSOR_MODEL_PARALLEL_GROUP"), {"tp": 2, "dp": 2}, "tp"),
        (made.REDUCE, made.group("EXPERT_DATA_PARALLEL_GROUP"), {"ep": 2, "dp": 2}, "dp"),
        (made.REDUCE, made.group("mesh_dp_shard_cp"), {"tp": 2, "dp": 2}, "dp"),
        (made.SEND, made.group("PIPELINE_MODEL_PARALLEL_GROUP"), {"pp": 2}, "p2p"),
        (made.SEND, made.group("EXPERT_MODEL_PARALLEL_GROUP"), {"pp": 2, "ep": 2}, "ep"),
        (made.SEND, made.group("", "", "all_to_allv"), {"pp": 2, "ep": 2}, "ep"),
        (made.SEND, made.group("", "", "send"), {"pp": 2, "ep": 2}, "p2p"),
        (made.SEND, made.group("mesh_cp"), {"cp": 2}, "cp"),
        (made.REDUCE, made.group("undefined", "[0, 1]"), {"tp": 2, "dp": 4}, "tp"),
        (made.REDUCE, made.group("undefined", "[1, 3, 5, 7]"), {"tp": 2, "dp": 4}, "dp"),
        (made.REDUCE, made.group("undefined", "[0, 1, 2, ...]"), {"tp": 2, "dp": 4}, "other communication"),
        (made.REDUCE, {}, {"dp": 8}, "dp"),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", {}, {}, "matrix"),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", {}, {}, "matrix"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", {}, {}, "vector"),
    ],
)
def test_kernels_are_known_by_name_and_group(
    name: str, args: dict[str, str], degrees: dict[str, int], expected: str
) -> None:
    assert kind(name, args, cut(**degrees)) == expected


@sweep(
    ("text", "message"),
    [
        ("", "no kernel of an accelerator in it"),
        ("hello", "not JSON near character 0: 'h' where '{' is expected"),
        ('{"traceEvents": {"a": 1}}', "not JSON near character 16"),
        ('{"traceEvents": 7}', "not JSON near"),
        ('{"traceEvents": [1, null, "x", {"ph": "X", "cat": 3, "name": []}]}', "no kernel of an accelerator"),
        (json.dumps(made.kineto([made.step(1, 0, 1)])), "add ProfilerActivity.CUDA to the profiler's activities"),
        (json.dumps(made.kineto([made.kernel(made.GEMM, 0, 1)])), "no step is marked in it"),
        (json.dumps(made.kineto([made.kernel(made.GEMM, 0, 1) | {"dur": "1"}])), "that has a time; 1 have none"),
        ("[" * 100_000, "not JSON near"),
        ('{"a": "' + "x" * (1 << 25), "no value ends within"),
    ],
)
def test_what_is_no_trace_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(WrongQuestion, match=message.replace("(", r"\(")):
        report.explain(plan(), [path])


def test_damaged_traces_count_as_far_as_they_go(tmp_path: Path) -> None:
    path = made.written(tmp_path / "a.json", two_steps())
    path.write_text(path.read_text()[:-200])
    found = report.explain(plan(), [path])
    assert "ends in the middle" in found.notes[0] and found.steps == 2
    whole = made.written(tmp_path / "b.json.gz", two_steps())
    whole.write_bytes(whole.read_bytes()[:-30])
    assert any("ends in the middle" in note for note in report.explain(plan(), [whole]).notes)
    bad = [made.kernel(made.GEMM, 0, 1) | {"dur": value} for value in (-1, "1", None, float("nan"), float("inf"), True)]
    found = report.explain(plan(), [made.written(tmp_path / "c.json", [*two_steps(), *bad])])
    assert any("6 kernels without a time left out" in note for note in found.notes)


def test_figures_beyond_64_bits_are_none(tmp_path: Path) -> None:
    bad = [made.kernel(made.GEMM, 0, 1) | {field: value} for field in ("ts", "dur") for value in (10**400, 1e300)]
    bad.append(made.kernel(made.REDUCE, 0, 1, **made.group("", "9" * 5000)))
    found = report.explain(plan(), [made.written(tmp_path / "a.json", [*two_steps(), *bad])])
    assert (found.steps, found.step_s) == (2, pytest.approx(0.1))
    assert any("4 kernels without a time left out" in note for note in found.notes)
    long = made.step(7, 0, 1) | {"name": "ProfilerStep#" + "9" * 5000}
    assert only(made.written(tmp_path / "b.json", [*two_steps(), long])).steps == {7, 8, int("9" * 18)}


def test_a_rank_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    first, second = (made.written(tmp_path / name, two_steps(), rank=3) for name in ("a.json", "b.json"))
    with pytest.raises(WrongQuestion, match=r"of rank 3, as .*a\.json is; name one trace of each rank"):
        report.explain(plan(), [first, second])
    same = made.nsight(tmp_path / "a.sqlite", two_steps())
    with pytest.raises(WrongQuestion, match="named twice"):
        report.explain(plan(), [same, tmp_path / "." / "a.sqlite"], 2)


def test_an_export_that_computes_instead_of_holding_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a module may be called anything; a value may be longer than any name; a query may go on for ever."""
    names = ("virtual", "long", "slow")
    virtual, long, slow = (made.nsight(tmp_path / f"{name}.sqlite", two_steps()) for name in names)
    with sqlite3.connect(virtual) as base:
        base.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        base.execute("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, end, demangledName)")
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0)")
    with sqlite3.connect(long) as base:
        base.execute("INSERT INTO StringIds VALUES (99, ?)", ("x" * (reading.LONGEST + 1),))
    with pytest.raises(WrongQuestion, match="no kernel of an accelerator in it"):
        report.explain(plan(), [virtual], 2)
    with pytest.raises(WrongQuestion, match="string or blob too big"):
        report.explain(plan(), [long], 2)
    with sqlite3.connect(slow) as base:
        base.executemany("INSERT INTO StringIds VALUES (?, 'x')", ((n,) for n in range(100, 400_000)))
    monkeypatch.setattr("planner.base.reading.SECONDS_READ", -1.0)
    with pytest.raises(WrongQuestion, match=r"reading it takes more than -1 s; trace fewer steps"):
        report.explain(plan(), [slow], 2)


def test_a_folder_may_be_named_as_it_likes(tmp_path: Path) -> None:
    odd = tmp_path / "50%41 ?#"
    odd.mkdir()
    assert len(only(made.nsight(odd / "a.sqlite", two_steps())).kinds) == 10


def test_more_kernels_than_fit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MOST_KERNELS", 5)
    for name, events in (("a.json", two_steps()), ("b.json", ON_CPU)):
        with pytest.raises(WrongQuestion, match="more than 5 kernels; trace fewer steps"):
            report.explain(plan(), [made.written(tmp_path / name, events)])


def test_a_window_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.written(tmp_path / "a.json", two_steps())
    whole = report.explain(plan(), [path])
    for size in (7, 64, 311):
        monkeypatch.setattr(reading, "CHUNK", size)
        assert report.explain(plan(), [path]) == whole


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, trace = tmp_path / "plan.json", made.written(tmp_path / "a.json", two_steps())
    file.write_text(plan().to_json())
    assert main(["explain", str(file), "--trace", str(trace)]) == 0
    said = capsys.readouterr().out
    assert "100.0 ms a step traced" in said and "DP and waiting" in said and "2 steps on 1 rank" in said
    assert main(["explain", str(file), "--trace", str(trace), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert wrong(shown, "trace-report") == []
    assert shown["kind"] == "trace-report" and len(shown["rows"]) == len(report.explain(plan(), [trace]).rows)
    assert main(["explain", str(file), "--steps", "2"]) == 2
    assert "--steps: of a trace" in capsys.readouterr().err
    assert "100.0 ms a step traced" in cw.explain(plan(), trace=trace)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read as Linux counts them")
def test_a_large_trace_is_read_in_the_memory_of_its_kernels(tmp_path: Path) -> None:
    """Ten megabytes in seven; a gigabyte was tried by hand (docs/learning.md)."""
    import tracemalloc

    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.writelines(made.large(40_000))
    assert path.stat().st_size > 8e6
    tracemalloc.start()
    found = read(path, plan().parallelism)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.kernels == 8_000 and peak < 7e6
