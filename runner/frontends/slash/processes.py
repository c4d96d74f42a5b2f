"""The commands about processes that stay beside the conversation: /processes, /ports."""

from functools import partial

from runner.engine.control_server import is_host_port, is_port
from runner.engine.port_forwards import LOOPBACK
from runner.engine.process_view import output_lines, port_rows, port_words, process_rows, process_words
from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.text.sanitize import visible

_LINES = 100  # of the output of a process
_LONGEST_LINE = 2_000  # characters


async def _processes(words: str, host: CommandHost) -> None:
    """List the processes of this session, show the output of one, or stop one or all."""
    processes = host.conversation.ctx.processes
    verb, _, name = words.partition(" ")
    if not words:
        rows = process_rows(processes.all)
        none = "no process stays beside this conversation; `!COMMAND &` starts one, and so can the model"
        say(host, *(map(process_words, rows) if rows else (none,)))
        return
    if verb == "stop" and name == "all":
        stopped = processes.alive
        for each in stopped:
            await processes.end(each.id)
        say(host, f"{len(stopped)} process{'es' * (len(stopped) != 1)} stopped")
        return
    id = name if verb == "stop" else words
    process = processes.get(id)
    if process is None:
        raise Mistake(f"there is no process `{id}`; write /processes, /processes ID, or /processes stop ID|all")
    if verb == "stop":
        await processes.end(id)
        say(host, process_words(process_rows((process,))[0]))
        return
    lines = output_lines(process, _LINES)
    shown = [visible(line, lines=False)[:_LONGEST_LINE] for line in lines] or ["(no output yet)"]
    where = [f"the whole output: {process.log.path}"] if process.log.path else []
    say(host, process_words(process_rows((process,))[0]), *shown, *where)


async def _ports(words: str, host: CommandHost) -> None:
    """List the ports on which processes listen, forward one to this machine, or close a forward."""
    ctx = host.conversation.ctx
    if not words:
        rows = port_rows(ctx.processes.alive, ctx.forwards.all)
        say(host, *(map(port_words, rows) if rows else ("no process of this session listens on a port",)))
        return
    verb, *numbers = words.split()
    given = [int(each) for each in numbers if each.isascii() and each.isdigit() and len(each) < 6]
    if len(given) != len(numbers) or not (all(map(is_port, given[:1])) and all(map(is_host_port, given[1:]))):
        given = []
    match verb, given:
        case "forward", [port] | [port, _]:
            if ctx.unattended:  # THREAT T157: there is no user to approve it
                raise Mistake("a port is forwarded only for a user, and this session has none")
            forward = await ctx.forwards.open(port, given[-1], "terminal")
            say(host, f"http://{LOOPBACK}:{forward.host_port} leads to port {forward.port} of {forward.process}")
        case "close", [host_port]:
            if not await ctx.forwards.end(host_port):
                raise Mistake(f"port {host_port} of this machine is not forwarded; /ports lists the forwards")
        case _:
            raise Mistake("write /ports, /ports forward PORT [PORT OF THIS MACHINE], or /ports close PORT")


_command = partial(SlashCommand, group="Processes")

# fmt: off
COMMANDS = (
    _command("processes", "[ID|stop ID|stop all]", "list what runs in the background, show its output, or stop it",
             _processes, words=lambda host: [*(each.id for each in host.conversation.ctx.processes.all), "stop"]),
    _command("ports", "[forward PORT [HOSTPORT]|close HOSTPORT]", "list listening ports, or open one on this machine",
             _ports, words=lambda host: ["forward", "close"]),
)
# fmt: on
