"""The sources of text from outside of the workspace in one conversation."""

from policy.model.action import CallServerTool, FetchAddress, ReadServerResource, SearchWeb
from runner.events import ActionFinished, Event, ToolProposed
from runner.text.sanitize import one_line

_MOST = 20  # sources that a report names
_LONGEST = 200  # characters of one source


class SourceLog:
    """The sources of untrusted text in one conversation, in the order of their first use."""

    def __init__(self) -> None:
        self._proposed: dict[str, str] = {}
        self._found: dict[str, None] = {}

    def take(self, event: Event) -> None:
        """Note the sources of one event."""
        match event:
            case ToolProposed(call, _, CallServerTool() | ReadServerResource() as action):
                self._proposed[call] = f"the tool server {action.server}"
            case ToolProposed(call, _, FetchAddress(url)):
                self._proposed[call] = url
            case ToolProposed(call, _, SearchWeb(query, provider)):
                self._proposed[call] = f"a web search for `{query}` with {provider}"
            case ActionFinished():
                if (source := self._proposed.pop(event.call, None)) is not None:
                    self.add(source)
                for each in event.connections:
                    if each.allowed and each.host:
                        self.add(each.host)
            case _:
                pass

    def add(self, source: str) -> None:
        """Add a source."""
        self._found[one_line(source, _LONGEST)] = None

    @property
    def all(self) -> tuple[str, ...]:
        """Return the sources."""
        return tuple(self._found)

    @property
    def words(self) -> str:
        """Return the sources as text; empty if there are none."""
        more = len(self._found) - _MOST
        named = list(self._found)[:_MOST]
        return ", ".join([*named, *([f"{more} more"] if more > 0 else [])])
