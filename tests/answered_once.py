"""Answers that take seconds, made once a run of the tests: kept in each worker, and as files for the others."""

import os
import pickle
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

FOLDER = "CLUSTERWRIGHT_TEST_ANSWERS"
"""Environment variable: a folder of this run alone, which ``tests/conftest.py`` makes and removes."""


def answered_once(function: Callable[P, R]) -> Callable[P, R]:
    """A function of texts and numbers, of which no two workers ask the same; it must give what can be pickled."""

    @cache
    @wraps(function)
    def found(*args: Any, **asked: Any) -> R:
        if FOLDER not in os.environ:
            return function(*args, **asked)
        name = sha256(repr((function.__module__, function.__name__, args, sorted(asked.items()))).encode()).hexdigest()
        file = Path(os.environ[FOLDER], name)
        if not file.exists():
            answer = function(*args, **asked)
            own = file.with_suffix(f".{os.getpid()}")
            own.write_bytes(pickle.dumps(answer))
            own.replace(file)
        return cast(R, pickle.loads(file.read_bytes()))

    return cast(Callable[P, R], found)
