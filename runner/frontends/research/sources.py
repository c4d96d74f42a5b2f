"""The sources of an answer: what the tools of a session read, as events tell it."""

from policy.model.action import Action, FetchAddress, GrepFiles, ReadFile, RunArgv
from runner.events import ActionFinished, Emit, Event, ToolProposed
from runner.text.sanitize import one_line

_MOST = 40
_LONGEST = 300


class SourceList:
    """An Emit that passes every event to `show` and remembers what was read successfully.

    `folder` is the workspace, and `name` stands for it in the list. `given` are sources that the user named.
    """

    def __init__(self, show: Emit, folder: str = "", name: str = "", given: tuple[str, ...] = ()) -> None:
        self._show = show
        self._prefix, self._name = folder.rstrip("/") + "/", name
        self._open: dict[str, Action] = {}
        self._found: dict[str, None] = dict.fromkeys(given)

    def __call__(self, event: Event) -> None:
        match event:
            case ToolProposed(call, _, action) if action is not None:
                self._open[call] = action
            case ActionFinished(call=call, problem=None, status=0) if call in self._open:
                if text := self._text(self._open.pop(call)):
                    self._found[text] = None
            case _:
                pass
        self._show(event)

    def _text(self, action: Action) -> str:
        match action:
            case ReadFile(path=path) | GrepFiles(root=path) if path.startswith(self._prefix):
                return path.removeprefix(self._prefix)
            case FetchAddress(url=url):
                return url
            case RunArgv(argv=("git", "show", *words)):
                named = [word for word in words if not word.startswith("-")]
                return f"commit {' '.join(named)}"
            case _:
                return ""

    def text(self) -> str:
        """Return the list for standard output; empty if nothing was read."""
        lines = [f"- {one_line(each, _LONGEST)}" for each in list(self._found)[:_MOST]]
        if len(self._found) > _MOST:
            lines.append(f"- and {len(self._found) - _MOST} more")
        return "\n".join([f"Sources{f' ({self._name})' if self._name else ''}:", *lines]) if lines else ""
