"""The files of a repository that the command of a hook names. Their content is part of what the user trusts."""

import re
from collections.abc import Iterator

from runner.config.hookfiles.hook import Hook

# The spellings of the folder of the repository at the beginning of a word.
_ROOT = re.compile(
    r"\A(?:\$\{?(?:CLAUDE|GEMINI|CODEX)_PROJECT_DIR\}?|\$\{?PWD\}?|\$\((?:git rev-parse --show-toplevel|pwd)\)|\.)/"
)
_SEPARATOR = re.compile(r"\|\|?|&&?|;|\n|[(){}]")
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_TOP_LEVEL = re.compile(r"\$\(\s*git\s+rev-parse\s+--show-toplevel\s*\)|`git rev-parse --show-toplevel`|\$\(pwd\)")
_INTERPRETERS = re.compile(
    r"(?:bash|sh|zsh|dash|ksh|fish|python[0-9.]*|pypy3?|node|deno|bun|ruby|perl|php|lua|tsx|ts-node|uv|uvx|npx|pipx|"
    r"poetry|env|exec|command|time|timeout|nice|run|source|\.)"
)
CLIENT_FOLDERS = (".claude/", ".codex/", ".gemini/", ".ringfence/")
_CHANGE = re.compile(r"\b(?:cd|pushd)\s+([^\s;&|()]+)")
_MOST = 40  # files of one hook


def named_scripts(hook: Hook, workspace: str = "") -> tuple[str, ...]:
    """Return the paths, relative to the repository, that the command of `hook` may run or read as a script.

    The paths need not exist. `workspace` is the absolute path of the repository, or empty if it is not known.
    """
    found = list(_words_of_argv(hook.argv) if hook.argv else _words_of(hook.command))
    # A word is looked for in the folders that the command changes to as well.
    folders = [re.sub(r"""["']""", "", folder).rstrip("/") for folder in _CHANGE.findall(hook.command)]
    found += [f"{folder}/{word}" for folder in folders for word in found if not word.startswith(("/", "~", "$"))]
    paths = (_relative(word, workspace) for word in found)
    return tuple(dict.fromkeys(path for path in paths if path))[:_MOST]


def _words_of_argv(argv: tuple[str, ...]) -> Iterator[str]:
    yield argv[0]
    yield from (word for word in argv[1:] if not word.startswith("-"))


def _words_of(command: str) -> Iterator[str]:
    """Yield the words of a command line that name a program, the script of an interpreter, or a file of a client."""
    command = _TOP_LEVEL.sub("$PWD", command)
    for part in _SEPARATOR.split(command.replace("${", "$\0").replace("}", "\1")):
        program = True
        for match in _WORD.finditer(part):
            word = re.sub(r"""["'\\]""", "", match[0]).replace("$\0", "${").replace("\1", "}")
            if not word or word.startswith("-") or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", word, re.DOTALL):
                continue
            if program or any(folder in word for folder in CLIENT_FOLDERS):
                yield word
            # After an interpreter, the next word is its script.
            program = program and _INTERPRETERS.fullmatch(word.rpartition("/")[2]) is not None


def _relative(word: str, workspace: str) -> str:
    """Return the path of a word below the repository, or an empty text."""
    path = _ROOT.sub("", word)
    if workspace and path.startswith(f"{workspace}/"):
        path = path[len(workspace) + 1 :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith(("/", "~", "$")) or ".." in parts or not parts or not path.isprintable():
        return ""
    return "/".join(parts)
