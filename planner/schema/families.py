"""Workloads beyond transformers: convolutional networks and recommenders. Frozen records of ``models/*.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from planner.schema.hardware import Entry
from planner.schema.quantities import STRICT
from planner.schema.workload import Count, Whole


@dataclass(frozen=True, kw_only=True)
class ConvolutionStage:
    """Bottleneck blocks of one resolution: 1x1 to `width`, 3x3 at `width` (with the stride), 1x1 to `channels`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    blocks: Count
    width: Count
    channels: Count
    """Channels that a block puts out."""
    stride: Count
    """Stride of the first block's 3x3 convolution (v1.5) and of its shortcut."""


class ConvolutionNetwork(Entry):
    """A residual network of bottleneck blocks: stem, stages, mean pool, one fully connected layer."""

    resolution: Count
    """Height and width of an image, pixels."""
    stem_kernel: Count
    stem_stride: Count
    stem_channels: Count
    pool_stride: Count
    """Stride of the max pool behind the stem."""
    stages: tuple[ConvolutionStage, ...]
    classes: Count
    batch: Count
    """Global batch in images by default."""


class Recommender(Entry):
    """A deep-learning recommender: embedding tables and two MLPs joined by an interaction."""

    dense_features: Count
    tables: tuple[Count, ...]
    """Rows of every embedding table."""
    lookups: tuple[Count, ...]
    """Rows that a sample looks up in every table (1: one-hot); they are summed."""
    embedding: Count
    """Width of a row."""
    bottom: tuple[Count, ...]
    """Output widths of the MLP over the dense features; the last is `embedding`."""
    top: tuple[Count, ...]
    """Output widths of the MLP over the interaction; the last is 1."""
    cross_layers: Whole = 0
    """Layers of a low-rank cross network (DCN v2); 0: pairwise dot products of the vectors instead."""
    cross_rank: Whole = 0
    table_bytes: Count = 4
    """Bytes of an element of a table."""
    state_bytes: Whole = 0
    """Optimizer state per element of a table (0: SGD, 4: Adagrad in fp32)."""
    batch: Count
    """Global batch in samples by default."""
