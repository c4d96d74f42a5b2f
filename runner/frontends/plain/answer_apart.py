"""The events of a run without the answer of the model, which is written to another place."""

from policy.model.profile import MAIN
from runner.events import Emit, Event, ModelText, RunEnded, ToolProposed


class AnswerApart:
    """An Emit that passes every event to `show`, except the text of the answer (`RunEnded.text`).

    Only the end of a run tells whether a text was the answer. A text is therefore withheld until a call follows, or
    until the run ends without an answer.
    """

    def __init__(self, show: Emit) -> None:
        self._show = show
        self._withheld: list[ModelText] = []

    def __call__(self, event: Event) -> None:
        if event.agent != MAIN:  # the answer is that of the agent that the user instructs
            self._show(event)
            return
        match event:
            case ModelText():
                self._withheld.append(event)
                return
            case ToolProposed():
                self._pass_on()
            case RunEnded(text=""):
                self._pass_on()
            case RunEnded():
                self._withheld.clear()
            case _:
                pass
        self._show(event)

    def _pass_on(self) -> None:
        withheld, self._withheld = self._withheld, []
        for event in withheld:
            self._show(event)
