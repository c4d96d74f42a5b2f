"""`agent audit key`: the key that signs the log."""

from typing import Annotated

import typer

from runner.cli.gate import FLAG, JSON
from runner.problems import Exit, Stopped, usage

HELP = """The key that signs the checkpoints of the log: an Ed25519 key in the OS keyring, and nowhere else.

Nothing is signed before `sign = true` stands under `[audit]` in your own settings.

**Examples**

    agent audit key new
    agent audit key show
"""
key_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@key_app.command("new")
def new(
    replace: Annotated[
        bool, typer.Option("--replace", metavar=FLAG, help="Also when there is a key: what it signed stays signed.")
    ] = False,
) -> int:
    """Make an Ed25519 key, keep it in the OS keyring, and print its public half.

    It signs the checkpoints of the log once `sign = true` stands under `[audit]` in your own settings. Keep the public
    half where the writer of the log cannot reach: `agent audit verify --public-key` wants it.

    **Examples**

        agent audit key new
        agent audit key new --replace
    """
    from policy.model.verdict import Problem
    from runner.audit.signing_key import kept, made
    from runner.audit.stores.store import AuditError
    from runner.secrets.keyring_store import KeyringFailed

    try:
        before = None if replace else kept()
    except AuditError as error:
        raise Stopped(error.problem, Exit.FAILED) from None
    if before is not None:
        why = f"its public half is {before.public}"
        raise usage("there is a key already", why, "add --replace to sign with another one from now on")
    try:
        print(made().public)
    except KeyringFailed as error:
        fix = error.fix or "in CI, keep what `agent audit seal` prints beside the log instead"
        raise Stopped(Problem("the key cannot be stored", f"the keyring: {error.why}", fix), Exit.FAILED) from None
    return Exit.DONE


@key_app.command("show")
def show(json: JSON = False) -> int:
    """Print the public half of the key, as `agent audit verify --public-key` wants it.

    The other half never leaves the keyring but to sign. Exit 1 when there is none.

    **Examples**

        agent audit key show
        agent audit verify --public-key "$(agent audit key show)"
    """
    from runner.audit.signing_key import needed

    public = needed().public
    if json:
        from json import dumps

        print(dumps({"key": public, "algorithm": "Ed25519"}))
    else:
        print(public)
    return Exit.DONE
