"""JSON mode as a program: lines on standard input, events on standard output, signals, the exit code."""

import asyncio
from typing import TYPE_CHECKING

from runner.agent.agent import Agent
from runner.agent.startup import prepare_start
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.driver import JsonMode
from runner.frontends.jsonl.line_reader import Lines
from runner.frontends.jsonl.protocol import LONGEST
from runner.frontends.jsonl.writer import JsonLines
from runner.frontends.signals import end_by_signals
from runner.problems import Exit

if TYPE_CHECKING:
    from runner.agent.run_options import RunArgs


def serve(args: "RunArgs", prompt: str | None) -> int:
    """JSON mode on standard input and output; answers the exit code. `prompt` is as a first line."""
    with JsonLines() as emit:
        # Nobody sits at a terminal: the program answers, and what it does not answer is no.
        questions = Questions(lambda event: agent.conversation.ctx.emit(event))
        agent = Agent(
            start=lambda: prepare_start(args, unattended=args.unattended, asks=False),
            approver=None if args.unattended else questions,
            emit=emit,
        )

        async def work() -> int:
            emit.when_lost(end_by_signals())
            try:
                async with agent:
                    return await JsonMode(agent, questions, emit).serve(Lines(longest=LONGEST), prompt)
            except asyncio.CancelledError:
                emit.hurry()
                return Exit.INTERRUPTED

        return asyncio.run(work())
