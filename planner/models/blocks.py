"""The blocks of a model in their order: what mixes tokens in each, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.schema.workload import Feed, Indexer, Mixer, Model

Block = tuple[Mixer, Feed]
ATTENDING: tuple[Mixer, ...] = ("attention", "window", "both", "csa", "hca")
RECURRING: tuple[Mixer, ...] = ("recurrent", "both")


def blocks(model: Model) -> list[Block]:
    """All blocks, an encoder's before the decoder's."""
    mixers = model.mixers or ("attention",)
    total = model.encoder_layers + model.layers
    return [(mixers[i % len(mixers)], _feed(model, i)) for i in range(total)]


def _feed(model: Model, index: int) -> Feed:
    if model.feeds:
        return model.feeds[index % len(model.feeds)]
    moe = model.moe
    body = index - moe.leading_dense_layers if moe else -1
    return "mixture" if moe is not None and body >= 0 and body % moe.every == moe.every - 1 else "mlp"


def attending(model: Model) -> int:
    """Blocks with attention."""
    return sum(mixer in ATTENDING for mixer, _ in blocks(model))


def recurring(model: Model) -> int:
    """Blocks with a recurrence."""
    return sum(mixer in RECURRING for mixer, _ in blocks(model))


def named(model: Model, name: Mixer) -> int:
    """Blocks whose tokens `name` mixes."""
    return sum(mixer == name for mixer, _ in blocks(model))


def feeding(model: Model, feed: Feed) -> int:
    """Blocks in which `feed` follows."""
    return sum(block_feed == feed for _, block_feed in blocks(model))


def attending_to_all(model: Model) -> int:
    """Blocks whose attention has the heads of :class:`planner.schema.workload.FullAttention`."""
    return sum(mixer in ATTENDING and mixer != "window" for mixer, _ in blocks(model)) if model.full else 0


def scoring(model: Model) -> int:
    """Blocks with attention that score positions in a sparse one's index themselves; 0 where there is none."""
    if model.indexer is None:
        return 0
    return sum(scores(model.indexer, block) for block, (mixer, _) in enumerate(blocks(model)) if mixer in ATTENDING)


def scores(index: Indexer, block: int) -> bool:
    """Whether a block scores positions itself, as ``max(block - first, 0) mod every = 0`` says."""
    return max(block - index.first, 0) % index.every == 0


def leading(model: Model) -> int:
    """Blocks at the start that keep a dense MLP, however the others are."""
    return model.moe.leading_dense_layers if model.moe and not model.feeds else 0


def period(model: Model) -> int:
    """Blocks after which they repeat, leading dense ones left out; 1 where all hold the same.

    A window changes what a block sees, not what it holds, unless heads are other ones there.
    """
    one = "attention" if model.full is None else "window"
    index = model.indexer
    body = [
        (one if mixer == "window" else mixer, feed, index is None or scores(index, block))
        for block, (mixer, feed) in enumerate(blocks(model))
    ]
    return repetition(body[leading(model) :])


def repetition(items: Sequence[object]) -> int:
    """Items after which a list repeats itself, in one pass: it less its longest beginning that is its end as well
    (Knuth, Morris and Pratt's borders).
    """
    longest = 0
    borders = [0]
    for item in items[1:]:
        while longest and item != items[longest]:
            longest = borders[longest - 1]
        longest += item == items[longest]
        borders.append(longest)
    return len(items) - borders[-1]


def alike(model: Model) -> bool:
    """Whether any block can stand on any stage: one kind, but for leading dense ones."""
    return not model.encoder_layers and period(model) == 1


Kind = tuple[Mixer, Feed, bool]
"""What mixes a block's tokens, what follows, and whether its sparse attention scores positions itself."""


def kinds(model: Model, sequence: int) -> list[Kind]:
    """The kind of every block in order; attention in a window is called so where it does not see the whole sequence."""
    distinct = []
    index = model.indexer
    narrow = model.full is not None or (model.window is not None and model.window.size < sequence)
    for i, (mixer, feed) in enumerate(blocks(model)):
        near = mixer == "window" or (mixer == "attention" and not model.mixers and _in_window(model, i))
        seen: Mixer = ("window" if narrow else "attention") if near else mixer
        distinct.append((seen, feed, index is None or scores(index, i)))
    return distinct


def differ(model: Model, sequence: int) -> bool:
    """Whether a decoder's blocks behind the leading dense ones are of several kinds, so that stages are not alike."""
    return model.family == "decoder" and len(set(kinds(model, sequence)[leading(model) :])) > 1


def of_kind(model: Model, kind: Kind) -> Model:
    """The model as if all its blocks were of one kind (a sparse attention's index always counted)."""
    mixer, feed, _ = kind
    index = model.indexer and replace(model.indexer, first=0, every=1)
    full = model.full if mixer == "attention" else None
    return replace(model, mixers=(mixer,), feeds=(feed,), full=full, indexer=index)


def _in_window(model: Model, block: int) -> bool:
    """Where no pattern of mixers says it: one block in so many, or all but one."""
    if model.window is None:
        return False
    every = model.window.every
    return block % every != every - 1 if model.window.inverted else block % every == 0


def windowed(model: Model) -> float:
    """Share of the blocks with attention that see no further than the window; 0 without one."""
    if model.window is None:
        return 0.0
    if model.mixers:
        return sum(mixer == "window" for mixer, _ in blocks(model)) / max(attending(model), 1)
    return sum(_in_window(model, i) for i in range(model.layers)) / model.layers
