"""Logs in the forms that frameworks print, whole and damaged: every one is read right, or told."""

import gzip
import json
import math
import random
import re
import struct
import sys
import tomllib
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from planner.base.errors import WrongQuestion
from planner.site.logs import arguments, formats, reading, recorded, records
from planner.site.logs.records import LoggedRun, LoggedStep, Steady
from planner.site.logs.steady import FEWEST, steady
from tests import training_logs as logs
from tests.sweeps import sweep


def written(folder: Path, *parts: Sequence[str], name: str = "train.log") -> Path:
    path = folder / name
    path.write_text("\n".join(line for part in parts for line in part) + "\n", encoding="utf-8")
    return path


def only_run(path: Path) -> LoggedRun:
    (found,) = reading.read(path)
    return found


def only(path: Path) -> Steady:
    (found,) = reading.measured(only_run(path))
    return found


# ---- formats ---------------------------------------------------------------------------------------------------------


def test_every_format_has_a_log_here() -> None:
    assert logs.FORMS.keys() == set(formats.NAMES)


@sweep("name", logs.FORMS)
def test_a_format_is_read(tmp_path: Path, name: str) -> None:
    form, seconds, memory = logs.FORMS[name]
    path = written(tmp_path, [*form(logs.STEADY)])
    run, found = only_run(path), only(path)
    assert run.format == name
    assert found.seconds == pytest.approx(seconds, rel=0.01 if run.ticks else 2e-3)
    assert found.left_out.keys() == {"warm-up"}
    assert run.ticks or found.spread == pytest.approx(0.05, rel=0.1)
    assert run.memory_bytes == (None if memory is None else pytest.approx(memory, rel=1e-6))


PUBLIC = tomllib.loads((Path(__file__).parent / "data" / "log_lines.toml").read_text(encoding="utf-8"))


@sweep("published", PUBLIC)
def test_lines_as_they_were_published_are_read(tmp_path: Path, published: str) -> None:
    name, line = PUBLIC[published]["format"], PUBLIC[published]["line"]
    counts_time = "{clock}" in line or "{spent_ms" in line
    times = [9.0, 5.0, *[4.0] * 60] if counts_time else [0.9, 0.5, *[0.4] * 6]
    fields = [
        {"n": n, "s": s, "ms": 1e3 * s, "rate": round(1e4 / s), "inverse": 1 / s, "clock": logs.clock(sum(times[:n]))}
        for n, s in enumerate(times, 1)
    ]
    path = written(tmp_path, [line.format(spent_ms=1e3 * sum(times[: of["n"]]), **of) for of in fields])
    run, found = only_run(path), only(path)
    steps = [one.step for one in run.ticks or run.steps]
    assert (run.format, bool(run.ticks), steps[0] <= 2) == (name, counts_time, True)
    assert steps == [*range(steps[0], len(times) + 1)]
    seconds = times[-1] * (1e-4 if found.per != "step" else 1.0)
    assert found.seconds == pytest.approx(seconds, rel=0.01 if counts_time else 2e-3)


def test_a_comma_for_decimals_is_no_thousands_separator(tmp_path: Path) -> None:
    lines = [line.replace(".0 | throughput", ",0 | throughput") for line in logs.megatron()]
    assert lines != [*logs.megatron()]
    assert reading.read(written(tmp_path, lines)) == []
    thousands = [line.replace("4000.0 | throughput", "4,000.0 | throughput") for line in logs.megatron()]
    assert only(written(tmp_path, thousands)).seconds == pytest.approx(4.0)


def test_deepspeeds_pipeline_prints_another_line(tmp_path: Path) -> None:
    path = written(tmp_path, logs.deepspeed_pipeline())
    assert (only_run(path).format, only(path).seconds) == ("DeepSpeed", pytest.approx(4.0))


def test_megatron_deepspeed_is_told_by_its_two_lines(tmp_path: Path) -> None:
    both = [line for pair in zip(logs.deepspeed(), logs.megatron(), strict=True) for line in pair]
    run = only_run(written(tmp_path, both))
    assert (run.format, run.runtime, len(run.steps)) == ("Megatron-LM", "megatron-deepspeed", len(logs.STEADY))


def test_megatrons_memory_is_in_units_of_2_to_the_20(tmp_path: Path) -> None:
    run = only_run(written(tmp_path, logs.megatron(), [logs.MEGATRON_MEMORY]))
    assert (run.memory_bytes, run.memory_kind) == (40960 * 2.0**20, "reserved")


def test_a_validation_line_is_no_step(tmp_path: Path) -> None:
    line = next(iter(logs.torchtitan([1.0]))).replace("step:", "validate step:")
    assert reading.read(written(tmp_path, [line])) == []


def test_bars_of_an_evaluation_are_no_steps(tmp_path: Path) -> None:
    evaluation = "\r".join(f" 50%|█  | {n}/30 [00:01<00:01, 9.00s/it]" for n in range(1, 30))
    assert only(written(tmp_path, logs.hugging_face(), [evaluation])).seconds == pytest.approx(4.0, rel=0.01)


def test_the_summary_of_a_whole_run_is_kept_apart(tmp_path: Path) -> None:
    run = only_run(written(tmp_path, ["{'train_runtime': '80.0', 'train_steps_per_second': '0.25', 'epoch': '1.0'}"]))
    assert (run.whole_run_s, run.steps) == (4.0, ())


# ---- configurations --------------------------------------------------------------------------------------------------


def test_megatrons_arguments_become_columns(tmp_path: Path) -> None:
    stated = only_run(written(tmp_path, logs.megatron_arguments(), logs.megatron())).stated
    expected = {"tp": "2", "pp": "1", "num_accelerators": "8", "global_batch_seqs": "128", "micro_batch": "1"}
    expected |= {
        "precision": "bf16",
        "zero_stage": "1",
        "activation_recompute": "none",
        "kv_heads": "8",
        "gated_mlp": "1",
    }
    assert stated.items() >= expected.items()
    assert "vpp" not in stated


BLOCKS = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2}


@sweep(
    ("other", "column", "value"),
    [
        ({"fp8": "hybrid"}, "precision", "fp8"),
        ({"fp8": "hybrid", "fp8_recipe": "tensorwise"}, "precision", "fp8"),
        ({"fp8": "hybrid", "fp8_recipe": "delayed"}, "precision", "fp8-delayed"),
        ({"fp4": "e2m1", "fp8_recipe": "delayed"}, "precision", "nvfp4"),
        ({"fp4": "e2m1", "fp4_recipe": "mxfp4"}, "precision", "mxfp4"),
        ({"bf16": False, "fp16": True}, "precision", "fp16"),
        (BLOCKS, "activation_recompute", "block:2"),
        ({"recompute_granularity": "selective"}, "activation_recompute", "selective"),
        ({"use_distributed_optimizer": False}, "zero_stage", "0"),
        ({"group_query_attention": False, "num_query_groups": 1}, "kv_heads", None),
        ({"num_experts": 8, "moe_router_topk": 2}, "topk", "2"),
        ({"virtual_pipeline_model_parallel_size": 5}, "vpp", "5"),
    ],
)
def test_columns_that_follow_from_arguments(
    tmp_path: Path, other: dict[str, object], column: str, value: str | None
) -> None:
    assert only_run(written(tmp_path, logs.megatron_arguments(**other), logs.megatron())).stated.get(column) == value


def test_torchtitan_says_mesh_batch_and_device(tmp_path: Path) -> None:
    run = only_run(written(tmp_path, logs.TITAN_HEAD, logs.torchtitan()))
    assert run.device == "NVIDIA H100 80GB HBM3"
    expected = {"tp": "1", "pp": "1", "cp": "1", "zero_stage": "3", "global_batch_seqs": "16", "micro_batch": "2"}
    assert run.stated.items() >= (expected | {"seq_len": "8192"}).items()


@sweep(
    ("line", "pairs"),
    [
        ("0: global_train_batch_size: 64", [("global_train_batch_size", "64")]),
        ("Config param max_target_length: 2048", [("max_target_length", "2048")]),
        ("Total train batch size (w. parallel, ...) = 1,024", [("Total train batch size", "1024")]),
        (f"Running with args: {'{'}{'[' * 5000}", []),
        ('Running with config: {"activation_checkpoint": {"mode": "full"}}', [("activation_recompute", "full")]),
    ],
)  # fmt: skip
def test_other_dumps(line: str, pairs: list[tuple[str, str]]) -> None:
    assert list(arguments.stated(line)) == pairs


def test_a_setting_that_is_said_twice_differently_is_told_and_left_out(tmp_path: Path) -> None:
    twice = ["  tensor_model_parallel_size ........ 2", "  tensor_model_parallel_size ........ 4"]
    run = only_run(written(tmp_path, twice, logs.megatron()))
    assert run.conflicts == ("tensor_model_parallel_size is 2 and 4",)
    assert "tp" not in run.stated


def test_two_configurations_in_one_log_are_two_runs(tmp_path: Path) -> None:
    other = [4 * time for time in logs.STEADY]
    path = written(
        tmp_path, logs.megatron_arguments(), logs.megatron(),
        logs.megatron_arguments(tensor_model_parallel_size=4), logs.megatron(other),
    )  # fmt: skip
    first, second = reading.read(path)
    assert (first.stated["tp"], second.stated["tp"]) == ("2", "4")
    assert steady(second.steps)[0].seconds == pytest.approx(4 * steady(first.steps)[0].seconds)


def test_a_restart_with_the_same_configuration_is_one_run(tmp_path: Path) -> None:
    again = logs.megatron(logs.STEADY, first=11)
    run = only_run(written(tmp_path, logs.megatron_arguments(), logs.megatron(), logs.megatron_arguments(), again))
    assert len(run.steps) == 2 * len(logs.STEADY)
    assert steady(run.steps)[0].seconds == pytest.approx(4.0, rel=0.01)


def test_hostile_values_are_not_taken_over(tmp_path: Path) -> None:
    evil = ['  tensor_model_parallel_size ........ =cmd|"/c calc"!A1', "  world_size ........ $(rm -rf /)"]
    stated = only_run(written(tmp_path, evil, logs.megatron())).stated
    assert stated.keys() <= {"global_batch_seqs"}


# ---- which steps count -----------------------------------------------------------------------------------------------


def steps(times: Sequence[float], batch: int | None = None, disturbed: Sequence[int] = ()) -> list[LoggedStep]:
    return [LoggedStep(n, time, "step", batch, n in disturbed) for n, time in enumerate(times)]


def test_warm_up_ends_where_steps_are_steady() -> None:
    (found,) = steady(steps([40, 20, 10, 6, *[4.0] * 20]))
    assert (found.left_out, found.steps, found.seconds, found.spread) == ({"warm-up": 4}, 20, 4.0, 0.0)


def test_the_first_step_never_counts() -> None:
    (found,) = steady(steps([4.0] * 5))
    assert found.steps == 4


def test_steps_next_to_a_checkpoint_and_stragglers_are_left_out_and_counted() -> None:
    times = [9.0, *[4.0, 4.1] * 10]
    times[5], times[9] = 8.0, 30.0
    (found,) = steady(steps(times, disturbed=[5]))
    assert found.left_out == {"warm-up": 1, "next to an evaluation or a checkpoint": 1, "straggling": 1}
    assert found.seconds == pytest.approx(4.05, abs=0.06)


def test_checkpoints_at_every_step_leave_something() -> None:
    (found,) = steady(steps([4.0] * 10, disturbed=range(10)))
    assert found.steps == 9


def test_a_batch_that_grows_is_several_measurements() -> None:
    ramp = [LoggedStep(n, 2.0 + (n >= 10) * 2.0, "step", 64 if n < 10 else 128) for n in range(20)]
    first, second = steady(ramp)
    assert (first.batch, first.seconds, first.steps) == (64, 2.0, 9)
    assert (second.batch, second.seconds, second.steps) == (128, 4.0, 10)


def test_too_few_steps_say_nothing() -> None:
    assert steady(steps([9.0] + [4.0] * (FEWEST - 1))) == []
    assert steady([]) == []


def test_lines_of_several_ranks_are_one_step_whatever_their_order() -> None:
    shuffled = random.Random(1)
    mixed = [LoggedStep(n, 4.0 + rank / 100, "step") for n in range(20) for rank in range(8)]
    late = sorted(mixed, key=lambda each: each.step + 1.5 * shuffled.random())
    (found,) = steady(late)
    assert (found.steps, found.seconds) == (19, 4.07)


def test_an_evaluation_disturbs_only_the_step_behind_it(tmp_path: Path) -> None:
    text = logs.megatron()
    text.insert(10, " validation loss at iteration 10 | lm loss value: 9.0E+00 | lm loss PPL: 9.0E+03 |")
    assert [step.step for step in only_run(written(tmp_path, text)).steps if step.disturbed] == [11]


# ---- memory that runs out --------------------------------------------------------------------------------------------


@sweep(
    "line",
    [
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error.",
    ],
)
def test_out_of_memory_is_recognised(tmp_path: Path, line: str) -> None:
    assert only_run(written(tmp_path, logs.megatron_arguments(), [line])).out_of_memory


def test_memory_that_ran_out_before_the_steps_is_no_end(tmp_path: Path) -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB; the microbatch will be halved"
    assert not only_run(written(tmp_path, [line], logs.composer())).out_of_memory


# ---- files -----------------------------------------------------------------------------------------------------------


@sweep("ending", ["\n", "\r\n", "\r"])
@sweep("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_line_ends_and_encodings(tmp_path: Path, ending: str, encoding: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(ending.join(logs.megatron()).encode(encoding))
    assert only(path).seconds == pytest.approx(4.0)


def test_a_gzipped_log_and_one_that_was_cut_off(tmp_path: Path) -> None:
    data = gzip.compress("\n".join(logs.megatron([4.0] * 4000)).encode())
    whole, cut = tmp_path / "whole.log.gz", tmp_path / "cut.log.gz"
    whole.write_bytes(data)
    cut.write_bytes(data[: len(data) // 2])
    assert len(only_run(whole).steps) == 4000
    assert 1000 < len(only_run(cut).steps) < 4000


def test_a_log_cut_within_a_line_keeps_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    whole = "\n".join(logs.megatron())
    for end in range(len(whole) - 300, len(whole)):
        path.write_text(whole[:end])
        assert {step.seconds for step in only_run(path).steps} == {30.0, 9.0, 4.0, 4.1, 3.9}


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    noise = random.Random(0).randbytes(200_000)
    path.write_bytes(noise + b"\n" + "\n".join(logs.megatron()).encode() + b"\n\xff\xfe\x00" + noise)
    assert only(path).seconds == pytest.approx(4.0)


def test_terminal_controls_are_taken_out() -> None:
    assert records._plain("\x1b[1;31mstep\x1b]0;title\x07: \x1b[0K1") == "step: 1"


def test_a_long_log_takes_the_memory_of_a_few_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("w") as file:
        for _ in range(8):
            file.write("".join(f"rank {n}: something else happens here, {'x' * 200}\n" for n in range(2000)))
        file.write("y" * 20_000_000 + "\n")  # one line of 20 MB
        file.write("\n".join(logs.megatron()))
    tracemalloc.start()
    found = only(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.seconds == pytest.approx(4.0)
    assert peak < 16e6


@pytest.mark.parametrize(("name", "message"), [(".", "a folder; name the log in it"), ("none.log", "no such file")])
def test_what_is_no_log(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(WrongQuestion, match=re.escape(message)):
        reading.read(tmp_path / name)


def test_damaged_gzip_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(b"no gzip at all")
    with pytest.raises(WrongQuestion, match=r"train\.log\.gz: Not a gzipped file"):
        reading.read(path)


def test_a_log_of_something_else_holds_no_run(tmp_path: Path) -> None:
    assert reading.read(written(tmp_path, ["Hello", "iteration 5 of nothing", "tps: lots"])) == []


def test_a_straggler_lies_beyond_three_quartile_ranges() -> None:
    (found,) = steady(steps([9.0, *[4.0, 4.1] * 10, 4.44, 5.0]))
    assert (found.left_out, found.steps) == ({"warm-up": 1, "straggling": 1}, 21)


# ---- recorded --------------------------------------------------------------------------------------------------------


def checksum(data: bytes) -> bytes:
    """CRC-32C, masked as TensorFlow's records have it (tensorboard/summary/writer/record_writer.py)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def event(step: int, **scalars: float) -> bytes:
    """A record of an event file: length, checksum, a protobuf of step and scalars, checksum."""

    def field(number: int, kind: int, data: bytes) -> bytes:
        return bytes([number << 3 | kind]) + (bytes([len(data)]) if kind == 2 else b"") + data

    values = b"".join(
        field(1, 2, field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value))) for tag, value in scalars.items()
    )
    data = field(1, 1, struct.pack("<d", 1.7e9)) + field(2, 0, bytes([step])) + field(5, 2, values)
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def test_what_tensorboard_records_is_read_with_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.out.tfevents.1700000000.host.1.0"
    scalars = [{"iteration-time": time, "batch-size": 128.0, "lm loss": 3.0} for time in logs.STEADY]
    path.write_bytes(b"".join(event(step, **each) for step, each in enumerate(scalars, 1)))
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(WrongQuestion, match="no reader of them: pip install tensorboard, or name the console's log"):
        reading.read(path)
    monkeypatch.undo()
    pytest.importorskip("tensorboard", reason="its reader is for who has it: pip install tensorboard")
    run, found = only_run(path), only(path)
    assert (run.runtime, found.seconds, found.batch) == ("megatron-core", pytest.approx(4.0), 128)
    path.write_bytes(random.Random(0).randbytes(5000))
    assert reading.read(path) == []


def test_what_a_reader_yields_becomes_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, memory and what is no number; the reader is made up, so that this holds without it, too."""
    path = tmp_path / "events.out.tfevents.1"
    path.touch()
    found = [("throughput(tps)", step, 2048.0 / time) for step, time in enumerate(logs.STEADY, 1)]
    more = [("memory/max_reserved(GiB)", 3, 40.0), ("throughput(tps)", 90, math.nan), ("throughput(tps)", 91, 0.0)]
    monkeypatch.setattr(recorded, "_scalars", lambda _: iter([*found, *more, ("loss", 1, 2.0)]))
    run = only_run(path)
    assert (run.runtime, run.memory_bytes, len(run.steps)) == ("fsdp2", 40.0 * 2**30, len(logs.STEADY))
    assert only(path).seconds == pytest.approx(4.0 / 2048.0) and only(path).per == "token"


def framed(*records: bytes) -> bytes:
    """Records in the frame of a W&B run's file: pieces behind checksum, length and kind, in blocks."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, begun = record, False
        while rest or not begun:
            if (left := recorded.BLOCK - len(data) % recorded.BLOCK) < 7:
                data += bytes(left)
                continue
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (3 if rest else 4) if begun else (2 if rest else 1)
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            begun = True
    return bytes(data)


def protobuf(number: int, content: bytes | str) -> bytes:
    """A field that holds bytes."""
    data = content.encode() if isinstance(content, str) else content
    length = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
    tag = number << 3 | 2
    return (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + length + data


def logged(step: int, **values: object) -> bytes:
    """A Record with a history (wandb/proto/wandb_internal.proto)."""
    given = {"_step": step, **values}
    items = (protobuf(1, protobuf(2, name) + protobuf(16, json.dumps(value))) for name, value in given.items())
    return protobuf(2, b"".join(items))


def test_a_frame_of_wandb_gives_its_records_back(tmp_path: Path) -> None:
    path, some = tmp_path / "run-1.wandb", random.Random(1)
    sent = [some.randbytes(length) for length in (1, 0, 5000, 27_700, 40, 100_000, 3, 32_751, 12)]
    path.write_bytes(framed(*sent))
    assert [data for _, data in recorded.records(path)] == sent
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[:-5])
    assert [data for _, data in recorded.records(path)] == [*sent[:-1], None]
    whole[6000] ^= 1
    path.write_bytes(whole)
    assert [data for _, data in recorded.records(path)] == [*sent[:3], None]


@sweep(
    ("bound", "most", "says"),
    [("BYTES_READ", 5, "23 bytes; records of a run have at most 5"), ("SECONDS_READ", -1.0, "takes more than -1 s")],
)
def test_records_of_a_run_are_read_within_bounds(
    bound: str, most: float, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run-1.wandb"
    path.write_bytes(framed(b"1", b"2"))
    proto = SimpleNamespace(Record=SimpleNamespace(FromString=lambda data: None))
    monkeypatch.setitem(sys.modules, "wandb.proto.wandb_internal_pb2", proto)
    monkeypatch.setattr(f"planner.base.reading.{bound}", most)
    with pytest.raises(WrongQuestion, match=says):
        reading.read(path)


def test_records_of_wandb_are_read_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run-1.wandb"
    path.write_bytes(b":W&X")
    with pytest.raises(WrongQuestion, match="not W&B's records"):
        reading.read(path)
    config = {"tensor_model_parallel_size": 2, "seq_length": 4096, "lr": 1e-4, "model": {"name": "x"}, "user": "=x"}
    items = (protobuf(1, protobuf(1, name) + protobuf(16, json.dumps(value))) for name, value in config.items())
    run = protobuf(17, protobuf(4, b"".join(items)))
    steps = [logged(n, **{"iteration-time": t, "batch-size": 128, "x": "y"}) for n, t in enumerate(logs.STEADY, 1)]
    path.write_bytes(framed(run, *steps))
    monkeypatch.setitem(sys.modules, "wandb.proto.wandb_internal_pb2", None)
    with pytest.raises(WrongQuestion, match=r"pip install wandb, or name the console that it keeps: files/output\.log"):
        reading.read(path)
    monkeypatch.undo()
    pytest.importorskip("wandb", reason="its reader is for who has it: pip install wandb")
    found = only_run(path)
    assert (found.format, found.runtime) == ("Megatron-LM, as recorded for W&B", "megatron-core")
    assert found.stated["tp"] == "2" and found.stated["seq_len"] == "4096" and "user" not in found.stated
    assert (only(path).seconds, only(path).batch, found.conflicts) == (pytest.approx(4.0), 128, ())
    path.write_bytes(framed(run, *steps)[:-1])
    assert "damaged or cut short" in only_run(path).conflicts[0] and len(only_run(path).steps) == len(steps) - 1


def test_a_setting_that_is_recorded_fills_its_column() -> None:
    titan = {"model": {"name": "llama3", "flavor": "8B"}, "activation_checkpoint": {"mode": "full"}}
    found = arguments.of_settings({**titan, "micro_batch_size": 2, "bf16": True, "num_experts": None, "tp": [2]})
    expected = {"model": "llama3-8b", "activation_recompute": "full", "micro_batch": "2", "precision": "bf16"}
    assert found == expected
