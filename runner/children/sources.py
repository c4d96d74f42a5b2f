"""The sources of text from outside in the conversation of a sub-agent."""

from policy.model.action import Action
from runner.events import ActionFinished, Event, ToolProposed
from runner.flow.text_sources import outside_sources
from runner.text.sanitize import one_line

_MOST = 20  # sources that a report names
_LONGEST = 200  # characters of one source


class SourceLog:
    """The sources of text from outside, in the order of their first use."""

    def __init__(self) -> None:
        self._proposed: dict[str, Action] = {}
        self._found: dict[str, None] = {}

    def take(self, event: Event) -> None:
        """Note the sources of the text that one event brought into the conversation."""
        match event:
            case ToolProposed(call, _, action) if action is not None:
                self._proposed[call] = action
            case ActionFinished(call):
                action = self._proposed.pop(call, None)
                hosts = tuple(dict.fromkeys(each.host for each in event.connections if each.allowed and each.host))
                for source in outside_sources(action, hosts) if action is not None else ():
                    self.add(source)
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
