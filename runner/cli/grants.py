"""`agent grants`: list, add, show and revoke remembered answers."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from policy.grants.grant import Grant, GrantScope
from policy.model.profile import Source
from policy.model.tier import Ruling
from policy.model.verdict import Ask, Deny, Problem
from runner.agent.options import not_known
from runner.cli.gate import JSON, MODE, argument, print_notices, state_alone, switch, valued
from runner.gate.grants.text import about, labelled_fields, lines
from runner.problems import Exit, Stopped, usage
from runner.state.paths import PlaceError, private, state_dir
from runner.stderr import wrapped
from runner.text.json_line import json_line, utc_time
from runner.text.sanitize import visible

HELP = """List, show, add and remove grants: your remembered answers.

At a question, some letters also remember your approval, and `d` remembers your refusal. A grant is stored outside
every sandbox and is valid for one folder, or with `user` for all your folders. Without a command, the grants of this
folder are listed. The grants of one session are stored with it: type `/grants` in the session.

**Examples**

    agent grants
    agent grants list --all
    agent grants show g1a2b3c4d
    agent grants revoke g1a2b3c4d
    agent grants add 'npm test'
"""

GrantEdit = Callable[[tuple[Grant, ...]], tuple[tuple[Grant, ...], tuple[Grant, ...]]]

grants_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


def _names(incomplete: str) -> list[str]:
    """Return the names of grants for completion. Never raises, and changes nothing."""
    from runner.gate.grants.store import grant_file
    from runner.state.json_file import StateError

    try:
        folder = Path(private(os.environ)[0])
        if not (folder / "grants.json").is_file():
            return []
        return [grant.id for grant in grant_file(folder).read().value if grant.id.startswith(incomplete)]
    except (PlaceError, StateError):
        return []


ID = Annotated[
    str,
    typer.Argument(metavar="ID", help="The name of a grant.", autocompletion=_names, show_default=False),
]
ALL = Annotated[bool, switch("--all", help="List the grants of all folders, and expired ones.")]
WORKSPACE = Annotated[str | None, valued("--workspace", "FOLDER", "The folder (default: the current one).")]


@grants_app.command("list")
def listing(everything: ALL = False, workspace: WORKSPACE = None, json: JSON = False) -> int:
    """List the grants that are valid in this folder.

    Each line: the action, the users and folders, the expiry, the remaining uses, and who answered.

    **Examples**

        agent grants list --all
        agent grants list --workspace ~/src/shop
        agent grants list --json | jq .what.words
    """
    now = time.time()
    here = _workspace_path(workspace)
    found = [
        grant
        for grant in _stored()
        if everything or (not grant.ended(now) and (grant.span is GrantScope.USER or grant.workspace == here))
    ]
    if json:
        return _print_json(found, now)
    if not found:
        print("there are no grants" if everything else "there are no grants for this folder")
    for line in (line for grant in found for line in lines(grant, now, here)):
        print(visible(line, lines=False))
    return Exit.DONE


state_alone(grants_app, "grants", lambda json: listing(json=json))


@grants_app.command("add")
def add(
    script: Annotated[str, argument("SCRIPT", "A bash script in quotes, as for `agent exec`.")],
    answer: Annotated[
        list[str] | None, argument("ANSWER", "The answer to the question: `p`, `P`, `d`, and so on.")
    ] = None,
    workspace: WORKSPACE = None,
    mode: MODE = None,
) -> int:
    """Remember an answer before the question is asked. Runs nothing.

    Without ANSWER: list the possible answers to the question about SCRIPT.

    **Examples**

        agent grants add 'npm test'
        agent grants add 'npm test' p 7d because of the release
        agent grants add 'git commit -m x' d
    """
    from runner.frontends.exec.grants import recall
    from runner.gate.gate import GateArgs, open_gate

    gate, action = open_gate(GateArgs(script=script, argv=None, cwd=workspace, mode=mode), os.environ)
    assessment, verdict = gate.evaluate(action, unattended=False)
    asked = recall(gate, assessment, verdict, Source.MODEL, unattended=False)
    if asked.found.by:
        print(f"grant {asked.found.by[0].id} already covers it: {visible(about(asked.found.by[0]), lines=False)}")
        return Exit.DONE
    if isinstance(verdict, Deny):
        raise Stopped(verdict.problem, Exit.DENIED)
    if not isinstance(verdict, Ask):
        print("SCRIPT is allowed without a question")
        return Exit.DONE
    offered = asked.offer
    if not offered.choices and offered.never is None:
        why = "it can be approved only once, because it is dangerous or not fully known before it runs"
        raise usage("an answer for SCRIPT cannot be remembered", why, "see `agent why` for the reasons")
    if not answer:
        for line in offered.details:
            print(wrapped(visible(line, lines=False), 3, 1))  # below the words behind the letter
        return Exit.DONE
    typed = " ".join(answer)
    kept = offered.picked(typed)
    if kept is None or isinstance(kept, str):
        why = kept or "an answer is a letter of the list, which `7d`, `3x`, `user` or `because ...` may follow"
        raise usage(f"`{visible(typed, lines=False)}` is not a possible answer", why, "omit it to see the choices")
    names, told = asked.keep(kept)
    if not names:
        raise Stopped(Problem("nothing was remembered", told, "see `agent doctor` about the state folder"), Exit.FAILED)
    print(wrapped(visible(told), 2, 1))
    return Exit.DONE


@grants_app.command("show")
def show(name: ID, json: JSON = False) -> int:
    """Print all details of one grant.

    These are the actions that it covers, its bounds and expiry, who answered, and the original action.

    **Examples**

        agent grants show g1a2b3c4d
        agent grants show g1a2b3c4d --json
    """
    grant = next((each for each in _stored() if each.id == name), None)
    if grant is None:
        raise _unknown(name)
    now = time.time()
    if json:
        print(json_line(_grant_json(grant, now)))
        return Exit.DONE
    for label, text in labelled_fields(grant, now):
        print(f"{label:<9} {visible(text, lines=False)}")
    return Exit.DONE


@grants_app.command("revoke")
def revoke(
    names: Annotated[list[str] | None, argument("ID", "The names of grants in the list.", complete=_names)] = None,
    everything: Annotated[
        bool,
        switch(
            "--all",
            help="All approvals that are valid in this folder, also those for all your projects, but no refusals.",
        ),
    ] = False,
    workspace: WORKSPACE = None,
) -> int:
    """Remove grants. Running sessions use the change from their next action on.

    Remembered refusals are removed by their names, too.

    **Examples**

        agent grants revoke g1a2b3c4d
        agent grants revoke --all
    """
    if bool(names) == everything:
        why = "both were given" if names else "neither a name nor --all was given"
        raise usage("no grant is selected", why, "give names from `agent grants list`, or --all")
    here = _workspace_path(workspace)
    wanted = set(names or ())

    def drop(stored: tuple[Grant, ...]) -> tuple[tuple[Grant, ...], tuple[Grant, ...]]:
        gone = tuple(
            grant
            for grant in stored
            if grant.id in wanted
            or (
                everything
                and grant.ruling is Ruling.ALLOW
                and (grant.workspace == here or grant.span is GrantScope.USER)
            )
        )
        if wanted - {grant.id for grant in gone}:
            return stored, gone
        return (tuple(grant for grant in stored if grant not in gone) if gone else stored), gone

    taken = _change(drop)
    missing = sorted(wanted - {grant.id for grant in taken})
    if missing:
        raise _unknown(missing[0])
    if not taken:
        print("there was no grant to remove")
    for grant in taken:
        print(f"revoked {grant.id}: {visible(grant.what.words, lines=False)}")
    return Exit.DONE


@grants_app.command("prune")
def prune(json: JSON = False) -> int:
    """Remove grants that have no effect any more.

    These are grants that have expired, have no uses left, or belong to deleted folders.

    **Examples**

        agent grants prune
    """
    from runner.gate.grants.store import pruned

    now = time.time()
    dropped = _change(lambda stored: pruned(stored, now, gone=lambda folder: not os.path.isdir(folder)))
    if json:
        return _print_json(dropped, now)
    for grant in dropped:
        print(f"removed {grant.id}: {visible(grant.what.words, lines=False)}")
    if not dropped:
        print("there was no grant to remove")
    return Exit.DONE


# ---- stored grants


def _stored() -> tuple[Grant, ...]:
    from runner.gate.grants.store import grant_file

    if not os.path.lexists(private(os.environ)[0]):
        return ()
    held = grant_file(state_dir(os.environ)).read()
    print_notices(held.notices)
    return held.value


def _change(edit: GrantEdit) -> tuple[Grant, ...]:
    from runner.gate.grants.store import grant_file

    answer, notices = grant_file(state_dir(os.environ)).change(edit)
    print_notices(notices)
    return answer


def _workspace_path(workspace: str | None) -> str:
    """Return the real path of the workspace, by default the current folder. The folder may be missing."""
    return os.path.realpath(os.path.expanduser(workspace)) if workspace is not None else os.path.realpath(os.getcwd())


def _unknown(name: str) -> Stopped:
    known = [grant.id for grant in _stored()]
    what, why = f"there is no grant `{visible(name, lines=False)}`", "no grant has this name"
    return not_known(what, why if known else "there are no grants", name, known, "see `agent grants list --all`")


def _grant_json(grant: Grant, now: float) -> dict[str, object]:
    from runner.gate.grants.codec import to_json

    stored = to_json(grant)
    return {
        "id": stored.pop("id"),
        "verdict": stored.pop("ruling"),
        **stored,
        "created": utc_time(grant.created),
        "expires": utc_time(grant.expires),
        "holds": not grant.ended(now) and not grant.early(now),
        "says": about(grant),
    }


def _print_json(grants: Iterable[Grant], now: float) -> int:
    for grant in grants:
        print(json_line(_grant_json(grant, now)))
    return Exit.DONE
