"""`agent serve token`: the tokens with which a browser may reach sessions when `agent serve --listen` is used."""

import os
import re
import sys
import time
from typing import Annotated

import typer

from runner.agent.options import not_known
from runner.cli.gate import JSON, argument, completing, option_before, switch, valued
from runner.frontends.remote.qr_code import terminal_code
from runner.frontends.remote.scope import TokenScope
from runner.frontends.remote.status import RemoteStatus, remote_folder
from runner.frontends.remote.tokens import LINK_SECONDS, RemoteTokens, Token
from runner.problems import Exit, usage
from runner.stderr import say
from runner.text.json_line import json_line, utc_time
from runner.text.sanitize import visible

token_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")


def _names(incomplete: str) -> list[str]:
    """Return the names of tokens for completion."""
    return [each.name for each in _store().tokens() if each.name.startswith(incomplete)]


NAME = Annotated[str, argument("NAME", "The name of a token.", complete=_names)]
SCOPE = Annotated[
    str,
    valued(
        "--scope",
        "view|answer|prompt",
        "What the token allows: to see sessions and the record (default); also to answer questions; also to send "
        "prompts and to interrupt.",
        complete=completing(lambda: TokenScope),
    ),
]


@token_app.callback()
def tokens(context: typer.Context, json: JSON = False) -> int:
    """List, add and remove the tokens for remote access.

    A browser needs a token for the page of `agent serve --listen`. A token is shown once and stored only as a salted
    hash. Removing it ends every page that uses it at once.

    **Examples**

        agent serve token add phone --scope answer --link
        agent serve token add dashboard --expires 7d --folder ~/project
        agent serve token list
        agent serve token remove phone
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"serve token {context.invoked_subcommand}")
    return Exit.DONE


@token_app.command("list")
def listing(json: JSON = False) -> int:
    """List the tokens: name, scope, end and folder.

    The tokens themselves are not stored. An expired token is listed until it is removed.

    **Examples**

        agent serve token list
        agent serve token list --json | jq -r .name
    """
    found = _store().tokens()
    now = time.time()
    if not found and not json:
        print("there are no tokens; `agent serve token add NAME` adds one")
    for each in found:
        print(json_line(_as_json(each, now)) if json else _line(each, now))
    return Exit.DONE


@token_app.command("add")
def add(
    name: Annotated[str, argument("NAME", "A name for the token, such as the name of the device.")],
    scope: SCOPE = TokenScope.VIEW.value,
    expires: Annotated[
        str | None, valued("--expires", "TIME", "When the token ends: 12h, 7d (default: it has no end).")
    ] = None,
    folder: Annotated[
        str | None, valued("--folder", "FOLDER", "Only the sessions and decisions in FOLDER and below it.")
    ] = None,
    link: Annotated[
        bool, switch("--link", help="Print a link that signs in once, within ten minutes, and no token.")
    ] = False,
) -> int:
    """Add a token and print it. It is shown only now.

    With `--link`, a link is printed in place of the token. It works once, within ten minutes, in one browser, and only
    while `agent serve --listen` runs. Another link for the same token: `agent serve token link NAME`.

    **Examples**

        agent serve token add phone --scope answer --link
        agent serve token add laptop --scope prompt --expires 30d
        agent serve token add dashboard --folder ~/project > token.txt
    """
    if scope not in list(TokenScope):
        raise not_known(
            f"there is no scope `{scope}`", f"the scopes are {', '.join(TokenScope)}", scope, list(TokenScope), ""
        )
    seconds = _life(expires) if expires is not None else None
    where = os.path.realpath(os.path.expanduser(folder)) if folder is not None else None
    if where is not None and not os.path.isdir(where):
        raise usage(f"`--folder {folder}` is not a folder", "sessions have folders", "check the path")
    url = _address() if link else ""  # before the token is stored
    now = time.time()
    until = now + seconds if seconds is not None else None
    token = _store().add(name, TokenScope(scope), now, until=until, folder=where)
    if link:
        return _link(name, url)
    # The only place that prints the token: `say` would mask it.
    sys.stdout.write(f"{token.reveal()}\n")
    say(f"the token `{name}` is shown only now; its scope is `{scope}`")
    return Exit.DONE


@token_app.command("link")
def link(name: NAME) -> int:
    """Print a link that signs one browser in as a token. It works once, within ten minutes.

    A terminal shows it as a QR code as well. The code of the link is in the part of the address that a browser sends to
    no server, and is removed from the address bar.

    **Examples**

        agent serve token link phone
    """
    return _link(name, _address())


@token_app.command("remove")
def remove(name: NAME) -> int:
    """Remove a token.

    Every page that is signed in with it is closed at once, and its links are worth nothing.

    **Examples**

        agent serve token remove phone
    """
    _store().remove(name)
    say(f"the token `{name}` was removed; pages that used it are closed")
    return Exit.DONE


def _link(name: str, url: str) -> int:
    address = f"{url}#{_store().add_link(name, time.time()).reveal()}"
    if sys.stdout.isatty() and (code := terminal_code(address)) is not None:
        sys.stdout.write(f"{code}\n")
    sys.stdout.write(f"{address}\n")
    say(f"the link signs in once as `{name}`, within {LINK_SECONDS // 60} minutes; show it to nobody else")
    return Exit.DONE


def _life(text: str) -> int:
    """Return the seconds in `12h` or `7d`. Raise a usage error for another text."""
    found = re.fullmatch(r"([1-9][0-9]{0,3})([mhdw])", text.strip())
    if found is None:
        why = "a time is a number up to 9999 with m, h, d or w"
        raise usage(f"`--expires {text}` is not a time", why, "write `--expires 7d`")
    return int(found[1]) * {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}[found[2]]


def _address() -> str:
    """Return the address of the page. Raise a usage error if no server runs."""
    status = RemoteStatus.of(remote_folder(os.environ))
    if status is None:
        fix = "run `agent serve --listen ADDR` first, or add the token without `--link`"
        raise usage("there is no page to link to", "remote access does not run", fix)
    return status.url


def _store() -> RemoteTokens:
    return RemoteTokens(remote_folder(os.environ))


def _line(token: Token, now: float) -> str:
    ends = "no end" if token.until is None else f"until {utc_time(token.until)}" if token.is_valid(now) else "expired"
    where = f"  in {visible(token.folder, lines=False)}" if token.folder is not None else ""
    return f"{token.name:<20} {token.scope:<7} {ends}{where}"


def _as_json(token: Token, now: float) -> dict[str, object]:
    return {
        "name": token.name,
        "scope": token.scope.value,
        "folder": token.folder,
        "created": utc_time(token.created),
        "expires": utc_time(token.until),
        "valid": token.is_valid(now),
    }
