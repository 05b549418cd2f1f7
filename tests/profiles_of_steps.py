"""Synthetic traces in the forms of PyTorch's profiler (libkineto/src/output_json.cpp) and of ``nsys export``."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
ATTENTION = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"
VECTOR = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float>>(int)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(int)"
REDUCE = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def kernel(name: str, start_ms: float, for_ms: float, **args: Any) -> Event:
    """A kernel; times in milliseconds, as events have microseconds."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1e3 * start_ms + 5e6, "dur": 1e3 * for_ms,
        "args": {"External id": 1, "device": 0, "stream": 7, **args},
    }  # fmt: skip


def group(described: str, ranks: str = "", collective: str = "") -> dict[str, str]:
    return {"Process Group Description": described, "Process Group Ranks": ranks, "Collective name": collective}


def step(number: int, start_ms: float, for_ms: float) -> Event:
    return {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
        "ts": 1e3 * start_ms + 5e6, "dur": 1e3 * for_ms, "args": {},
    }  # fmt: skip


def a_step(number: int, at: float, slower: float = 1.0) -> list[Event]:
    """100 ms (with `slower` 1): 50 of products, 20 of attention, 8 of them over a reduction of 18, 10 of the reduction
    alone, 5 element-wise, 5 of the optimizer, 10 of nothing.
    """
    products = 50.0 * slower
    after = at + products
    return [
        step(number, at, 50 + products),
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1e3 * at + 5e6, "dur": 9.0, "args": {}},
        kernel(GEMM, at, products),
        kernel(ATTENTION, after, 20),
        kernel(REDUCE, after + 12, 18, **group("DATA_PARALLEL_GROUP_WITH_CP", "[0, 2, 4, 6]", "_reduce_scatter_base")),
        kernel(VECTOR, after + 30, 5),
        kernel(ADAM, after + 45, 5),
    ]


def kineto(events: Sequence[Event], rank: int = 0) -> dict[str, Any]:
    on_device = any(event["cat"] == "kernel" for event in events)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}] if on_device else [],
        "distributedInfo": {"backend": "nccl" if on_device else "gloo", "rank": rank, "world_size": 8},
        "traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "python"}}, *events],
        "traceName": "trace.json",
        "displayTimeUnit": "ms",
    }


def written(path: Path, events: Sequence[Event], rank: int = 0, indent: int | None = None) -> Path:
    text = json.dumps(kineto(events, rank), indent=indent)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def nsight(path: Path, events: Sequence[Event]) -> Path:
    """The kernels of a trace as ``nsys export --type sqlite`` writes them, in nanoseconds."""
    names: dict[str, int] = {}
    columns = "start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns}, demangledName INTEGER)")
        base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns})")
        for each in events:
            if each["cat"] == "kernel":
                start, length = round(1e3 * each["ts"]), round(1e3 * each["dur"])
                where = (each["args"]["device"], each["args"].get("process", 0))
                row = (start, start + length, *where, names.setdefault(each["name"], len(names)))
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", row)
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(place, name) for name, place in names.items()])
    return path


def on(events: Sequence[Event], **where: int) -> list[Event]:
    """The events on another accelerator (`device`), or in another process."""
    return [{**each, "args": {**each["args"], **where}} for each in events]


def large(events: int) -> Iterator[str]:
    """The text of a trace with that many events, of which one in five is a kernel, piece by piece."""
    yield '{"schemaVersion": 1, "traceEvents": [\n'
    for number in range(events):
        at = number * 0.01
        each = kernel(GEMM, at, 0.03) if number % 5 == 0 else {
            "ph": "X", "cat": "cpu_op", "name": f"aten::mm_{number % 50}", "pid": 1, "tid": 1, "ts": 1e3 * at,
            "dur": 9.5, "args": {"External id": number, "Input Dims": "[[4096, 4096], [4096, 4096]]", "x": "x" * 90},
        }  # fmt: skip
        yield json.dumps(each) + ",\n"
    yield json.dumps(step(1, 0, 1)) + "]}"
