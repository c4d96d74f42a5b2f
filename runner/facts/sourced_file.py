"""Files of shell text that a script reads with `source`: their text, and whether they change the current folder."""

import hashlib
import re

from policy.bash import ast
from policy.bash.ast import Opaque
from policy.bash.objections import MOST_CHARACTERS
from policy.bash.parser import read
from policy.model.facts import ShellText
from policy.model.verdict import Problem
from sandbox.inside.regular_file import read_whole, real_path

# Builtins that change the folder, and those that run or define commands in another way than the tree shows.
_CHANGING = frozenset((
    ".", "alias", "builtin", "cd", "command", "enable", "eval", "exec", "popd", "pushd", "set", "shopt", "source",
    "trap",
))  # fmt: skip
# Variables that determine where `cd` in the rest of the script leads.
_FOLDER_NAMES = re.compile(r"CDPATH|(?<![A-Za-z0-9_])(?:HOME|OLDPWD|PWD)(?:\+?=)")


def shell_text(path: str) -> ShellText | None:
    """Return the text of the regular file at the real path `path` as it is now, or None.

    None is returned for a link, another kind of file, a text of more than 64 KB or that is not UTF-8, and if a folder
    of the path was replaced by a link after the path was judged.
    """
    try:
        content = read_whole(path, MOST_CHARACTERS, follow=False)
        if real_path(path) != path:
            return None
        return ShellText(content.decode("utf-8"), hashlib.sha256(content).hexdigest())
    except (OSError, ValueError):  # UnicodeDecodeError is a ValueError
        return None


def changed_file(sourced: tuple[tuple[str, str], ...]) -> Problem | None:
    """Return the problem that one of the files has changed since its commands were judged, or None.

    `sourced` are pairs (path, SHA-256 of the content), as in `Permit`.
    """
    for path, sha256 in sourced:
        found = shell_text(path)
        if found is None or found.sha256 != sha256:
            what = f"`{path}` has changed"
            why = "the command reads shell commands from this file, and the decision was about its earlier content"
            return Problem(what, why, "run the command again, so that the new content is judged; nothing was run")
    return None


def keeps_folder(path: str) -> bool:
    """Return True if the shell text in the file now contains no command that changes the folder of its shell.

    The result is False for a file that is not a regular file, is too long or cannot be read with certainty. The content
    is not kept. A file may change after the decision: the folder of the later commands is then another one, but the
    file is code that runs in the same sandbox, with the same rights, so it could do the same itself.
    """
    try:
        text = read_whole(path, MOST_CHARACTERS, follow=False).decode("ascii")
    except (OSError, ValueError):  # UnicodeDecodeError is a ValueError
        return False
    tree = read(text)
    return not isinstance(tree, Opaque) and not _FOLDER_NAMES.search(text) and _keeps(tree)


def _keeps(tree: ast.Script) -> bool:
    for node in ast.nodes(tree, without=(ast.Substitution, ast.Subshell)):  # these are shells of their own
        if isinstance(node, ast.Command) and node.words:
            name = node.words[0].literal
            if name is None or name in _CHANGING:
                return False
    return True
