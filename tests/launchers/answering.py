"""What the readers share: questions from a file, answers into another. Runs in the launchers' environments."""

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path


def answer(read, *arguments):
    """Reads every job of the file that the last but one argument names; writes ``{values}`` or ``{error}`` for each."""
    questions, answers = (Path(name) for name in sys.argv[-2:])
    found = []
    for job in json.loads(questions.read_text(encoding="utf-8")):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                found.append({"values": read(job, *arguments)})
            except (Exception, SystemExit) as error:
                where = "".join(frame.line or "" for frame in traceback.extract_tb(error.__traceback__)[-1:])
                found.append({"error": f"{type(error).__name__}: {error} ({where}) {said.getvalue()[-300:]}"})
    answers.write_text(json.dumps(found), encoding="utf-8")
