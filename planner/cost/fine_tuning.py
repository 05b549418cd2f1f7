"""What fine-tuning changes of a layer's passes: blocks that stay as they are, a reference model, trained magnitudes.

Blocks before the first trained one have a forward pass alone: nothing before them needs a gradient (pytorch's autograd
runs back to the first tensor that does). DPO runs every text through the model as it was, without gradients, too (trl
1.16.0, trainer/dpo_trainer.py, _compute_loss). A magnitude of DoRA scales an output by its weights' norm, for which
the weights are put together anew in every forward pass (peft 0.21.2, tuners/lora/dora.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost import transformer
from planner.cost.elements import NARROW
from planner.cost.figures import Figure, Grid
from planner.cost.micro_batch import moved, tokens
from planner.cost.products import LayerPart
from planner.cost.transformer import Layer

NORM_PASSES = 7.0
"""Elements that a weight's norm moves: the adapters' product is written, scaled (read, written), added to the weight
(two read, one written) and what that gives is read."""
SCALED_PASSES = 13.0
"""Elements that an output moves: base and adapters' results are scaled (each read and written, the latter twice), added
(two read, one written), and added to the layer's result (two read, one written), which had the base's."""


def tuned(
    grid: Grid, layers: tuple[Layer, ...], ends: tuple[LayerPart, LayerPart]
) -> tuple[tuple[Layer, ...], tuple[LayerPart, LayerPart]]:
    """Layers and ends (embedding, head) of a fine-tuning; of any other as they came."""
    s = grid.shape
    if np.count_nonzero(s.magnitude_outputs):
        mean = magnitudes(grid)
        layers = tuple(_with(layer, "magnitudes", mean) for layer in layers)
    if np.count_nonzero(s.backward_share < 1.0):
        kept = 0 if s.pattern else 1  # the leading dense one
        layers = (*layers[:kept], *(_backward(layer, s.backward_share) for layer in layers[kept:]))
        frozen = replace(grid, shape=replace(s, weight_gradient=0.0))
        ends = LayerPart(ends[0].forward, 0.0 * ends[0].backward), transformer.head(frozen)
    if np.count_nonzero(s.reference):
        first, last = (LayerPart(end.forward, end.backward + s.reference * end.forward) for end in ends)
        ends = first, last
        layers = tuple(_with(layer, "reference", LayerPart(0.0, s.reference * layer.forward)) for layer in layers)
    return layers, ends


def magnitudes(grid: Grid) -> LayerPart:
    """Seconds of a layer: the adapters' product with the identity, ``2 r (in^2 + in out)`` FLOPs a matrix; norms; and
    outputs scaled, whose backward pass reads and writes as often again.
    """
    s = grid.shape
    whole = s.magnitude_flops / grid.device.matrix_rate_16
    norms = NARROW * (NORM_PASSES * s.magnitude_elements + 2.0 * s.magnitude_inputs)
    norms = norms + s.quantised * (s.frozen_bytes + NARROW) * s.magnitude_elements
    once = moved(grid, norms).forward + whole
    outputs = moved(grid, SCALED_PASSES * grid.device.element * tokens(grid) * s.magnitude_outputs).forward
    return LayerPart(once + outputs, outputs)


def _backward(layer: Layer, share: Figure) -> Layer:
    parts = {name: LayerPart(part.forward, share * part.backward) for name, part in layer.parts.items()}
    return replace(layer, backward=share * layer.backward, parts=parts)


def _with(layer: Layer, name: str, part: LayerPart) -> Layer:
    return replace(
        layer,
        forward=layer.forward + part.forward,
        backward=layer.backward + part.backward,
        parts=layer.parts | {name: part},
    )
