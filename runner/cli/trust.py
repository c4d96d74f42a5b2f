"""`agent trust`: the files of a repository that would change or run something, and your answers about them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.gate import JSON, argument, option_before, print_notices, switch, valued
from runner.config import load
from runner.problems import Exit, Stopped, usage
from runner.state.paths import state_dir
from runner.state.workspace import workspace_at
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.config.inventory import InventoryEntry
    from runner.config.trust.evaluate import TrustReview
    from runner.config.trust.store import TrustAnswer

# The state of a content that the user answered about, and its text in the list.
_STATES = {"same": "", "changed": "  (has changed)", "gone": "  (does not exist)", "closed": "  (cannot be read)"}

trust_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

PATH = Annotated[str | None, argument("PATH", "The repository (default: the one of the current folder).")]


@trust_app.callback()
def trust(context: typer.Context, json: JSON = False) -> int:
    """Show the files of this repository that are used only if you trust them, and ask whether you do.

    These are: its configuration where it allows more than yours, its texts for agents (AGENTS.md, CLAUDE.md,
    GEMINI.md), its system prompt, its skills, its /commands and its tool servers (MCP). Hooks are listed too, although
    this version does not use them. Your approval is valid only for this folder and exactly this content: after every
    change you are asked again. `agent` and `agent run` ask automatically. Without a terminal, and with --json, this
    command does not ask.

    **Examples**

        agent trust                                   show it, and answer
        agent trust show ~/src/other --json
        agent trust list
        agent trust revoke
        agent run --trust-config HASH "..."           for CI; `show` prints the hash
    """
    if context.invoked_subcommand is not None:
        if json:
            raise option_before(f"trust {context.invoked_subcommand}")
        return Exit.DONE
    review = _evaluate(None)
    from runner.gate.gate import is_unattended

    if json or is_unattended(False) or not review.counts:
        return _print_evaluation(review, json)
    from runner.config.trust.prompt import TrustReply, ask, typed_line
    from runner.config.trust.session_check import now
    from runner.config.trust.store import TrustStore
    from runner.config.trust.text import state_line

    if review.answer is not None:
        say(f"{state_line(review)}\n")
    said = ask(review, typed_line)
    if said is TrustReply.QUIT:
        say("nothing was changed")
        return Exit.DONE
    print_notices(TrustStore(state_dir(os.environ)).remember(review.inventory, yes=said is TrustReply.YES, time=now()))
    say("stored: the files are used until they change" if said is TrustReply.YES else "stored: the files are not used")
    return Exit.DONE


@trust_app.command("show")
def show(
    path: PATH = None,
    files: Annotated[bool, switch("--files", help="Print the complete files too.")] = False,
    json: JSON = False,
) -> int:
    """Print the files of a repository that need trust, their hash, and whether you trust them.

    Asks no questions and changes nothing.

    **Examples**

        agent trust show
        agent trust show --files ~/src/other
        agent trust show --json | jq -r .sha256
    """
    return _print_evaluation(_evaluate(path), json, files=files)


@trust_app.command("list")
def listing(json: JSON = False) -> int:
    """List your answers: the repository, its content, yes or no, and whether the content is still the same.

    Times are UTC.

    **Examples**

        agent trust list
        agent trust list --json | jq -r '[.answer, .workspace] | @tsv'
    """
    from runner.config.trust.store import TrustStore

    answers, notices = TrustStore(state_dir(os.environ)).all()
    print_notices(notices)
    rows: list[dict[str, object]] = []
    for workspace, each in ((workspace, each) for workspace, given in answers.items() for each in given):
        answer, state = "yes" if each.yes else "no", _state(workspace, each)
        row = {"workspace": workspace, "sha256": each.sha256, "answer": answer, "time": each.time}
        rows.append({**row, "entries": len(each.entries), "state": state})
        if json:
            print(json_line(rows[-1]))
        else:
            when = visible(each.time.replace("T", " ").rstrip("Z"), lines=False)
            print(f"{answer:<4} {when:<19}  {each.sha256[:12]}  {visible(workspace, lines=False)}{_STATES[state]}")
    if not rows and not json:
        print("there are no answers")
    return Exit.DONE


@trust_app.command("yes")
def yes() -> int:
    """Show the files of this repository and trust them. Needs a terminal.

    The same as `/trust yes` in a conversation. The approval ends when one byte of the files changes.

    **Examples**

        agent trust yes
    """
    from runner.gate.gate import is_unattended

    if is_unattended(False):
        why = "without a terminal, only the exact content can be trusted"
        raise usage("no user sees the files", why, "write `agent trust accept --sha256 HASH`")
    return _decide(yes=True)


@trust_app.command("no")
def no() -> int:
    """Show the files of this repository and refuse them.

    The same as `/trust no` in a conversation. The files are not used, and you are asked again when they change.

    **Examples**

        agent trust no
    """
    return _decide(yes=False)


def _decide(*, yes: bool) -> int:
    from runner.config.trust.session_check import now
    from runner.config.trust.store import TrustStore

    review = _evaluate(None)
    _print_evaluation(review, json=False)
    if review.inventory.entries:
        print_notices(TrustStore(state_dir(os.environ)).remember(review.inventory, yes=yes, time=now()))
        say("stored: the files are used until they change" if yes else "stored: the files are not used")
    return Exit.DONE


@trust_app.command("accept")
def accept(
    path: PATH = None,
    sha256: Annotated[
        str | None, valued("--sha256", "HASH", "The complete hash that `agent trust show` prints.")
    ] = None,
) -> int:
    """Trust the content with this hash without a question, for scripts.

    Exit 2 if the content of the repository has another hash.

    **Examples**

        agent trust accept --sha256 "$(agent trust show --json | jq -r .sha256)"
        agent trust accept --sha256 HASH ~/src/other
    """
    from runner.config.trust.session_check import agree, now
    from runner.config.trust.store import TrustStore

    if sha256 is None:
        why = "without a question, the hash must name the content that you have checked"
        raise usage("`agent trust accept` needs --sha256", why, "copy the hash that `agent trust show` prints")
    review = _evaluate(path)
    agree(review, sha256, "--sha256")
    if not review.inventory.entries:
        what = f"`{review.inventory.workspace}` contains nothing to trust"
        raise usage(what, "there is no configuration and no text for agents", "check the path")
    print_notices(TrustStore(state_dir(os.environ)).remember(review.inventory, yes=True, time=now()))
    print(f"trusted: {review.inventory.sha256}")
    return Exit.DONE


@trust_app.command("revoke")
def revoke(
    path: PATH = None,
    everything: Annotated[bool, switch("--all", help="Delete all answers, for all repositories.")] = False,
) -> int:
    """Delete your answers for a repository, both yes and no.

    You are asked again when the repository is used. The repository need not exist any more.

    **Examples**

        agent trust revoke
        agent trust revoke ~/src/gone
        agent trust revoke --all
    """
    from runner.config.trust.store import TrustStore

    if everything and path is not None:
        raise usage("a path and --all exclude each other", "--all means every repository", "omit one of them")
    store = TrustStore(state_dir(os.environ))
    where = None if everything else _workspace(path, gone=True)
    count, notices = store.forget(where)
    print_notices(notices)
    of = "" if where is None else f" for {visible(where, lines=False)}"
    if not count and not everything:
        known = ", ".join(f"`{visible(each, lines=False)}`" for each in list(store.all()[0])[:5])
        fix = f"give one of {known}" if known else "there is nothing to do: you have no stored answers"
        raise usage(f"there is no answer{of}", "you never answered, or revoked the answer", fix)
    print(f"revoked: {count} {'answer' if count == 1 else 'answers'}{of}")
    return Exit.DONE


def _workspace(path: str | None, *, gone: bool = False) -> str:
    from runner.gate.gate import folder

    if gone and path is not None and not os.path.isdir(path):
        return os.path.realpath(path)
    return workspace_at(str(folder(path)), os.environ)


def _evaluate(path: str | None) -> "TrustReview":
    """Return the evaluation of one repository and print notices, for example about unreadable configuration."""

    from runner.config.trust.session_check import evaluate_files, look_at
    from runner.config.trust.widening import condense_notices
    from runner.gate.gate import folder

    workspace = _workspace(path)
    inventory = look_at(workspace, str(folder(path)), os.environ)
    settings = load(Path(workspace), os.environ, unattended=True)
    reads, skilled = bool(settings.value("instructions")), bool(settings.value("skills"))
    review, notices = evaluate_files(inventory, settings, os.environ, reads=reads, skilled=skilled)
    print_notices((*condense_notices(settings, mention=False), *notices))
    return review


def _print_evaluation(review: "TrustReview", json: bool, *, files: bool = False) -> int:
    from runner.config.trust.text import contents, description, state_line, state_word

    if json:
        inventory, since = review.inventory, review.since
        widens = [
            {"path": each.path, "line": each.line, "key": each.key, "old": each.old or None, "new": each.new}
            for each in review.widenings
        ]
        form = {
            "workspace": inventory.workspace,
            "sha256": inventory.sha256,
            "state": state_word(review),
            "counts": list(review.counts),
            "widens": widens,
            "entries": [_entry(each) for each in inventory.entries],
            "changed": [{"path": path, "how": how} for path, how in since[1]] if since else [],
        }
        print(json_line(form))
        return Exit.DONE
    if not review.inventory.entries:
        print("this repository contains no files that need trust")
        return Exit.DONE
    print("\n".join([*description(review), *(contents(review) if files else []), "", state_line(review)]))
    return Exit.DONE


def _entry(entry: "InventoryEntry") -> Mapping[str, object]:
    return {
        "path": entry.path,
        "kind": entry.kind.value,
        "used": not entry.refused,
        "executable": entry.executable,
        "bytes": entry.size,
        "sha256": entry.sha256 or None,
        "refused": entry.refused or None,
    }


def _state(workspace: str, answer: "TrustAnswer") -> str:
    """Return the state of the content: `same`, `changed`, `gone`, or `closed` if this user cannot read it."""
    from runner.config.trust.session_check import look_at

    try:
        return "same" if look_at(workspace, workspace, os.environ).sha256 == answer.sha256 else "changed"
    except Stopped:
        return "closed" if os.path.lexists(workspace) else "gone"
