"""Documents that are signed with an SSH key, and what is not signed by it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from planner.base import signing
from tests.asking import ask
from tests.plans import plans

pytestmark = [
    pytest.mark.usefixtures("folder"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here (OpenSSH)"),
]


@pytest.fixture
def signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A plan that alice signed, her key, and a list of signers with hers and bob's."""
    lines = []
    for name in ("alice", "bob"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name]
        subprocess.run(words, cwd=folder, check=True)
        lines.append(f"{name}@lab,{name} {(folder / f'{name}.pub').read_text(encoding='utf-8')}")
    (folder / "signers").write_text("".join(lines), encoding="utf-8")
    (folder / "plan.json").write_text(plans("lora").plans[0].to_json(), encoding="utf-8")
    assert ask(capsys, "sign plan.json --key alice").code == 0
    return folder


def test_a_document_says_who_signed_it(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "verify plan.json --signers signers")
    assert (answer.code, answer.err) == (0, "")
    assert "by alice@lab, ED25519 key SHA256:" in answer.out


def test_what_none_of_the_signers_signed_is_refused(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another byte, a signature for another purpose, a signer who is not on the list, a file that is no signature."""
    plan, sealed, line = signed / "plan.json", signed / "plan.json.sig", "verify plan.json --signers signers"
    text, signature = plan.read_text(encoding="utf-8"), sealed.read_text(encoding="utf-8")
    plan.write_text(f"{text} ", encoding="utf-8")
    edited = ask(capsys, line)
    assert (edited.code, "not a signature of this file" in edited.err, edited.out) == (1, True, "")

    plan.write_text(text, encoding="utf-8")
    words = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", "alice"]
    sealed.write_bytes(subprocess.run(words, cwd=signed, input=text.encode(), check=True, stdout=-1).stdout)
    assert ask(capsys, line).code == 1

    sealed.write_text(signature, encoding="utf-8")
    (signed / "bobs").write_text(f"bob {(signed / 'bob.pub').read_text(encoding='utf-8')}", encoding="utf-8")
    stranger = ask(capsys, "verify plan.json --signers bobs")
    assert (stranger.code, "plan.json.sig: by no key of bobs" in stranger.err) == (1, True)
    sealed.write_text("-----BEGIN", encoding="utf-8")
    assert ask(capsys, line).code == 1


def test_what_cannot_be_signed_or_checked_is_said(
    signed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (signed / "note.json").write_text("{}", encoding="utf-8")
    for line, says in (
        ("sign plan.json --key alice", "plan.json.sig: exists already; --force replaces it"),
        ("sign plan.json --key carol --force", "--key carol: no such file"),
        ("sign plan.json --key plan.json --force", "--key plan.json: ssh-keygen does not sign with it"),
        ("sign note.json --key alice", "note.json"),
        ("verify plan.json --signers nobody", "nobody: No such file"),
        ("verify plan.json --signature none.sig --signers signers", "none.sig: No such file"),
    ):
        answer = ask(capsys, line)
        assert (answer.code, says in answer.err, answer.out) == (2, True, ""), line
    assert "BEGIN SSH SIGNATURE" in (signed / "plan.json.sig").read_text(encoding="utf-8"), "nothing replaced it"
    monkeypatch.setattr(signing.shutil, "which", lambda program: None)
    assert "ssh-keygen is not installed" in ask(capsys, "verify plan.json --signers signers").err
