"""Wording of actions, terms and cells for transcripts, questions and records."""

from policy.describe.phrases import hook_text, process_words, tool_call_text
from policy.model.action import (
    Action,
    AskUser,
    CallServerTool,
    ConvertDocument,
    EditFile,
    EditNotebook,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    ProposeNote,
    QueryCode,
    ReadFile,
    ReadProcess,
    ReadServerResource,
    RunArgv,
    RunHook,
    RunScript,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SignalProcess,
    SignGit,
    SpawnAgent,
    StartLanguageServer,
    StartProcess,
    StartServer,
    ToolAction,
    WriteFile,
    WriteProcess,
)
from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Cell, Rights, Terms

RULING_WORDS = {Ruling.ALLOW: "allowed", Ruling.ASK: "asks", Ruling.DENY: "denied"}


def action_words(action: Action, workspace: str) -> str:
    """Return the complete action as a user would type it. Paths below `workspace` are relative.

    The text is as untrusted as the action: print it through `visible`.
    """
    if isinstance(action, StartProcess):
        return f"$ {action.script}  [{'background' if action.stays else 'terminal'}]"
    if isinstance(action, RunScript):
        return f"$ {action.script}"
    if isinstance(action, ToolAction):
        return tool_call_text(action)
    if isinstance(action, SignGit):
        return f"sign a {action.what} with your key {action.key}\n{action.payload.rstrip()}"
    if isinstance(action, ReadProcess | WriteProcess | SignalProcess):
        return process_words(action)
    if isinstance(action, RunHook):
        return hook_text(action)
    if isinstance(action, ConvertDocument):
        return f"convert a {action.document} document"
    import shlex  # most actions are scripts

    if isinstance(action, StartServer):
        if action.url:
            return f"connect to the server {action.server}: {action.url}"
        return f"start the server {action.server}: {shlex.join(action.argv)}"
    if isinstance(action, StartLanguageServer):
        return f"start the language server {action.language}: {shlex.join(action.argv)}"
    if isinstance(action, RunArgv):
        return f"$ {shlex.join(action.argv)}"
    more = ""
    if isinstance(action, GlobFiles | GrepFiles):
        if isinstance(action, GrepFiles) and action.glob:
            more = f" ({action.glob})"
        return f"{action.tool} {shlex.quote(action.pattern)} in {_near(action.root, workspace)}{more}"
    if isinstance(action, ReadFile) and (action.offset, action.limit) != (1, 2000):
        more = f" (from line {action.offset})"
    elif isinstance(action, ReadFile) and action.pages:
        more = f" (pages {action.pages})"
    elif isinstance(action, WriteFile):
        count = action.content.count("\n") + (not action.content.endswith("\n") and bool(action.content))
        more = f" ({count} {'line' if count == 1 else 'lines'})"
    elif isinstance(action, EditNotebook):
        more = f" ({action.operation} cell {action.cell or '1'})"
    elif isinstance(action, EditFile) and action.replace_all:
        more = ", every match"
    return f"{action.tool} {_near(action.path, workspace)}{more}"


_WORKSPACE = "the workspace"
_WITHOUT_LOCKED = "the workspace (not .git/hooks, editor tasks, ...)"


def terms_words(terms: Terms, action: Action | None = None) -> tuple[tuple[str, str], ...]:
    """Return the rights of a permit with these terms as (label, words) pairs. No list of paths or hosts is shortened.

    For an `action` of a file tool, the pair `writes` names the one file that the tool changes.
    """
    if isinstance(action, ToolAction):
        return _call_rights(action, terms)
    if isinstance(action, SignGit):
        return _signing(action)
    apart = isinstance(action, StartServer) and terms.workspace == action.folder
    writes = _writable(terms, action)
    if isinstance(action, WriteFile | EditFile):
        writes = [f"{_near(action.path, terms.workspace)} alone, in a sandbox that could write {', '.join(writes)}"]
    opened = _opened(terms)
    shown = f"; secret files opened: {', '.join(opened)}" if opened else ""
    limits = terms.limits
    return (
        ("reads", ", ".join([*([] if apart else [_WORKSPACE]), "system files", *terms.read]) + shown),
        ("writes", ", ".join(writes) or "nothing"),
        ("network", _network(terms)),
        *_credentials(terms),
        ("limits", f"{limits.wall:g} s, {limits.memory >> 20} MiB of memory, {limits.pids} processes"),
    )


def card_rights(terms: Terms, action: Action) -> tuple[tuple[str, str], ...]:
    """Return the rights of an approval in as few (label, words) pairs as possible, for a card.

    Rights that are the same for every action, such as reading the workspace and the limits, are left out. Each path
    outside the workspace, opened secret file, host and credential is named, and no list is shortened.
    """
    if isinstance(action, ToolAction):
        return _call_rights(action, terms)
    if isinstance(action, SignGit):
        return _signing(action)
    rows: list[tuple[str, str]] = []
    opened = _opened(terms)
    if terms.read:
        rows.append(("reads", ", ".join(terms.read)))
    if opened:
        rows.append(("opens", f"secret files: {', '.join(opened)}"))
    by_file_tool = isinstance(action, WriteFile | EditFile)
    if isinstance(action, WriteFile | EditFile):
        writes = _near(action.path, terms.workspace)
        if others := [path for path in terms.write if path != action.path]:
            writes += f", in a sandbox that could also write {', '.join(others)}"
    else:
        writes = ", ".join(_writable(terms, action)) or "nothing"
    network = _network(terms)
    if network == "none" and not by_file_tool:
        rows.append(("writes", f"{writes}; no network"))
    else:
        rows.append(("writes", writes))
    if network != "none":
        rows.append(("network", network))
    return (*rows, *_credentials(terms))


def _call_rights(action: ToolAction, terms: Terms) -> tuple[tuple[str, str], ...]:
    """Return what an approval of a call allows, as label and text."""
    match action:
        case CallServerTool() | ReadServerResource():
            stated = (
                f"; it states: {', '.join(action.hints)}" if isinstance(action, CallServerTool) and action.hints else ""
            )
            return (("calls", f"the server {action.server} once, which acts with its own rights{stated}"),)
        case SearchTools():
            return (("reads", "the descriptions of the tools of this session's servers"),)
        case QueryCode():
            return (("asks", "a language server, which reads the workspace and changes nothing"),)
        case LoadSkill():
            return (("reads", "the text of this skill"),)
        case SearchNotes():
            return (("reads", "your notes"),)
        case FetchAddress() if action.offset > 0:
            return (("reads", "a page that this session fetched before"),)
        case ProposeNote():
            origin = f"text from outside was in view: {', '.join(action.outside)}" if action.outside else ""
            return (("stores", "this text alone, as a note"), *((("origin", origin),) if origin else ()))
        case ScheduleJob():
            return _job_rights(action)
        case SpawnAgent():
            return (("starts", _spawned(action)),)
        case ManageAgent():
            return (("uses", f"the agent {action.agent}, which this agent started"),)
        case AskUser():
            return (("asks", "you; an answer allows no action"),)
        case ManageTasks():
            return (("uses", "the task list of this session"),)
        case _:
            return (("network", _network(terms)), *_credentials(terms))


def _job_rights(action: ScheduleJob) -> tuple[tuple[str, str], ...]:
    """Return what an approval of a job allows, as label and text."""
    if action.operation != "create":
        return (("jobs", "the list of the jobs that models requested, or the removal of this one"),)
    limits = f"{action.turns} requests, {action.tokens:,} tokens and {action.minutes} minutes"
    origin = f"text from outside was in view: {', '.join(action.outside)}" if action.outside else ""
    return (
        ("runs", f"{action.schedule}, for {action.days} days; `agent jobs remove` ends it earlier"),
        ("may", f"do what the mode {action.mode} allows without a question, in {action.cwd}"),
        ("limits", f"{limits} for each run"),
        *((("origin", origin),) if origin else ()),
    )


def _spawned(action: SpawnAgent) -> str:
    """Return what an approval of the start of a sub-agent allows, in words."""
    within = {"plan": ", which reads and changes nothing", "": ""}.get(action.mode, f" in mode {action.mode}")
    tools = f", with the tools {', '.join(action.tools)}" if action.tools else ""
    where = ", in a Git worktree of its own" if action.isolation else ""
    team = f", in the team {action.team}, whose members send messages to each other" if action.team else ""
    judged = "its actions are judged one by one, like those of this one"
    return f"the agent {action.agent}{within}{tools}{where}{team}; {judged}"


def _signing(action: SignGit) -> tuple[tuple[str, str], ...]:
    return (("signs", f"this {action.what} alone, with {action.key}; the key stays outside of the sandbox"),)


def _writable(terms: Terms, action: Action | None) -> list[str]:
    if isinstance(action, StartServer) and terms.workspace == action.folder:
        return ["its own folder", *terms.write]
    workspace = _WITHOUT_LOCKED if terms.locked else _WORKSPACE
    return [*([workspace] if terms.rights is Rights.WORKSPACE_WRITE else []), *terms.write]


def _opened(terms: Terms) -> list[str]:
    # A pattern without a folder is a name that counts as public (`*.pub`); a path is one file, opened on purpose.
    return [path for path in terms.shown if "/" in path]


def _network(terms: Terms) -> str:
    return ", ".join(terms.open_hosts) or ("none yet" if terms.hosts else "none")


def _credentials(terms: Terms) -> tuple[tuple[str, str], ...]:
    return (("uses", f"credential {', '.join(terms.credentials)}, without seeing it"),) if terms.credentials else ()


def cell_words(cell: Cell) -> str:
    """Return the cell of the matrix: `secret x trust-project = deny`."""
    return f"{cell.tier.label} x {cell.mode.value} = {cell.ruling.name.lower()}"


_ASKS_BEFORE = {
    Tier.READ: "reading",
    Tier.WRITE: "changing files",
    Tier.EXECUTE: "running code",
    Tier.AGENT_SPAWN: "starting another agent",
    Tier.READ_OUTSIDE: "reading outside the workspace",
    Tier.NETWORK: "connecting to a host",
    Tier.WRITE_OUTSIDE: "changing files outside the workspace",
    Tier.MCP_EXTERNAL: "calling an external server",
    Tier.DANGEROUS: "a dangerous action",
    Tier.UNKNOWN: "an action that cannot be read with certainty",
}


def asks_before(cell: Cell) -> str:
    """Return the cell of a question as a sentence: `mode default asks before running code`."""
    if cell.ruling is not Ruling.ASK:
        return f"mode {cell.mode.value} would not ask, but a rule does"
    return f"mode {cell.mode.value} asks before {_ASKS_BEFORE.get(cell.tier, cell.tier.label)}"


def rule_words(rule: RuleRef) -> str:
    """Return the place of a rule for a card: `built in` for a rule of the program itself."""
    return "built in" if rule.kind in (RuleKind.BUILTIN, RuleKind.COMMAND) else str(rule)


def _near(path: str, workspace: str) -> str:
    return "." if path == workspace else path.removeprefix(workspace.rstrip("/") + "/")
