"""Questions and remembered answers of `agent exec`, and remembered answers of `agent why`."""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import TypeVar

from policy.evaluation import EvaluationContext
from policy.grants.grant import GrantHolder, GrantScope
from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment
from policy.model.profile import MAIN, Source
from policy.model.verdict import Ask, Verdict
from runner.approval.approver import Answer, Question, ask_approver
from runner.approval.remembered import GrantLookup, Offer, keep, offer, with_grants
from runner.approval.terminal import Terminal
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import AnsweringClient
from runner.engine.authorize import Evaluation, authorize
from runner.facts.gather import gather
from runner.frontends.exec.report import ExecCase
from runner.gate.gate import Gate
from runner.gate.grants.store import GrantStore, RememberedAnswer
from runner.secrets.redactor import Redactor
from runner.state.paths import state_dir
from runner.stderr import say_notice
from runner.text.sanitize import visible

_Result = TypeVar("_Result")

SCOPES = (GrantScope.PROJECT,)  # not SESSION: no session continues after the command


def recall(
    gate: Gate, assessment: Assessment, verdict: Verdict, source: Source, *, unattended: bool
) -> "RecalledVerdict":
    """Apply remembered answers to the verdict of this gate. Return the new verdict with the store of answers."""
    store = open_store(gate)
    context = gate.context(source, unattended=unattended)
    return RecalledVerdict(store, with_grants(context, assessment, verdict, store))


def open_store(gate: Gate) -> GrantStore:
    """Return the store of the remembered answers that apply in the workspace of `gate`."""
    redact = Redactor(live=True, shapes=True).text
    return GrantStore(state_dir(os.environ), GrantHolder(gate.facts.workspace, MAIN, ""), _notice, redact=redact)


class RecalledVerdict:
    """A verdict with remembered answers applied, and the store for a new answer."""

    def __init__(self, store: GrantStore, found: GrantLookup) -> None:
        self.store = store
        self.found = found

    @property
    def offer(self) -> Offer:
        """Return the answers that may be remembered, which are none without a question."""
        question = self.found.question
        return offer(self.found.context, question, SCOPES, self.store) if question else Offer((), None, SCOPES)

    def keep(self, wanted: RememberedAnswer) -> tuple[tuple[str, ...], str]:
        """Remember an answer. Return the names of the grants and a notice for the user."""
        assert self.found.question is not None, "an answer belongs to a question"
        return keep(self.found.context, self.found.question, wanted, self.store)


def _notice(text: str) -> None:
    say_notice(text)


def authorize_at_terminal(gate: Gate, asked: RecalledVerdict, noted: FactRecorder, *, attended: bool) -> ExecCase:
    """Return the decision about an action of `gate`; ask on the terminal if the verdict is a question.

    Raise KeyboardInterrupt if the user stops instead of answering.
    """
    found = asked.found
    requester = TerminalRequester(gate, asked.store)
    try:
        decision = finish_now(authorize(Evaluation(found.assessment, found.verdict, found, noted), requester))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    gate, assessment, noted = requester.gate, decision.evaluation.assessment, decision.evaluation.noted
    return ExecCase(gate, assessment, decision.verdict, decision.answer, attended, noted, decision.names, decision.by)


class TerminalRequester:
    """The requester of the action of `agent exec`. It asks on the terminal without an event loop.

    Attributes:
        gate: The gate with the facts of the last evaluation.
        grants: The store of remembered answers.
    """

    approver = "terminal"

    def __init__(self, gate: Gate, grants: GrantStore) -> None:
        self.gate = gate
        self.grants = grants
        self._terminal: Terminal | None = None

    def evaluate(self, action: Action) -> Evaluation:
        """Return the verdict on `action` with newly gathered facts, which `gate` uses from then on."""
        gate = self.gate
        noted = FactRecorder(gather(gate.cwd, os.environ, gate.settings.profile), gate.settings.profile)
        self.gate = gate = replace(gate, facts=noted.facts)
        context = gate.context(Source.PERSON, unattended=False)
        found = with_grants(context, *context.evaluate(action), self.grants)
        noted.parts()  # read now: a question may stay open for minutes
        return Evaluation(found.assessment, found.verdict, found, noted)

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Do nothing: the report of the command contains the verdict."""

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question, without the choice to edit the command: the user can type another command."""
        from runner.approval.card import card

        offered = offer(context, ask, SCOPES, self.grants)
        return Question(
            "", ask, offered, replace(card(ask, offered, around=context.facts), editable=False), None, again
        )

    async def ask(self, question: Question) -> tuple[Answer, float]:
        """Show the question on the terminal, and return the answer and the time that it took, in seconds."""
        from rich.console import Console

        self._terminal = self._terminal or Terminal(Console(stderr=True), _read_line, model=False)
        began = time.monotonic()
        (answer,) = await ask_approver(self._terminal, (question,))
        return answer, time.monotonic() - began

    def answered(self, yes: bool, feedback: str | None, client: AnsweringClient | None = None) -> None:
        """Do nothing: the user has just answered on the same terminal."""

    def accept_edits(self) -> None:
        """Do nothing: no question of this requester offers another mode."""

    def replaced(self, action: RunScript, script: str) -> Action:
        """Return the action with the new script. Unused, since no question of this requester offers an edit."""
        return replace(action, script=script)

    def notice(self, text: str) -> None:
        """Print a notice."""
        _notice(text)


async def _read_line(prompt: str) -> str:
    """Read one line without an event loop. Characters typed before the question are discarded."""
    import termios

    termios.tcflush(0, termios.TCIFLUSH)
    sys.stderr.write(visible(prompt))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def finish_now(work: Coroutine[object, object, _Result]) -> _Result:
    """Run a coroutine that never awaits an event loop, so that Ctrl-C at the question interrupts the read itself."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    raise RuntimeError("the question waited for something other than its answer")
