"""Judgement of actions that no sandbox runs: calls of tool servers, starts of agents, and web tools."""

from policy.describe.phrases import plain
from policy.interpreter.findings import Findings
from policy.model.action import (
    AskUser,
    CallServerTool,
    FetchAddress,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    ProposeNote,
    QueryCode,
    ReadServerResource,
    RunHook,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SearchWeb,
    SpawnAgent,
    StartLanguageServer,
    StartServer,
    ToolAction,
)
from policy.model.assessment import Check, Consequence, EffectKind, Reason
from policy.model.host_words import endpoint
from policy.model.tier import Mode, Tier
from policy.model.tool_arguments import parsed
from policy.model.tool_names import certain_server, certain_tool

DESTRUCTIVE = "destructive"  # the hint of a server that its tool deletes or overwrites
_MODES = ("", *(mode.value for mode in Mode))


def judge_tool_call(action: ToolAction, findings: Findings) -> None:
    """Add the effects and tiers of one action to `findings`. A name or address that is not certain is unknown."""
    match action:
        case CallServerTool():
            _server_tool(action, findings)
        case ReadServerResource():
            effect = findings.add_effect(EffectKind.CALLS, action.tool)
            text = f"reads {plain(action.uri)} from the server `{plain(action.server)}`"
            findings.add_reason(Tier.MCP_EXTERNAL, text, Check.SERVER_RESOURCE, None, effect)
            _certain(certain_server(action.server), "server", action.server, findings)
        case SpawnAgent():
            effect = findings.add_effect(EffectKind.CALLS, f"agent {action.agent}")
            text = f"starts the agent `{plain(action.agent)}`, whose actions are judged one by one"
            findings.add_reason(Tier.AGENT_SPAWN, text, Check.AGENT_START, None, effect)
            _certain(certain_tool(action.agent + action.name), "agent", action.agent, findings)
            if action.team:
                _certain(certain_tool(action.team), "team", action.team, findings)
            if action.mode not in _MODES:
                findings.unknown(f"there is no mode `{plain(action.mode)}`", Check.AGENT_START, None)
        case ManageAgent():
            what = {"output": "reads the report of", "message": "sends a message to", "stop": "stops"}
            if action.operation not in what:
                findings.unknown(f"`{plain(action.operation)}` is not done with an agent", Check.AGENT_START, None)
            text = f"{what.get(action.operation, 'uses')} the agent `{plain(action.agent)}`, which this agent started"
            if action.operation == "message":
                text = f"sends a message to the agent `{plain(action.agent)}`"
            findings.add_reason(Tier.READ, text, Check.AGENT_CONTROL, None)
            _certain(certain_tool(action.agent), "agent", action.agent, findings)
        case ManageTasks():
            if action.operation not in ("list", "create", "update"):
                findings.unknown(f"`{plain(action.operation)}` is not done with tasks", Check.TASKS, None)
            verb = "reads" if action.operation == "list" else "changes"
            findings.add_reason(Tier.READ, f"{verb} the task list of this session", Check.TASKS, None)
        case FetchAddress() if action.offset > 0:
            text = f"reads on in {plain(action.url)}, which this session fetched before"
            findings.add_reason(Tier.READ, text, Check.WEB_TOOL, None)
        case FetchAddress():
            _address(action.url, findings)
        case SearchWeb():
            host = endpoint(action.host) if action.host else ""
            findings.connects(host or "", Check.WEB_TOOL, None)
        case SearchTools():
            text = "searches the descriptions of the tools of this session's servers"
            findings.add_reason(Tier.READ, text, Check.TOOL_SEARCH, None)
        case SearchNotes():
            findings.add_reason(Tier.READ, "searches your notes", Check.NOTE_SEARCH, None)
        case LoadSkill():
            findings.add_reason(Tier.READ, f"loads the skill `{plain(action.skill)}`", Check.SKILL, None)
        case AskUser():
            findings.add_reason(Tier.READ, "asks you, and gives the model your answer", Check.ASK_USER, None)
            from policy.model.model_questions import asked_questions  # few sessions ask

            if not asked_questions(action):
                findings.unknown("the questions cannot be read", Check.ASK_USER, None)
        case ProposeNote():
            findings.add_reason(Tier.DANGEROUS, _note(action), Check.NOTE, None)
        case ScheduleJob():
            _job(action, findings)


def _job(action: ScheduleJob, findings: Findings) -> None:
    """Add the tiers of a job. THREAT T296: what adds or removes one is a question in every mode that asks."""
    if action.operation == "list":
        findings.add_reason(Tier.READ, "lists the jobs that models requested", Check.SCHEDULE_JOB, None)
        return
    if action.operation == "delete":
        effect = findings.add_effect(EffectKind.CALLS, f"job {action.job}")
        text = f"removes the job `{plain(action.job)}`"
    else:
        effect = findings.add_effect(EffectKind.CALLS, "a new job")
        outside = f"; text from outside was in view: {', '.join(map(plain, action.outside))}" if action.outside else ""
        text = f"lets a model work without you at later times ({plain(action.schedule)}){outside}"
    findings.add_reason(Tier.AGENT_SPAWN, text, Check.SCHEDULE_JOB, None, effect)
    if action.operation not in ("create", "delete"):
        findings.unknown(f"`{plain(action.operation)}` is not done with jobs", Check.SCHEDULE_JOB, None)
    if action.mode not in _MODES or action.mode == Mode.DANGEROUSLY.value:
        findings.unknown(f"a job cannot have the mode `{plain(action.mode)}`", Check.SCHEDULE_JOB, None)


def _note(action: ProposeNote) -> str:
    """Return what a note does. THREAT T214: the origin of the text is a part of the reason, which every card shows."""
    verb = f"changes the note `{plain(action.name)}`, which" if action.name else "stores a note that"
    where = "all later sessions of all projects" if action.everywhere else "all later sessions of this project"
    outside = f"; text from outside was in view: {', '.join(map(plain, action.outside))}" if action.outside else ""
    return f"{verb} {where} get{outside}"


# The tiers that a user can choose for a tool of a server, by their labels. Without a choice, it is `mcp-external`.
_CHOSEN = {
    "": Tier.MCP_EXTERNAL,
    **{tier.label: tier for tier in (Tier.READ, Tier.WRITE, Tier.NETWORK, Tier.MCP_EXTERNAL, Tier.DANGEROUS)},
}


_STAYS = (
    Tier.DANGEROUS,
    Tier.SECRET,
    Tier.DENIED,
)  # tiers of the command of a server or hook that no configuration lifts


def judge_server_start(action: StartServer, findings: Findings, of_command: tuple[Reason, ...]) -> None:
    """Add the effects and tiers of the start of a tool server. `of_command` are the reasons of its command alone."""
    kind, verb = (EffectKind.CALLS, "connects to") if action.url else (EffectKind.RUNS, "starts")
    effect = findings.add_effect(kind, f"the server {action.server}")
    text = f"{verb} the tool server `{plain(action.server)}`"
    findings.add_reason(Tier.MCP_EXTERNAL, text, Check.SERVER_START, None, effect)
    _certain(certain_server(action.server), "server", action.server, findings)
    if action.url:
        _address(action.url, findings)
    if not action.argv and not action.url:
        findings.unknown("there is no program to run", Check.EMPTY_COMMAND, None)
    for reason in of_command:
        if reason.tier in _STAYS:
            findings.add_reason(reason.tier, reason.text, reason.rule, None)


def judge_hook_run(action: RunHook, findings: Findings, of_command: tuple[Reason, ...]) -> None:
    """Add the effects and tiers of the run of a hook. `of_command` are the reasons of its command alone.

    A hook that may only read has tier read, whatever its command is: its terms grant nothing else.
    """
    effect = findings.add_effect(EffectKind.RUNS, f"a hook of {action.event}")
    verb = "sends the event to" if action.url else "asks the small model by" if action.question else "runs"
    more = ", which may do more than read, as your configuration says" if action.wider else ", which may only read"
    text = f"{verb} the hook {plain(action.place)} of {plain(action.event)}{more if action.argv else ''}"
    tier = Tier.EXECUTE if action.wider or action.url else Tier.READ
    findings.add_reason(tier, text, Check.HOOK_RUN, None, effect)
    if action.url and not (action.url.startswith(("https://", "http://")) and endpoint(action.url)):
        findings.unknown("the host of the address is not certain", Check.WEB_TOOL, None)
    if not action.argv and not action.url and not action.question:
        findings.unknown("there is no program to run", Check.EMPTY_COMMAND, None)
    for reason in of_command:
        if reason.tier in _STAYS:
            findings.add_reason(reason.tier, reason.text, reason.rule, None)


def judge_language_server(
    action: StartLanguageServer, findings: Findings, of_command: tuple[Reason, ...], *, of_workspace: bool
) -> None:
    """Add the effects and tiers of the start of a language server. `of_command` are the reasons of its command alone.

    THREAT T258: the server has tier read, because its terms grant nothing else. A program that lies in the workspace is
    code of the project, which has tier execute.
    """
    effect = findings.add_effect(EffectKind.RUNS, f"the language server {action.language}")
    text = f"starts the language server `{plain(action.language)}`, which may only read"
    tier = Tier.READ
    if of_workspace:
        tier, text = Tier.EXECUTE, f"{text}; its program is a file of the workspace"
    findings.add_reason(tier, text, Check.LANGUAGE_SERVER, None, effect)
    _certain(certain_server(action.language), "language server", action.language, findings)
    program = action.argv[0] if action.argv else ""
    if not program.startswith("/"):
        findings.unknown("there is no program to run", Check.EMPTY_COMMAND, None)
    for reason in of_command:
        if reason.tier in _STAYS:
            findings.add_reason(reason.tier, reason.text, reason.rule, None)


_CODE_QUERIES = {
    "definition": "finds the definition of",
    "references": "finds the references to",
    "symbols": "lists the symbols of",
    "workspace_symbols": "searches the workspace for",
    "hover": "describes",
    "diagnostics": "lists the diagnostics of",
    "rename": "finds the edits for another name of",
}


def judge_code_query(action: QueryCode, findings: Findings) -> None:
    """Add the tiers of a question to a language server, without those of the file that it is about."""
    if action.operation not in _CODE_QUERIES:
        findings.unknown(f"`{plain(action.operation)}` is not done with code", Check.CODE_QUERY, None)
    what = f"`{plain(action.symbol)}`" if action.symbol else "a file"
    text = f"{_CODE_QUERIES.get(action.operation, 'asks about')} {what} with a language server"
    findings.add_reason(Tier.READ, text, Check.CODE_QUERY, None)


def _server_tool(action: CallServerTool, findings: Findings) -> None:
    effect = findings.add_effect(EffectKind.CALLS, action.tool)
    text = f"calls the tool `{plain(action.name)}` of the server `{plain(action.server)}`"
    tier = _CHOSEN.get(action.tier, Tier.UNKNOWN)
    if tier is Tier.UNKNOWN:
        findings.unknown(f"`{plain(action.tier)}` is not a tier that a tool can have", Check.SERVER_TOOL, None)
    elif action.tier:
        text += f", which your configuration gives the tier {tier.label}"
    what = Consequence.IRREVERSIBLE if tier is Tier.DANGEROUS else None
    tier = Tier.MCP_EXTERNAL if tier is Tier.UNKNOWN else tier
    findings.add_reason(tier, text, Check.SERVER_TOOL, None, effect, what)
    _certain(certain_server(action.server), "server", action.server, findings)
    _certain(certain_tool(action.name), "tool", action.name, findings)
    if parsed(action.arguments) is None:
        findings.unknown("the arguments are not a JSON object in canonical form", Check.ARGUMENTS_FORM, None)
    if DESTRUCTIVE in action.hints:
        text = "the server states that this tool deletes or overwrites something"
        predicate = "deletes or overwrites something, as its server states"
        what = Consequence.IRREVERSIBLE
        findings.add_reason(Tier.DANGEROUS, text, Check.SERVER_HINT, None, None, what, predicate)


def _certain(known: bool, what: str, name: str, findings: Findings) -> None:
    if not known:
        findings.unknown(f"`{plain(name)}` cannot be the name of one {what}", Check.UNCLEAR_NAME, None)


def _address(url: str, findings: Findings) -> None:
    """Add the connection to the host of `url`. An address that programs may read in different ways is unknown."""
    scheme = url.partition("://")[0].lower()
    if scheme not in ("http", "https") or not url.isascii() or not url.isprintable() or " " in url:
        findings.unknown("the address is not a plain http or https address", Check.WEB_TOOL, None)
    elif host := endpoint(url):
        findings.connects(host, Check.WEB_TOOL, None)
    else:
        findings.unknown("the host of the address is not certain", Check.WEB_TOOL, None)
