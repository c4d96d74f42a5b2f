"""`agent agents`: the kinds of sub-agents that the model may start."""

from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.gate import CWD, JSON, argument

if TYPE_CHECKING:
    from runner.config.agentfiles.definitions.definition import AgentDefinition
    from runner.config.agentfiles.definitions.find import FoundAgents

HELP = """List and show the sub-agents that the model may start.

A sub-agent has at most the rights of the agent that starts it. Own kinds are
Markdown files in the folder `agents` of the configuration, and in a
repository that you trust.

**Examples**

    agent agents list
    agent agents show explore
"""

agents_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@agents_app.command("list")
def list_agents(json: JSON = False, cwd: CWD = None) -> int:
    """List the kinds of sub-agents of a folder, and the files that define none.

    Files of a repository are listed if you trust its content (`agent trust`).

    **Examples**

        agent agents list
        agent agents list --json | jq -r .name
    """
    from runner.stderr import say
    from runner.text.json_line import json_line
    from runner.text.sanitize import one_line

    found = _found(cwd)
    for each in found.definitions:
        if json:
            print(json_line(_as_json(each)))
        else:
            print(f"{each.name:<16} {each.owner.value:<10} {one_line(each.description, 200)}")
    for notice in found.notices:
        say(f"note: {one_line(notice, 500)}")
    return 0


@agents_app.command("show")
def show_agent(
    name: Annotated[str, argument("NAME", "The kind of agent.")], json: JSON = False, cwd: CWD = None
) -> int:
    """Show one kind of sub-agent: its limits, its tools, what its file states without effect, and its text.

    A limit can only take rights away from those of the agent that starts it.

    **Examples**

        agent agents show explore
        agent agents show reviewer --json | jq .tools
    """
    from runner.agent.options import not_known
    from runner.text.json_line import json_line
    from runner.text.sanitize import one_line, visible

    found = {each.name: each for each in _found(cwd).definitions}
    each = found.get(name)
    if each is None:
        what, why = f"there is no kind of agent `{one_line(name, 80)}`", f"the kinds are {', '.join(found)}"
        raise not_known(what, why, name, list(found), "`agent agents list` shows them")
    if json:
        print(json_line(_as_json(each)))
        return 0
    hosts = "those that the gate permits" if each.hosts is None else ", ".join(each.hosts) or "none"
    rows = (
        ("name", each.name),
        ("from", each.source),
        ("for", each.description),
        ("mode", each.mode.value if each.mode is not None else "that of the agent that starts it"),
        ("changes", "no files" if each.read_only else "what its mode permits"),
        ("tools", ", ".join(each.tools) or "those of the agent that starts it"),
        ("without", ", ".join(each.without)),
        ("hosts", hosts),
        ("denied", ", ".join(each.denied)),
        ("asked", ", ".join(each.asked)),
        ("model", each.model or "that of the agent that starts it"),
        ("requests", str(each.turns or "")),
        ("works in", "a Git worktree of its own" if each.isolation else "the folder of the agent that starts it"),
        *(("not used", notice) for notice in each.notices),
    )
    for label, words in rows:
        if words:
            print(f"{label:<9} {visible(words, lines=False)}")
    if each.prompt:
        print(f"\n{visible(each.prompt, prose=True)}")
    return 0


def _found(cwd: str | None) -> "FoundAgents":
    """Return the kinds of agents for a folder. Raise a usage error for a folder that cannot be used."""
    import os

    from runner.bundles.pinned import usable_bundles
    from runner.config.agentfiles.definitions.find import find_agents
    from runner.config.trust.cached import trusted_inventory
    from runner.gate.gate import folder

    bundled = tuple(agent for each in usable_bundles(os.environ) for agent in each.agents)
    return find_agents(trusted_inventory(str(folder(cwd)), os.environ), os.environ, bundled)


def _as_json(each: "AgentDefinition") -> dict[str, object]:
    return {
        "name": each.name,
        "description": each.description,
        "owner": each.owner.value,
        "source": each.source,
        "mode": each.mode.value if each.mode is not None else None,
        "read_only": each.read_only,
        "tools": list(each.tools),
        "without": list(each.without),
        "hosts": list(each.hosts) if each.hosts is not None else None,
        "denied": list(each.denied),
        "asked": list(each.asked),
        "model": each.model or None,
        "turns": each.turns or None,
        "isolation": each.isolation or None,
        "background": each.background,
        "notices": list(each.notices),
        "prompt": each.prompt,
    }
