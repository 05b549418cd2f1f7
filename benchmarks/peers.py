"""Evaluations a CPU second, and CPU seconds to a proven best plan of one job, side by side with peers.

GPT-3 175B with 2,048 tokens a sequence and 64 sequences a step on 64 H100. The spaces differ: each tool searches what
it has, and says how many candidates that is. Calculon (Apache-2.0) evaluates one after the other; whole rows of its
own exhaustive search, drawn at random, give its rate, and its own count of the space over the rate the time to a
proven best, extrapolated. SimuMax (Apache-2.0) proves nothing: its rate is that of single estimates. Ours are the
whole `plan`, which prices only the candidates that bounds leave and proves the best of all, and `evaluate_many`.
Peers are checkouts that you bring, and are left out where you bring none; SimuMax needs pandas and sympy.

    git clone https://github.com/calculon-ai/calculon; git clone https://github.com/MooreThreads/SimuMax
    python benchmarks/peers.py [--calculon DIR] [--simumax DIR] [--json] [--tiny]
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import clusterwright as cw
from benchmarks import measure

ACCELERATORS, BATCH = 64, 64
EVALUATIONS, TINY = 400, 20
"""Of a peer, at least, and at a size that only shows that it runs."""


def of_ours(number: int) -> Iterator[dict[str, Any]]:
    """The whole search, and configurations that somebody names."""
    cw.plan("llama3-8b", "dgx-h100:1", batch=8, top=1)  # imports what is imported late
    cpu_s, found = measure.cpu_seconds(
        lambda: cw.plan("gpt3-175b", f"dgx-h100:{ACCELERATORS // 8}", batch=BATCH, top=1)
    )
    search = found.search
    yield {
        "tool": "clusterwright plan",
        "evaluations": search.costed,
        "cpu_s": round(cpu_s, 2),
        "per_cpu_s": round(search.costed / cpu_s),
        "space": search.candidates,
        "best_cpu_s": round(cpu_s, 2) if search.proven_optimal else None,
    }
    axes = product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), ("none", "selective", "full"), (0, 1, 2))
    texts = [f"tp={t} pp={p} micro={m} recompute={r} zero={z}" for t, p, m, r, z in axes][:number]
    many_s, _ = measure.cpu_seconds(lambda: cw.evaluate_many("gpt3-175b", f"dgx-h100:{ACCELERATORS // 8}", texts))
    yield _row("clusterwright evaluate_many", len(texts), many_s)


def of_calculon(folder: Path, number: int) -> Iterator[dict[str, Any]]:
    """Rows of its exhaustive search."""
    sys.path.insert(0, str(folder))
    llm = importlib.import_module("calculon.llm")
    optimal = importlib.import_module("calculon.llm.optimal_execution").OptimalExecution
    files = importlib.import_module("calculon").io
    job = llm.Llm.Application(files.read_json_file(str(folder / "models" / "gpt3-175B.json")))
    system = importlib.import_module("calculon.system").System(
        files.read_json_file(str(folder / "systems" / "h100_80g_nvl8.json"))
    )

    def searched(row: tuple[Any, ...], count_only: bool) -> int:
        tp, pp, dp, chunks, recompute, sharded, communication = row
        found = optimal.search(
            count_only, 1, False, ACCELERATORS, BATCH, "float16", job, system, tp, pp, dp, chunks, BATCH, recompute,
            sharded, communication, [True], False, True, True,
        )  # fmt: skip
        return int(found[1])

    rows = list(_calculons_rows(llm.Llm, job))
    logging.disable()
    space = sum(searched(row, True) for row in rows)
    random.Random(0).shuffle(rows)
    evaluated, cpu_s = 0, 0.0
    for row in rows:
        if evaluated >= number:
            break
        taken, count = measure.cpu_seconds(lambda row=row: searched(row, False))  # type: ignore[misc]
        evaluated += count
        cpu_s += taken
    logging.disable(logging.NOTSET)
    yield {**_row("Calculon", evaluated, cpu_s), "space": space, "best_cpu_s": round(space * cpu_s / evaluated)}


def _calculons_rows(llm: Any, job: Any) -> Iterator[tuple[Any, ...]]:
    for tp in llm.get_all_tensor_parallelisms(ACCELERATORS, job.hidden, job.attn_heads):
        for pp in llm.get_all_pipeline_parallelisms(ACCELERATORS, tp, job.num_blocks):
            dp = llm.get_data_parallelism(ACCELERATORS, tp, pp)
            chunks = llm.get_valid_pipeline_interleavings(job.num_blocks, pp)
            sharded = (True, False) if dp > 1 else (False,)
            recompute = ("full", "attn_only", "none")
            yield from product((tp,), (pp,), (dp,), chunks, recompute, sharded, ("ar", "p2p_rs_ag", "rs_ag"))


def of_simumax(folder: Path, number: int) -> Iterator[dict[str, Any]]:
    """Single estimates, each from its three records, as its examples make them."""
    sys.path.insert(0, str(folder))
    config = importlib.import_module("simumax.core.config")
    perf = importlib.import_module("simumax.core.perf_llm")
    files = folder / "configs"

    def estimate(tp: int, pp: int) -> None:
        strategy = config.StrategyConfig.init_from_config_file(str(files / "strategy" / "tp8_pp1_dp1_mbs1.json"))
        strategy.world_size, strategy.tp_size, strategy.pp_size = ACCELERATORS, tp, pp
        strategy.micro_batch_num = BATCH * tp * pp // ACCELERATORS
        model = perf.PerfLLM()
        model.configure(
            strategy_config=strategy,
            model_config=config.ModelConfig.init_from_config_file(str(files / "models" / "gpt3-175b.json")),
            system_config=config.SystemConfig.init_from_config_file(str(files / "system" / "b200_bf16_ceperm.json")),
        )
        model.run_estimate()
        model.analysis_cost()

    degrees = [(8, 8), (8, 4), (4, 8), (8, 2), (4, 4)]
    number = max(len(degrees), number // 20)
    with contextlib.redirect_stdout(io.StringIO()):
        estimate(*degrees[0])
        cpu_s, _ = measure.cpu_seconds(lambda: [estimate(*degrees[n % len(degrees)]) for n in range(number)])
    yield _row("SimuMax", number, cpu_s)


def _row(tool: str, evaluations: int, cpu_s: float) -> dict[str, Any]:
    rate = round(evaluations / cpu_s, 1)
    return {"tool": tool, "evaluations": evaluations, "cpu_s": round(cpu_s, 2), "per_cpu_s": rate, "space": None,
            "best_cpu_s": None}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    parser = measure.parser(__doc__)
    parser.add_argument("--calculon", type=Path, help="a checkout of Calculon")
    parser.add_argument("--simumax", type=Path, help="a checkout of SimuMax")
    options = parser.parse_args(argv)
    number = TINY if options.tiny else EVALUATIONS
    rows = list(of_ours(number))
    rows += of_calculon(options.calculon, number) if options.calculon else ()
    rows += of_simumax(options.simumax, number) if options.simumax else ()
    measure.show({"machine": measure.machine(), "rows": rows}, rows, options.json)


if __name__ == "__main__":
    main()
