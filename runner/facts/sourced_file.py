"""Files of shell text that a script reads with `source`, examined for commands that change the current folder."""

import re
from typing import Any

from policy.bash import ast
from policy.bash.ast import Opaque
from policy.bash.objections import MOST_CHARACTERS
from policy.bash.parser import read
from sandbox.inside.regular_file import read_whole

# Builtins that change the folder, and those that run or define commands in another way than the tree shows.
_CHANGING = frozenset((
    ".", "alias", "builtin", "cd", "command", "enable", "eval", "exec", "popd", "pushd", "set", "shopt", "source",
    "trap",
))  # fmt: skip
# Variables that determine where `cd` in the rest of the script leads.
_FOLDER_NAMES = re.compile(r"CDPATH|(?<![A-Za-z0-9_])(?:HOME|OLDPWD|PWD)(?:\+?=)")


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
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if type(node) is tuple:
            pending += node
        elif isinstance(node, ast.Substitution | ast.Subshell):
            continue  # a shell of its own
        else:
            if isinstance(node, ast.Command) and node.words:
                name = node.words[0].literal
                if name is None or name in _CHANGING:
                    return False
            pending += [getattr(node, each) for each in getattr(node, "__slots__", ()) if each != "span"]
    return True
