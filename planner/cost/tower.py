"""A tower before the decoder: its passes on the first stage, and the bytes that it takes there.

Every rank of the stage holds the whole tower and runs it on all images of a micro-batch: nothing of it is sharded over
tensor-, context- or data-parallel ranks (:class:`planner.schema.workload.Tower`). Of Qwen3-VL that is too much where
tp > 1: Megatron-Bridge splits its tower over these ranks (5307b9c2, modelling_qwen3_vl/vision_model.py). Kernels are
the decoder's, in 16 bit; that heads are narrower is left out.
"""

from __future__ import annotations

import numpy as np

from planner.cost import attention, elements
from planner.cost.elements import NARROW
from planner.cost.figures import Figure, Grid, Shape
from planner.cost.micro_batch import moved
from planner.cost.products import LayerPart, ProductTraits, product_time


def patches(grid: Grid) -> Figure:
    """Patches of a micro-batch."""
    return grid.layout.micro * grid.shape.images * grid.shape.tower_patches


def work(s: Shape) -> Figure:
    """Multiply-adds of a sequence's images, forward: ``images (patches L (4 h^2 + m h f + 2 attended h) + joining)``, m
    matrices an MLP.
    """
    h = s.tower_hidden
    layer = 4.0 * h * h + (2.0 + s.tower_gated) * h * s.tower_inner + 2.0 * s.tower_attended * h
    return s.images * (s.tower_patches * s.tower_layers * layer + s.tower_joining)


def seconds(grid: Grid) -> LayerPart:
    """Seconds of a tower's passes over a micro-batch: products, attention's kernel and element-wise traffic of all
    layers, and what joins them; twice the products and the traffic backward where it is trained, and the kernel as the
    decoder's.
    """
    s = grid.shape
    d = grid.device
    t = patches(grid)
    h = s.tower_hidden
    f = s.tower_inner
    rate = grid.device.matrix_rate_16
    shapes = ((3.0 * h, h), (h, h), ((1.0 + s.tower_gated) * f, h), (h, f))
    in_16_bit = ProductTraits(rate=rate)
    products = sum(product_time(d, t, n, k, in_16_bit) for n, k in shapes)
    block = 2.0 * np.maximum(s.tower_attended, 1.0)  # A patch attends both ways: see attention.backward.
    reached = d.attention_rate * grid.stack.attention / (1.0 + d.attention_half / block)
    kernel = 4.0 * t * s.tower_attended * h / reached
    around = moved(grid, elements.wide(grid) * t * (20.0 * h + (4.0 + 2.0 * s.tower_gated) * f))
    joining = 2.0 * grid.layout.micro * s.images * s.tower_joining / rate
    forward = s.tower_layers * (products + kernel + around.forward) + joining
    again = 2.0 * products + kernel * attention.backward(d, block) + around.backward
    return LayerPart(forward, s.tower_trained * (s.tower_layers * again + 2.0 * joining))


def held(grid: Grid) -> Figure:
    """Bytes of a frozen one's weights on one rank of the first stage; a trained one's stand among the stage's."""
    return NARROW * (1.0 - grid.shape.tower_trained) * grid.shape.tower_parameters


def kept(grid: Grid) -> Figure:
    """Bytes that a trained one keeps of a micro-batch: of each layer what norms, products and the kernel read, ``e
    patches (8 h + (2 + gated) f)``; nothing of it is recomputed.
    """
    s = grid.shape
    layer = 8.0 * s.tower_hidden + (2.0 + s.tower_gated) * s.tower_inner
    return s.tower_trained * grid.device.element * patches(grid) * s.tower_layers * layer


def working(grid: Grid) -> Figure:
    """Bytes of the layer that it is at: input and residual, queries, keys, values and output or the MLP's inner."""
    s = grid.shape
    return (
        NARROW * patches(grid) * (2.0 * s.tower_hidden + 4.0 * s.tower_hidden + (2.0 + s.tower_gated) * s.tower_inner)
    )
