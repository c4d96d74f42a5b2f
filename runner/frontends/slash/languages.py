"""The command about the language servers of the session: /lsp."""

from functools import partial
from typing import TYPE_CHECKING

from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.lsp.session_servers import CodeServerRow, LanguageServers

_USAGE = "write /lsp, or /lsp restart NAME"


def _servers(host: CommandHost) -> "LanguageServers | None":
    if host.conversation.ctx.code is None:
        return None
    from runner.lsp.session_servers import LanguageServers  # few users look at them

    found = host.conversation.ctx.code
    return found if isinstance(found, LanguageServers) else None


async def _lsp(words: str, host: CommandHost) -> None:
    """List the language servers, or start one anew."""
    servers = _servers(host)
    if servers is None:
        say(host, "this session has no language servers; docs/guide/code.md names those that are used if installed")
        return
    match words.split():
        case []:
            say(host, *(line for row in servers.rows() for line in _lines(row)))
        case ["restart", name]:
            if not await servers.restart(name):
                raise Mistake(f"no language server `{visible(name, lines=False)}` was started in this session")
            say(host, f"{visible(name, lines=False)} starts anew when it is used")
        case _:
            raise Mistake(_USAGE)


def _lines(row: "CodeServerRow") -> list[str]:
    found = f"{row.name}: {row.state.value}, {', '.join(row.files[:6])}, {row.program}"
    lines = [visible(found, lines=False)]
    if row.error:
        lines.append(f"  {visible(row.error, lines=False)}")
    if row.refused:
        lines.append(visible(f"  refused: {', '.join(row.refused)}", lines=False))
    return lines


def _words(host: CommandHost) -> list[str]:
    return ["restart"]


# fmt: off
COMMANDS = (
    partial(SlashCommand, group="Processes")(
        "lsp", "[restart NAME]", "list the language servers of the session, or start one anew", _lsp, words=_words),
)
# fmt: on
