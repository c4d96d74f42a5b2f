"""The probe of a new tool server: its first start without rights, and the rights that it seems to need."""

import asyncio

from policy.model.frozen import dataclass
from runner.frontends.servers.trial import TrialArgs, configured, tried
from runner.secrets.redactor import masked
from runner.stderr import say
from runner.text.phrases import many
from runner.text.sanitize import visible


@dataclass(frozen=True, slots=True)
class ProbedRights:
    """The rights that a server seems to need, by the options of `agent mcp add`, and the user's answer."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def probe(name: str, cwd: str | None) -> ProbedRights:
    """Start the configured server `name` without rights, tell the user what it seems to need, and ask.

    Return the rights that the user gives; none if the server needs none, or if the answer is not yes. Raise Stopped if
    the sandbox cannot be built.
    """
    args = TrialArgs(name, cwd, least=True)
    config = configured(args)
    if not config.enabled or config.url:
        return ProbedRights()
    row, offer = asyncio.run(tried(config, args))
    if not row.wants:
        _say(
            f"without rights it offers {many(len(offer.tools), 'tool')}" if offer.tools else f"{row.state}: {row.error}"
        )
        return ProbedRights()
    _say(f"`{name}` was started without rights, and wants:")
    given: dict[str, list[str]] = {"--read": [], "--write": [], "--host": []}
    for right in row.wants:
        flag, _, value = right.partition(" ")
        given[flag].append(value)
        _say(f"  {_VERBS[flag]} {value}")
    _say("a program may lie about what it needs: give it what you would give to its author")
    if not _answered_yes("give it these rights? [y/N]: "):
        return ProbedRights()
    return ProbedRights(*(tuple(given[flag]) for flag in ("--read", "--write", "--host")))


_VERBS = {"--read": "to read", "--write": "to change", "--host": "to connect to"}


def _say(text: str) -> None:
    say(masked(visible(text, lines=False)))


def _answered_yes(prompt: str) -> bool:
    """Return True if the user typed yes. What was typed before the question does not count."""
    from runner.frontends.plain.line_input import line_reader

    async def read() -> str:
        return await line_reader(forget=True)(prompt)

    try:
        return asyncio.run(read()).strip().lower() in ("y", "yes")
    except EOFError:
        return False
