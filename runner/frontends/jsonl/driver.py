"""JSON mode: a program writes lines and reads events. The conversation is the same as in the other front ends.

Each line is handled at once, in the order of the lines. Long work runs while further lines are read. At the end of
input, running and queued work is completed, with every question answered with no.
"""

import asyncio
from collections.abc import AsyncIterable, Coroutine, Sequence
from typing import assert_never

from runner.agent.agent import Agent
from runner.agent.conversation import BUSY
from runner.engine.steering import UserInput
from runner.events import Display, Emit, ErrorRaised, Notice, Unqueued
from runner.frontends.jsonl import protocol
from runner.frontends.jsonl.approver import Questions
from runner.frontends.slash.command import CommandHost, Row, run_line
from runner.frontends.slash.registry import known
from runner.messages import ImageBlock
from runner.problems import Exit, Stopped, known_problem


class JsonMode(CommandHost):
    """The conversation of one program with an open `Agent`."""

    keys = ()

    def __init__(self, agent: Agent, questions: Questions, emit: Emit) -> None:
        known_commands = known(agent.environ, agent.conversation.ctx.context)
        for notice in known_commands.notices:
            agent.conversation.ctx.emit(Notice(notice))
        self.commands = known_commands.commands
        self._agent = agent
        self._questions = questions
        self._emit = emit  # bypasses the session: an error of the program does not belong to it
        self._jobs: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[None] | None = None  # the task that uses the conversation itself
        self._next: list[UserInput] = []  # prompts that arrived during other work than a run
        self._stopped = False
        self._over = asyncio.Event()  # set when a job or the input has ended
        self._left = False
        self._reading: asyncio.Future[None] | None = None  # the task that reads the lines
        self._code = Exit.DONE

    async def serve(self, lines: AsyncIterable[bytes], prompt: str | None = None) -> Exit:
        """Handle the lines until `quit` or the end of input, and return the exit code of the last run.

        `prompt` is handled before the first line.
        """
        if prompt is not None:
            self._prompt(prompt)
        self._reading = reading = asyncio.ensure_future(self._read(lines))
        reading.add_done_callback(lambda _: self._over.set())
        try:
            while not reading.done() or self._jobs:
                await self._over.wait()
                self._over.clear()
                if reading.done():
                    if not reading.cancelled():  # by `leave`
                        reading.result()
                    self._questions.close()
                    if self._left:
                        self._interrupt(leaving=True)
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
                self._follow(protocol.parse(line))
            except Exception as error:  # SEAM of JSON mode: a Problem is reported, and the conversation continues
                self._wrong(error, number)
            if self._left:
                return

    def _wrong(self, error: BaseException, line: int | None) -> None:
        """Report the Problem of an error, or raise the error if it has none."""
        problem = known_problem(error)
        if problem is None:
            raise error
        self._emit(ErrorRaised(self.conversation.ctx.redactor.mask(problem[0]), line))

    def _follow(self, line: protocol.Input) -> None:
        agent = self.agent
        match line:
            case protocol.Prompt(text, images):
                self._prompt(text, images=images)
            case protocol.Steer(text) if self._hears:
                agent.steer(text)
            case protocol.FollowUp(text) if self._hears:
                agent.follow_up(text)
            case protocol.Steer(text) | protocol.FollowUp(text):
                self._prompt(text)
            case protocol.TakeBack():
                self._take_back()
            case protocol.AnswerLine():
                self._questions.answer(line)
            case protocol.Interrupt():
                self._interrupt()
            case protocol.SetMode(mode):
                agent.conversation.set_mode(mode)
            case protocol.SetModel(model):
                agent.conversation.set_model(model)
            case protocol.SetThinking(level):
                agent.conversation.set_thinking(level)
            case protocol.Slash(text):
                self._begin(run_line(text if text.startswith("/") else f"/{text}", self))
            case protocol.Shell(command):
                self._start(self._shell(command))
            case protocol.Quit():
                self.leave()
            case never:
                assert_never(never)

    @property
    def _hears(self) -> bool:
        """Return True if a run is in progress that accepts further texts. A run that was stopped accepts none."""
        return self.agent.busy and self._main is not None and not self._stopped

    @property
    def _taken(self) -> bool:
        """Return True if anything uses the conversation, including a command that asks the model."""
        return self._main is not None or self.agent.busy

    @property
    def working(self) -> bool:
        """Return True while any work is in progress or waits."""
        return self._taken or bool(self._jobs) or bool(self._next)

    def _prompt(self, text: str, typed: str = "", images: tuple[ImageBlock, ...] = ()) -> None:
        if self._hears:
            self.conversation.follow_up(text, typed, images)
        elif self._taken:
            self._next.append(UserInput(text, typed, images))
        else:
            self._start(self._run(UserInput(text, typed, images)))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        """Start work that uses the conversation itself. Raise Misread if other work uses the conversation already."""
        if self._taken:
            work.close()
            raise protocol.Misread(BUSY)
        self._main = self._begin(work)

    def _begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(lambda _: self._over.set())
        return job

    async def _run(self, words: UserInput) -> None:
        conversation = await self.agent.open()  # waits for a /command that opens another session
        try:
            if self._stopped:
                self._code = conversation.unbegun(words.text, words.typed).exit
            else:
                self._code = (await conversation.prompt(words.text, words.typed, words.images)).exit
        except Stopped as error:
            if error.problem is not BUSY:
                raise
            self._next.insert(0, words)  # a command began to use the model at the same moment

    async def _shell(self, command: str) -> None:
        conversation = await self.agent.open()
        if self._stopped:
            conversation.ctx.emit(Notice("the command was stopped"))
        else:
            await conversation.shell(command)

    def _take_back(self) -> None:
        """Take back every queued text, both in the conversation and before it."""
        conversation, waited = self.conversation, tuple(self._next)
        self._next.clear()
        conversation.take_back()
        if waited:
            conversation.ctx.emit(Unqueued(tuple(conversation.ctx.redactor.text(each.shown) for each in waited)))

    def _interrupt(self, *, leaving: bool = False) -> None:
        self._take_back()
        self._questions.withdraw()
        self._stopped = self._main is not None  # for a job that has not begun yet
        self.agent.interrupt(leaving=leaving)

    def _collect(self) -> None:
        """Remove the jobs that ended, report their errors, and start the next waiting prompt."""
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.discard(job)
            if job is self._main:
                self._main, self._stopped = None, False
            if not job.cancelled() and (error := job.exception()) is not None:
                self._wrong(error, None)
        if not self._taken and self._next:
            self._start(self._run(self._next.pop(0)))

    # ---- the host of /commands

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        return await self._questions.pick(title, rows)

    async def send(self, prompt: str, typed: str) -> None:
        self._prompt(prompt, typed)

    def draft(self, text: str) -> None:
        self.conversation.ctx.emit(Display(text, "draft"))

    def copy(self, text: str) -> bool:
        return False

    def leave(self) -> None:
        self._left = True
        if self._reading is not None and asyncio.current_task() is not self._reading:
            self._reading.cancel()  # a /command leaves now, not with the next line
