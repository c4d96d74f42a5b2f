"""The rendering of actions that the runner performs itself: their outcome is a text of the program, or a Problem."""

from policy.model.action import ToolAction
from tools.file_result import tell
from tools.paths import SeenFiles
from tools.tool import Finished, Keep, TextPart


class TextResultTool:
    """A tool whose result is the text of the outcome."""

    def render(
        self, action: ToolAction, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        """Return the text, or the Problem in words."""
        text = finished.stdout.decode("utf-8", "replace")
        return (TextPart(tell(finished.problem) if finished.problem is not None else text),)
