"""Step time of a residual network under data parallelism: convolutions as matrix products, and what lies between them.

A convolution of b images is the product ``m = b H W`` (output positions), ``n = channels out``, ``k = channels in x
kernel^2``; its gradients are ``(m, k, n)`` for the input and ``(k, n, m)`` for the weights. The input pipeline
(reading, decoding, augmenting images) is not modelled: a run that waits for it is slower than predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost import collective_times
from planner.cost.figures import Array, Device, Figure, Network
from planner.cost.other_families import Software, exposed, stretched
from planner.cost.products import LayerPart, ProductTraits, product_time
from planner.schema.workload import ConvolutionNetwork, ConvolutionStage

_KERNELS = LayerPart(2.0, 5.0)
"""Kernels of a convolution with its normalisation: product, normalise; three reductions and applications, two
products."""
IM2COL = 0.1
"""Share of the window's repeated reads that miss the caches: 0 an implicit product, 1 a matrix written out. Assumed."""
_STEP_BYTES = 22.0
"""Traffic of momentum SGD per parameter: momentum and master copy read and written, gradient in, weight out."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The convolutions of a network (and its fully connected layer), in order: arrays of one figure a layer."""

    size: Array
    """Height and width of the output, pixels."""
    channels_in: Array
    channels_out: Array
    kernel: Array
    stride: Array
    normalised: Array
    """1 if a batch normalisation follows."""
    joined: Array
    """1 if a shortcut is added to the output."""
    first: Array
    """1 for the layer on the image, whose input needs no gradient."""

    @property
    def weights(self) -> Array:
        """Elements of a layer's kernel."""
        return self.channels_in * self.kernel**2 * self.channels_out

    @property
    def parameters_each(self) -> Array:
        """Parameters by layer: kernel, scale and shift of its normalisation, or the bias of the last: exact."""
        norms: Array = 2 * self.normalised * self.channels_out + (1 - self.normalised) * self.channels_out
        return self.weights + norms

    @property
    def parameters(self) -> int:
        """All of :attr:`parameters_each`."""
        return int(np.sum(self.parameters_each))

    @property
    def products(self) -> Array:
        """Multiply-adds of a layer's forward pass, per image."""
        return self.weights * self.size**2


def layers(model: ConvolutionNetwork) -> Layers:
    """Layer by layer: stem, bottleneck blocks with a projected shortcut at the head of each stage, classifier."""
    size = -(-model.resolution // model.stem_stride)
    rows: list[tuple[int, ...]] = [(size, 3, model.stem_channels, model.stem_kernel, model.stem_stride, 1, 0, 1)]
    size = -(-size // model.pool_stride)
    channels = model.stem_channels
    for stage in model.stages:
        for block in range(stage.blocks):
            rows += _block(stage, size, channels, block == 0)
            size = -(-size // stage.stride) if block == 0 else size
            channels = stage.channels
    rows.append((1, channels, model.classes, 1, 1, 0, 0, 0))
    return Layers(*np.array(rows, dtype=float).T)


def _block(stage: ConvolutionStage, size: int, channels: int, head: bool) -> list[tuple[int, ...]]:
    stride = stage.stride if head else 1
    after = -(-size // stride)
    rows: list[tuple[int, ...]] = [
        (size, channels, stage.width, 1, 1, 1, 0, 0),
        (after, stage.width, stage.width, 3, stride, 1, 0, 0),
        (after, stage.width, stage.channels, 1, 1, 1, 1, 0),
    ]
    return [*rows, (after, channels, stage.channels, 1, stride, 1, 0, 0)] if head else rows


def step_flops(model: Layers, images: Figure) -> Figure:
    """FLOPs of a step: forward, weight gradient, and input gradient but for the first layer: ``2 x 3 x products``."""
    return 2.0 * images * float(np.sum((3.0 - model.first) * model.products))


def _column(figure: Array) -> Array:
    """Layers down, runs across."""
    return figure[:, None]


def product_bytes(model: Layers, software: Software, images: Figure) -> Array:
    """Bytes of every layer's convolution in each pass: input, output and kernel.

    The input, ``b C_in (min(s, k) H)^2`` elements, is read ``1 + im2col (k^2 - 1)`` times; the output has ``b C_out
    H^2``. Where the layout has to be turned, input and output are read and written once more.
    """
    m = images * _column(model.size) ** 2
    n = _column(model.channels_out)
    k = _column(model.channels_in * model.kernel**2)
    again = 1.0 + IM2COL * (_column(model.kernel) ** 2 - 1.0)
    read = m * _column(np.minimum(model.stride, model.kernel) ** 2 * model.channels_in) * again
    turned = 1.0 + 2.0 * software.transposed
    moved: Array = software.element * ((read + m * n) * turned + n * k)
    return moved


def by_pass(model: Layers, device: Device, software: Software, images: Figure) -> tuple[Array, Array, Array]:
    """Seconds of every layer's convolution forward, of its input gradient and of its weight gradient: arithmetic or
    bytes, whichever is longer. A weight gradient's inner dimension is split over the units that few output tiles leave
    idle.
    """
    m = images * _column(model.size) ** 2
    n = _column(model.channels_out)
    k = _column(model.channels_in * model.kernel**2)
    unbound = replace(device, memory_rate=np.inf)
    traits = ProductTraits(rate=device.matrix_rate * software.convolution)
    moved = product_bytes(model, software, images) / device.memory_rate
    split = replace(unbound, quantisation=0.0)
    forward = np.maximum(product_time(unbound, m, n, k, traits), moved)
    inward = np.maximum(product_time(unbound, m, k, n, traits), moved) * (1.0 - _column(model.first))
    weight = np.maximum(product_time(split, k, n, m, traits), moved)
    return forward, inward, weight


def products(model: Layers, device: Device, software: Software, images: Figure) -> LayerPart:
    """Seconds of every layer's convolution, forward and backward."""
    forward, inward, weight = by_pass(model, device, software, images)
    return LayerPart(forward, inward + weight)


def names(model: ConvolutionNetwork) -> list[str]:
    """The layers' names, stages counted as by He et al. 2015: ``stem``, ``conv2.1 1x1``, ..., ``classifier``."""
    layer_names = ["stem"]
    for index, stage in enumerate(model.stages, 2):
        for block in range(1, stage.blocks + 1):
            kinds = ("1x1", "3x3", "1x1 out", *(("shortcut",) if block == 1 else ()))
            layer_names += [f"conv{index}.{block} {kind}" for kind in kinds]
    return [*layer_names, "classifier"]


def stage_parameters(model: ConvolutionNetwork) -> dict[str, int]:
    """Parameters by stage, in order: ``stem``, ``conv2``, ..., ``classifier``."""
    stages = [name.partition(".")[0] for name in names(model)]
    layer_parameters = layers(model).parameters_each
    return {stage: int(np.sum(layer_parameters[[name == stage for name in stages]])) for stage in dict.fromkeys(stages)}


def between_bytes(model: Layers, software: Software, images: Figure) -> LayerPart:
    """Bytes of normalisation, activation and joining: ``3 normalised + joined`` elements an output element forward,
    ``5 normalised + joined`` backward.
    """
    elements = images * _column(model.size**2 * model.channels_out) * software.element * software.vector
    normalised = _column(model.normalised)
    joined = _column(model.joined)
    return LayerPart(elements * (3.0 * normalised + joined), elements * (5.0 * normalised + joined))


def between(model: Layers, device: Device, software: Software, images: Figure) -> LayerPart:
    """Seconds of normalisation, activation and joining, bound by memory.

    Elements moved per output element: forward 1 (statistics) + 2 (apply), 1 more to add a shortcut; backward 2
    (reductions) + 3 (apply), 1 more to hand the gradient to the shortcut.
    """
    moved = between_bytes(model, software, images)
    return LayerPart(moved.forward / device.memory_rate, moved.backward / device.memory_rate)


def passes(model: Layers, device: Device, software: Software, images: Figure) -> LayerPart:
    """Seconds of a whole forward and backward pass over `images` on one device, with what every kernel adds."""
    total = products(model, device, software, images) + between(model, device, software, images)
    return LayerPart(
        np.sum(total.forward + _KERNELS.forward * software.kernel, axis=0),
        np.sum(total.backward + _KERNELS.backward * software.kernel, axis=0),
    )


def image_bytes(model: Layers, software: Software) -> float:
    """Bytes that one image holds from the forward to the backward pass: ``e (C_in (s H)^2 + sum C_out H^2 (1 + n))``.

    The image; and of every layer what it puts out and, where a normalisation follows (n = 1), what that gives the next.
    """
    image = float(np.sum(model.first * model.channels_in * (model.size * model.stride) ** 2))
    return float(software.element) * (
        image + float(np.sum(model.size**2 * model.channels_out * (1 + model.normalised)))
    )


def state_bytes(model: Layers, software: Software) -> float:
    """Bytes of weights and momentum in fp32, of gradients as wide as elements, and of a 16-bit copy of the weights:
    ``N (8 + e + c)``, c 2 in 16 bit, else 0.
    """
    element = float(software.element)
    return model.parameters * (8.0 + element + (element if element < 4 else 0.0))


def update_time(model: Layers, device: Device) -> Figure:
    """Seconds of momentum SGD on every rank: ``22 N / memory rate``."""
    return model.parameters * _STEP_BYTES / device.memory_rate


def gradient_bytes(model: Layers, software: Software) -> Figure:
    """Bytes that data-parallel ranks reduce: all parameters in the precision trained in."""
    return model.parameters * software.element


def step_time(
    model: Layers, device: Device, network: Network, software: Software, batch: Figure, ranks: Figure
) -> Figure:
    """Seconds a step takes: ``(forward + backward + all-reduce that shows) jitter + update + overhead``."""
    work = passes(model, device, software, batch / ranks)
    group = collective_times.group(network, ranks, 1.0)
    reduce = collective_times.all_reduce(network, gradient_bytes(model, software), group)
    late = exposed(reduce, software.dp_overlap * work.backward, 1.0 / len(model.size))
    update = update_time(model, device)
    return stretched(network, software, work.forward + work.backward + late) + update + software.step_overhead
