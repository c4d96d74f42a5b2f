"""One session of an editor: its prompts, commands, settings and events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from acp import schema

from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner import events
from runner.agent.agent import Agent
from runner.agent.conversation import BUSY
from runner.agent.startup import SessionStart
from runner.engine.budget import Limit
from runner.engine.steering import UserInput
from runner.frontends.acp.markdown import fenced
from runner.frontends.acp.materials import EditorPrompt, with_attachments
from runner.frontends.acp.questions import AskEditor, EditorQuestions
from runner.frontends.acp.replay import replayed
from runner.frontends.acp.updates import SessionUpdates, Update, plan_of
from runner.frontends.slash.command import CommandHost, Mistake, Row, SlashCommand, find, is_command, run_line, say
from runner.frontends.slash.registry import known
from runner.frontends.slash.settings import LEVELS, MODES, usable_models
from runner.loop import Ending
from runner.messages import ImageBlock, Thinking, Usage
from runner.problems import Exit, Stopped, usage
from runner.sessions.selection import SessionSelection
from runner.state.json_file import StateError
from runner.text.sanitize import one_line, visible

# Commands that change the session or the screen of a front end of this program. The editor has its own ways.
_NOT_HERE = ("resume", "fork", "clear", "copy", "paste", "quit")
_LONGEST_HINT = 200  # characters
_FAILED = (Exit.FAILED, Exit.SANDBOX)
ConfigOption = schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean
Category = Literal["mode", "model", "thought_level"]


def _no_editor(what: str) -> Mistake:
    return Mistake(f"{what} is not possible here; use the sessions of the editor")


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The end of a prompt.

    Attributes:
        stop: The reason in the words of the protocol.
        usage: The tokens of the prompt.
    """

    stop: schema.StopReason
    usage: Usage = Usage()


class RunFailed(Exception):
    """The error for a prompt that could not be worked on. The events have told why."""


class _Turn:
    """A prompt in progress."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.stopped = False
        self.task: asyncio.Task[TurnResult] | None = None


class EditorSession(CommandHost):
    """One session.

    `post` sends an update of the session with the id that it gets, and `ask` a request for a permission.
    """

    keys = ()

    def __init__(
        self, start: SessionStart, editor: str, post: Callable[[str, Update], None], ask: Callable[[str], AskEditor]
    ) -> None:
        self.id = ""
        self.cwd = str(start.options.cwd)
        self.commands: Sequence[SlashCommand] = ()
        self._start = start
        self._send = post
        self._held: list[Update] = []  # updates before the editor knows the session
        self._known = False
        self._updates = SessionUpdates(self._post, self._mask)

        async def ask_editor(params: dict[str, Any]) -> object:
            return await ask(self.id)(params)

        self._agent = Agent(
            start=lambda: start,
            approver=EditorQuestions(editor, ask_editor, self._updates, self._mask),
            emit=self._hear,
        )
        self._turn: _Turn | None = None
        self._sent: UserInput | None = None  # the prompt of a /command
        self._models: list[Row] = []
        self._named = False
        self._prompts = 0

    async def open(self) -> None:
        """Open the session. Raise what `Agent.open` raises; then nothing is open."""
        try:
            conversation = await self.agent.open()
            ctx = conversation.ctx
            past = self._start.options.beginning.past if self._start.options.beginning is not None else None
            forked = self._start.options.beginning is not None and self._start.options.beginning.fork
            self.id = past.session if past is not None and not forked else ctx.session
            self._updates.workspace = ctx.look().workspace
            found = known(self.agent.environ, ctx.context)
            self.commands = tuple(each for each in found.commands if each.name not in _NOT_HERE)
            for notice in found.notices:
                ctx.emit(events.Notice(notice))
            self._models = await asyncio.to_thread(usable_models, self, ctx.live.named)
            self._named = past is not None
        except BaseException:
            await self.agent.close()
            raise

    def begin(self) -> None:
        """Send the updates that waited until the editor knows the session, and the commands."""
        self._known = True
        held, self._held = self._held, []
        for update in held:
            self._send(self.id, update)
        commands = [_command(each) for each in self.commands]
        self._post(
            schema.AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        )
        self._show_tasks()

    async def replay(self, drained: Callable[[], Awaitable[None]]) -> None:
        """Send the whole conversation so far. The editor must know the session. `drained` waits for the editor."""
        self._known = True
        for update in replayed(tuple(self.conversation.history), tuple(self.conversation.marks)):
            self._send(self.id, update)
            await drained()

    def tell(self, words: str) -> None:
        """Show a message of the program to the user."""
        self._updates.note(words)

    async def close(self) -> None:
        """Stop the work, and close the session."""
        self.cancel()
        turn = self._turn
        if turn is not None:
            await turn.over.wait()
        await self.agent.close()

    # ---- prompts

    async def prompt(self, prompt: EditorPrompt) -> TurnResult:
        """Work on a prompt, and return its end. Raise Stopped while another prompt is in progress.

        A prompt that follows a cancelled one waits for the end of that one.
        """
        while (before := self._turn) is not None:
            if not before.stopped:
                raise Stopped(BUSY, Exit.USAGE)
            await before.over.wait()
        turn = self._turn = _Turn()
        try:
            return await self._work(turn, prompt)
        finally:
            self._turn = None
            self._updates.end_run()
            turn.over.set()

    async def _work(self, turn: _Turn, prompt: EditorPrompt) -> TurnResult:
        turn.task = asyncio.ensure_future(self._take(prompt))
        try:
            return await asyncio.shield(turn.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the connection has ended
                self._stop(turn)
                await asyncio.wait({turn.task})
                raise
            return TurnResult("cancelled")

    def cancel(self) -> None:
        """Stop the prompt in progress, its commands and its questions."""
        if self._turn is not None:
            self._stop(self._turn)

    def _stop(self, turn: _Turn) -> None:
        turn.stopped = True
        if self.agent.interrupt() or self.agent.busy or turn.task is None or turn.task.cancelling():
            return  # a second cancel would interrupt the killing of child processes
        turn.task.cancel()

    async def _take(self, prompt: EditorPrompt) -> TurnResult:
        """Execute what the user typed: a /command, a command of the user after `!`, or a prompt for the model."""
        self._updates.begin_run()
        words = prompt.words.strip()
        plain = not prompt.attachments and not prompt.images
        if plain and is_command(words):
            self._sent = None
            await run_line(self._allowed(words), self)
            sent, self._sent = self._sent, None
            return await self._run(sent) if sent is not None else TurnResult("end_turn")
        if plain and words.startswith("!") and words[1:].strip():
            await self.conversation.shell(words[1:].strip())
            return TurnResult("cancelled" if self._turn is not None and self._turn.stopped else "end_turn")
        self._prompts += 1
        ctx = self.conversation.ctx
        return await self._run(await with_attachments(prompt, ctx, f"@{self._prompts}"), prompt.words)

    def _allowed(self, line: str) -> str:
        """Return a /command. Raise a usage error for a change to a mode that the editor may not choose."""
        name, _, rest = line.partition(" ")
        command = find(name, self.commands)
        if command is not None and command.name == "mode" and rest.strip() == Mode.DANGEROUSLY:
            self._mode(rest.strip())
        return line

    async def _run(self, words: UserInput, title: str = "") -> TurnResult:
        if not self._named:
            self._named = True
            shown = one_line(self._mask(title or words.shown), 80)
            self._post(schema.SessionInfoUpdate(session_update="session_info_update", title=shown))
        return self._ended(await self.conversation.prompt(words.text, words.typed, words.images))

    def _ended(self, ending: Ending) -> TurnResult:
        if ending.exit in _FAILED:
            raise RunFailed(ending.reason)
        if ending.exit is Exit.INTERRUPTED:
            return TurnResult("cancelled", ending.usage)
        if ending.limit is not None:
            self.tell(ending.reason)
            return TurnResult("max_tokens" if ending.limit is Limit.TOKENS else "max_turn_requests", ending.usage)
        refused = ending.exit is Exit.DENIED and not ending.denied
        return TurnResult("refusal" if refused else "end_turn", ending.usage)

    # ---- settings

    @property
    def modes(self) -> schema.SessionModeState:
        """Return the mode and the modes that the editor may choose."""
        modes = [
            schema.SessionMode(id=mode.value, name=mode.value, description=MODES[mode]) for mode in self._allowed_modes
        ]
        return schema.SessionModeState(current_mode_id=self.conversation.ctx.live.mode.value, available_modes=modes)

    @property
    def _allowed_modes(self) -> list[Mode]:
        """Return the modes that the editor may choose.

        THREAT T288: `dangerously` is chosen by the user who starts the program or writes the configuration, never by a
        message of the editor.
        """
        ctx = self.conversation.ctx
        begun = self._start.options.mode or self._start.settings.mode
        allowed = Mode.DANGEROUSLY in (begun, ctx.live.mode)
        return [mode for mode in Mode if mode is not Mode.DANGEROUSLY or allowed]

    @property
    def options(self) -> list[ConfigOption]:
        """Return the settings that the editor may change, with their values."""
        live = self.conversation.ctx.live
        models = [row.value for row in self._models]
        names = models if live.named in models else [live.named, *models]
        details = {row.value: row.detail for row in self._models}
        levels = [(level.value, LEVELS[level]) for level in Thinking]
        return [
            _select("mode", "Mode", "mode", live.mode.value, [(m.value, MODES[m]) for m in self._allowed_modes]),
            _select("model", "Model", "model", live.named, [(name, details.get(name, "")) for name in names]),
            _select("thinking", "Thinking", "thought_level", live.thinking.value, levels),
        ]

    def set_mode(self, name: str) -> None:
        """Change the mode. Raise a usage error for a mode that the editor may not choose."""
        self.conversation.set_mode(self._mode(name))

    def set_option(self, name: str, value: object) -> None:
        """Change a setting. Raise a usage error for a name or value that is not offered, and what a change raises."""
        option = next((each for each in self.options if each.id == name), None)
        if option is None:
            raise usage(
                f"there is no setting `{one_line(name, 60)}`", "the settings are mode, model and thinking", "use one"
            )
        if option.id == "mode" and isinstance(value, str):
            self.set_mode(value)
            return
        if value not in [each.value for each in option.options if isinstance(each, schema.SessionConfigSelectOption)]:
            shown = one_line(str(value), 60)
            raise usage(
                f"`{shown}` is no value of `{option.id}`", "it is not in the list of the setting", "use one of the list"
            )
        assert isinstance(value, str)  # it is in the list
        if option.id == "model":
            self.conversation.set_model(value)
        else:
            self.conversation.set_thinking(Thinking(value))

    def _mode(self, name: str) -> Mode:
        modes = self._allowed_modes
        if name == Mode.DANGEROUSLY and Mode.DANGEROUSLY not in modes:
            why = "an editor may not choose this mode"
            raise usage("the mode is not changed to dangerously", why, "start `agent acp --mode dangerously`")
        if name not in [mode.value for mode in modes]:
            why = f"the modes are {', '.join(mode.value for mode in modes)}"
            raise usage(f"there is no mode `{one_line(name, 60)}`", why, "use one of them")
        return Mode(name)

    # ---- events

    def _mask(self, words: str) -> str:
        return self.conversation.ctx.redactor.text(words)

    def _post(self, update: Update) -> None:
        if self._known:
            self._send(self.id, update)
        else:
            self._held.append(update)

    def _hear(self, event: events.Event) -> None:
        match event:
            case events.Notice(text=words):
                self._updates.note(visible(words))
            case events.ErrorRaised(problem=problem):
                self._updates.note(visible(_sentence(problem)))
            case events.Display(text=words, kind=kind):
                self._updates.answer(words if kind == "markdown" else fenced(visible(words), _LANGUAGES.get(kind, "")))
            case events.Changed():
                self._changed(event)
            case events.TaskChanged():
                self._show_tasks()
            case events.PlanProposed(plan=plan):
                self._updates.answer(visible(plan))
            case events.Resumed(changes=changes) if changes:
                self._updates.note(visible("\n".join(changes)))
            case events.Compacted(before=before, after=after):
                self._updates.note(f"the conversation was shortened for the model: {before} tokens, now {after}")
            case events.Retrying(problem=problem, wait=wait, attempt=attempt, attempts=attempts):
                words = f"{problem.what}: {problem.why}; attempt {attempt} of {attempts} in {wait:.0f} s"
                self._updates.note(visible(words))
            case events.ProcessStarted(process=process, command=command):
                self._updates.note(visible(f"process {process} runs: {one_line(command, _LONGEST_HINT)}"))
            case events.ProcessEnded(process=process, status=status):
                self._updates.note(f"process {process} has ended with status {status}")
            case _:
                self._updates.tell(event)

    def _changed(self, event: events.Changed) -> None:
        if event.agent != MAIN:
            return
        if event.what == "mode":
            self._post(schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=event.now))
        if event.what in ("mode", "model", "thinking"):
            options = self.options
            self._post(schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options))
        elif event.what == "label":
            self._updates.note(visible(f"the conversation counts as {event.now} now: {event.why}"))
        elif event.what == "private":
            self._updates.note(visible(f"the conversation has read private data: {event.why}"))

    def _show_tasks(self) -> None:
        tasks = self.conversation.ctx.tasks
        try:
            found = tasks.read() if tasks is not None else None
        except StateError as error:
            self._updates.note(visible(_sentence(error.problem)))
            return
        if found is not None and found.tasks:
            self._post(plan_of(found))

    # ---- the host of /commands

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        """Show the list. The user writes the command again with a value."""
        lines = [f"{'* ' if row.now else '  '}{row.label}  {row.detail}".rstrip() for row in rows]
        say(self, f"{title}: write the command with one of these values", *lines)
        return None

    async def send(self, prompt: str, typed: str) -> None:
        self._sent = UserInput(prompt, typed)

    async def switch(self, how: SessionSelection) -> None:
        raise _no_editor("a change of the session")

    def draft(self, text: str) -> None:
        say(self, text)

    def copy(self, text: str) -> bool:
        return False

    async def pasted(self) -> "ImageBlock | Problem":
        return Problem("no image was pasted", "this front end has no clipboard", "attach the image in the editor")

    def leave(self) -> None:
        raise _no_editor("the end of the session")


_LANGUAGES = {"diff": "diff"}


def _sentence(problem: Problem) -> str:
    return f"{problem.what}: {problem.why}{f'; {problem.fix}' if problem.fix else ''}"


def _select(
    id: str, name: str, category: Category, now: str, values: Sequence[tuple[str, str]]
) -> schema.SessionConfigOptionSelect:
    options = [
        schema.SessionConfigSelectOption(value=value, name=value, description=words or None) for value, words in values
    ]
    return schema.SessionConfigOptionSelect(
        id=id, name=name, category=category, type="select", current_value=now, options=options
    )


def _command(command: SlashCommand) -> schema.AvailableCommand:
    hint = schema.UnstructuredCommandInput(hint=one_line(command.usage, _LONGEST_HINT)) if command.usage else None
    words = one_line(command.summary, _LONGEST_HINT) or command.name
    given = schema.AvailableCommandInput(root=hint) if hint is not None else None
    return schema.AvailableCommand(name=command.name, description=words, input=given)
