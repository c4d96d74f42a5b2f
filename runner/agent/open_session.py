"""The opening of a session: from settings to a RunContext, in an order that fails early."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from policy.evaluation import fingerprint
from policy.flow.state import FlowMode
from policy.flow.trusted_text import TrustedText
from policy.grants.grant import GrantHolder
from policy.model.frozen import dataclass
from policy.model.profile import MAIN, Profile
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Problem
from runner.approval.approver import Approver
from runner.audit.log import log_place, open_log
from runner.audit.records import SessionInfo
from runner.audit.session_totals import SessionTotals
from runner.changes.undo.recorder import snapshot_recorder
from runner.config import ConfigError, Settings
from runner.config.amounts import apply_limits
from runner.config.compaction_levels import Disorder, levels_of
from runner.config.live_profile import ConfigurationSource, LiveProfile
from runner.engine.compaction.summarizer import Summarizer
from runner.engine.compaction.view import ConversationView
from runner.engine.context.context import Context, SourcedText, surroundings
from runner.engine.control_server import ControlServer
from runner.engine.event_redaction import RedactingEmitter
from runner.engine.model_access import OpenModels
from runner.engine.port_forwards import PortForwards
from runner.engine.processes import SessionProcesses
from runner.engine.run_context import LiveSettings, RunContext
from runner.engine.run_limits import RunLimits
from runner.engine.signing import open_signing
from runner.engine.steering import Delivery, Steering
from runner.events import Emit, Event, Notice, ProcessStarted
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from runner.facts.git.introduced import commits_since, introducing_commit
from runner.flow.session_flow import ResultLabels, SessionFlow
from runner.flow.written_files import WrittenFiles
from runner.gate.grants.codec import to_json
from runner.gate.grants.store import GrantStore
from runner.messages import Thinking
from runner.problems import usage
from runner.providers import OpenModel
from runner.providers.catalog import Price, price_of
from runner.secrets.broker.session import injector_for, with_bundle
from runner.secrets.redactor import Redactor
from runner.secrets.secret import register_environment
from runner.sessions.journal import Journal
from runner.sessions.open import SessionRun, SessionTarget
from runner.sessions.store import JournalError
from runner.state.json_file import StateError
from runner.state.output_store import OutputStore
from runner.state.paths import cache_dir, state_dir
from runner.state.workspace import head_commit
from runner.text.phrases import os_reason
from sandbox.backend import Level
from sandbox.backends import open_backend

if TYPE_CHECKING:
    from policy.model.facts import Facts
    from runner.approval.open_questions import OpenQuestions
    from runner.children.session_agents import SessionAgents
    from runner.config.agentfiles.definitions.definition import AgentDefinition
    from runner.engine.output_schema import OutputSchema
    from runner.hooks.configured import ConfiguredHooks
    from runner.jobs.session_jobs import SessionJobs
    from runner.lsp.session_servers import LanguageServers
    from runner.mcp.server_config import ServerConfig
    from runner.mcp.servers import SessionServers
    from runner.memory.session_notes import SessionNotes
    from runner.tasks.session_tasks import SessionTasks
    from runner.web.session_web import SessionWeb
    from tools.registry import ToolRegistry, ToolSelection
    from tools.tool import ModelTool


# The programs whose registries a lock file or settings of the workspace can name.
_PACKAGE_PROGRAMS = ("npm", "yarn", "pip", "uv", "cargo", "go", "gem", "composer")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session.

    Attributes:
        cwd: The folder of the session, a real and absolute path.
        unattended: True if there is no user who could answer.
        mode: The mode, or None for the mode of the configuration.
        limits: The limits of one command as `NAME=VALUE`.
        backend: The name of the sandbox backend, or None for the best one.
        least: The minimum enforcement, `full` or `partial`, or None for that of the configuration.
        bounds: The limits of one run.
        argv: The command line, for the record.
        beginning: The session file and the session to continue, or None if nothing is stored.
        instructions: The instruction texts of the repository for the model.
        context: The other texts for the model.
        source: The configuration as the files have it now, so that a change takes effect while the session runs. None
            if the settings of the session never change.
        servers: The configured tool servers, enabled or not.
        agents: The kinds of sub-agents that the model may start.
        notes: True if the session uses the notes of the user and the workspace.
        hooks: The configured hooks, or None if there are none.
        bundles: The copies of bundles that every command of the session may read. They were verified.
        code: True if the session may use language servers.
        web: True if the session may read pages on the web.
        output: The JSON Schema of the answers, or None.
        tools: The tools of the session in place of the usual ones; empty for the usual ones.
        guarded: True if `guard` is the default of the setting `flow`: in `agent ci` and `agent batch`.
        foreign: The source of the workspace's own text in words, if all of it is untrusted; else empty.
        job: The id of the scheduled job that the session is a run of, or empty.
        strangers: Pairs of a source in words and a text that the prompt may contain and that a stranger wrote.
    """

    cwd: Path
    unattended: bool
    mode: Mode | None = None
    limits: tuple[str, ...] = ()
    backend: str | None = None
    least: str | None = None
    bounds: RunLimits = field(default_factory=RunLimits)
    argv: tuple[str, ...] = ()
    beginning: SessionTarget | None = None
    instructions: str = ""
    context: Context = field(default_factory=Context)
    source: ConfigurationSource | None = None
    servers: "tuple[ServerConfig, ...]" = ()
    agents: "tuple[AgentDefinition, ...]" = ()
    notes: bool = False
    hooks: "ConfiguredHooks | None" = None
    bundles: tuple[str, ...] = ()
    code: bool = True
    web: bool = False
    output: "OutputSchema | None" = None
    tools: "tuple[ModelTool, ...]" = ()
    guarded: bool = False
    foreign: str = ""
    strangers: tuple[tuple[str, str], ...] = ()
    job: str = ""


def selected_tools(settings: Settings) -> "ToolSelection":
    """Return the selection of tools of the settings. Raise a usage error if a name is that of no tool."""
    from tools import ASK_TOOL, NOTE_TOOLS, SKILL_TOOL, TOOLS
    from tools.registry import ToolSelection

    selection = ToolSelection(settings.names("tools", "only"), settings.names("tools", "except"))
    # Offered once they are useful.
    agents = ("agent", "agent_output", "agent_message", "agent_stop")
    later = ("lsp", *agents, "tasks", "schedule_job", "extract", "web_fetch", "web_search")
    if (
        problem := selection.fault([*(tool.name for tool in (*TOOLS, *NOTE_TOOLS, SKILL_TOOL, ASK_TOOL)), *later])
    ) is not None:
        raise usage(problem.what, problem.why, problem.fix)
    return selection


@contextlib.asynccontextmanager
async def open_session(
    options: SessionOptions,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    model: OpenModel,
    approver: Approver,
    emit: Emit,
    models: OpenModels | None = None,
    questions: "OpenQuestions | None" = None,
) -> AsyncIterator[RunContext]:
    """Open the sandbox and the record of a session, and yield its RunContext. Leaving the block ends every child
    process.

    Events and records contain no secret that this process knows, and no text that has the shape of a key.

    `models` are open models that the caller closes; without them only `model` is used. `emit` receives every event.
    `questions` are the questions that `agent approve` may answer; with them the control socket is open from the start.

    Raise SandboxUnavailable, AuditError, PlaceError, ConfigError, or a usage error for a limit; then nothing was run.
    """
    from tools import ASK_TOOL, NOTE_TOOLS, SKILL_TOOL, TOOLS
    from tools.memory import RecallTool
    from tools.paths import SeenFiles
    from tools.registry import ToolRegistry, ToolSelection

    selection = selected_tools(settings)
    cwd = str(options.cwd)

    def limited(profile: Profile) -> Profile:
        """Return `profile` with the limits of the options."""
        return replace(profile, limits=apply_limits(profile.limits, options.limits))

    profile = with_bundle(limited(settings.profile))
    facts = gather(cwd, environ, profile)
    minimum = Level(options.least.upper()) if options.least else settings.sandbox_minimum
    mode = options.mode or settings.mode or Mode.DEFAULT
    state = state_dir(environ)
    register_environment(environ)
    redactor = Redactor(model.secrets, live=True, shapes=True)
    emit = RedactingEmitter(redactor, emit)
    async with contextlib.AsyncExitStack() as stack:
        if models is None:
            models = OpenModels(model, settings=settings)
            stack.push_async_callback(models.close)
        audit = stack.enter_context(open_log(settings, environ, redact=redactor.text))
        sandbox, enforcement = await open_backend(
            options.backend,
            minimum,
            cache=cache_dir(environ),
            aside=state / "aside",
            container=settings.container,
            network=settings.network,
            lend=stack.enter_context(injector_for(profile, environ, facts.workspace)),
            insisted=options.least == "full",
        )
        stack.push_async_callback(sandbox.close)
        info = SessionInfo(
            mode=mode.value,
            workspace=facts.workspace,
            unattended=options.unattended,
            enforcement=enforcement,
            argv=options.argv,
            model=model.named,
            commit=head_commit(facts.workspace),
            sources=settings.sources,
            policy=fingerprint(profile, settings.rules),
            hashes=settings.hashes,
            original=settings.original,
            apart=settings.apart,
            job=options.job,
        )
        session = audit.session(info)
        ends = SessionTotals(audit, session)
        emit_late = emit  # for notices after the journal and the totals are closed
        stack.callback(lambda: _emit_problem(ends.problem, emit_late))
        stack.push(ends.record)
        if address := settings.value("audit", "otlp"):
            from runner.audit.otlp_stream import start_stream

            sent, clear = start_stream(log_place(settings, environ), session, str(address))
            stack.callback(lambda: _emit_notice(sent(), emit_late))
            _emit_notice(clear, emit)
        emit = ends.watch(emit)
        journal = Journal()
        if options.beginning is not None:
            price = options.bounds.price
            run = SessionRun(session, facts.workspace, cwd, mode.value, model.named, options.unattended)
            journal = options.beginning.journal(run, redactor, {model.named: price} if price is not None else {})
            stack.callback(options.beginning.close)
            stack.callback(_close_journal, journal, emit)
            emit = journal.watch(emit)
        for notice in settings.notices:
            emit(Notice(notice))
        earlier = options.beginning.earlier if options.beginning is not None else None
        undo = snapshot_recorder(facts, settings, environ, session, lambda text: emit(Notice(text)), earlier)
        stack.callback(undo.close)
        grants = GrantStore(
            state,
            GrantHolder(facts.workspace, MAIN, session),
            lambda text: emit(Notice(text)),
            journal=lambda grant: journal.grant(to_json(grant)),
            redact=redactor.text,
        )
        if options.beginning is not None and (before := options.beginning.past) is not None:
            for grant in grants.restore(before.grants, fork=options.beginning.fork):
                said = "allows again" if grant.ruling is Ruling.ALLOW else "forbids again"
                if options.unattended and grant.ruling is Ruling.ALLOW:
                    said = "allows nothing while there is no user"
                emit(Notice(f"grant {grant.id} of this session {said}: {grant.what.words}"))
        around, registries, (signing, environment) = await asyncio.gather(  # reading a large Git index takes a moment
            asyncio.to_thread(surroundings, facts.workspace),
            asyncio.to_thread(_registries_of, facts),
            asyncio.to_thread(
                open_signing,
                facts,
                environ,
                child_environment(facts, environ, profile),
                attended=not options.unattended,
            ),
        )
        if signing is not None:
            stack.callback(signing.close)
        outputs = OutputStore(state / "outputs" / session)
        past = options.beginning.past if options.beginning is not None else None
        gone = past.processes if past is not None else ()
        processes = SessionProcesses(sandbox, audit, redactor, outputs, lambda event: told(event), gone)

        def note(step: int) -> None:
            with contextlib.suppress(JournalError):  # the line stays pending: the next message reports the failure
                journal.snapshot(str(step), "")

        undo.watch(processes.writers, note)
        stack.push_async_callback(undo.settle)  # after the end of the processes
        stack.push_async_callback(processes.close)
        forwards = PortForwards(processes, audit, session, emit)
        stack.push_async_callback(forwards.close)
        control = ControlServer(state, session, processes, forwards, questions)
        stack.push_async_callback(control.close)

        def told(event: Event) -> None:
            """Emit an event of the processes, and listen for other terminals from the first process on."""
            emit(event)
            if isinstance(event, ProcessStarted):
                listen("agent processes")

        def listen(command: str) -> None:
            try:
                control.open()
            except OSError as error:
                emit(Notice(f"`{command}` cannot reach this session: {os_reason(error)}"))
            else:
                if questions is not None:
                    questions.open_as(session)

        if questions is not None:
            listen("agent approve")

        profiles = LiveProfile(profile, settings, options.source, lambda text: emit(Notice(text)), limited)
        if options.tools:
            selection = ToolSelection(without=selection.without)
        registry = ToolRegistry(options.tools or TOOLS, selection)
        notes, context = None, replace(options.context, instructions=options.instructions, surroundings=around)
        if options.notes:
            notes, context = _notes_of(state, facts.workspace, session, options, context, emit)
            for tool in NOTE_TOOLS:
                if context.notes if isinstance(tool, RecallTool) else not options.unattended:
                    registry.add(tool)
        if options.output is not None:
            form = SourcedText("the output schema", options.output.prompt)
            context = replace(context, added=(*context.added, form))
        if any(not skill.quiet for skill in context.skills):
            registry.add(SKILL_TOOL)
        web = _web_of(settings, environ, options.cwd, registry, emit) if options.web else None
        if not options.unattended:
            registry.add(ASK_TOOL)
        servers = None
        if options.servers:  # most sessions have none
            servers = _servers_of(options.servers, environ, settings, facts.workspace, registry)
            stack.push_async_callback(servers.close)
        code = _code_of(settings, environ, facts, registry) if options.code else None
        if code is not None:
            stack.push_async_callback(code.close)
        agents = None
        if options.agents:
            from runner.children.session_agents import SessionAgents

            kept = state if options.beginning is not None else None
            agents = SessionAgents(
                options.agents,
                registry,
                lambda: _view_of(settings),
                kept,
                lambda folder: gather(folder, environ, profiles.now()),
                environ,
            )
            stack.push_async_callback(agents.close)
        hooks = None
        if options.hooks is not None:  # most sessions have none
            from runner.hooks.session_hooks import SessionHooks

            hooks = SessionHooks(options.hooks, environ, settings.network)
            stack.push_async_callback(hooks.close)
        jobs = _jobs_of(options, settings, session, facts.workspace, state, environ, registry)
        tasks = _tasks_of(session, options, emit, redactor, registry)
        flow = _flow_of(options, settings, facts, environment, registries, state, emit, journal)
        if flow.mode(mode) is FlowMode.GUARD:
            from tools import EXTRACT_TOOL

            registry.add(EXTRACT_TOOL)
        for source in notes.told_outside if notes is not None else ():
            flow.note_untrusted(source)
        offered = registry
        if settings.value("coordinator"):
            offered, context = _coordinating(agents, registry, context)
            tasks.offer()
        ctx = RunContext(
            session=session,
            cwd=cwd,
            live=LiveSettings(
                mode, model.provider, model.model, options.bounds, Thinking(str(settings.value("thinking")))
            ),
            unattended=options.unattended,
            tools=offered,
            seen=SeenFiles(),
            look=lambda: _with_bundles(gather(cwd, environ, profiles.now()), options.bundles),
            rules=settings.rules,
            profiles=profiles,
            environment=environment,
            signing=signing,
            approver=approver,
            audit=audit,
            sandbox=sandbox,
            enforcement=enforcement,
            outputs=outputs,
            emit=emit,
            redactor=redactor,
            processes=processes,
            forwards=forwards,
            journal=journal,
            context=redactor.mask(context),
            undo=undo,
            grants=grants,
            models=models,
            view=_view_of(settings),
            fallback=str(settings.value("fallback_model") or ""),
            model_why=model.why,
            servers=servers,
            code=code,
            agents=agents,
            notes=notes,
            hooks=hooks,
            tasks=tasks,
            web=web,
            output=options.output,
            job=options.job,
            jobs=jobs,
            flow=flow,
            steering=Steering(Delivery(str(settings.value("queue", "delivery")))),
        )
        if servers is not None:
            servers.begin(ctx)
        if agents is not None:
            agents.begin(ctx)
        if hooks is not None:
            hooks.begin(ctx)
        try:
            tasks.begin()
        except StateError as error:
            _emit_problem(error.problem, emit)
        ctx.gauge.fixed(ctx.system_prompt() + ctx.context.before, ctx.tool_specs())
        yield ctx


def _notes_of(
    state: Path, workspace: str, session: str, options: SessionOptions, context: Context, emit: Emit
) -> "tuple[SessionNotes | None, Context]":
    """Return the notes of the session, and `context` with the text about them; None if they cannot be used."""
    from runner.memory.note import NoteError
    from runner.memory.session_notes import SessionNotes
    from runner.memory.store import NoteStore

    continued = options.beginning is not None and options.beginning.past is not None
    notes = SessionNotes(NoteStore(state, workspace), session, continued=continued)
    try:
        text, stored = notes.told()
    except NoteError as error:
        _emit_problem(error.problem, emit)
        return None, context
    for notice in stored.notices[:3]:
        emit(Notice(notice))
    return notes, replace(context, notes=text, noted=len(stored.notes))


def _registries_of(facts: "Facts") -> frozenset[str]:
    """Return the registries that settings and lock files name at the start of the session."""
    return frozenset(host for program in _PACKAGE_PROGRAMS for host, _ in facts.registries(program, facts.workspace))


def _flow_of(
    options: SessionOptions,
    settings: Settings,
    facts: "Facts",
    environment: tuple[tuple[str, str], ...],
    registries: frozenset[str],
    state: Path,
    emit: Emit,
    journal: Journal,
) -> SessionFlow:
    """Return the information flow of the session, with the entries of the session that it continues."""
    chosen = settings.value("flow")
    remotes = facts.remotes(facts.workspace)
    hosts = registries | {rule.host for credential in settings.profile.credentials for rule in credential.rules}
    labels = ResultLabels(
        settings.names("untrusted", "files"),
        settings.names("private", "files"),
        {server.name: server.results for server in options.servers},
        frozenset(server.name for server in options.servers if server.private),
    )
    # The names that Git writes into commits: what is sent to the user goes to nobody else.
    own = frozenset(value.lower() for name, value in environment if name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"))
    flow = SessionFlow(
        FlowMode(str(chosen)) if chosen is not None else None,
        guarded=options.guarded,
        workspace=facts.workspace,
        copied=bool(settings.original),
        trusted=TrustedText(own=own).with_text(*remotes.written, *remotes.modules).with_hosts(hosts),
        remotes=remotes,
        files=WrittenFiles(
            state,
            facts.workspace,
            partial(introducing_commit, facts.workspace),
            partial(commits_since, facts.workspace),
        ),
        labels=labels,
        strangers=options.strangers,
        emit=emit,
        keep=lambda entry: journal.flow(entry.kind, entry.text, entry.at, entry.sha256),
    )
    past = options.beginning.past if options.beginning is not None else None
    if past is not None and past.history:
        flow.restore(past.flow)
    else:
        flow.start()
    if options.foreign:
        flow.note_untrusted(options.foreign)
    return flow


def _coordinating(
    agents: "SessionAgents | None", registry: "ToolRegistry", context: Context
) -> "tuple[ToolRegistry, Context]":
    """Return the tools and the texts of a main agent that only directs others. Raise a usage error without agents."""
    from runner.children.child_context import COORDINATOR
    from tools.registry import CoordinatorTools

    if agents is None:
        why = "the main agent may only direct sub-agents, and this session has none"
        raise usage("`coordinator = true` cannot be used", why, "remove it, or remove `agents = false`")
    agents.coordinate()
    return CoordinatorTools(registry), replace(context, added=(*context.added, COORDINATOR))


def _tasks_of(
    session: str, options: SessionOptions, emit: Emit, redactor: Redactor, registry: "ToolRegistry"
) -> "SessionTasks":
    """Return the task list of the session. A fork begins with an empty list.

    The model is offered the tool once the list is used: by `/tasks`, by the first sub-agent, or by an earlier run. A
    tool costs tokens in each request, and most short sessions need no list.
    """
    from runner.tasks.session_tasks import SessionTasks
    from tools.tasks import TasksTool

    beginning = options.beginning
    if beginning is None:
        tasks = SessionTasks(session, None, emit, redactor.text)
    else:
        id = beginning.past.session if beginning.past is not None and not beginning.fork else session
        store = beginning.store
        tasks = SessionTasks(session, store.tasks_path(id), emit, redactor.text, store.prepare)

    def offer() -> None:
        if TasksTool.name not in {tool.name for tool in registry.every}:
            registry.add(TasksTool())

    tasks.offer = offer
    return tasks


def _jobs_of(
    options: SessionOptions,
    settings: Settings,
    session: str,
    workspace: str,
    state: Path,
    environ: Mapping[str, str],
    registry: "ToolRegistry",
) -> "SessionJobs | None":
    """Return the jobs that the model may request, and offer the tool; None unless the user enabled it.

    A run without a user cannot request jobs, so that no job adds another one.
    """
    if not settings.value("jobs", "tool") or options.unattended or options.tools or not options.notes:
        return None
    from runner.jobs.session_jobs import SessionJobs
    from tools.schedule_job import ScheduleJobTool

    registry.add(ScheduleJobTool())
    return SessionJobs(state, session, str(options.cwd), workspace, environ)


def _web_of(
    settings: Settings, environ: Mapping[str, str], cwd: Path, registry: "ToolRegistry", emit: Emit
) -> "SessionWeb | None":
    """Return the web of the session, and offer its tools: `web_search` only if a service is configured.

    Return None if the libraries for it are not installed, or the settings switch it off.
    """
    from runner.web.session_web import SessionWeb, usable

    fetches, searches = bool(settings.value("web", "fetch")), settings.value("web", "search") is not None
    if not (fetches or searches) or not usable():
        return None
    from tools.web import WebFetchTool, WebSearchTool

    if fetches:
        registry.add(WebFetchTool())
    service = None
    if searches:
        from runner.web.configured import search_service  # few configurations name one

        found = search_service(settings, environ, cwd)
        if isinstance(found, Problem):
            _emit_problem(found, emit)
        elif found is not None:
            service = found
            registry.add(WebSearchTool(found.name, found.host))
    return SessionWeb(settings.network, service)


def _with_bundles(facts: "Facts", folders: tuple[str, ...]) -> "Facts":
    """Return `facts` with the copies of bundles that still exist among what every command may read."""
    present = tuple(each for each in folders if os.path.isdir(each))
    return replace(facts, system=(*facts.system, *present)) if present else facts


def _servers_of(
    configs: "tuple[ServerConfig, ...]",
    environ: Mapping[str, str],
    settings: Settings,
    workspace: str,
    registry: "ToolRegistry",
) -> "SessionServers":
    """Return the tool servers of the session, which are not started yet."""
    from runner.mcp.pinned_offers import PinnedOffers
    from runner.mcp.servers import SessionServers
    from runner.mcp.tool_search import ServerTools

    check = PinnedOffers(state_dir(environ), workspace, environ.get("PATH"))
    return SessionServers(configs, environ, check, ServerTools(registry), network=settings.network)


def _code_of(
    settings: Settings, environ: Mapping[str, str], facts: "Facts", registry: "ToolRegistry"
) -> "LanguageServers | None":
    """Return the language servers of the session, none of which is started yet; None if no program is installed.

    The model is offered the tool if the workspace has files for a server: a tool costs tokens in each request.
    """
    if not settings.value("code", "servers"):
        return None
    from runner.lsp.language_config import code_options, find_language_servers

    configs = find_language_servers(settings, environ, facts.workspace, facts.home)
    if not configs:
        return None
    from runner.lsp.session_servers import LanguageServers
    from tools.lsp import LspTool

    code = LanguageServers(configs, environ, code_options(settings), facts.workspace, lambda: registry.add(LspTool()))
    code.offer_for(facts.workspace)
    return code


def _close_journal(journal: Journal, emit: Emit) -> None:
    _emit_problem(journal.close(), emit)


def _emit_problem(problem: Problem | None, emit: Emit) -> None:
    _emit_notice(f"{problem.what}: {problem.why}" if problem is not None else None, emit)


def _emit_notice(text: str | None, emit: Emit) -> None:
    if text is not None:
        emit(Notice(text))


def _view_of(settings: Settings) -> ConversationView:
    """Return the conversation view with the thresholds, context windows and small model of `settings`.

    Raise ConfigError if the compaction levels are not in ascending order.
    """
    windows = {name: given.get("tokens") for name, given in settings.named("window").items()}
    levels = levels_of(settings)
    if isinstance(levels, Disorder):
        raise ConfigError(levels.problem)

    def price(opened: OpenModel) -> Price | None:
        return price_of(opened.named, settings, vendor=opened.vendors)

    def window(spec: str) -> int | None:
        tokens = windows.get(spec)
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    small = settings.value("small_model")
    return ConversationView(levels, Summarizer(str(small) if small else "", price), window)
