"""The review of a server's offer: what the user sees before an approval, and which tools an answer approves."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.mcp.difference import difference
from runner.mcp.pins import Cause, PinCheck, ServerPin, StoredPin
from runner.mcp.suspicions import Suspicion
from runner.text.phrases import many, similar
from runner.text.sanitize import one_line

_NAME = 80  # characters of a name


@dataclass(frozen=True)
class PinReview:
    """The offer of a server beside its pin, with the warnings about the offer.

    Attributes:
        server: The name of the server.
        check: The comparison of the offer with the pin.
        pinned: The pin that the user approved before.
        suspicions: The warnings. One without a tool is about the whole server.
    """

    server: str
    check: PinCheck
    pinned: StoredPin
    suspicions: Sequence[Suspicion]

    @cached_property
    def kept(self) -> frozenset[str]:
        """Return the names of the tools whose definition the user approved before, exactly as it is now."""
        if not isinstance(self.pinned, ServerPin):
            return frozenset()
        before = {tool.name: tool.sha256 for tool in self.pinned.tools if tool.approved}
        return frozenset(tool.name for tool in self.check.pin.tools if before.get(tool.name) == tool.sha256)

    @cached_property
    def _declined(self) -> frozenset[str]:
        """Return the names of the tools that the user saw before, exactly as they are now, and did not approve."""
        return frozenset(each.name for each in self.check.quarantined if each.cause is Cause.LEFT_OUT)

    @cached_property
    def flagged(self) -> frozenset[str]:
        """Return the names of the tools that only an answer with their name approves.

        THREAT T186: a warning about the instructions or the name of the server concerns each of its tools. A tool that
        the user approved before stays approved by an answer about the whole server, unless the server itself changed.
        """
        whole = any(not each.tool for each in self.suspicions)
        named = {each.tool for each in self.suspicions}
        offered = (tool.name for tool in self.check.pin.tools)
        settled = frozenset[str]() if whole and self.check.changes else self.kept
        return frozenset(name for name in offered if (whole or name in named) and name not in settled)

    def answer(self, named: Iterable[str] = ()) -> ServerPin | Problem:
        """Return the pin after an approval: of all tools without a warning that the user did not leave out before.

        If tools are named, the pin approves these and those that were approved before.
        """
        wanted = frozenset(named)
        offered = {tool.name for tool in self.check.pin.tools}
        for name in sorted(wanted - offered):
            return self._unknown(name, offered)
        approved = (wanted | self.kept) if wanted else (offered - self.flagged - self._declined)
        return self.check.pin.approving(approved)

    def _unknown(self, name: str, offered: Iterable[str]) -> Problem:
        what = f"the server `{self.server}` has no tool `{one_line(name, _NAME)}` to approve"
        held = {each.name: each for each in self.check.quarantined if each.cause is Cause.REFUSED}
        if (refused := held.get(name)) is not None:
            return Problem(what, refused.why, "leave it out")
        near = similar(name, offered)
        fix = f"did you mean `{near[0]}`?" if near else f"see `agent mcp pin {self.server} --json`"
        return Problem(what, "it does not offer a tool with exactly this name", fix)

    def changes(self, pin: ServerPin) -> bool:
        """Return True if `pin` differs from the stored one."""
        return not isinstance(self.pinned, ServerPin) or _content(pin) != _content(self.pinned)

    def lines(self) -> list[str]:
        """Return the difference and the warnings, as lines of safe characters."""
        found = difference(self.check, self.pinned)
        if self.check.problem is not None:
            problem = self.check.problem
            found.insert(0, f"{problem.what}: {problem.why}")
        for each in self.suspicions:
            of = f"{one_line(each.tool, _NAME)}: " if each.tool else ""
            found.append(f"warning: {of}{each.text}")
        return found

    def left_out(self, pin: ServerPin) -> list[str]:
        """Return what an approval leaves out and why, one line for each tool."""
        texts: dict[str, list[str]] = {}
        for each in self.suspicions:
            texts.setdefault(each.tool, []).append(each.text)
        whole = texts.pop("", [])
        lines = []
        for tool in pin.tools:
            if not tool.approved:
                why = "; ".join([*texts.get(tool.name, []), *whole]) or "you left it out"
                command = f"agent mcp pin {self.server} --tool {tool.name}"
                lines.append(f"not approved: {tool.name} ({why}); to approve it: {command}")
        return lines

    def question(self, pin: ServerPin) -> str:
        """Return the question about `pin` in one line."""
        number = many(len(pin.approved), "tool")
        rest = len(pin.tools) - len(pin.approved)
        return f"Approve {number} of `{self.server}` as shown{f', and leave out {rest:,}' if rest else ''}?"

    def as_json(self, pin: ServerPin, *, stored: bool) -> Mapping[str, object]:
        """Return the review as an object for JSON. `stored` is True if `pin` is the stored one now."""
        texts: dict[str, list[dict[str, str]]] = {}
        for each in self.suspicions:
            texts.setdefault(each.tool, []).append({"kind": each.kind, "text": each.text})
        held = {each.name: each for each in self.check.quarantined}
        names = dict.fromkeys((*(tool.name for tool in pin.tools), *held))
        digests = {tool.name: tool.sha256 for tool in pin.tools}
        rows = []
        for name in names:
            one = held.get(name)
            rows.append({
                "name": name,
                "sha256": digests.get(name),
                "state": one.cause.value if one is not None else "approved",
                "why": one.why if one is not None else None,
                "was": one.was or None if one is not None else None,
                "approve": name in pin.approved,
                "warnings": texts.get(name, []),
            })  # fmt: skip
        return {
            "server": self.server,
            "clean": self.check.clean,
            "stored": stored,
            "sha256": pin.sha256,
            "package": pin.package,
            "changes": list(self.check.changes),
            "problem": self.check.problem.why if self.check.problem is not None else None,
            "warnings": texts.get("", []),
            "tools": rows,
        }


def _content(pin: ServerPin) -> tuple[object, ...]:
    """Return everything that an approval is about. A stored pin may lack the definitions of large tools."""
    rows = tuple((tool.name, tool.sha256, tool.approved) for tool in pin.tools)
    return rows, pin.instructions, pin.runs, pin.package
