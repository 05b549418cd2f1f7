"""``clusterwright sign`` and ``verify``: documents that pass between teams, with who answers for them."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands import options


@click.command()
@click.argument("file", type=options.PATH)
@click.option("--key", type=options.PATH, required=True, metavar="FILE",
              help="Your SSH key; a public one, where an agent or a token holds the private key.")  # fmt: skip
@click.option("-o", "output", type=options.PATH, metavar="FILE", help="The signature (default: FILE.sig).")
@click.option("--force", is_flag=True, help="Replace a signature that stands there.")
def sign(file: Path, key: Path, output: Path | None, force: bool) -> None:
    """Sign a document with your SSH key, by OpenSSH's ssh-keygen.

    The signature is a file next to the document, which stays as it is. It holds for the document byte by byte.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright sign plan.json --key ~/.ssh/id_ed25519
      clusterwright verify plan.json --signers signers
    """  # noqa: D301 - click reads the control character itself
    from planner.api import documents
    from planner.base import signing, writing
    from planner.commands.screen import render

    target = output or file.with_name(f"{file.name}.sig")
    writing.may_write(target, replace=force)
    documents.load(file)
    writing.write(target, signing.signature(file.read_bytes(), key.expanduser()), replace=force)
    render.labelled("Written", str(target))


@click.command()
@click.argument("file", type=options.PATH)
@click.option("--signature", type=options.PATH, metavar="FILE", help="The signature (default: FILE.sig).")
@click.option("--signers", type=options.PATH, required=True, metavar="FILE",
              help="Who may sign: a line NAME KIND KEY for each, as OpenSSH's allowed_signers.")  # fmt: skip
def verify(file: Path, signature: Path | None, signers: Path) -> None:
    """Check who signed a document, by OpenSSH's ssh-keygen; exit code 1 if none of the signers did.

    A line of the list of signers is a name and a public key: alice@lab ssh-ed25519 AAAA...
    What the figures are worth, explain FILE --recheck says.

    \b
      clusterwright verify plan.json --signers signers
      clusterwright verify plan.json --signature alice.sig --signers signers
    """  # noqa: D301 - click reads the control character itself
    from planner.api import documents
    from planner.base import signing
    from planner.commands.screen import render

    documents.load(file)
    sealed = signature or file.with_name(f"{file.name}.sig")
    found = signing.signer(file.read_bytes(), sealed, signers.expanduser())
    render.labelled("Signed", f"by {found.name}, {found.key}")
