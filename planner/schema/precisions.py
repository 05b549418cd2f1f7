"""Precisions of training, in the order in which they are offered.

Below 16 bit a precision is a recipe for scaling what is cast, as Transformer Engine d0067d0d has them
(common/recipe/__init__.py): one factor a tensor from its present values (fp8: Float8CurrentScaling) or from earlier
steps (fp8-delayed: DelayedScaling), one for 128 values (fp8-blockwise: Float8BlockScaling), for 32 (mxfp8, and mxfp4 in
AMD's copy: MXFP4BlockScaling) or for 16 (nvfp4).
"""

from __future__ import annotations

FP8_RECIPES = ("fp8", "fp8-delayed", "fp8-blockwise")
"""Recipes on plain 8-bit matrix products."""
LOW_PRECISION = (*FP8_RECIPES, "mxfp8", "mxfp4", "nvfp4")
"""Precisions whose matrix products run in 8 bit or less while activations, gradients and the rest stay in 16."""
PRECISIONS = ("bf16", "fp16", *LOW_PRECISION, "fp32")
