"""The tools of one session. Members can come and go while the session runs; a selection limits what the model sees."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from policy.model.frozen import dataclass
from policy.model.tool_names import meets_name, names_server_tools
from policy.model.verdict import Problem
from tools.tool import ModelTool, meant_tool


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The tools that the model of a session may call, as patterns of names.

    Attributes:
        only: patterns of the tools to keep; empty for all tools.
        without: patterns of the tools to leave out.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def selects(self, name: str) -> bool:
        """Return True if the model may call the tool `name`."""
        kept = not self.only or meets_name(self.only, name, allows=True)
        # A user who leaves out `edit` wants no edits, whatever the tool for them is called.
        names = (name, "edit") if name == "notebook_edit" else (name,)
        return kept and not any(meets_name(self.without, each, allows=False) for each in names)

    def fault(self, names: Sequence[str]) -> Problem | None:
        """Return the problem of a pattern that matches none of `names`, or None. A pattern for tools of servers may
        match later members.
        """
        for pattern in (*self.only, *self.without):
            if names_server_tools(pattern) or any(meets_name((pattern,), name, allows=True) for name in names):
                continue
            meant = meant_tool(pattern, names)
            fix = f"did you mean `{meant}`?" if meant else f"the tools are {', '.join(f'`{name}`' for name in names)}"
            return Problem(f"there is no tool `{pattern}`", "a selection of tools must name tools that exist", fix)
        return None


class ToolRegistry(Sequence[ModelTool]):
    """The selected tools as a sequence, in the order in which they were added. The engine reads it for each request and
    each call, so that a change applies from the next one on.
    """

    def __init__(self, tools: Iterable[ModelTool] = (), selection: ToolSelection | None = None) -> None:
        self._members: dict[str, ModelTool] = {}
        self.selection = selection or ToolSelection()
        for tool in tools:
            self.add(tool)

    def add(self, tool: ModelTool) -> None:
        """Add `tool`. Raises ValueError if another member has its name: a later tool must not replace an earlier
        one.
        """
        if tool.name in self._members:
            raise ValueError(f"there is already a tool `{tool.name}`")
        self._members[tool.name] = tool

    def remove(self, name: str) -> None:
        """Remove the tool `name`. Raises KeyError if it is not a member."""
        del self._members[name]

    @property
    def every(self) -> tuple[ModelTool, ...]:
        """Return all members, also those that are not selected: a user's own command needs no selection."""
        return tuple(self._members.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the selected tools."""
        return tuple(tool.name for tool in self._selected())

    def _selected(self) -> list[ModelTool]:
        return [tool for name, tool in self._members.items() if self.selection.selects(name)]

    def __iter__(self) -> Iterator[ModelTool]:
        return iter(self._selected())

    def __len__(self) -> int:
        return len(self._selected())

    @overload
    def __getitem__(self, place: int) -> ModelTool: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ModelTool]: ...
    def __getitem__(self, place: int | slice) -> ModelTool | Sequence[ModelTool]:
        return self._selected()[place]


class NarrowedTools(ToolRegistry):
    """The tools of another registry that a second selection keeps. They follow changes of that registry."""

    def __init__(self, above: ToolRegistry, selection: ToolSelection, hidden: Sequence[str] = ()) -> None:
        """`hidden` are names of tools that are left out whatever the selection keeps."""
        super().__init__(selection=selection)
        self._above = above
        self._hidden = frozenset(hidden)

    def add(self, tool: ModelTool) -> None:
        """Add a tool to the other registry."""
        self._above.add(tool)

    @property
    def every(self) -> tuple[ModelTool, ...]:
        """Return the selected tools: there is no other way to them."""
        return tuple(self._selected())

    def _selected(self) -> list[ModelTool]:
        selects = self.selection.selects
        return [tool for tool in self._above if tool.name not in self._hidden and selects(tool.name)]


class CoordinatorTools(NarrowedTools):
    """The tools of an agent that only directs other agents. Its sub-agents get the tools of the session."""

    def __init__(self, above: ToolRegistry) -> None:
        super().__init__(above, ToolSelection(("agent", "agent_output", "agent_message", "agent_stop", "tasks")))

    @property
    def every(self) -> tuple[ModelTool, ...]:
        """Return all members of the other registry, for the user's own commands."""
        return self._above.every

    @property
    def lent(self) -> ToolRegistry:
        """Return the tools for sub-agents."""
        return self._above
