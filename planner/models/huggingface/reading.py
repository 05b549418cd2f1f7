"""A Hugging Face ``config.json`` as a model: data only, nothing of it is run, and no network is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion, malformed, nearest
from planner.models import files, model_rules
from planner.models.huggingface import pattern
from planner.models.huggingface.by_model_type import ARCHITECTURES
from planner.models.huggingface.config_values import Architecture, Reader
from planner.models.huggingface.sound import HEARING
from planner.models.huggingface.towers import SEEING, TowerAsked, tower
from planner.schema.workload import Model

SEQUENCE, BATCH, TOKENS = 8192, 1024, "1T"
"""What a configuration cannot say: planning defaults, marked as assumed."""
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
_FLAGS = {"tied", "gated", "qkv_bias", "output_bias", "mlp_bias", "norm_bias"}


def read(path: Path, entry: str | None = None, asked: TowerAsked | None = None) -> Model:
    """The model of a config.json; its id is `entry`, else taken from the file's own name for itself, else its folder.
    With images or clips `asked` for, its tower stands before the decoder.

    Raises:
        WrongQuestion: unreadable or malformed (with its line), or see :func:`from_config`.
    """
    config = load(path)
    return from_config(config, entry or _own_name(config, path), where=path, asked=asked)


def load(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file.

    Raises:
        WrongQuestion: unreadable, larger than 10 MB, not JSON, not finite, or no object.
    """
    text = files.read_text(path)
    try:
        config = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise WrongQuestion(f"{path}:{error.lineno}: malformed JSON: {error.msg} (column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"{path}: malformed JSON: {malformed(error)}") from None
    if not isinstance(config, dict):
        raise WrongQuestion(f"{path}: expected an object with a model_type, found {type(config).__name__}")
    return config


def from_config(
    config: Mapping[str, Any], entry: str, *, where: Path = Path("config.json"), asked: TowerAsked | None = None
) -> Model:
    """Read the shape out of a configuration by the table of its architecture.

    Raises:
        WrongQuestion: no or unknown `model_type`, or a key that is missing, of the wrong type or impossible.
    """
    config = _thinker(config)
    kind, body = _text_part(config, where)
    architecture = _architecture(kind, where)
    reader = Reader(body, architecture.defaults, str(where))
    fields: dict[str, Any] = dict(architecture.fixed)
    for name, key in architecture.keys.items():
        fields[name] = reader.flag(key) if name in _FLAGS else reader.whole(key)
    for derive in architecture.derive:
        fields |= derive(reader)
    if "recurrence" not in fields and (named := [x for x in reader.items("layer_types") if x in pattern.RECURRENT]):
        raise reader.wrong("layer_types", f"{named[0]!r}: blocks of model_type {kind} have no recurrence")
    fields |= _planning(reader, fields)
    fields["assumed"] |= _left_out(config, asked)
    if asked is not None:
        seen = tower(config, fields["hidden"], asked, HEARING if asked.sound else SEEING, str(where))
        tokens = seen["tower"]["images"] * seen["tower"]["tokens"]
        longest = max(fields["sequence"], 1 << (tokens - 1).bit_length())  # a power of two that holds them
        fields |= {"tower": seen["tower"], "sequence": longest, "assumed": fields["assumed"] | seen["assumed"]}
    model = files.validated(Model, {**fields, **_origin(kind, entry)}, entry, where)
    if wrong := model_rules.problems(model):
        raise WrongQuestion("\n".join(f"{where}: {problem}" for problem in wrong))
    return model


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _thinker(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a model that speaks which is trained on texts, under the whole model's type."""
    inner = config.get("thinker_config")
    outer = config.get("model_type")
    if isinstance(inner, dict):
        return {**inner, "model_type": outer, _VOICE: config.get("talker_config") is not None}
    return {**config, "model_type": outer.removesuffix("_thinker")} if isinstance(outer, str) else config


_VOICE = "voice_config"


def _text_part(config: Mapping[str, Any], where: Path) -> tuple[str, Mapping[str, Any]]:
    """(model type, object that holds the shape): a multimodal model's text part stands in `text_config`."""
    inner = config.get("text_config")
    # Whether the output shares the embedding is the whole model's to say where its text part does not.
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    body = {**tied, **inner} if isinstance(inner, dict) else config
    for kind in (body.get("model_type"), config.get("model_type")):
        if kind is not None and not isinstance(kind, str):
            raise WrongQuestion(f"{where}: model_type = {kind!r}: must be text")
    kind = body.get("model_type") or config.get("model_type")
    if not kind:
        raise WrongQuestion(f"{where}: no model_type; a Hugging Face config.json names its architecture there")
    return str(kind), body


def _left_out(config: Mapping[str, Any], asked: TowerAsked | None) -> dict[str, str]:
    """Towers (and a voice) beside what is read: said with every plan."""
    kind = config.get("model_type")
    senses = ("vision", "audio")
    taken = senses[asked.sound] if asked else ""
    senses_left = [sense for sense in (*senses, "voice") if config.get(f"{sense}_config") and sense != taken]
    if not senses_left:
        return {}
    what, rest = (f"text part and the {taken} tower", "rest") if asked else ("text part", "tower")
    why = f"of a model with {' and '.join(senses_left)} the {what} alone: the {rest} is neither counted nor planned"
    ways = [f"--{way} N" for way, known in (("images", SEEING), ("audio", HEARING)) if kind in known and not asked]
    return {"shape": why + (f" (models import {' or '.join(ways)}: with it)" if ways else "")}


_NOT_UNDERSTOOD = {
    "longcat_flash": "experts without weights, of which a token visits as many as its text asks for,",
    "mimo_v2_flash": "values narrower than keys, and sinks and other heads in windows alone,",
    "rwkv": "RWKV-4's recurrences of channels",
    "rwkv6": "RWKV-6's recurrences (rwkv7 is read)",
    "zamba2": "blocks that share one attention's weights",
}
"""`model_type` -> what of it has no equation here; its counts or its time would be wrong without."""


def _architecture(kind: str, where: Path) -> Architecture:
    if kind in _NOT_UNDERSTOOD:
        raise WrongQuestion(f"{where}: model_type {kind!r}: {_NOT_UNDERSTOOD[kind]} are not understood")
    if kind not in ARCHITECTURES:
        near = nearest(kind, ARCHITECTURES)
        hint = f"did you mean {near[0]!r}?" if near else f"it can be {', '.join(sorted(ARCHITECTURES))}"
        raise WrongQuestion(f"{where}: unknown model_type {kind!r}; {hint}")
    return ARCHITECTURES[kind]


def _planning(reader: Reader, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sequence, batch and tokens: not in a configuration but for the longest sequence it allows."""
    context = min((reader.whole(key) for key in _POSITIONS if reader.has(key)), default=None)
    sequence = fields["learned_positions"] if fields.get("family") == "vision" else min(SEQUENCE, context or SEQUENCE)
    why = "a planning default; config.json does not state it"
    assumed = dict.fromkeys(("sequence", "batch", "tokens"), why)
    return {"sequence": sequence, "context": context, "batch": BATCH, "tokens": TOKENS, "assumed": assumed}


def _origin(kind: str, entry: str) -> dict[str, Any]:
    return {"name": entry, "source": f"Hugging Face config.json, model_type {kind}"}


def _own_name(config: Mapping[str, Any], path: Path) -> str:
    """``meta-llama/Llama-3.2-1B`` -> ``llama-3.2-1b``; without such a name the folder's, or the file's own."""
    named = config.get("_name_or_path")
    folder = path.resolve().parent.name if path.stem == "config" else path.stem
    name = named.rstrip("/").rpartition("/")[2] if isinstance(named, str) else ""
    return re.sub(r"[^a-z0-9._-]+", "-", (name or folder).lower()).strip("-._") or "imported"
