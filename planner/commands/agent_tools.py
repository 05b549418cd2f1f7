"""What an agent may ask, as typed functions over the Python API: small answers in JSON types, files in one folder."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_origin

from planner.base.errors import NoAnswer, WrongQuestion
from planner.question.option import Asked, asked
from planner.question.plan_options import EstimateQuestion, EvaluateQuestion, FitQuestion, PlanQuestion
from planner.question.purchase_options import ProcureQuestion

if TYPE_CHECKING:
    from planner.schema.plan import Plan, PlanSet

MOST_ROWS = 60
"""Of an answer: what fits into an agent's context next to other things."""
MOST_CHARACTERS = 20_000
"""Of a text."""
LENGTHS = re.compile(r"[\d.,]+ ?[kM]?(?:/[\d.,]+ ?[kM]?)?")
"""``2k/8k``."""
TIME = re.compile(r"\s*[\d.]+ ?(?:ms|s|min)?\s*$", re.ASCII)
"""``12.3s``."""
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""``owner/name``."""
Answer = dict[str, Any]
Listed = Literal["nodes", "accelerators", "models", "fabrics", "runtimes", "regions", "targets"]


Tool = TypeVar("Tool", bound=Callable[..., Answer])


def offers(record: type, *names: str) -> Callable[[Tool], Tool]:
    """A tool that takes some fields of a question's record beside its own arguments, in JSON types."""

    def offered(tool: Tool) -> Tool:
        inspected = inspect.signature(tool, eval_str=True)
        stated = [each for each in inspected.parameters.values() if each.kind is not each.VAR_KEYWORD]
        before = [each for each in stated if each.kind is each.POSITIONAL_OR_KEYWORD]
        after = [each for each in stated if each.kind is each.KEYWORD_ONLY and each.name not in names]
        fields = asked(record)
        taken = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=fields[name].default, annotation=_plain(fields[name])
            )
            for name in names
        ]
        signature = inspected.replace(parameters=[*before, *taken, *after])

        @functools.wraps(tool)
        def answered(*given: Any, **named: Any) -> Answer:
            bound = signature.bind(*given, **named)
            bound.apply_defaults()
            return tool(*bound.args, **bound.kwargs)

        del answered.__dict__["__wrapped__"]
        vars(answered)["__signature__"] = signature
        answered.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        answered.__annotations__ |= {"return": signature.return_annotation}
        del answered.__annotations__["self"]
        return cast(Tool, answered)

    return offered


def _plain(field: Asked) -> Any:
    """What JSON gives for a field: a number where one is taken, a choice, else a text."""
    choice = next((kind for kind in field.kinds if get_origin(kind) is Literal), str)
    kind = int if int in field.kinds else choice
    return kind if field.default is not None else kind | None


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools of one server; what they read and write by name lies in `folder`."""

    folder: Path

    def all(self) -> list[Callable[..., Answer]]:
        """Every tool, in the order in which an agent is shown them."""
        return [self.catalog, self.plan, self.estimate, self.evaluate_many, self.fit, self.procure, self.compare,
                self.explain, self.export, self.validate]  # fmt: skip

    def catalog(self, what: Listed, containing: str = "") -> Answer:
        """Ids and figures of what the catalog holds, to use in the other tools; `containing` narrows them by id."""
        import planner

        listed = getattr(planner, f"list_{what}")()
        rows = listed.table if hasattr(listed, "table") else [{"id": str(each)} for each in listed]
        found = [row for row in rows if containing.lower() in str(next(iter(row.values()))).lower()]
        return {"count": len(found), what: found[:MOST_ROWS]}

    @offers(
        PlanQuestion,
        *("batch", "seq", "tokens", "precision", "method", "task", "runtime", "price", "objective", "deadline"),
        "max_cost",
    )
    def plan(
        self,
        model: str,
        cluster: str | list[str],
        *,
        pin: str = "",
        top: int = 3,
        save: str | None = None,
        **asked: Any,
    ) -> Answer:
        """The best ways to train a model on a cluster: configuration, step time, days, US dollars, memory.

        cluster is NODE:COUNT (dgx-h100:16, dgx-h100:8..64 tries several); several of them make one job. tokens is
        "1T", price "$2.10/h" an accelerator, deadline "30 d", max_cost "$500k", pin "tp=8,pp=1..4". save names a file
        (plan.json) for compare, explain and export.
        """
        return self._plans(self.planned(model, cluster, pin=pin, top=top, **asked), save)

    def planned(self, model: str, cluster: str | list[str], **asked: Any) -> PlanSet:
        """The answer to a question whose models and clusters in files lie below the server's own folder."""
        import planner

        return planner.plan(self._named(model), self._clusters(cluster), **asked)

    def document(self, model: str, cluster: str | list[str], site: str | None = None, **asked: Any) -> str:
        """The document of that answer, as text."""
        if site is not None:
            asked["site"] = self._file(site)
        return self.planned(model, cluster, **asked).to_json()

    def estimate_document(
        self, model: str, cluster: list[str], settings: str, site: str | None = None, **asked: Any
    ) -> str:
        """The document of one configuration as given, whether it fits or not, as text."""
        if site is not None:
            asked["site"] = self._file(site)
        return self._estimated(model, cluster, settings, **asked).to_json()

    def _estimated(
        self, model: str, cluster: str | list[str], settings: str, measured: str | None = None, **asked: Any
    ) -> PlanSet:
        """One configuration, and a measured step beside it, whose log lies below the server's own folder."""
        import planner

        if measured is not None:
            asked["measured"] = measured if TIME.match(measured) else self._file(measured)
        return planner.estimate(self._named(model), self._clusters(cluster), settings, **asked)

    def fit_document(self, model: str, **asked: Any) -> str:
        """The document of what fits where, as text."""
        import planner
        from planner.schema.listings import Fits

        try:
            listed = planner.fit(self._named(model), **asked)
        except NoAnswer as error:
            raise NoAnswer(re.sub(r"allow more \(\W*most\)", "plan on a cluster", str(error))) from None
        return json.dumps(asdict(Fits(fits=tuple(listed))), indent=2)

    def rl_document(self, model: str, cluster: list[str], response: str, **asked: Any) -> str:
        """The document of a post-training by reinforcement learning, as text; a file of lengths lies in the folder."""
        import planner

        lengths = response if LENGTHS.fullmatch(response) else self._file(response)
        return planner.plan_rl(self._named(model), self._clusters(cluster), response=lengths, **asked).to_json()

    def design_document(self, study: str, **asked: Any) -> str:
        """The document of what to build for a study of the folder, as text."""
        import planner

        if not self._file(study).is_file():
            raise WrongQuestion(f"study={study!r}: no such file in the server's folder (clusterwright init study)")
        return planner.design(self._portfolio(study), quick=True, **asked).to_json()

    def offer_document(self, model: str, max_cost: str | None = None, **asked: Any) -> str:
        """The document of what to buy or rent for at most so much, as text."""
        import planner

        try:
            found = planner.procure(model=self._named(model), budget=max_cost, node=[], quick=True, **asked)
        except WrongQuestion as error:
            raise WrongQuestion(re.sub("^budget(?=[=:])", "max_cost", str(error))) from None
        return found.to_json()

    @offers(EstimateQuestion, "batch", "seq", "tokens", "precision", "method", "task", "runtime", "price", "measured")
    def estimate(
        self, model: str, cluster: str | list[str], settings: str, *, save: str | None = None, **asked: Any
    ) -> Answer:
        """One configuration as given, whether it fits or not. settings is "tp=8 pp=2 micro=1 zero=1 recompute=none".

        Of a plan over several clusters, it is one group=... for each group of pipelines, as plan answers it. measured
        is what a step took, "12.3s" or a training log: is it normal, and what would explain it?
        """
        from planner.schema.record import dump

        estimated = self._estimated(model, cluster, settings, **asked)
        step = {} if estimated.measured is None else {"measured": dump(estimated.measured)}
        return {**self._plans(estimated, save), **step}

    @offers(EvaluateQuestion, "batch", "seq", "tokens", "precision", "method", "task", "runtime", "price")
    def evaluate_many(self, model: str, cluster: str | list[str], configurations: list[str], **asked: Any) -> Answer:
        """Figures of many configurations on one pool, priced together. configurations is ["tp=8 pp=2", "tp=4 micro=2"].

        Up to 60 are answered in their order, with the reason where one is not legal; of more, the fastest that fit.
        """
        import planner

        configured = planner.evaluate_many(self._named(model), self._clusters(cluster), configurations, **asked)
        fitting = sorted((one for one in configured if one.fits), key=lambda one: one.step_time_s or 0.0)
        shown = configured if len(configured) <= MOST_ROWS else fitting[:MOST_ROWS]
        rows = [{name: value for name, value in vars(one).items() if value is not None} for one in shown]
        refused = sum(one.reason is not None for one in configured)
        return {"count": len(configured), "fit": len(fitting), "refused": refused, "evaluated": rows}

    @offers(FitQuestion, *("on", "method", "task", "seq", "batch", "tokens", "precision", "runtime", "most", "top"))
    def fit(self, model: str | None = None, **asked: Any) -> Answer:
        """Which accelerators hold a training of a model, the fewest of each; or which models fit on some.

        on is KIND:N (RTX-4090:2): the largest models that fit there, each with its longest sequences unless seq says.
        """
        import planner

        found = planner.fit(None if model is None else self._named(model), **asked)
        return {"count": len(found), "fits": [asdict(each) for each in found[:MOST_ROWS]]}

    @offers(
        ProcureQuestion,
        *("model", "tokens", "batch", "seq", "budget", "spend", "power", "deadline", "objective", "ways"),
    )
    def procure(
        self,
        portfolio: str | None = None,
        *,
        model: str | None,
        node: list[str] | None = None,
        save: str | None = None,
        **asked: Any,
    ) -> Answer:
        """What to buy or rent, and when it is done: for one model, or for the jobs of a portfolio file.

        budget is "$5M" (spend: the most tokens for it, or with tokens the earliest day), power "400 kW",
        deadline "60 d", ways "buy,on-demand,spot,reserved-1y,reserved-3y".
        """
        import planner

        found = planner.procure(
            None if portfolio is None else self._portfolio(portfolio),
            model=None if model is None else self._named(model),
            node=node or [],
            quick=True,
            **asked,
        )
        return {"alternatives": found.rows(), "limited_by": list(found.binding), **self._saved(found.to_json(), save)}

    def compare(self, mine: str, best: str) -> Answer:
        """What the plan of one saved file gains over that of another, and where they differ."""
        import planner
        from planner.report import quantities

        found = planner.compare(self._file(mine), self._file(best))
        names = ("questions", "differing", "step", "days", "usd", "tokens", "distinguishable")
        paid = quantities.compared(("mine", "best"), [plan.money for plan in found.plans])
        span = None if found.interval is None else [found.interval.low, found.interval.high]
        return {**{name: getattr(found, name) for name in names}, "tokens_interval": span, "prices": paid}

    def explain(self, file: str, rank: int | None = None, workload: str | None = None) -> Answer:
        """The whole report on a saved document: reasons, bottleneck, sources, assumptions."""
        import planner

        return {"text": str(planner.explain(self._file(file), rank=rank, workload=workload))[:MOST_CHARACTERS]}

    def export(self, file: str, to: str, output: str | None = None, rank: int | None = None) -> Answer:
        """A saved plan as a launcher's files: to is "megatron+slurm" (catalog lists targets); output a new folder."""
        import planner

        folder = None if output is None else self._file(output)
        found = planner.export(self._file(file), to, folder, rank=1 if rank is None else rank)
        files = {name: text for bundle in found.bundles.values() for name, text in bundle.files.items()}
        shown = {name: text[: MOST_CHARACTERS // 4] for name, text in files.items()}
        return {"written_to": output, "files": sorted(files) if output else shown}

    def validate(self, runs: str, by: Literal["source", "model", "accelerator"] = "source") -> Answer:
        """How far predictions are from measured runs of a CSV (columns: docs/runs.md)."""
        import planner

        found = planner.validate(self._file(runs), by=by).document
        return {name: found[name] for name in ("by", "overall", "groups")}

    # ---- answers and files ------------------------------------------------------------------------------------------

    def _plans(self, found: PlanSet, save: str | None) -> Answer:
        run = found.plan_to_run
        return {
            "recommended": run.rank,
            "plans": [_short(plan) for plan in found.plans],
            "bottleneck": list(found.reasons.binds),
            "assumes": [f"{each.what}: {each.why} ({each.flag})" for each in run.assumptions if each.flag],
            "price": None if run.money.price is None else vars(run.money.price) | {"offers": None},
            **self._saved(found.to_json(), save),
        }

    def _saved(self, text: str, name: str | None) -> Answer:
        from planner.base import writing
        from planner.planning import document

        if name is None:
            return {"saved": None}
        path = self._file(name)
        if path.suffix != ".json":
            raise WrongQuestion(f"save={name!r}: a document is JSON; name it {Path(name).stem or 'plan'}.json")
        if path.exists() and not document.is_as_written(path):
            raise WrongQuestion(f"save={name!r}: there is something else that was not saved here; choose another name")
        writing.write(path, text, replace=True)
        return {"saved": name}

    def _file(self, name: str) -> Path:
        """A file or a folder below the server's own."""
        path = self.folder / name
        if (
            not name.strip()
            or "\0" in name
            or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.folder))
        ):
            raise WrongQuestion(f"{name!r}: only files below the server's folder; give a plain name such as plan.json")
        return path

    def _named(self, name: str) -> str:
        """An id as it is (a checkpoint's on the Hugging Face hub, too); a file below the server's own folder."""
        named, hash_, entry = name.partition("#")
        if len(PurePath(named).parts) < 2 and not named.startswith("~") and not named.endswith((".toml", ".json")):
            return name
        path = self._file(named)
        is_id = HUB_ID.fullmatch(name) and not path.exists() and not Path(name).exists()
        return name if is_id else f"{path}{hash_}{entry}"

    def _clusters(self, given: str | list[str]) -> list[str]:
        return [self._named(each) for each in ([given] if isinstance(given, str) else given)]

    def _portfolio(self, name: str) -> Path:
        """A file of jobs whose models are ids: what it names is read, too."""
        from planner.question.typed_file import opened

        path = self._file(name)
        jobs = opened(path).data.get("workloads")
        for job in jobs if isinstance(jobs, list) else []:
            if not isinstance(job, dict):
                continue
            table: Any = job.get("step")
            step: dict[str, Any] = table if isinstance(table, dict) else {}
            for key, model in (("model", job.get("model")), *((key, step.get(key)) for key in ("critic", "reward"))):
                if isinstance(model, str) and self._named(model) != model:
                    raise WrongQuestion(f"{name}: {key} {model!r}: here a portfolio names models by id")
            lengths = step.get("response")
            if isinstance(lengths, str) and not LENGTHS.fullmatch(lengths):
                raise WrongQuestion(f"{name}: response {lengths!r:.60}: here a portfolio writes lengths, as 2k/8k")
        return path


def _short(plan: Plan) -> Answer:
    """A plan in a few figures, with its configuration as ``estimate`` takes it."""
    from planner.report.recommendation import configuration

    row = plan.row()
    kept = ("rank", "machines", "accelerators", "precision", "step_time_s", "step_time_low_s", "step_time_high_s",
            "tokens_per_s", "mfu", "memory_bytes", "memory_capacity_bytes", "oom_chance", "days", "usd")  # fmt: skip
    return {"configuration": configuration(plan), **{name: row[name] for name in kept}}
