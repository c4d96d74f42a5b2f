"""Wording of actions, terms and cells for transcripts, questions and records."""

from typing import assert_never

from policy.model.action import (
    Action,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunArgv,
    RunScript,
    WriteFile,
)
from policy.model.tier import Ruling
from policy.model.verdict import Cell, Rights, Terms

RULING_WORDS = {Ruling.ALLOW: "allowed", Ruling.ASK: "asks", Ruling.DENY: "denied"}


def action_words(action: Action, workspace: str) -> str:
    """Return the complete action as a user would type it. Paths below `workspace` are relative.

    The text is as untrusted as the action: print it through `visible`.
    """
    match action:
        case RunScript():
            return f"$ {action.script}"
        case RunArgv():
            return "$ " + " ".join(_quoted(word) for word in action.argv)
        case ReadFile():
            part = "" if (action.offset, action.limit) == (1, 2000) else f" (from line {action.offset})"
            return f"read {_near(action.path, workspace)}{part}"
        case WriteFile():
            count = action.content.count("\n") + (not action.content.endswith("\n") and bool(action.content))
            return f"write {_near(action.path, workspace)} ({count} {'line' if count == 1 else 'lines'})"
        case EditFile():
            every = ", every match" if action.replace_all else ""
            return f"edit {_near(action.path, workspace)}{every}"
        case ListFolder():
            return f"ls {_near(action.path, workspace)}"
        case GlobFiles():
            return f"glob {_quoted(action.pattern)} in {_near(action.root, workspace)}"
        case GrepFiles():
            only = f" ({action.glob})" if action.glob else ""
            return f"grep {_quoted(action.pattern)} in {_near(action.root, workspace)}{only}"
        case never:
            assert_never(never)


_UNIX = "AF_UNIX as well: who listens in the workspace, a named path or a system folder can be reached"


def terms_words(terms: Terms, action: Action | None = None) -> tuple[tuple[str, str], ...]:
    """Return the rights of a permit with these terms as (label, words) pairs, without omissions.

    For an `action` of a file tool, the first pair says what the tool does with the file.
    """
    writes = list(terms.write)
    if terms.rights is Rights.WORKSPACE_WRITE:
        writes.insert(
            0, "the workspace, except what other programs run by themselves" if terms.locked else "the workspace"
        )
    if isinstance(action, WriteFile | EditFile):
        writes[:] = [f"{_near(action.path, terms.workspace)} alone, in a sandbox that could write {', '.join(writes)}"]
    # A pattern without a folder is a name that counts as public (`*.pub`); a path is one file, opened on purpose.
    opened = [path for path in terms.shown if "/" in path]
    shown = f"; secret files opened: {', '.join(opened)}" if opened else ""
    return (
        ("reads", ", ".join(["the workspace", "system files", *terms.read]) + shown),
        ("writes", ", ".join(writes) or "nothing"),
        ("network", ", ".join(terms.open_hosts) or ("none yet" if terms.hosts else "none")),
        *((("sockets", _UNIX),) if terms.unix and terms.rights is Rights.WORKSPACE_WRITE else ()),
        *((("uses", f"credential {', '.join(terms.credentials)}, unseen"),) if terms.credentials else ()),
        ("limits", f"{terms.limits.wall:g} s, {terms.limits.memory >> 20} MB of memory, {terms.limits.pids} processes"),
    )


def cell_words(cell: Cell) -> str:
    """Return the cell of the matrix: `secret x trust-project = deny`."""
    return f"{cell.tier.label} x {cell.mode.value} = {cell.ruling.name.lower()}"


def _near(path: str, workspace: str) -> str:
    if path == workspace:
        return "."
    return path.removeprefix(workspace.rstrip("/") + "/")


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
