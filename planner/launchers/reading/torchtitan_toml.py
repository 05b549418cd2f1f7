"""torchtitan's TOML files (``train_configs/llama3_8b.toml``), as its versions until 0.2 read them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from planner.base.errors import WrongQuestion, malformed
from planner.launchers.reading.found import FoundOptions
from planner.launchers.reading.torchtitan import found_options
from planner.launchers.reading.torchtitan_configs import Config

IS_FILE = re.compile(r"^\[(training|parallelism|job|model)\]\s*$", re.MULTILINE)
"""A heading of such a file."""
_P, _T, _E = "parallelism.", "training.", "experimental."
_FORMERLY = {
    f"{_T}batch_size": f"{_T}local_batch_size",
    f"{_T}tensor_parallel_degree": f"{_P}tensor_parallel_degree",
    **{f"{_T}data_parallel_{kind}_degree": f"{_P}data_parallel_{kind}_degree" for kind in ("replicate", "shard")},
    **{f"{_E}{axis}_parallel_degree": f"{_P}{axis}_parallel_degree" for axis in ("pipeline", "context")},
    f"{_E}pipeline_parallel_schedule": f"{_P}pipeline_parallel_schedule",
    **dict.fromkeys(
        (f"{_E}enable_async_tensor_parallel", f"{_P}enable_async_tensor_parallel"),
        "compile.enable_async_tensor_parallel",
    ),
}
"""Option of an older version -> today's."""
_POLICIES = ("none", "selective", "full")


def read(text: str) -> FoundOptions:
    """A job's TOML file.

    Raises:
        WrongQuestion: no TOML, or something that no plan can say.
    """
    flat = _flat(text)
    policy = str(flat.pop("activation_checkpoint.mode", "selective"))
    if policy not in _POLICIES:
        raise WrongQuestion(f"activation_checkpoint.mode {policy:.40}: choose {', '.join(_POLICIES)}")
    kinds = _converters(flat)
    name = f"{flat.get('model.name', '')}-{flat['model.flavor']}".lower() if flat.get("model.flavor") else ""
    own = Config(name, 8, 2048, 0, policy, {}, "fp8" if kinds else "bf16")
    known = {_FORMERLY.get(name, name): [str(value)] for name, value in flat.items() if value is not False}
    passed = ("activation_checkpoint.", "float8.")
    return found_options({name: value for name, value in known.items() if not name.startswith(passed)}, own)


def _flat(text: str) -> dict[str, Any]:
    """Options of all tables under ``table.name``."""
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WrongQuestion(f"--from torchtitan: not TOML: {malformed(error)}") from None
    pairs = [(table, inner) for table, inner in tables.items() if isinstance(inner, dict)]
    return {f"{table}.{name}": value for table, inner in pairs for name, value in inner.items()}


def _converters(flat: dict[str, Any]) -> list[str]:
    """What changes linear layers: 8-bit products, or nothing."""
    listed = flat.pop("model.converters", [])
    kinds = [str(kind) for kind in listed] if isinstance(listed, list) else [str(listed)]
    if flat.pop("float8.enable_float8_linear", False):
        kinds = ["float8"]
    if kinds not in ([], ["float8"]):
        raise WrongQuestion(f"model.converters {', '.join(kinds):.60}: cannot be taken over")
    return kinds
