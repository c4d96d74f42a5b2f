"""Folders of bundles, and repositories of Git that are written object by object, without Git."""

import json
import zlib
from collections.abc import Mapping
from hashlib import sha1
from pathlib import Path

SKILL = "---\nname: fmt\ndescription: formats code\n---\nRun `scripts/fmt.sh` of this folder.\n"
AGENT = "---\nname: rev\ndescription: reviews\ntools: Read, Grep\n---\nYou review.\n"
COMMAND = "---\ndescription: go\n---\nUse ${CLAUDE_PLUGIN_ROOT}/notes.txt for $1\n"
HOOKS = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}]}}
SERVERS = {"mcpServers": {"db": {"command": "${CLAUDE_PLUGIN_ROOT}/srv", "args": ["--root", "${CLAUDE_PLUGIN_ROOT}"]}}}

# The files of a plug-in with one part of each kind.
PLUGIN: Mapping[str, str] = {
    ".claude-plugin/plugin.json": json.dumps({"name": "tidy", "version": "1.0", "description": "tidies"}),
    "commands/go.md": COMMAND,
    "agents/rev.md": AGENT,
    "skills/fmt/SKILL.md": SKILL,
    "skills/fmt/scripts/fmt.sh": "#!/bin/sh\necho formatted\n",
    "hooks/hooks.json": json.dumps(HOOKS),
    ".mcp.json": json.dumps(SERVERS),
}


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below `folder`, scripts executable, and return the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


class ObjectWriter:
    """A repository of Git at `folder` that has only the objects that are written here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "objects").mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/main\n")

    def put(self, kind: str, data: bytes) -> bytes:
        """Write an object and return its id."""
        whole = f"{kind} {len(data)}\0".encode() + data
        id = sha1(whole, usedforsecurity=False)
        path = self.folder / "objects" / id.hexdigest()[:2] / id.hexdigest()[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole))
        return id.digest()

    def tree(self, *entries: tuple[str, str, bytes]) -> bytes:
        """Write a tree of (mode, name, id) and return its id."""
        return self.put("tree", b"".join(f"{mode} {name}\0".encode() + id for mode, name, id in entries))

    def folder_of(self, files: Mapping[str, str]) -> bytes:
        """Write the tree of files by path, and return its id."""
        entries = []
        tops = sorted({path.split("/")[0] for path in files}, key=lambda top: top if top in files else f"{top}/")
        for top in tops:
            if top in files:
                mode = "100755" if top.endswith(".sh") else "100644"
                entries.append((mode, top, self.put("blob", files[top].encode())))
            else:
                below = {path[len(top) + 1 :]: text for path, text in files.items() if path.startswith(f"{top}/")}
                entries.append(("40000", top, self.folder_of(below)))
        return self.tree(*entries)

    def commit(self, tree: bytes) -> str:
        """Write a commit of `tree`, make it the head of the branch, and return its id in digits."""
        who = "a <a@example.com> 1700000000 +0000"
        text = f"tree {tree.hex()}\nauthor {who}\ncommitter {who}\n\nadd\n"
        id = self.put("commit", text.encode()).hex()
        branch = self.folder / "refs" / "heads" / "main"
        branch.parent.mkdir(exist_ok=True)
        branch.write_text(f"{id}\n")
        return id
