"""A plan's texts in other batches than packed ones: sorted by length, or padded to the longest of a micro-batch.

Both are the plan itself with as many texts a step: its layout and its micro-batch, whose memory must hold the longest
texts anyhow, with more micro-batches of fewer tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner import cost
from planner.models import texts as lengths
from planner.models.attended import in_texts
from planner.question.search_problem import Prepared
from planner.schema.plan import TextBatches
from planner.search.problem import Candidate
from planner.space.grid import single_grid


def of_plan(prepared: Prepared, candidate: Candidate) -> TextBatches:
    """Seconds of a step's texts, packed, sorted and padded.

    Sorted: every micro-batch of a step has about one length, the mean over steps being the texts' own. Padded: a
    micro-batch of b texts has the length ``P(b)`` of its longest, mean over all; a step waits for the slowest of dp
    replicas, whose m micro-batches are ``P(b) + (P(b dp) - P(b)) / sqrt(m)`` long: exact for one replica or one
    micro-batch, between as the spread of a sum. Images of a step are as many in all three.
    """
    work, layout = prepared.request.workload, candidate.layout
    full = lengths.filled(work.texts, work.sequence)
    per_step = full * work.sequence / lengths.mean(work.texts) * layout["batch"]
    together = layout["micro"] * layout["dp"]
    count = math.ceil(per_step / together)
    own = lengths.padded(work.texts, layout["micro"])
    slowest = own + (lengths.padded(work.texts, together) - own) / math.sqrt(count)
    weights = lengths.longest_of(work.texts, layout["micro"])

    alike = prepared.figures.shape
    images = alike.images * layout["batch"] / per_step

    def seconds(tokens: float, text: float, attended: float) -> float:
        shape = replace(alike, sequence=tokens, text=text, attended=attended, attended_full=text, images=images)
        grid = single_grid(
            replace(prepared.figures, shape=shape), {**layout, "batch": count * together}, candidate.options
        )
        return float(cost.evaluate(grid).time) * per_step / (count * together)

    return TextBatches(
        filled=full,
        per_step=per_step,
        sorted_s=seconds(lengths.mean(work.texts), float(alike.text), float(alike.attended)),
        padded_s=seconds(slowest, lengths.around_token(work.texts, weights), in_texts(work.model, work.texts, weights)),
    )
