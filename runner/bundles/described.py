"""Text for the user about a bundle: everything that it contains, and what an update would change."""

from collections.abc import Iterable, Mapping

from runner.bundles.bundle import Bundle
from runner.config.agentfiles.definitions.definition import AgentDefinition
from runner.config.inventory import InventoryEntry, differences
from runner.config.trust.text import server_words
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_WIDE = 150  # characters of a description
_HOOKS = "hooks, each run in a sandbox that reads the workspace and the bundle's folder; they can deny, never allow"


def bundle_rows(bundle: Bundle) -> list[str]:
    """Return the rows about everything that a bundle contains. Command lines are never shortened."""
    rows = [f"bundle   {bundle.name} {_line(bundle.version)}".rstrip(), f"hash     {bundle.sha256}"]
    if bundle.description:
        rows.append(f"about    {_line(bundle.description)}")
    servers = [f"  {_line(each.name)}: {_line(server_words(each))}" for each in bundle.servers]
    agents = [f"  {each.name}  {agent_limits(each)}  {one_line(each.description, _WIDE)}" for each in bundle.agents]
    hooks = [
        f"  {_line(each.event)}{f' ({_line(each.matcher)})' if each.matcher else ''}: {_line(each.words)}"
        for each in bundle.hooks
    ]
    sections = (
        ("tool servers (MCP), each started in a sandbox without rights but to the bundle's folder", servers),
        (_HOOKS, hooks),
        ("sub-agents, which get at most the rights of the session", agents),
        (
            "skills, which the model may read",
            [f"  {each.name}  {one_line(each.description, _WIDE)}" for each in bundle.skills],
        ),
        (
            "commands, whose texts go to the model as if you wrote them",
            [f"  /{each.name}  {each.summary}" for each in bundle.commands],
        ),
        ("not used", [f"  {_line(each)}" for each in bundle.notices]),
    )
    for title, lines in sections:
        if lines:
            rows += ["", title, *lines]
    return rows


def agent_limits(each: AgentDefinition) -> str:
    """Return the limits of a kind of sub-agents in a few words."""
    parts = [
        f"mode {each.mode.value}" if each.mode is not None else "",
        "changes no files" if each.read_only else "",
        f"tools {', '.join(each.tools)}" if each.tools else "",
        f"without {', '.join(each.without)}" if each.without else "",
        f"hosts {', '.join(each.hosts) or 'none'}" if each.hosts is not None else "",
        f"model {each.model}" if each.model else "",
    ]
    return _line("; ".join(part for part in parts if part) or "no limit of its own")


def file_rows(entries: Iterable[InventoryEntry], contents: Mapping[str, bytes]) -> list[str]:
    """Return every file in full, line by line: accepted text must not have a hidden part."""
    rows = []
    for each in entries:
        text = contents[each.path].decode("utf-8", "backslashreplace")
        rows += ["", f"--- {_line(each.path)}{' (executable)' if each.executable else ''}", *visible(text).splitlines()]
    return rows


def change_rows(
    old: Bundle | None,
    new: Bundle,
    before: tuple[InventoryEntry, ...],
    after: tuple[InventoryEntry, ...],
    texts: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> list[str]:
    """Return the rows about what an update changes: in effect, by file, and line by line.

    `old` is None if the copy in use differs from its pin; then the new bundle is described as a whole.
    """
    from sandbox.inside.files.diff import unified_rows

    changed = differences(before, after)
    if old is None:
        return [
            *bundle_rows(new),
            "",
            many(len(changed), "file"),
            *(f"  {_line(path)}  {how}" for path, how in changed),
        ]
    effect = unified_rows(_effects(old), _effects(new))
    rows = [
        f"bundle   {new.name}",
        f"from     {old.sha256}  {_line(old.version)}",
        f"to       {new.sha256}  {_line(new.version)}",
    ]
    rows += (
        ["", "what changes in effect", *(f"  {row}" for row in effect)] if effect else ["", "no name or limit changes"]
    )
    rows += ["", many(len(changed), "file"), *(f"  {_line(path)}  {how}" for path, how in changed)]
    for path, _ in changed:
        lines = [text.get(path, b"").decode("utf-8", "backslashreplace").split("\n") for text in texts]
        rows += ["", f"--- {_line(path)}", *(visible(row, lines=False) for row in unified_rows(*lines))]
    return rows


def _effects(bundle: Bundle) -> list[str]:
    """Return the rows about a bundle without those that always differ, and without the folder of its copy."""
    rows = (row for row in bundle_rows(bundle) if row and not row.startswith("hash "))
    return [row.replace(bundle.root, "${CLAUDE_PLUGIN_ROOT}") for row in rows]


def bundle_json(bundle: Bundle) -> dict[str, object]:
    """Return what a bundle contains as a part of the JSON of `agent bundle`."""
    return {
        "version": bundle.version,
        "description": bundle.description,
        "sha256": bundle.sha256,
        "commands": [each.name for each in bundle.commands],
        "skills": [each.name for each in bundle.skills],
        "agents": [each.name for each in bundle.agents],
        "servers": [{"name": each.name, "runs": server_words(each)} for each in bundle.servers],
        "hooks": [{"event": each.event, "matcher": each.matcher, "runs": each.words} for each in bundle.hooks],
        "notices": list(bundle.notices),
    }


def _line(text: str) -> str:
    """Return the text on one line, never shortened: the user must see everything that is accepted."""
    return visible(text, lines=False)
