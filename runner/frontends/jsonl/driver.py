"""JSON mode: a program writes lines and reads events; the conversation between them is that of any other front end.

What a line says is done at once, in the order of the lines; what takes long goes on while the next ones are read. The
end of input lets what was asked for come to its end, without anybody to answer.
"""

import asyncio
from collections.abc import AsyncIterable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from policy.model.verdict import Problem
from runner.agent.agent import Agent
from runner.agent.conversation import BUSY, Conversation
from runner.engine.steering import UserInput
from runner.events import Display, Emit, ErrorRaised, Notice, Unqueued
from runner.frontends.jsonl.approver import NoAnswer, Questions
from runner.frontends.jsonl.protocol import (
    AnswerLine,
    FollowUp,
    Input,
    Interrupt,
    Misread,
    Prompt,
    Quit,
    SetMode,
    SetModel,
    SetThinking,
    Shell,
    Slash,
    Steer,
    TakeBack,
    parse,
)
from runner.frontends.slash.command import Row, run_line
from runner.frontends.slash.registry import known
from runner.problems import Exit, Stopped, known_problem
from runner.sessions.selection import SessionSelection

if TYPE_CHECKING:
    from runner.config import Settings


class JsonMode:
    """The conversation of one program with an open `Agent`."""

    def __init__(self, agent: Agent, questions: Questions, emit: Emit) -> None:
        found = known(agent.environ, agent.conversation.ctx.context)
        for notice in found.notices:
            agent.conversation.ctx.emit(Notice(notice))
        self.commands = found.commands
        self._agent = agent
        self._questions = questions
        self._emit = emit  # past the session, which an error of the program is no part of
        self._jobs: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[None] | None = None  # the task that uses the conversation itself
        self._next: list[UserInput] = []  # prompts that came while something else than a run was on its way
        self._stopped = False
        self._over = asyncio.Event()  # a job is, or the input
        self._left = False
        self._code = Exit.DONE

    async def serve(self, lines: AsyncIterable[bytes], prompt: str | None = None) -> Exit:
        """Follow the lines until `quit` or their end; the exit code is that of the last run."""
        if prompt is not None:
            self._prompt(prompt)
        reading = asyncio.ensure_future(self._read(lines))
        reading.add_done_callback(lambda _: self._over.set())
        try:
            while not reading.done() or self._jobs:
                await self._over.wait()
                self._over.clear()
                if reading.done():
                    reading.result()
                    self._questions.close()
                    if self._left:
                        self._interrupt()
                self._collect()
            return self._code
        finally:
            reading.cancel()
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(reading, *self._jobs, return_exceptions=True)

    async def _read(self, lines: AsyncIterable[bytes]) -> None:
        number = 0
        async for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                self._follow(parse(line))
            except (Misread, NoAnswer) as error:
                self._wrong(error.problem, number)
            except Exception as error:  # SEAM of JSON mode: a Problem is reported, and the conversation continues
                problem = known_problem(error)
                if problem is None:
                    raise
                self._wrong(problem[0], number)
            if self._left:
                return

    def _wrong(self, problem: Problem, line: int | None) -> None:
        self._emit(ErrorRaised(self._agent.conversation.ctx.redactor.mask(problem), line))

    def _follow(self, said: Input) -> None:
        agent = self._agent
        match said:
            case Prompt(text):
                self._prompt(text)
            case Steer(text) if self._hears:
                agent.steer(text)
            case FollowUp(text) if self._hears:
                agent.follow_up(text)
            case Steer(text) | FollowUp(text):
                self._prompt(text)
            case TakeBack():
                self._take_back()
            case AnswerLine():
                self._questions.answer(said)
            case Interrupt():
                self._interrupt()
            case SetMode(mode):
                agent.conversation.set_mode(mode)
            case SetModel(model):
                agent.conversation.set_model(model)
            case SetThinking(level):
                agent.conversation.set_thinking(level)
            case Slash(text):
                self._begin(run_line(text if text.startswith("/") else f"/{text}", self))
            case Shell(command):
                self._start(self._shell(command))
            case Quit():
                self.leave()
            case never:
                assert_never(never)

    @property
    def _hears(self) -> bool:
        """Return True if a run is in progress that accepts further texts. A run that was stopped accepts none."""
        return self._agent.busy and self._main is not None and not self._stopped

    @property
    def _taken(self) -> bool:
        """Return True if anything uses the conversation, including a command that asks the model."""
        return self._main is not None or self._agent.busy

    def _prompt(self, text: str, typed: str = "") -> None:
        if self._hears:
            self.conversation.follow_up(text, typed)
        elif self._taken:
            self._next.append(UserInput(text, typed))
        else:
            self._start(self._run(UserInput(text, typed)))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        """Start the work that uses the conversation itself; only one such task runs at a time."""
        if self._taken:
            work.close()
            raise Misread(BUSY)
        self._main = self._begin(work)

    def _begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(lambda _: self._over.set())
        return job

    async def _run(self, words: UserInput) -> None:
        conversation = await self._agent.open()  # where a /command opens another session, once that is done
        try:
            said = (words.text, words.typed)
            self._code = (conversation.unbegun(*said) if self._stopped else await conversation.prompt(*said)).exit
        except Stopped as error:
            if error.problem is not BUSY:
                raise
            self._next.insert(0, words)  # a command began to ask the model in the same moment

    async def _shell(self, command: str) -> None:
        conversation = await self._agent.open()
        if self._stopped:
            conversation.ctx.emit(Notice("the command was stopped"))
        else:
            await conversation.shell(command)

    def _take_back(self) -> None:
        """Take back every queued text, both in the conversation and before it."""
        conversation, waited = self._agent.conversation, tuple(self._next)
        self._next.clear()
        conversation.take_back()
        if waited:
            conversation.ctx.emit(Unqueued(tuple(conversation.ctx.redactor.text(each.shown) for each in waited)))

    def _interrupt(self) -> None:
        self._take_back()
        self._questions.withdraw()
        self._stopped = self._main is not None  # seen by what has not begun yet
        self._agent.interrupt()

    def _collect(self) -> None:
        """Let go of what is over, and begin what waited for it."""
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.discard(job)
            if job is self._main:
                self._main, self._stopped = None, False
            if not job.cancelled() and (error := job.exception()) is not None:
                problem = known_problem(error)
                if problem is None:
                    raise error
                self._wrong(problem[0], None)
        if not self._taken and self._next:
            self._start(self._run(self._next.pop(0)))

    # ---- the desk of /commands

    keys = ()

    @property
    def conversation(self) -> Conversation:
        return self._agent.conversation

    @property
    def settings(self) -> "Settings":
        return self._agent.settings

    @property
    def environ(self) -> Mapping[str, str]:
        return self._agent.environ

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        return await self._questions.pick(title, rows)

    async def send(self, prompt: str, typed: str) -> None:
        self._prompt(prompt, typed)

    async def switch(self, how: SessionSelection) -> None:
        await self._agent.switch(how)

    def draft(self, text: str) -> None:
        self.conversation.ctx.emit(Display(text, "draft"))

    def copy(self, text: str) -> bool:
        return False

    def leave(self) -> None:
        self._left = True
