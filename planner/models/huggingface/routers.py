"""How tokens are sent to experts, and the MLP's function, out of a config.json: what a model trains with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.models.huggingface.config_values import Reader
from planner.schema.workload import Activation

Fields = dict[str, Any]
_PLAIN: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "relu": "relu",
    "relu2": "squared-relu",
    "sqrelu": "squared-relu",
}
_GATED: dict[str, Activation] = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
"""Names of transformers' functions -> a model's word; of others nothing is said, and a launcher's files tell so."""
BIAS_RATE = 1e-3
"""Update rate of experts' biases, which no config.json says: DeepSeek-V3 (arXiv 2412.19437, section 4.2)."""


def activation(key: str, otherwise: str, *, gated: bool = False) -> Callable[[Reader], Fields]:
    """The function under `key`; `otherwise` is the class's own."""
    words = _GATED if gated else _PLAIN

    def read(config: Reader) -> Fields:
        function = words.get(config.text(key) if config.has(key) else otherwise)
        return {"activation": function} if function else {}

    return read


def t5_activation(config: Reader) -> Fields:
    """``relu`` or ``gated-gelu``, in one key with whether it is gated."""
    gate, _, name = config.text("feed_forward_proj").rpartition("-")
    function = (_GATED if gate == "gated" else _PLAIN).get(name)
    return {"activation": function} if function else {}


def softmax_router(normalised: bool | None = None) -> Callable[[Reader], Fields]:
    """Mixtral's, gpt-oss's and Qwen's: a softmax and a loss over the batch; `norm_topk_prob` says what is left open."""

    def read(config: Reader) -> Fields:
        is_normalised = config.flag("norm_topk_prob") if normalised is None else normalised
        return {"score": "softmax", "normalised": is_normalised, **_balanced(config)}

    return read


def llama4_router(config: Reader) -> Fields:
    """A sigmoid of the one chosen expert, on what it reads."""
    return {"score": "sigmoid", "normalised": False, "on_input": True, **_balanced(config)}


def deepseek_router(score: str) -> Callable[[Reader], Fields]:
    """Groups of experts and a scale; with `noaux_tc`, the method of V3's class, biases that are moved towards balance.

    A loss of each sequence is said by `aux_loss_alpha` and `seq_aux`, which transformers' class does not hold.
    """

    def read(config: Reader) -> Fields:
        router: Fields = {"score": score, "normalised": config.flag("norm_topk_prob")}
        router["scaling"] = config.number("routed_scaling_factor")
        method = config.text("topk_method")
        if method != "greedy" and config.whole("n_group", 1) > 1:
            router |= {"groups": config.whole("n_group"), "groups_per_token": config.whole("topk_group")}
        if method == "noaux_tc":
            router["bias_rate"] = BIAS_RATE
        loss = config.number("aux_loss_alpha") if config.has("aux_loss_alpha") else 0.0
        over = "sequence" if config.get("seq_aux") is not False else "batch"
        return router | ({"balance": over, "balance_loss": loss} if loss else {})

    return read


def _balanced(config: Reader) -> Fields:
    loss = config.number("router_aux_loss_coef")
    return {"balance": "batch", "balance_loss": loss} if loss else {}


def routed(experts: Callable[[Reader], Fields], router: Callable[[Reader], Fields]) -> Callable[[Reader], Fields]:
    """The mixture that `experts` reads, with its router; a dense model has neither."""

    def read(config: Reader) -> Fields:
        mixture = experts(config)
        return {**mixture, "moe": {**mixture["moe"], "router": router(config)}} if "moe" in mixture else mixture

    return read
