"""Options of Megatron-LM that no plan holds: which change nothing it predicts, and what the others change.

What is in neither table, and what no Megatron-LM has, is refused by name: it may change precision, memory or time.
Names and meanings: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py of core_v0.16.1
and d98e8a64.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches

from planner.base.errors import WrongQuestion
from planner.launchers.reading.found_options import Options, number
from planner.schema.launcher_table import launcher_table

TABLE = launcher_table("megatron")
_HARMLESS = re.compile("|".join(TABLE.head["options"]["harmless"]))
_KERNELS = re.compile("|".join(TABLE.head["options"]["kernels"]))
_OTHERWISE: Mapping[str, str] = {
    name: row if isinstance(row, str) else row["says"] for name, row in TABLE.head["otherwise"].items()
}
_QUIET: Mapping[str, list[str]] = {
    name: row["unless"] for name, row in TABLE.head["otherwise"].items() if isinstance(row, dict)
}
"""Option of them -> values that change nothing."""
_UNFUSED = {"attention-backend": ("unfused", "local"), "transformer-impl": ("local",)}
"""Option -> values whose attention writes its scores to memory."""
ATTENTION = ("attention-backend", "flash-attention-version")
"""Options that name a kernel of attention together."""
_FEWER_BITS = ("megatron-fsdp-grad-comm-dtype", "megatron-fsdp-main-grads-dtype", "main-grads-dtype")
_WORDED = {name: TABLE.words(name) for name in TABLE.head["options"]["worded"]}
_UNDERSTOOD: Mapping[str, Collection[str]] = {**TABLE.head["understood"], **_WORDED}
"""Option -> its values that are understood."""
READ = {option.name for option in TABLE.options.values() if not option.is_job}
"""Options that say something of a plan or its model."""
_WORDS = {option.name for option in TABLE.options.values() if option.is_axis and option.format == "text"}
"""Options behind which the word for an axis stands."""
REFUSED: Mapping[str, str] = TABLE.head["refused"]
"""Option -> what it is, where it changes shape or sharding and no plan has a field for it."""


ALIKE = 0.9
"""Share of letters from which on an unknown option is taken for a slip of the pen."""


def refuse(flags: Options) -> None:
    """Refuses options that may change what a plan predicts and are not understood.

    Raises:
        WrongQuestion: one or several, by name, or one whose value is left out.
    """
    for name in sorted(_WORDS & flags.keys()):
        if not flags[name]:
            raise WrongQuestion(f"--{name}: no value behind it; write it, or leave the option out")
    for name in filter(REFUSED.__contains__, flags):
        raise WrongQuestion(f"--{name}: {REFUSED[name]} cannot be taken over; leave it out to see the rest priced")
    asked = flags.keys() - (READ - _UNDERSTOOD.keys())
    unknown = sorted(name for name in asked if not _understood(name, flags[name]))
    if unknown:
        names = ", ".join(f"--{name}" for name in unknown[:8]) + (
            f" and {len(unknown) - 8} more" if unknown[8:] else ""
        )
        ignored = " ".join(f"--ignore {name}" for name in unknown[:2])
        others = [name for name in unknown if name not in READ]
        misspelt = [word for name in others for word in get_close_matches(name, READ, 1, ALIKE)]
        near = f"; did you mean --{misspelt[0]}?" if misspelt else ""
        raise WrongQuestion(
            f"{names}: may change precision, memory or time, and no plan holds it{near}; {ignored} prices the rest "
            "without"
        )


def fused_all_the_same(flags: Options) -> tuple[str, ...]:
    """Switches of fused kernels that a command lacks and its runtime's figures come with, in one sentence."""
    lacks = [name for name in ("cross-entropy-loss-fusion", "moe-grouped-gemm") if name not in flags]
    lacks = lacks if "num-experts" in flags else lacks[:1] if lacks[:1] == ["cross-entropy-loss-fusion"] else []
    return (
        (f"no {' or '.join(f'--{name}' for name in lacks)}: predicted with, as measured runs had it",) if lacks else ()
    )


def _understood(name: str, values: Iterable[str]) -> bool:
    if name in _UNDERSTOOD:
        return set(values) <= set(_UNDERSTOOD[name])
    return name in _OTHERWISE or bool(_HARMLESS.fullmatch(name) or _KERNELS.fullmatch(name))


def priced_modules(flags: Options) -> list[str]:
    """Modules that a command recomputes, that its model has, and that are priced one by one."""
    experts, latents = "num-experts" in flags, "multi-latent-attention" in flags
    there = {
        "core_attn": True,
        "layernorm": experts or latents,
        "moe_act": experts,
        "mla_up_proj": latents,
        "mlp": not experts or flags.get("moe-layer-freq", ["1"]) != ["1"],
        "moe": experts,
    }
    listed = flags.get("recompute-modules", ["core_attn"])
    return [module for module, has in there.items() if has and module in listed]


def _spread(flags: Options) -> bool:
    degrees = [number(flags, f"expert-{kind}-parallel-size") or 1 for kind in ("model", "tensor")]
    return "num-experts" in flags and max(degrees) > 1


def dispatcher(flags: Options) -> str | None:
    """How tokens reach experts on other ranks, Megatron's own default where nothing is said; None where no plan says it
    so: experts on one rank, or tokens gathered for parts of experts.
    """
    kind = flags.get("moe-token-dispatcher-type", ["allgather"])[0]
    if kind == "flex":
        kind = flags.get("moe-flex-dispatcher-backend", ["deepep"])[0]
    parts = (number(flags, "expert-tensor-parallel-size") or number(flags, "tensor-model-parallel-size") or 1) > 1
    return kind if _spread(flags) and not (kind == "allgather" and parts) else None


def differences(flags: Options) -> Iterator[str]:
    """What a command says that is predicted otherwise."""
    yield from (
        text for name, text in _OTHERWISE.items() if name in flags and not {*flags[name]} & {*_QUIET.get(name, ())}
    )
    if flags.get("moe-token-dispatcher-type") == ["allgather"] and dispatcher(flags) is None and _spread(flags):
        yield "tokens reach experts by all-gather; predicted by all-to-all"
    scored = [name for name, values in _UNFUSED.items() if {*flags.get(name, ())} & {*values}]
    if scored:
        named = ", ".join(f"--{name} {flags[name][0]}" for name in scored)
        yield f"attention's scores are written to memory ({named}); predicted with a fused kernel"
    if any(flags.get(name) in (["bf16"], ["fp16"]) for name in _FEWER_BITS):
        yield "gradients stay in 16 bit; predicted in 32 bit"
    modules = flags.get("recompute-modules", ["core_attn"]) + ["moe"] * ("moe-layer-recompute" in flags)
    selective = flags.get("recompute-granularity") == ["selective"] or "moe-layer-recompute" in flags
    priced = priced_modules(flags) or ["core_attn"]
    if selective and (others := [module for module in modules if module not in priced]):
        yield f"recomputes {', '.join(others)}; predicted without (counted: {', '.join(priced)})"
    taken = ATTENTION if attention_kernel(flags) else ()
    kernels = sorted(name for name in flags if _KERNELS.fullmatch(name) and name not in {*_OTHERWISE, *taken, *scored})
    if kernels:
        yield f"kernels and buffers as stated ({', '.join(kernels)}); predicted with the runtime's usual ones"


def attention_kernel(flags: Options) -> str | None:
    """The kernel of attention that a command names: cuDNN's, or FlashAttention by its version; else the runtime
    chooses.
    """
    backend, version = (flags.get(name, [""])[0] for name in ATTENTION)
    if backend == "flash":
        return TABLE.words(ATTENTION[1]).get(version)
    return TABLE.words(ATTENTION[0]).get(backend)


def ignored(flags: Options) -> list[str]:
    """Options that nothing predicted depends on."""
    return sorted(name for name in flags.keys() - READ if _HARMLESS.fullmatch(name))
