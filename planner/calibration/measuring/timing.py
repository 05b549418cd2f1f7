"""Times kernels with PyTorch, which is imported only here and only when something is measured; and says which device
PyTorch has, which accelerator of the catalog that is, and what can be measured on it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from planner.base.errors import WrongQuestion, nearest
from planner.calibration.measuring.kernel_times import BACKWARD, ELEMENT, FORWARD, LAUNCH, MATRIX, MEMORY, Kernel
from planner.calibration.runs import names
from planner.catalog import Catalog
from planner.figures import matrix_formats
from planner.schema.hardware import Accelerator

SAMPLE = 0.01
"""Seconds that one sample lasts at least, by repeating the kernel: long beside a synchronisation's ~10 us."""
SAMPLES = 9
BUDGET = 0.5
"""Seconds that the samples of one kernel may take together, beyond the least three."""
TRIMMED = 0.2
"""Share of the samples dropped at either end."""
MOST_REPEATS = 2000


class Refused(Exception):
    """The device or this build of PyTorch cannot run a kernel, and why."""


def torch_module() -> Any:
    """PyTorch.

    Raises:
        WrongQuestion: it is not installed, or does not load.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise WrongQuestion(
            "measuring kernels needs PyTorch, which is not installed here: pip install 'clusterwright[measure]', "
            "or the build for your accelerator (pytorch.org); a kernel table is fitted without it (--table FILE.csv)"
        ) from None
    except (ImportError, OSError) as error:
        raise WrongQuestion(f"PyTorch is installed but does not load: {error}") from None
    return torch


def trimmed_mean(samples: Sequence[float]) -> float:
    """The mean without the lowest and the highest fifth."""
    cut = int(TRIMMED * len(samples))
    kept = sorted(samples)[cut : len(samples) - cut]
    return sum(kept) / len(kept)


def seconds_of(
    work: Callable[[], object], synchronise: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one call: warmed up, repeated back to back until a sample is long enough, trimmed mean of samples.

    The device is synchronised around every sample; its wait is shared by the calls of a sample.
    """

    def sample(repeats: int) -> float:
        synchronise()
        started = clock()
        for _ in range(repeats):
            work()
        synchronise()
        return (clock() - started) / repeats

    sample(2)
    once = max(sample(1), 1e-9)
    repeats = min(max(math.ceil(SAMPLE / once), 1), MOST_REPEATS)
    once = max(sample(repeats), 1e-9)
    repeats = min(max(math.ceil(SAMPLE / once), 1), MOST_REPEATS)
    samples = min(max(int(BUDGET / (repeats * once)), 3), SAMPLES)
    return trimmed_mean([sample(repeats) for _ in range(samples)])


class Bench:
    """Times single-device kernels on one device."""

    def __init__(self, device: str) -> None:
        self.torch = torch_module()
        self.device = self.torch.device(device)
        self.version = str(self.torch.__version__)
        self._dtypes = {
            "bf16": self.torch.bfloat16,
            "fp16": self.torch.float16,
            "fp32": self.torch.float32,
            "tf32": self.torch.float32,
        }

    def __call__(self, kernel: Kernel) -> float:
        """Seconds of one run of a kernel; :class:`Refused` where it does not run."""
        torch = self.torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if kernel.dtype == "tf32" else "highest")
        try:
            return seconds_of(self._work(kernel), self.synchronise)
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            raise Refused(str(error).strip().split("\n")[0][:200] or type(error).__name__) from None
        finally:
            torch.set_float32_matmul_precision(before)

    def synchronise(self) -> None:
        """Waits until the device has done what it was given."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def _random(self, *shape: int, dtype: Any = None) -> Any:
        """Normal values: constant ones draw less power and run faster."""
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.torch.float32)

    def _work(self, kernel: Kernel) -> Callable[[], object]:
        made: dict[str, Callable[[Kernel], Callable[[], object]]] = {
            MATRIX: self._scaled_product if kernel.dtype == "fp8" else self._product,
            FORWARD: self._forward,
            BACKWARD: self._backward,
            MEMORY: self._triad,
            LAUNCH: self._launch,
        }
        return made[kernel.kind](kernel)

    def _product(self, kernel: Kernel) -> Callable[[], object]:
        m = kernel.m
        n = kernel.n
        k = kernel.k
        dtype = self._dtypes[kernel.dtype]
        a = self._random(k, m, dtype=dtype).t() if kernel.layout == "NT" else self._random(m, k, dtype=dtype)
        b = self._random(n, k, dtype=dtype).t() if kernel.layout == "TN" else self._random(k, n, dtype=dtype)
        out = self.torch.empty(m, n, device=self.device, dtype=dtype)
        return lambda: self.torch.mm(a, b, out=out)

    def _scaled_product(self, kernel: Kernel) -> Callable[[], object]:
        """8-bit operands (e4m3) with one scale each, result in bf16."""
        eight = self.torch.float8_e4m3fn
        one = self.torch.ones((), device=self.device)
        a = self._random(kernel.m, kernel.k).to(eight)
        b = self._random(kernel.n, kernel.k).to(eight).t()
        return lambda: self.torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=self.torch.bfloat16, use_fast_accum=True
        )

    def _queries_keys_values(self, kernel: Kernel) -> list[Any]:
        """As a model lays them out: heads beside each other in a token's row."""
        shape = (kernel.batch, kernel.sequence, kernel.heads, kernel.head_dim)
        dtype = self._dtypes[kernel.dtype]
        return [self._random(*shape, dtype=dtype).transpose(1, 2) for _ in range(3)]

    def _forward(self, kernel: Kernel) -> Callable[[], object]:
        attention = self.torch.nn.functional.scaled_dot_product_attention
        q, k, v = self._queries_keys_values(kernel)
        return lambda: attention(q, k, v, is_causal=True)

    def _backward(self, kernel: Kernel) -> Callable[[], object]:
        attention = self.torch.nn.functional.scaled_dot_product_attention
        operands = [one.requires_grad_() for one in self._queries_keys_values(kernel)]
        out = attention(*operands, is_causal=True)
        gradient = self.torch.randn_like(out)
        return lambda: self.torch.autograd.grad(out, operands, gradient, retain_graph=True)

    def _triad(self, kernel: Kernel) -> Callable[[], object]:
        count = kernel.size // (3 * ELEMENT[kernel.dtype])
        dtype = self._dtypes[kernel.dtype]
        a, b, c = (self._random(count, dtype=dtype) for _ in range(3))
        return lambda: self.torch.add(b, c, alpha=0.5, out=a)

    def _launch(self, kernel: Kernel) -> Callable[[], object]:
        """A kernel that does nothing worth mentioning: what remains is the CPU's pace."""
        one = self._random(1, dtype=self._dtypes[kernel.dtype])
        return lambda: one.add_(1.0)


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
    accelerator = spelt.get(re.sub(r"\s+", "-", plain.strip().lower())) or names.accelerator(published)
    if accelerator is None or accelerator not in catalog.accelerators:
        near = nearest(plain, catalog.accelerators)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise WrongQuestion(f"{published!r} is in no catalog.{hint} Name it with --accelerator ID")
    stated = catalog.accelerators[accelerator].memory
    if abs(memory / stated - 1.0) > MEMORY_SLACK:
        raise WrongQuestion(
            f"{published!r} looks like {accelerator}, but has {memory / 2**30:.0f} instead of {stated / 2**30:.0f} "
            "GiB: name it with --accelerator ID"
        )
    return accelerator


def devices(device: str) -> int:
    """How many devices collectives span by default: all GPUs, one CPU."""
    return 1 if device == "cpu" else int(torch_module().cuda.device_count())


def precisions(device: str, part: Accelerator) -> list[str]:
    """What the catalog has a peak for; on a CPU neither 8 bit nor tf32 nor fp16 is worth a matrix product.

    Raises:
        WrongQuestion: the catalog has no peak for any.
    """
    listed = PRECISIONS if device != "cpu" else ("bf16", "fp32")
    trainable = [name for name in listed if matrix_formats.can_train_in(part, name)]
    if not trainable:
        raise WrongQuestion(f"{part.id} has no peak in {', '.join(listed)} in the catalog: nothing to measure against")
    return trainable
