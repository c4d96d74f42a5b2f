"""The trust of Codex in hooks: Codex skips a hook whose definition has not the hash that its user trusted.

Codex itself calculates the hashes: its app server lists the hooks of a temporary configuration folder.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_SECONDS = 60.0  # until the app server must have answered
_MOST = 1 << 20  # bytes of one answer


def codex_program(environ: Mapping[str, str]) -> str | None:
    """Return the path of the installed Codex, or None."""
    return shutil.which("codex", path=environ.get("PATH", os.defpath))


def trust_entries(path: str, hooks: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each hook in `hooks`, the content of the file at `path`, by the key that Codex gives it.

    Return an empty mapping if Codex is not installed or does not answer: its user then trusts the hooks with `/hooks`.
    """
    program = codex_program(environ)
    if program is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="ringfence-codex-") as folder:
        with open(f"{folder}/hooks.json", "w", encoding="utf-8") as file:
            file.write(hooks)
        listed = _listed(program, folder, environ)
    return {f"{path}{key.removeprefix(f'{folder}/hooks.json')}": value for key, value in listed.items()}


def _listed(program: str, folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of the hooks in the configuration folder `folder`, by their keys."""
    lines = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "ringfence", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [folder]}},
    )
    with subprocess.Popen(
        [program, "app-server"],
        cwd=folder,
        env={**environ, "CODEX_HOME": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            assert server.stdin is not None, "it is a pipe"
            assert server.stdout is not None, "it is a pipe"
            server.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
            server.stdin.flush()
            return _hashes(_answer(server.stdout.fileno()))
        except OSError:
            return {}
        finally:
            server.kill()


def _answer(descriptor: int) -> object:
    """Return the result of the second request, or None if it does not come."""
    import select

    until, data = time.monotonic() + _SECONDS, b""
    while (left := until - time.monotonic()) > 0 and len(data) < _MOST:
        if not select.select([descriptor], [], [], left)[0] or not (chunk := os.read(descriptor, 1 << 16)):
            return None
        data += chunk
        for line in data.split(b"\n")[:-1]:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # not a message
            if isinstance(message, dict) and message.get("id") == 2:
                return message.get("result")
    return None


def _hashes(result: object) -> dict[str, str]:
    """Return the hashes by key in an answer to `hooks/list`; what has another form is left out."""
    found: dict[str, str] = {}
    rows = result.get("data") if isinstance(result, dict) else None
    for row in rows if isinstance(rows, list) else ():
        hooks = row.get("hooks") if isinstance(row, dict) else None
        for hook in hooks if isinstance(hooks, list) else ():
            key, value = hook.get("key"), hook.get("currentHash")
            if isinstance(key, str) and isinstance(value, str):
                found[key] = value
    return found


def with_trust(path: str, text: str | None, entries: Mapping[str, str]) -> str:
    """Return the configuration of Codex with these trusted hashes. Comments and order stay."""
    import tomlkit

    document = toml_document(path, text or "")
    hooks = document.setdefault("hooks", tomlkit.table(is_super_table=True))
    state = hooks.setdefault("state", tomlkit.table(is_super_table=True))
    for key, value in entries.items():
        row = tomlkit.table()
        row["trusted_hash"] = value
        state[key] = row
    return str(tomlkit.dumps(document))


def without_trust(path: str, text: str, keys: tuple[str, ...]) -> str:
    """Return the configuration of Codex without the trusted hashes of these keys."""
    import tomlkit

    document = toml_document(path, text)
    hooks = document.get("hooks")
    state = hooks.get("state") if hooks is not None else None
    if state is None:
        return text
    for key in keys:
        if key in state:
            del state[key]
    if not state and hooks is not None:
        del hooks["state"]
        if not hooks:
            del document["hooks"]
    return str(tomlkit.dumps(document))


def toml_document(path: str, text: str) -> "TOMLDocument":
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        why, fix = f"it is not valid TOML ({error})", "correct the file, then try again"
        raise Stopped(Problem(f"`{path}` cannot be changed", why, fix), Exit.FAILED) from None
