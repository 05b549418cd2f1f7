"""Plans as documents: one writer over pools, and the JSON files that hold what it writes."""

from planner.planning.document.money import for_another_run, goodput_of, money_section, price_section
from planner.planning.document.reader import (
    chosen,
    is_as_written,
    is_post_training,
    load,
    load_answer,
    load_any,
    load_document,
    offered,
    parse,
    parse_answer,
    parse_document,
)
from planner.planning.document.solution import FullestStage, PoolInUse, Solution, Spread
from planner.planning.document.writer import write
from planner.schema.digest import sealed
from planner.schema.record import as_json, dump, stamped

__all__ = [
    "FullestStage",
    "PoolInUse",
    "Solution",
    "Spread",
    "as_json",
    "chosen",
    "dump",
    "for_another_run",
    "goodput_of",
    "is_as_written",
    "is_post_training",
    "load",
    "load_answer",
    "load_any",
    "load_document",
    "money_section",
    "offered",
    "parse",
    "parse_answer",
    "parse_document",
    "price_section",
    "sealed",
    "stamped",
    "write",
]
