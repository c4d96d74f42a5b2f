"""The questions at the terminal: those of the gate, trust in a repository, and the start of a plan."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from policy.model.tier import Mode
from policy.model.verdict import Ask
from runner.approval.approver import LETTERS, MODES_AFTER_PLAN, Answer, Leave, PlanAnswer, Question, Stay
from runner.approval.card import card
from runner.approval.model_questions import AskedByModel, ModelAnswer
from runner.approval.remembered import NOTHING, Offer
from runner.config.trust.evaluate import TrustReview
from runner.config.trust.prompt import TrustReply
from runner.config.trust.text import HEADING, QUESTION, contents, description, summary
from runner.events import Display
from runner.frontends.slash.command import Row
from runner.frontends.tui.app import App
from runner.frontends.tui.approval import ApprovalPanel
from runner.frontends.tui.panel import Done, Edit, Guard, Panel, PanelStep, Unanswered
from runner.frontends.tui.picker import ListGuard, Picker
from runner.frontends.tui.rows import Fragments, fit, wrapped
from runner.frontends.tui.theme import DARK
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.agent.model_choice import ModelRow

_PLAN_WORDS = {
    Mode.DEFAULT: "yes, and ask me before each change",
    Mode.ACCEPT_EDITS: "yes, edit without questions; ask about commands",
    Mode.TRUST_PROJECT: "yes, edit and run the project's code without questions",
}


class Panels:
    """The Approver that asks at an App.

    A question that disappears without an answer raises asyncio.CancelledError, so nothing is approved.
    """

    name = "terminal"
    tries = True

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask every question in one panel."""
        theme = getattr(self._app.screen, "theme", DARK)  # without a screen there is no session yet
        return await self._app.ask(ApprovalPanel(questions, theme=theme))

    async def ask_text(self, lines: Sequence[str], prompt: str) -> str | None:
        """Show `lines`, and return the text that the user types at `prompt`, or None if the user leaves it."""
        if lines:
            self._app.emit(Display("\n".join(lines), "text"))
        return await self._app.ask(TextQuestion(prompt))

    async def ask_model_questions(self, asked: AskedByModel) -> tuple[ModelAnswer, ...] | None:
        """Put questions of the model to the user, and return the answers; None if the user gives none."""
        from runner.frontends.tui.model_question import ModelQuestionPanel  # few sessions ask

        return await self._app.ask(ModelQuestionPanel(asked))

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return await self._app.ask(PlanQuestion())


async def trusted(app: App, brought: TrustReview) -> TrustReply:
    """Ask if the repository's content may be used, exactly as it is now, and return the user's answer."""
    app.emit(Display("\n".join([HEADING, *description(brought, brief=True), "", summary(brought)]), "text"))
    answers = {
        "y": ("yes, until one byte changes", TrustReply.YES),
        "n": ("no, continue without these files; this content is not asked about again", TrustReply.NO),
        "s": ("show the complete files", None),
        "q": ("leave", TrustReply.QUIT),
    }
    while (answer := await app.ask(ChoicePanel(QUESTION, answers, TrustReply.QUIT))) is None:
        app.emit(Display("\n".join(contents(brought)), "text"))
    return answer


def asker(app: App, loop: asyncio.AbstractEventLoop, brought: TrustReview) -> TrustReply:
    """Call `trusted` in the event loop from another thread, and return the user's answer."""
    return asyncio.run_coroutine_threadsafe(trusted(app, brought), loop).result()


def choose_model_row(app: App, loop: asyncio.AbstractEventLoop, title: str, rows: Sequence["ModelRow"]) -> str | None:
    """Show the rows as a list in the event loop from another thread, and return the value of the chosen row or None."""
    listed = [Row(row.value, row.label, row.detail) for row in rows]
    return asyncio.run_coroutine_threadsafe(app.ask(Picker(title, listed, guard=ListGuard())), loop).result()


class ChoicePanel(Panel[TrustReply | None]):
    """A Panel whose answer is the value of one of `answers` (key: words and value).

    The answer is `escaped` for Escape and Ctrl+D. Enter answers nothing. Keys are ignored until the question has been
    shown for a moment (`Guard`).
    """

    def __init__(
        self, question: str, answers: Mapping[str, tuple[str, TrustReply | None]], escaped: TrustReply
    ) -> None:
        self._question = visible(question)
        self._answers = answers
        self._escaped = escaped
        self._guard = Guard()

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        drawn = wrapped("bold", self._question, width)[: max(rows - len(self._answers), 1)]
        drawn += [[("bold ansicyan", f"  {key}"), ("", f"  {words}")] for key, (words, _) in self._answers.items()]
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> PanelStep[TrustReply | None]:
        if self._guard.early():
            return Unanswered()
        if key in ("escape", "c-d"):
            return Done(self._escaped)
        return Done(self._answers[key][1]) if key in self._answers else Unanswered()


class TextQuestion(Panel[str | None]):
    """A question that the user answers with a text of one line. Escape leaves it."""

    alone = True

    def __init__(self, prompt: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._prompt = visible(prompt, lines=False)
        self._guard = Guard(clock)

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        drawn = wrapped("bold", self._prompt, width)[: max(rows - 2, 1)]
        drawn += [[("bold ansicyan", "  Enter"), ("", "  answer")], [("bold ansicyan", "  n"), ("", "      leave it")]]
        return [fit(row, width) for row in drawn[:rows]]

    def key(self, key: str) -> PanelStep[str | None]:
        if self._guard.early():
            return Unanswered()
        if key in ("n", "escape", "c-d"):
            return Done(None)
        return Edit("", self._prompt) if key == "enter" else Unanswered()

    def edited(self, text: str | None) -> PanelStep[str | None]:
        self._guard.hidden()
        return Unanswered() if text is None else Done(text.strip())


class PlanQuestion(Panel[PlanAnswer]):
    """The question at the end of plan mode, under the plan: begin or not, and in which mode.

    Enter alone does not begin the plan, because the refusal is selected first.
    """

    alone = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._at = len(MODES_AFTER_PLAN)
        self._guard = Guard(clock)

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        answers = [f"{letter}  {_PLAN_WORDS[mode]}  ({mode.value})" for letter, mode in LETTERS.items()]
        answers += ["n  no: keep planning", "f  no, and say what to change"]
        drawn: list[Fragments] = [[("bold", "begin with this plan?")]]
        for place, text in enumerate(answers):
            here = place == self._at
            drawn.append([("bold ansicyan" if here else "", f"{'>' if here else ' '} {text}")])
        return [fit(row, width) for row in drawn[:rows]]

    def key(self, key: str) -> PanelStep[PlanAnswer]:
        if key not in ("up", "down") and self._guard.early():
            return Unanswered()
        match key:
            case "up" | "c-p":
                self._at = (self._at - 1) % (len(MODES_AFTER_PLAN) + 2)
            case "down" | "c-n" | "tab":
                self._at = (self._at + 1) % (len(MODES_AFTER_PLAN) + 2)
            case "enter" if self._at < len(MODES_AFTER_PLAN):
                return Done(Leave(MODES_AFTER_PLAN[self._at]))
            case "enter" if self._at == len(MODES_AFTER_PLAN):
                return Done(Stay())
            case "enter" | "f":
                return Edit("", "what should change in the plan?")
            case "n" | "escape":
                return Done(Stay())
            case _ if key in LETTERS:
                return Done(Leave(LETTERS[key]))
        return Unanswered()

    def edited(self, text: str | None) -> PanelStep[PlanAnswer]:
        self._guard.hidden()
        return Done(Stay(text.strip())) if text is not None and text.strip() else Unanswered()
