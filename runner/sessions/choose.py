"""The choice of the session that a run continues: the latest, a named one, one picked from a list, or a new one."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from runner.problems import usage
from runner.sessions.open import SessionTarget
from runner.sessions.selection import SessionSelection
from runner.sessions.store import SessionStore, choose
from runner.sessions.summary import SessionSummary, row, summarize_session
from runner.state.paths import home, state_dir
from runner.state.workspace import workspace_of
from runner.stderr import say

_SHOWN = 20  # sessions of the picker; `agent sessions list` has all


def choose_target(
    flags: SessionSelection, cwd: Path, environ: Mapping[str, str], model: str, *, unattended: bool
) -> SessionTarget | None:
    """Return the session file of a run, or None if no session is kept.

    Raise SessionError, PlaceError, a usage error, or KeyboardInterrupt if the user leaves the picker.
    """
    if flags.unkept:
        return None
    state = state_dir(environ)
    store = SessionStore.of(state, workspace_of(str(cwd), os.path.realpath(home(environ))))
    if flags.fork is not None:
        there, id = choose(SessionStore.all(state), flags.fork)
        return SessionTarget.forked(there, id, store, model=model, upto=flags.upto)
    if flags.latest:
        found = store.list()
        if not found:
            fix = "leave --continue out, or see `agent sessions list --all`"
            raise usage("there is nothing to go on with", "no session of this workspace is kept", fix)
        return SessionTarget.resumed(store, found[0].id, model=model)
    if flags.resume is not None:
        id = _named(state, store, flags.resume) if flags.resume else _picked(store, unattended)
        return SessionTarget.resumed(store, id, model=model)
    return SessionTarget(store)


def _named(state: Path, store: SessionStore, words: str) -> str:
    there, id = choose(SessionStore.all(state), words)
    if there.key != store.key:
        why = f"it belongs to `{summarize_session(there, id).workspace}`"
        fix = f"go there, or copy it: `agent --fork {id[:8]}`"
        raise usage(f"the session {id[:8]} is not of this workspace", why, fix)
    return id


def _picked(store: SessionStore, unattended: bool) -> str:
    """Return the session that the user names by its number in the list or by its id."""
    if unattended:
        why = "`--resume` without an id shows a list to pick from, and there is no user to pick one"
        raise usage("no session is named", why, "write `--resume ID`, or `--continue` for the latest one")
    found = store.list()
    if not found:
        raise usage("there is nothing to resume", "no session of this workspace is kept", "leave --resume out")
    shown: list[SessionSummary] = [summarize_session(store, each.id) for each in found[:_SHOWN]]
    for number, each in enumerate(shown, start=1):
        say(f"{number:>3}  {row(each)}")
    if len(found) > len(shown):
        say(f"     and {len(found) - len(shown)} older: `agent sessions list`")
    while True:
        print("which one? a number or an id; Enter takes the first, q leaves: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        answer = line.strip()
        if not line or answer in ("q", "quit"):
            raise KeyboardInterrupt
        if not answer:
            return found[0].id
        if answer.isdecimal() and 1 <= int(answer[:9]) <= len(shown):
            return shown[int(answer) - 1].id
        matching = [each.id for each in found if len(answer) > 3 and each.id.startswith(answer)]
        if len(matching) == 1:
            return matching[0]
        say("that is none of them")
