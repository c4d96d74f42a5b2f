"""The dependencies of one run, passed as an argument to every function of the engine; there are no globals."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from policy.grants.grant import GrantHolder
from policy.model.frozen import dataclass
from policy.model.profile import MAIN, Source
from runner.engine.compaction.view import ConversationView
from runner.engine.context.context import Context, Refusals, SkillsInForce, plan_tool, tool_specs
from runner.engine.context.tokens import ContextMeter
from runner.engine.model_access import ModelAccess, OpenModels
from runner.engine.run_limits import RunLimits
from runner.engine.steering import Steering
from runner.engine.waiting_access import TurnTries
from runner.events import SessionStarted
from runner.gate.grants.store import GrantStore
from runner.messages import Thinking
from runner.sessions.journal import Journal

if TYPE_CHECKING:
    from policy.flow.state import FlowState
    from policy.model.agent_limit import AgentLimit
    from policy.model.facts import Facts
    from policy.model.profile import Profile
    from policy.model.tier import Mode
    from policy.rules.rulebook import RuleBook
    from runner.approval.approver import Approver
    from runner.audit.log import AuditLog
    from runner.changes.undo.recorder import SnapshotRecorder
    from runner.config.live_profile import LiveProfile
    from runner.engine.agent_access import AgentAccess
    from runner.engine.budget import BudgetMeter
    from runner.engine.code_access import CodeAccess
    from runner.engine.context.context import RequestPart
    from runner.engine.hook_access import HookAccess
    from runner.engine.output_schema import OutputSchema
    from runner.engine.port_forwards import PortForwards
    from runner.engine.processes import SessionProcesses
    from runner.engine.server_access import ServerAccess
    from runner.engine.signing import SigningBroker
    from runner.events import Emit
    from runner.flow.session_flow import SessionFlow
    from runner.jobs.session_jobs import SessionJobs
    from runner.memory.session_notes import SessionNotes
    from runner.messages import Message, Provider, ToolSpec
    from runner.secrets.redactor import Redactor
    from runner.state.output_store import OutputStore
    from runner.tasks.session_tasks import SessionTasks
    from runner.web.session_web import SessionWeb
    from sandbox.backend import Backend, Enforcement
    from tools.paths import SeenFiles
    from tools.registry import ToolRegistry


@dataclasses.dataclass(slots=True, eq=False)
class LiveSettings:
    """The settings of a session that may change while a run is in progress.

    A change holds from the next call or request on. Only the thread of the event loop reads and writes the settings.

    Attributes:
        mode: The mode whose column of the permission matrix decides.
        provider: The provider that the next request is sent to.
        model: The name of the model at that provider.
        limits: The limits of the run, at the price of that model.
        thinking: The amount of reasoning that the model is asked for.
        spent: The budget of the latest run, or None before the first one.
    """

    mode: "Mode"
    provider: "Provider"
    model: str
    limits: RunLimits = field(default_factory=RunLimits)
    thinking: Thinking = Thinking.OFF
    spent: "BudgetMeter | None" = None
    _model_changed: asyncio.Future[None] | None = field(default=None, init=False)

    @property
    def named(self) -> str:
        """Return the model that the next request is sent to, as `provider:model`."""
        return f"{self.provider.name}:{self.model}"

    def use_model(self, provider: "Provider", model: str, limits: RunLimits) -> None:
        """Send the next request to `model` of `provider`, and end a `wait` for the model before it."""
        self.provider, self.model, self.limits = provider, model, limits
        if self._model_changed is not None and not self._model_changed.done():
            self._model_changed.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until another model is chosen."""
        self._model_changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._model_changed
        except TimeoutError:
            return  # the model is the same
        finally:
            self._model_changed = None


def _no_grants() -> GrantStore:
    """Return a store without grants that forgets its grants at the end of the run."""
    return GrantStore(None, GrantHolder("", MAIN, "none"), lambda text: None)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The services of one session, which stay the same, and the live settings, which may change.

    Attributes:
        session: The id of the session in the audit log.
        cwd: The absolute path that relative paths start at.
        live: The settings that may change while a run is in progress.
        unattended: True if no user can answer a question.
        tools: The tools that the model may call. Members may change while the session runs.
        seen: The files that the model has read.
        look: A function that returns the state of the machine as it is now. One call serves one decision.
        rules: The command rules.
        profiles: The user's settings with the permission rules, which follow changes of the configuration.
        environment: The variables that commands get.
        approver: The interface that puts questions to a person or a program.
        audit: The audit log.
        sandbox: The backend that executes permits.
        enforcement: The report of what the backend enforces.
        outputs: The store of whole outputs.
        emit: The receiver of events.
        redactor: The redactor of secrets in texts.
        processes: The processes that stay beside later calls.
        forwards: The ports of these processes that the user forwarded to this machine.
        journal: The journal of the session. The default keeps nothing.
        context: The texts that the model is sent beside the conversation.
        undo: The recorder of file changes, or None if changes cannot be undone.
        grants: The remembered answers.
        steering: The messages that a user sends while a run is in progress.
        refusals: The counts of refused calls, for hints to the model.
        skills: The skills that are in force in the current run.
        gauge: The meter of the model's context window.
        view: The part of the conversation that the model is sent.
        fallback: The model (`provider:model`) used if the chosen one stays busy, or an empty string.
        models: The models that the session can open, or None if the session has only one model.
        refused_rights: Additional rights that the user refused. The user is not asked for them again.
        signing: The broker that signs commits and tags for commands, or None if there is no place for it.
        model_why: Why the model of the beginning is used, if the user did not name it.
        servers: The tool servers of the session, or None if it has none.
        code: The language servers of the session, or None if it has none.
        notes: The notes that last across sessions, or None if the session uses none.
        hooks: The hooks of the session, or None if it has none.
        tasks: The task list of the session, or None if it has none.
        web: The pages of the session and its search service, or None if the session does not use the web.
        flow: The information flow of the acting agent, or None if it is not followed.
        agent: The name of the acting agent; `main` for the one that the user instructs.
        parent: The agent that started the acting agent, or None for `main`.
        client: The name that the program at the other end states, if such a program calls the tools; else empty.
        agents: The sub-agents of the session, or None if it offers none.
        limited: A function that returns the limits of the acting agent and of the agents above it, as of now.
        above: A function that returns the budget that pays for this agent, too, or None.
        asking: A lock that is held while a question is open, so that several agents ask one after another.
        changing: A lock that is held while an action that may change files runs, so that changes can be undone one by
            one.
        changed: The files that a sub-agent changed, by path, with the kind of change.
        tries: The commands of the acting agent that rules try, whose changes wait for the end of its turn.
        output: The JSON Schema of the answers of the agent, or None.
        jobs: The jobs that the model may request, or None if it may not.
        job: The id of the scheduled job that the session is a run of, or empty.
    """

    session: str
    cwd: str
    live: LiveSettings
    unattended: bool
    tools: "ToolRegistry"
    seen: "SeenFiles"
    look: "Callable[[], Facts]"
    rules: "RuleBook"
    profiles: "LiveProfile"
    environment: tuple[tuple[str, str], ...]
    approver: "Approver"
    audit: "AuditLog"
    sandbox: "Backend"
    enforcement: "Enforcement"
    outputs: "OutputStore"
    emit: "Emit"
    redactor: "Redactor"
    processes: "SessionProcesses"
    forwards: "PortForwards"
    journal: Journal = field(default_factory=Journal)
    context: Context = field(default_factory=Context)
    undo: "SnapshotRecorder | None" = None
    grants: GrantStore = field(default_factory=_no_grants)
    steering: Steering = field(default_factory=Steering)
    refusals: Refusals = field(default_factory=Refusals)
    skills: SkillsInForce = field(default_factory=SkillsInForce)
    gauge: ContextMeter = field(default_factory=ContextMeter)
    view: ConversationView = field(default_factory=ConversationView)
    fallback: str = ""
    models: OpenModels | None = None
    refused_rights: set[str] = field(default_factory=set)
    signing: "SigningBroker | None" = None
    model_why: str = ""
    servers: "ServerAccess | None" = None
    code: "CodeAccess | None" = None
    notes: "SessionNotes | None" = None
    hooks: "HookAccess | None" = None
    tasks: "SessionTasks | None" = None
    web: "SessionWeb | None" = None
    flow: "SessionFlow | None" = None
    agent: str = MAIN
    parent: str | None = None
    client: str = ""
    agents: "AgentAccess | None" = None
    limited: "Callable[[], tuple[AgentLimit, ...]]" = lambda: ()
    above: "Callable[[], BudgetMeter | None]" = lambda: None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: dict[str, str] = field(default_factory=dict)
    tries: TurnTries = field(default_factory=TurnTries)
    output: "OutputSchema | None" = None
    job: str = ""
    jobs: "SessionJobs | None" = None

    @property
    def profile(self) -> "Profile":
        """Return the profile in force now. A change of the configuration takes effect here."""
        return self.profiles.now()

    @property
    def source(self) -> Source:
        """Return the author of the actions of this run for rules and records."""
        if self.client:
            return Source.CLIENT
        if self.agent != MAIN:
            return Source.AGENT
        return Source.JOB if self.job else Source.MODEL

    def flow_state(self) -> "FlowState | None":
        """Return the information flow of the acting agent as of now; None if it is not followed."""
        if self.flow is None:
            return None
        return self.flow.state(self.live.mode, undo=self.undo is not None and self.undo.compares)

    def model_access(self) -> ModelAccess:
        """Return the model that the next request is sent to, with the services of that request."""
        live = self.live
        return ModelAccess(
            live.provider,
            live.model,
            live.limits,
            self.models,
            self.gauge,
            self.journal,
            self.emit,
            self.redactor,
            self.hooks,
        )

    def system_prompt(self) -> str:
        """Return the system prompt for the current settings."""
        return self.context.system(self.cwd, self.live.mode, self._stated_limits())

    def tool_specs(self) -> "tuple[ToolSpec, ...]":
        """Return the descriptions of the tools that the model may call in the current mode."""
        return tool_specs(self.tools) + self.plan_tool()

    def plan_tool(self) -> "tuple[ToolSpec, ...]":
        """Return the tool that ends plan mode. A sub-agent has none, because its mode belongs to its limits."""
        return plan_tool(self.live.mode, unattended=self.unattended) if self.agent == MAIN else ()

    def context_parts(self, messages: "Sequence[Message]" = ()) -> "tuple[RequestPart, ...]":
        """Return every part of a request with `messages`, in the order of the request."""
        return self.context.parts(self.cwd, self.live.mode, self._stated_limits(), self.tool_specs(), messages)

    def opening(self) -> SessionStarted:
        """Return the event that describes this session."""
        return SessionStarted(
            session=self.session,
            workspace=self.look().workspace,
            cwd=self.cwd,
            mode=self.live.mode,
            model=self.live.named,
            model_why=self.model_why,
            unattended=self.unattended,
            enforcement=self.enforcement,
            tools=tuple(spec.name for spec in self.tool_specs()),
            label=self.flow.label.word if self.flow is not None else "workspace",
            private=self.flow is not None and bool(self.flow.private),
        )

    def _stated_limits(self) -> RunLimits | None:
        """Return the limits that the model is informed about: those of an unattended run, else None."""
        return self.live.limits if self.unattended else None
