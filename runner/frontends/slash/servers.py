"""The command about the tool servers of the session: /mcp, and the prompts of servers as /mcp:SERVER:PROMPT."""

from functools import partial
from typing import TYPE_CHECKING

from policy.model.tool_names import certain_tool
from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.text.phrases import many
from runner.text.sanitize import marked, one_line, visible

if TYPE_CHECKING:
    from runner.mcp.servers import ServerRow, SessionServers
    from tools.server_offer import OfferedPrompt

_LONGEST = 200  # characters of a text of a server in a row
_USAGE = "write /mcp, /mcp NAME, /mcp restart NAME, /mcp stop NAME, /mcp check NAME, or /mcp:SERVER:PROMPT"


def _servers(host: CommandHost) -> "SessionServers | None":
    from runner.mcp.servers import SessionServers

    found = host.conversation.ctx.servers
    return found if isinstance(found, SessionServers) else None


async def _mcp(words: str, host: CommandHost) -> None:
    """List the tool servers, show one, start one anew, stop one, or send a prompt of one."""
    if host.conversation.ctx.servers is None:
        say(host, "this session has no tool servers; `agent mcp add` configures one")
        return
    servers = _servers(host)
    assert servers is not None
    rows = {row.name: row for row in servers.rows()}
    match words.split():
        case []:
            say(host, *map(_line, rows.values()))
        case [name] if name in rows:
            say(host, *_details(rows[name], servers))
        case ["restart" | "stop" | "check" as verb, name] if name in rows:
            await _changed(verb, name, servers)
            say(host, *_details({row.name: row for row in servers.rows()}[name], servers))
        case ["prompt", name, prompt, *given] if name in rows:
            await _send_prompt(name, prompt, given, servers, host)
        case _:
            raise Mistake(_USAGE)


async def _changed(verb: str, name: str, servers: "SessionServers") -> None:
    match verb:
        case "restart":
            await servers.restart(name)
        case "stop":
            await servers.stop(name)
        case _:  # the user answered `agent mcp pin` in another terminal
            await servers.recheck(name)


def _line(row: "ServerRow") -> str:
    held = f", {many(len(row.held), 'tool')} quarantined" if row.held else ""
    state = f"{row.state.value}, {many(len(row.tools), 'tool')}{held}" if row.tools or row.held else row.state.value
    error = f": {row.error}" if row.error else ""
    return visible(f"{row.name}  {state}  {row.command}{error}", lines=False)


def _details(row: "ServerRow", servers: "SessionServers") -> list[str]:
    """Return everything about one server."""
    offer = servers.offer(row.name)
    lines = [_line(row)]
    if row.title or row.protocol:
        lines.append(f"  {row.title or 'a server without a name'}, protocol {row.protocol}, {row.seconds:.2f} s")
    lines += [f"  {name}" for name in row.tools]
    lines += [f"  quarantined: {name} ({why})" for name, why in row.held]
    if row.held:
        lines.append(f"  to look at them: agent mcp pin {row.name}; then /mcp check {row.name}")
    for prompt in offer.prompts if offer is not None else ():
        arguments = " ".join(f"{name}=..." for name, _, required in prompt.arguments if required)
        lines.append(f"  /mcp:{row.name}:{prompt.name} {arguments}  {prompt.description}".rstrip())
    lines += [f"  its sandbox stopped: {each}" for each in row.denials]
    if row.wants:
        lines.append(f"  it seems to need: {', '.join(row.wants)}")
    return [visible(one_line(line, _LONGEST * 3), lines=False) for line in lines]


async def _send_prompt(name: str, prompt: str, given: list[str], servers: "SessionServers", host: CommandHost) -> None:
    """Send the text of a prompt of a server to the model, marked as words of that server."""
    offer = servers.offer(name)
    known = {each.name: each for each in offer.prompts} if offer is not None else {}
    if prompt not in known:
        names = ", ".join(f"/mcp:{name}:{each}" for each in known) or "none"
        raise Mistake(visible(f"the server `{name}` has no prompt `{prompt}`; its prompts are {names}", lines=False))
    reply = await servers.prompt(name, prompt, _arguments(given, known[prompt]))
    texts = [str(block.get("text", "")) for block in reply.content if block.get("type") == "text"]
    text = visible("\n\n".join(texts), prose=True)
    if (notes := host.conversation.ctx.notes) is not None:
        notes.note_outside([f"the server {name}"])
    head = f"The user chose the prompt `{prompt}` of the tool server `{name}`. Its text is that of the server:"
    await host.send(f"{head}\n{marked('server-prompt', text, server=name)}", f"/mcp:{name}:{prompt} {' '.join(given)}")


def _arguments(given: list[str], prompt: "OfferedPrompt") -> dict[str, str]:
    """Return the arguments `NAME=VALUE`; of a prompt with one argument, all words are its value."""
    names = [name for name, _, _ in prompt.arguments]
    pairs = [word.partition("=") for word in given]
    if len(names) == 1 and not all(found and name in names for name, found, _ in pairs):
        return {names[0]: " ".join(given)}
    wrong = [name for name, found, _ in pairs if not found or name not in names]
    missing = [
        name for name, _, required in prompt.arguments if required and name not in {each for each, _, _ in pairs}
    ]
    if wrong or missing:
        raise Mistake(f"write the arguments as NAME=VALUE; this prompt has {', '.join(names) or 'none'}")
    return {name: value for name, _, value in pairs}


def prompt_rows(host: CommandHost) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the prompts of the running servers: the name of the command (`mcp:SERVER:PROMPT`), a description on one
    line, and the names of the arguments.

    A name of a server that cannot be typed as one word, or with characters that may look like others, is left out.
    """
    servers, rows = _servers(host), []
    for name in servers.running if servers is not None else ():
        offer = servers.offer(name) if servers is not None else None
        for prompt in offer.prompts if offer is not None else ():
            arguments = tuple(each for each, _, _ in prompt.arguments)
            if all(map(certain_tool, (prompt.name, *arguments))):
                note = visible(one_line(prompt.description, _LONGEST), lines=False)
                rows.append((f"mcp:{name}:{prompt.name}", note, arguments))
    return rows


_command = partial(SlashCommand, group="Processes")

# fmt: off
COMMANDS = (
    _command("mcp", "[NAME|restart NAME|stop NAME|check NAME]", "list the tool servers, their tools and last errors",
             _mcp, words=lambda host: ["restart", "stop", "check",
                                       *(getattr(host.conversation.ctx.servers, "names", ()))]),
)
# fmt: on
