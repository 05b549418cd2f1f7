"""Signatures of files with a user's SSH key, made and checked by OpenSSH's own program, ``ssh-keygen -Y``.

This program holds no cryptography and reads no private key: `ssh-keygen` does, or an agent, or a hardware token.
What is signed is the file, byte by byte, for the purpose :data:`PURPOSE`, so that a signature of a commit or a mail is
none of a plan. The format is OpenSSH's (PROTOCOL.sshsig); `ssh-keygen -Y verify -n clusterwright` checks it as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from planner.base import reading
from planner.base.errors import NoAnswer, WrongQuestion

PURPOSE = "clusterwright"
"""OpenSSH's namespace of a signature."""
MOST_BYTES = 1_000_000
"""Size of a signature, or of a list of signers, that is read."""
_KEY = re.compile(r"with (\S+ key \S+)")


class Signer(NamedTuple):
    """Whose signature a file bears."""

    name: str
    """As the list of signers calls them."""
    key: str
    """Kind and fingerprint of the key: ``ED25519 key SHA256:...``."""


def signature(content: bytes, key: Path) -> str:
    """The signature of a content, as the text of a ``.sig`` file. A key with a passphrase asks for it.

    Args:
        content: What is signed.
        key: The private key, or a public one whose private key an agent or a token holds.

    Raises:
        WrongQuestion: there is no `ssh-keygen`, no such key, or it is not opened.
    """
    if not key.is_file():
        raise WrongQuestion(f"--key {key}: no such file; ssh-keygen -t ed25519 makes a key")
    done = _ssh_keygen(["sign", "-f", str(key)], content)
    if done.returncode:
        raise WrongQuestion(f"--key {key}: ssh-keygen does not sign with it: {_message(done)}")
    return done.stdout.decode("ascii", "replace")


def signer(content: bytes, sealed: Path, signers: Path) -> Signer:
    """Who of a list of signers signed a content.

    Args:
        content: What is said to be signed.
        sealed: The file of the signature.
        signers: The file of who may sign: OpenSSH's ``allowed_signers``, a line ``NAME KIND KEY`` for each.

    Raises:
        WrongQuestion: there is no `ssh-keygen`, or one of the files cannot be read.
        NoAnswer: none of them signed this.
    """
    reading.text(sealed, "a signature", MOST_BYTES)
    reading.text(signers, "a list of signers", MOST_BYTES)
    files = ["-f", str(signers), "-s", str(sealed)]
    named = _ssh_keygen(["find-principals", *files])
    if named.returncode:
        raise NoAnswer(f"{sealed}: by no key of {signers}: {_message(named)}")
    why = ""
    for name in _names(named.stdout):
        done = _ssh_keygen(["verify", *files, "-I", name], content)
        if not done.returncode:
            key = _KEY.search(done.stdout.decode("utf-8", "replace"))
            return Signer(name, key[1] if key else "key unknown")
        why = _message(done)
    raise NoAnswer(f"{sealed}: not a signature of this file: {why or 'it names nobody'}")


def _names(lines: bytes) -> Iterator[str]:
    """Names of the signers that a key is of; a line of the list may give several, by commas."""
    for line in lines.decode("utf-8", "replace").splitlines():
        yield from filter(None, line.split(","))


def _ssh_keygen(words: Sequence[str], content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise WrongQuestion("ssh-keygen is not installed, which signs and checks; OpenSSH 8.2 or later has it")
    action, *others = words
    purpose = [] if action == "find-principals" else ["-n", PURPOSE]
    return subprocess.run([program, "-Y", action, *purpose, *others], input=content, capture_output=True, check=False)


def _message(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line that it said, without what a terminal would act on."""
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").split("\n")
    words = ["".join(filter(str.isprintable, line)).strip() for line in lines]
    return next(filter(None, reversed(words)), f"exit code {done.returncode}")
