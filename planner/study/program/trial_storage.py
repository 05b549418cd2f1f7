"""Where trials are kept: a journal file, a database, memory; and whether a stored study may be gone on with.

An enumeration keeps a ledger: its question, then a line for every evaluated point. A point is worth the same whenever
it is evaluated, so an enumeration that finds its own ledger goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.base.errors import WrongQuestion
from planner.base.locking import Lock
from planner.base.secrets import scrubbed, shown
from planner.study.question.study import LARGER_IS_BETTER, Study

if TYPE_CHECKING:
    import optuna


def storage(where: str | None) -> Any:
    """A journal file, a database by its URL, or memory.

    Raises:
        WrongQuestion: it cannot be opened; the message says why.
    """
    import optuna
    from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if where is None:
        return InMemoryStorage()
    if "://" in where:
        try:
            return RDBStorage(_with_driver(where))
        except ImportError:
            raise WrongQuestion(
                f"--storage {shown(where)}: its driver is missing; pip install psycopg2-binary"
            ) from None
        except Exception as error:
            reason = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0]
            raise WrongQuestion(f"--storage {shown(where)}: {scrubbed(reason, where)}") from None
    path = placed(where)
    mended(path, "op_code", "of a study's trials")
    try:
        return JournalStorage(JournalFileBackend(str(path), Lock(path)))  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, optuna.exceptions.OptunaError) as error:
        raise WrongQuestion(f"--storage {where}: not a journal of a study ({error})") from None


def _with_driver(url: str) -> str:
    """A PostgreSQL URL with the driver that is installed; which one is usual changes between versions of SQLAlchemy."""
    from importlib.util import find_spec

    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return url
    driver = next((name for name in ("psycopg2", "psycopg") if find_spec(name)), "psycopg2")
    return f"postgresql+{driver}://{rest}"


def placed(where: str) -> Path:
    """Where a journal is or may be begun.

    Raises:
        WrongQuestion: a folder, or in none.
    """
    path = Path(where)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise WrongQuestion(f"--storage {where}: {'a folder' if path.is_dir() else 'its folder does not exist'}")
    return path


def mended(path: Path, key: str, what: str) -> None:
    """Cuts off a last line that a killed process did not finish. `key`: what every line of such a journal holds.

    Raises:
        WrongQuestion: it is another kind of file; it is left as it is.
    """
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            first = file.readline()
            if first and key not in json.loads(first):
                raise ValueError
    except (OSError, ValueError, TypeError):
        raise WrongQuestion(f"--storage {path}: not a journal {what}") from None
    if path.stat().st_size and not _ends(path):
        with Lock(path):  # nobody writes now: what is unfinished stays so
            text = path.read_bytes()
            with path.open("r+b") as file:
                file.truncate(text.rfind(b"\n") + 1)


def _ends(path: Path) -> bool:
    """Whether the last line is whole."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def opened(
    store: Any, study: Study, question: Mapping[str, Any], seed: int, where: str, *, resume: bool
) -> optuna.Study:
    """The stored study: begun, or gone on with.

    Raises:
        WrongQuestion: it exists and is not to be resumed, it does not and is, or it asked something else.
    """
    import optuna

    known = study.name in optuna.get_all_study_names(store)
    if known and not resume:
        raise WrongQuestion(
            f"{where} already holds study {study.name!r}: --resume continues it, --storage names another place"
        )
    if resume and not known:
        raise WrongQuestion(f"--resume: {where} holds no study {study.name!r}; leave it out to begin")
    if known:
        opened_study = optuna.load_study(study_name=study.name, storage=store)
        before = opened_study.user_attrs.get("seed")
        seeds = [] if before == seed else [f"seed: {before} before, {seed} now (--seed {before})"]
        message = "--resume: the study has changed since it was begun"
        unchanged(opened_study.user_attrs.get("question"), question, message, *seeds)
        return opened_study
    directions: list[Any] = ["maximize" if name in LARGER_IS_BETTER else "minimize" for name in study.objectives]
    opened_study = optuna.create_study(study_name=study.name, storage=store, directions=directions)
    opened_study.set_user_attr("question", dict(question))
    opened_study.set_user_attr("seed", seed)
    return opened_study


def unchanged(before: Any, now: Mapping[str, Any], message: str, *more: str) -> None:
    """Holds a stored question to the one asked now; `more`: further differences.

    Raises:
        WrongQuestion: they differ; the message begins with `message` and says where.
    """
    lines = [*differences(before, now), *more]
    if lines:
        rest = [f"and {len(lines) - 12} more"] if len(lines) > 12 else []
        raise WrongQuestion(f"{message}:\n  " + "\n  ".join(lines[:12] + rest))


def differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """Where two questions differ, as lines: key, before, now."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*before, *(k for k in now if k not in before)]:
            yield from differences(before.get(key), now.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple):
        if all(isinstance(x, Mapping) for x in [*before, *now]):
            for n in range(max(len(before), len(now))):
                old, new = (rows[n] if n < len(rows) else None for rows in (before, now))
                name = next((str(r["path"]) for r in (old, new) if r and "path" in r), str(n))
                yield from differences(old, new, f"{where}.{name}")
        elif list(before) != list(now):
            yield f"{where}: {_short(before)} before, {_short(now)} now"
    elif before != now:
        yield f"{where}: {_short(before)} before, {_short(now)} now"


def _short(value: Any) -> str:
    if value is None:
        return "not there"
    text = json.dumps(value) if not isinstance(value, str) else value
    return (
        text
        if len(text) <= 70
        else f"{text[:50]}... ({len(value)} values)"
        if isinstance(value, list | tuple)
        else f"{text[:67]}..."
    )


KIND = "enumeration"
_KEPT = {"objectives", "measures", "violations", "plan", "why"}
"""Keys of a stored outcome (see :func:`planner.study.program.optuna_trials.stored`)."""


class Ledger:
    """Outcomes by the numbers of their points, in a file that is only appended to.

    Points are worth the same whenever they are evaluated, so that an enumeration which finds its own journal goes on.
    """

    def __init__(self, where: str, question: Mapping[str, Any], *, resume: bool) -> None:
        """Opens a journal, or begins it.

        Raises:
            WrongQuestion: another kind of file, of another question, or one to be resumed that is not there.
        """
        if "://" in where:
            raise WrongQuestion(
                f"--storage {shown(where)}: every point of this study is evaluated, which keeps a file and no "
                "database; --storage study.journal, or more machines by --shard"
            )
        self.path = placed(where)
        self.kept: dict[int, dict[str, Any]] = {}
        """Outcomes that the file held."""
        if resume and not self.path.exists():
            raise WrongQuestion(f"--resume: {where} is not there; leave it out to begin")
        mended(self.path, "kind", "of an enumeration, and here every point is evaluated; name another")
        if self.path.exists() and self.path.stat().st_size:
            self._load(question)
        else:
            self._append([{"kind": KIND, "schema_version": 1, "question": question}])

    def _load(self, question: Mapping[str, Any]) -> None:
        with self.path.open(encoding="utf-8") as file:
            for place, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    if place == 1:
                        self._same(record, question)
                    else:
                        self.kept[_number(record)] = record["outcome"]
                except (ValueError, KeyError, TypeError):
                    raise WrongQuestion(f"--storage {self.path}:{place}: not a line of an enumeration") from None

    def _same(self, header: Mapping[str, Any], question: Mapping[str, Any]) -> None:
        if header.get("kind") != KIND or header.get("schema_version") != 1:
            raise ValueError
        unchanged(header.get("question"), question, f"{self.path} is of another study, or of this one before")

    def add(self, outcomes: Mapping[int, Mapping[str, Any]]) -> None:
        """Keeps what points are worth: all of them or, if the process is killed, those whose lines are whole."""
        self._append([{"number": number, "outcome": outcome} for number, outcome in outcomes.items()])

    def _append(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        try:
            with Lock(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise WrongQuestion(f"--storage {self.path}: {error.strerror or error}") from None


def _number(line: Mapping[str, Any]) -> int:
    number, outcome = line["number"], line["outcome"]
    if not isinstance(number, int) or not isinstance(outcome, dict) or set(outcome) != _KEPT:
        raise ValueError
    return number
