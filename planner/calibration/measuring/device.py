"""Which device PyTorch has, which accelerator of the catalog it is, and what can be measured on it."""

from __future__ import annotations

import re

from planner.base.errors import WrongQuestion, nearest
from planner.calibration.measuring.timing import torch_module
from planner.calibration.runs import names
from planner.catalog import Catalog
from planner.figures import matrix_formats
from planner.schema.hardware import Accelerator

PRECISIONS = ("bf16", "fp16", "fp8", "tf32", "fp32")
"""Measured where the catalog states a peak and the device has it, the one to train in first."""
MEMORY_SLACK = 0.12
"""Relative difference between the memory that a device reports and its datasheet's, beyond which it is another part."""


def device_of(device: str) -> str:
    """The device as PyTorch names it.

    Raises:
        WrongQuestion: PyTorch is missing, or has no such device.
    """
    torch = torch_module()
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu":
        return device
    match = re.fullmatch(r"(?:auto|cuda)(?::(\d+))?", device)
    if match is None:
        raise WrongQuestion(f"--device {device}: must be auto, cuda, cuda:N or cpu")
    if int(match[1] or 0) >= gpus:
        has = f"PyTorch {torch.__version__} sees {gpus or 'no'} GPU{'s' if gpus > 1 else ''}"
        raise WrongQuestion(f"--device {device}: {has}; --device cpu --accelerator ID measures the CPU")
    return f"cuda:{match[1] or 0}"


def recognised(device: str, catalog: Catalog) -> str:
    """The catalog's id of a device, by its name and its memory.

    Raises:
        WrongQuestion: it is a CPU, in no catalog, or a variant with another memory.
    """
    if device == "cpu":
        raise WrongQuestion("--device cpu: name the catalog entry of this CPU (--accelerator ID)")
    properties = torch_module().cuda.get_device_properties(device)
    return by_name(properties.name, float(properties.total_memory), catalog)


def by_name(published: str, memory: float, catalog: Catalog) -> str:
    """The id of the accelerator that calls itself so and has that much memory (bytes).

    Raises:
        WrongQuestion: no such accelerator is in the catalog, or it has another memory.
    """
    plain = re.sub(r"^(nvidia|amd|tesla|quadro|geforce|instinct|\s)+", "", published, flags=re.IGNORECASE)
    spelt = {entry.lower(): entry for entry in catalog.accelerators}
    found = spelt.get(re.sub(r"\s+", "-", plain.strip().lower())) or names.accelerator(published)
    if found is None or found not in catalog.accelerators:
        near = nearest(plain, catalog.accelerators)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise WrongQuestion(f"{published!r} is in no catalog.{hint} Name it with --accelerator ID")
    stated = catalog.accelerators[found].memory
    if abs(memory / stated - 1.0) > MEMORY_SLACK:
        raise WrongQuestion(
            f"{published!r} looks like {found}, but has {memory / 2**30:.0f} instead of {stated / 2**30:.0f} GiB: "
            "name it with --accelerator ID"
        )
    return found


def devices(device: str) -> int:
    """How many devices collectives span by default: all GPUs, one CPU."""
    return 1 if device == "cpu" else int(torch_module().cuda.device_count())


def precisions(device: str, part: Accelerator) -> list[str]:
    """What the catalog has a peak for; on a CPU neither 8 bit nor tf32 nor fp16 is worth a matrix product.

    Raises:
        WrongQuestion: the catalog has no peak for any.
    """
    listed = PRECISIONS if device != "cpu" else ("bf16", "fp32")
    found = [name for name in listed if matrix_formats.can_train_in(part, name)]
    if not found:
        raise WrongQuestion(f"{part.id} has no peak in {', '.join(listed)} in the catalog: nothing to measure against")
    return found
