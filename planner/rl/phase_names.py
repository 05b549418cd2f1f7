"""Phases of a step by the names that users and trainers give them, and the seconds of a step out of a trainer's log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from planner.base import reading
from planner.base.errors import WrongQuestion, meant
from planner.base.reading import short_hash

TRAINING = ("log_probabilities_s", "reference_s", "critic_s", "reward_s", "update_s")
PHASES: Mapping[str, tuple[str, ...]] = {
    "generation": ("generation_s",),
    "log-probabilities": ("log_probabilities_s",),
    "reference": ("reference_s",),
    "log-probabilities+reference": ("log_probabilities_s", "reference_s"),
    "critic": ("critic_s",),
    "reward": ("reward_s",),
    "update": ("update_s",),
    "training": TRAINING,
    "weights": ("sync_s",),
    "other": ("other_s",),
    "wait": (),
    "step": (),
}
"""Phase -> the fields of a plan's phases that it sums; of a wait and of the step, none."""
NAMES: Mapping[str, str] = {
    # verl 1dda039b: marked_timer of verl/trainer/ppo/ray_trainer.py and verl/experimental/*/ray_trainer.py.
    **{"gen": "generation", "old_log_prob": "log-probabilities", "ref": "reference", "refpolicy": "reference"},
    **{"ref_log_prob": "reference", "values": "critic", "update_critic": "critic", "update_actor": "update"},
    **{"update_weights": "weights", "sync_rollout_weights": "weights", "param_sync": "weights", "adv": "other"},
    # NeMo-RL 7ea279ab: timers of nemo_rl/algorithms/grpo.py.
    **{"policy_and_reference_logprobs": "log-probabilities+reference", "policy_training": "update"},
    **{"prepare_for_generation/total": "weights", "weight_sync": "weights", "exposed_generation": "wait"},
    **{"reward_calculation": "reward", "data_processing": "other", "advantage_calculation": "other"},
    **{"logprob_inference_prep": "other", "training_prep": "other", "total_step_time": "step"},
    # TRL and people.
    **{"rollout": "generation", "logprob": "log-probabilities", "logprobs": "log-probabilities", "train": "training"},
    **{"refit": "weights", "sync": "weights", "reshard": "weights", "total": "step"},
}
"""Name in a log -> phase; several of one phase are added."""
LARGEST_LOG = 200_000_000
_NUMBER = r"(?:np\.\w+\()?([0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?)(?=s?(?![\w.]|,[0-9]))"
"""A whole number or decimal fraction, as far as it goes: one that is cut (``12.5...``) or has a unit is none."""
_VERL = re.compile(rf"timing_s/([\w/]+)['\"]?\s*[:=]\s*{_NUMBER}")
_NEMO = re.compile(r"^\s*• ([\w/ ]+): ([0-9]+\.?[0-9]*)s(?: \([0-9.]+%\))?\s*$", re.MULTILINE)
_MEAN = re.compile(rf"(?:response_length/mean['\"]?|Mean Generation Length)\s*[:=]\s*{_NUMBER}")
"""What verl and NeMo-RL print of the mean length."""
_PROMPT = re.compile(rf"prompt_length/mean['\"]?\s*[:=]\s*{_NUMBER}")
_TOKENS = re.compile(rf"perf/total_num_tokens['\"]?\s*[:=]\s*{_NUMBER}")
"""Tokens of all prompts and responses of a step: verl 07c9cf13, compute_throughout_metrics of
verl/trainer/ppo/metric_utils.py."""
LARGEST_NUMBER = 1e9
"""Seconds, and tokens of a response, that a log may say; more is none."""
WARM_UP = 1
"""First steps of a log that do not count: engines capture graphs, and kernels are tuned."""


class PhaseSeconds(NamedTuple):
    """What a step took."""

    source: str
    seconds: Mapping[str, float]
    unread: tuple[str, ...] = ()
    """Times that are no phase."""
    steps: int | None = None
    """Steps of a log."""
    mean_tokens: float | None = None
    """Mean tokens of a response that a log states."""
    responses: float | None = None
    """Responses of a step, by the tokens that a log of verl states."""
    run: str = ""
    """Digest of the first step of a log, which stays as it is while the log grows."""


def measured(given: str | Path | Mapping[str, float]) -> PhaseSeconds:
    """Seconds by phase: as ``generation=120,update=40`` says them, or the medians over the steps of a log.

    Raises:
        WrongQuestion: no phase of that name, no seconds, or a log without any.
    """
    if isinstance(given, Mapping):
        return PhaseSeconds("as stated", _stated([(str(name), str(value)) for name, value in given.items()]))
    text = str(given)
    if isinstance(given, str) and "=" in text and not Path(text).is_file():
        pairs = [word.partition("=") for word in re.split(r"[,\s]+", text) if word]
        return PhaseSeconds("as stated", _stated([(name, value) for name, _, value in pairs]))
    return _of_log(Path(text))


def _stated(pairs: list[tuple[str, str]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for name, value in pairs:
        phase = _phase(name)
        if phase is None:
            hint = meant(name, {**PHASES, **NAMES}, f"it can be {', '.join(PHASES)}, or a timer of verl or NeMo-RL")
            raise WrongQuestion(f"--measured {name:.40}: no phase of a step is called so; {hint}")
        number = value.removesuffix("s")
        if not re.fullmatch(r"\d{1,9}(\.\d+)?(e[-+]?\d{1,2})?|\.\d+", number, re.ASCII) or not 0 < float(number) < 1e9:
            raise WrongQuestion(f"--measured {name}={value:.40}: seconds above 0 are expected: {phase}=12.5")
        seconds[phase] = seconds.get(phase, 0.0) + float(number)
    if not seconds:
        raise WrongQuestion("--measured: nothing in it; write generation=120,update=40,step=230")
    return seconds


def _phase(name: str) -> str | None:
    plain = name.strip().lower().removeprefix("timing_s/").removesuffix("_s")
    spaced = plain.replace("_", "-")
    return plain if plain in PHASES else spaced if spaced in PHASES else NAMES.get(plain)


def _of_log(path: Path) -> PhaseSeconds:
    """Medians over the steps of a log of verl (its console, or JSON lines) or NeMo-RL, without the first."""
    if not path.is_file():
        raise WrongQuestion(f"--measured {path}: no such file; or write generation=120,update=40,step=230")
    text = reading.text(path, "a log of a trainer", LARGEST_LOG)
    pairs = [pair for pattern in (_VERL, _NEMO) for pair in pattern.findall(text) if float(pair[1]) < LARGEST_NUMBER]
    times: dict[str, list[float]] = {}
    for name, value in pairs:
        times.setdefault("total_step_time" if name == "Total step time" else name, []).append(float(value))
    usual = {name: _usual(values) for name, values in times.items()}
    seconds: dict[str, float] = {}
    unread = []
    for name, value in usual.items():
        phase = _phase(name)
        if phase is None or not value:
            unread.append(name)
        else:
            seconds[phase] = seconds.get(phase, 0.0) + value
    if not seconds:
        raise WrongQuestion(
            f"--measured {path}: no times of a step in it; read are verl's timing_s/gen:12.3 and NeMo-RL's "
            "• generation: 12.3s; else write generation=120,update=40"
        )
    steps = max(len(values) for values in times.values())
    mean = _usual(_numbers(_MEAN, text))
    responses = f", responses of {mean:,.0f} tokens" if mean else ""
    return PhaseSeconds(
        source=f"{path.name}, median of {max(1, steps - WARM_UP):,} steps{responses}",
        seconds=seconds,
        unread=tuple(sorted(unread)),
        steps=steps,
        mean_tokens=mean,
        responses=_responses(text),
        run=short_hash(repr(_first_step(pairs)).encode()),
    )


def _numbers(pattern: re.Pattern[str], text: str) -> list[float]:
    return [float(value) for value in pattern.findall(text) if float(value) < LARGEST_NUMBER]


def _usual(values: Sequence[float]) -> float | None:
    """The median without the first; None of none."""
    return median(values[WARM_UP:] or values) if values else None


def _responses(text: str) -> float | None:
    """Responses of a step: its tokens over those of a prompt and a response; None where one of the three is lacking."""
    tokens, prompt, response = (_usual(_numbers(pattern, text)) for pattern in (_TOKENS, _PROMPT, _MEAN))
    return tokens / (prompt + response) if tokens and prompt and response else None


def _first_step(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Times of a log until one of them comes again."""
    first: dict[str, str] = {}
    for name, value in pairs:
        if name in first:
            break
        first[name] = value
    return first
