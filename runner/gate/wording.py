"""Wording of actions, terms and cells for transcripts, questions and records."""

from policy.model.action import Action, EditFile, GlobFiles, GrepFiles, ReadFile, RunArgv, RunScript, WriteFile
from policy.model.tier import Ruling
from policy.model.verdict import Cell, Rights, Terms

RULING_WORDS = {Ruling.ALLOW: "allowed", Ruling.ASK: "asks", Ruling.DENY: "denied"}


def action_words(action: Action, workspace: str) -> str:
    """Return the complete action as a user would type it. Paths below `workspace` are relative.

    The text is as untrusted as the action: print it through `visible`.
    """
    if isinstance(action, RunScript):
        return f"$ {action.script}"
    import shlex  # most actions are scripts

    if isinstance(action, RunArgv):
        return f"$ {shlex.join(action.argv)}"
    more = ""
    if isinstance(action, GlobFiles | GrepFiles):
        if isinstance(action, GrepFiles) and action.glob:
            more = f" ({action.glob})"
        return f"{action.tool} {shlex.quote(action.pattern)} in {_near(action.root, workspace)}{more}"
    if isinstance(action, ReadFile) and (action.offset, action.limit) != (1, 2000):
        more = f" (from line {action.offset})"
    elif isinstance(action, WriteFile):
        count = action.content.count("\n") + (not action.content.endswith("\n") and bool(action.content))
        more = f" ({count} {'line' if count == 1 else 'lines'})"
    elif isinstance(action, EditFile) and action.replace_all:
        more = ", every match"
    return f"{action.tool} {_near(action.path, workspace)}{more}"


_UNIX = "AF_UNIX too: sockets in the workspace, a named path or a system folder can be reached"


def terms_words(terms: Terms, action: Action | None = None) -> tuple[tuple[str, str], ...]:
    """Return the rights of a permit with these terms as (label, words) pairs. No list of paths or hosts is shortened.

    For an `action` of a file tool, the pair `writes` names the one file that the tool changes.
    """
    writes = list(terms.write)
    if terms.rights is Rights.WORKSPACE_WRITE:
        except_locked = ", except auto-run files" if terms.locked else ""
        writes.insert(0, f"the workspace{except_locked}")
    if isinstance(action, WriteFile | EditFile):
        writes = [f"{_near(action.path, terms.workspace)} alone, in a sandbox that could write {', '.join(writes)}"]
    # A pattern without a folder is a name that counts as public (`*.pub`); a path is one file, opened on purpose.
    opened = [path for path in terms.shown if "/" in path]
    shown = f"; secret files opened: {', '.join(opened)}" if opened else ""
    limits = terms.limits
    return (
        ("reads", ", ".join(["the workspace", "system files", *terms.read]) + shown),
        ("writes", ", ".join(writes) or "nothing"),
        ("network", ", ".join(terms.open_hosts) or ("none yet" if terms.hosts else "none")),
        *((("sockets", _UNIX),) if terms.unix and terms.rights is Rights.WORKSPACE_WRITE else ()),
        *((("uses", f"credential {', '.join(terms.credentials)}, without seeing it"),) if terms.credentials else ()),
        ("limits", f"{limits.wall:g} s, {limits.memory >> 20} MiB of memory, {limits.pids} processes"),
    )


def cell_words(cell: Cell) -> str:
    """Return the cell of the matrix: `secret x trust-project = deny`."""
    return f"{cell.tier.label} x {cell.mode.value} = {cell.ruling.name.lower()}"


def _near(path: str, workspace: str) -> str:
    return "." if path == workspace else path.removeprefix(workspace.rstrip("/") + "/")
