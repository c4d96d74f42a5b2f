"""The `/command`, and the interface of its host: the front end that runs a conversation (terminal, plain lines,
JSON).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.events import Display
from runner.problems import known_problem

if TYPE_CHECKING:
    from runner.agent.agent import Agent
    from runner.agent.conversation import Conversation
    from runner.config import Settings
    from runner.messages import ImageBlock
    from runner.sessions.selection import SessionSelection


@dataclass(frozen=True, slots=True)
class Row:
    """One row to pick from. `value` is returned; `label` and `detail` are shown and may contain untrusted text. `now`
    is True for the value in force: a list starts on that row and marks it.
    """

    value: str
    label: str
    detail: str = ""
    now: bool = False


class CommandHost(Protocol):
    """The interface that a command uses.

    Texts for the user go through `say`, which masks secrets and, in JSON mode, sends the text as an event.
    """

    commands: "Sequence[SlashCommand]"  # all commands; of two with the same name, the first one is used
    keys: Sequence[tuple[str, str]]  # the keys of this front end, with their effects

    _agent: "Agent | None" = None  # with an open session

    @property
    def columns(self) -> int:
        """Return the width of a row of text."""
        return 100

    @property
    def agent(self) -> "Agent":
        assert self._agent is not None  # no command runs before a session is open
        return self._agent

    @property
    def conversation(self) -> "Conversation":
        return self.agent.conversation

    @property
    def settings(self) -> "Settings":
        return self.agent.settings

    @property
    def environ(self) -> Mapping[str, str]:
        return self.agent.environ

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        """Return the value that the user picked; None if the user picked nothing, or this host cannot ask."""
        ...

    async def send(self, prompt: str, typed: str) -> None:
        """Send this prompt to the model, now or when the model is done. `typed` is the line that the user typed for
        it.
        """
        ...

    async def switch(self, how: "SessionSelection") -> None:
        """Close the current session, which is kept, and continue in another one."""
        await self.agent.switch(how)

    def draft(self, text: str) -> None:
        """Put `text` into the input for the user to change and send."""
        ...

    def copy(self, text: str) -> bool:
        """Send `text` to the user's clipboard. `text` has no control characters except tabs and newlines.

        Return False if this host cannot do it. True does not prove that the text arrived.
        """
        ...

    async def pasted(self) -> "ImageBlock | Problem":
        """Return the image in the user's clipboard, or the Problem that there is none."""
        fix = "write `@FILE` in the prompt, or attach `images` to a line of JSON mode"
        return Problem("no image was pasted", "this front end has no clipboard", fix)

    def show_thinking(self, shown: bool) -> bool:
        """Show the model's reasoning in full, or stop showing it. Return False if this host cannot do it."""
        return False

    def leave(self) -> None:
        """End the conversation."""
        ...


CommandFunction = Callable[[str, CommandHost], Awaitable[None]]  # gets the text behind the name


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One `/command`.

    Attributes:
        name: The name without the slash.
        group: The heading under which /help lists the command.
        usage: The arguments, for help texts.
        summary: One line for /help.
        run: The function that executes the command.
        aliases: Other names.
        words: A function that returns the possible first arguments, for completion.
        idle: True if the command waits until the model is done, because it changes what the model works on.
        source: The file of a custom command, or empty.
        sends: True if the command sends a prompt, and is shown as a prompt.
    """

    name: str
    usage: str
    summary: str
    run: CommandFunction
    aliases: tuple[str, ...] = ()
    words: Callable[[CommandHost], Sequence[str]] = lambda host: ()
    idle: bool = False
    source: str = ""
    sends: bool = False
    group: str = "Your commands and skills"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def ready(self) -> bool:
        """Return True if the command needs no argument."""
        return self.usage[:1] in ("", "[")


def say(host: CommandHost, *lines: str) -> None:
    """Show lines of plain text to the user. The model does not get them."""
    host.conversation.ctx.emit(Display("\n".join(lines), "text"))


POLICY_GROUP = "Permissions and sandbox"  # the heading of commands about decisions
LONGEST_NAME = 28  # columns of the names in a table; a longer name gets a line of its own


_NARROWEST = 20  # columns of a text beside a name


def table(rows: Iterable[tuple[str, str]], width: int, *, column: int = 0) -> list[str]:
    """Return lines with a name and a text for each row. Further lines of a text are below its beginning. In a narrow
    window, a text begins below its name.

    Names take at least `column` columns.
    """
    from textwrap import wrap

    rows = list(rows)
    wide = min(max((len(name) for name, _ in rows), default=0), LONGEST_NAME, max(width // 2 - 4, 1))
    wide, lines = max(wide, column), []
    if width - wide - 4 < _NARROWEST:
        room = max(width - 4, 8)
        return [f"  {line}" for name, text in rows for line in (name, *(f"  {part}" for part in wrap(text, room)))]
    for name, text in rows:
        first, *rest = wrap(text, width - wide - 4, break_on_hyphens=False) or [""]
        if len(name) > wide:
            lines.append(f"  {name}")
            name = ""
        lines.append(f"  {name:<{wide}}  {first}".rstrip())
        lines += [f"  {'':<{wide}}  {line}" for line in rest]
    return lines


SHELL = "`!COMMAND` runs a command of yours through the same gate; the model gets the result; `&` at its end: it stays"


class Mistake(Exception):
    """The error for a typed line that cannot be executed. Its text is the reason, and the line to write instead."""


def is_command(line: str) -> bool:
    """Return True if a typed line is a `/command`. A path such as `/etc/hosts is wrong` goes to the model."""
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return word.startswith("/") and "/" not in word[1:]


_PROMPT = "mcp:"  # the beginning of the name of a server's prompt


def find(name: str, known: Sequence[SlashCommand]) -> SlashCommand | None:
    """Return the first command with that name, which may begin with `/`, or None. Aliases count.

    `/mcp:SERVER:PROMPT` is the command `/mcp`.
    """
    wanted = name.removeprefix("/")
    wanted = "mcp" if wanted.startswith(_PROMPT) else wanted
    return next((each for each in known if wanted in each.names), None)


async def run_line(line: str, host: CommandHost) -> None:
    """Execute the command in `line`. A mistake or an error with a Problem is shown to the user and not raised."""
    name, _, rest = line.strip().partition(" ")
    known = host.commands
    command = find(name, known)
    if name.startswith(f"/{_PROMPT}"):
        _, server, prompt = (*name.split(":", 2), "")[:3]
        rest = f"prompt {server} {prompt} {rest}"
    if command is None:
        from runner.text.phrases import similar

        near = similar(name[1:], (name for each in known for name in each.names), most=3)
        hint = f"did you mean {' or '.join(f'/{each}' for each in near)}?" if near else "/help lists them"
        say(host, f"there is no command `{name}`; {hint}")
        return
    if command.idle and host.conversation.busy:
        say(host, f"/{command.name} is possible when the model is done; Ctrl-C stops the model")
        return
    try:
        await command.run(rest.strip(), host)
    except Mistake as error:
        say(host, str(error))
    except Exception as error:  # SEAM of a conversation, which continues after a Problem
        if (known_one := known_problem(error)) is None:
            raise
        problem = known_one[0]
        say(host, f"{problem.what}: {problem.why}", f"  fix: {problem.fix}")
