"""Description of the servers that `.mcp.json` would start. Nothing is started here."""

import json
import shlex


class _Twice(ValueError):
    pass


def servers(data: bytes) -> tuple[tuple[str, str], ...]:
    """Return the name and the command line or address of each server in the text; both are untrusted.

    Names of variables are included, but not their values, which may be keys. Raises ValueError, with the reason as its
    text, for another text.
    """
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except _Twice:
        raise ValueError("a key stands in it twice, and readers differ in which one they take") from None
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    named = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(named, dict):
        raise ValueError("it has no `mcpServers`")
    return tuple((name, _words(server)) for name, server in named.items())


def _words(server: object) -> str:
    if not isinstance(server, dict):
        return "not a server"
    if isinstance(url := server.get("url"), str):
        return f"connects to {url}"
    command, arguments = server.get("command"), server.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return "not a server"
    line = " ".join(shlex.quote(word if isinstance(word, str) else json.dumps(word)) for word in (command, *arguments))
    variables = server.get("env")
    named = f" (sets {', '.join(map(str, variables))})" if isinstance(variables, dict) and variables else ""
    return f"{line}{named}"


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice
    return found
