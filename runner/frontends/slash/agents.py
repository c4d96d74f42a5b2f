"""The command about sub-agents: /agents."""

from functools import partial

from runner.children.session_agents import SessionAgents
from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say

_USE = "write /agents, /agents NAME, /agents stop NAME|all, or /agents tell NAME TEXT"


def _session_agents(host: CommandHost) -> SessionAgents:
    agents = host.conversation.ctx.agents
    if not isinstance(agents, SessionAgents):
        raise Mistake("this session has no sub-agents: `agents = false` in the configuration switches them off")
    return agents


async def _agents(words: str, host: CommandHost) -> None:
    """List the sub-agents of this session, show one, stop one or all, or send one a message."""
    agents = _session_agents(host)
    verb, _, rest = words.partition(" ")
    name, _, text = rest.strip().partition(" ")
    if not words:
        kinds = ", ".join(agents.definitions)
        none = f"no sub-agent was started in this conversation; the model may start {kinds}"
        say(host, *([each.row for each in agents.all] or [none]))
        return
    if verb == "stop" and name == "all" and not text:
        count = await agents.stop_all()
        say(host, f"{count} agent{'s' * (count != 1)} stopped")
        return
    target = name if verb in ("stop", "tell") else words
    child = agents.get(target)
    if child is None:
        raise Mistake(f"there is no agent `{target}`; {_USE}")
    if verb == "stop" and not text:
        await agents.stop(target)
        say(host, child.row)
    elif verb == "tell":
        if not text.strip():
            raise Mistake(_USE)
        if not agents.send(target, text.strip()):
            raise Mistake(f"`{target}` has ended, so it gets no message")
        say(host, f"sent; {target} reads it after its current calls")
    else:
        say(host, child.row, *([child.report] if child.ending is not None else []))


def _words(host: CommandHost) -> list[str]:
    agents = host.conversation.ctx.agents
    names = [each.name for each in agents.all] if isinstance(agents, SessionAgents) else []
    return [*names, "stop", "tell"]


# fmt: off
COMMANDS = (
    partial(SlashCommand, group="Agents")(
        "agents", "[NAME|stop NAME|stop all|tell NAME TEXT]", "list the sub-agents, stop them, or send one a message",
        _agents, words=_words),
)
# fmt: on
