"""The check whether a script certainly starts with a program that does not exist, so that no user is asked about it.

The check is only consulted for an action that would otherwise be asked about or denied; it never allows anything. It
is deliberately narrow. A script is read only if it is a list of plain commands (joined by `;`, `&&` or a new line) or
pipelines of them. Only its first command counts, after commands of the shell itself such as `cd FOLDER`: a later
program may be created by an earlier command, and after `||` or in `if` a missing program may be intended.
"""

from policy.bash.ast import (
    ArrayAssignment,
    Command,
    Glob,
    ListElement,
    Opaque,
    Parameter,
    Pipeline,
    Script,
    Text,
    Tilde,
    Word,
)
from policy.bash.crosscheck import find_disagreement
from policy.bash.parser import read
from policy.evaluation import EvaluationContext
from policy.model.action import Action, ReadFile, RunArgv, RunScript
from policy.model.facts import Kind
from policy.model.secret_paths import inside, normal
from policy.model.tier import Tier
from policy.model.verdict import Allow

# SOURCE: `compgen -b` of bash 5.2; the parser reads the reserved words itself.
# fmt: off
_BUILTINS = frozenset((
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete",
    "compopt", "continue", "declare", "dirs", "disown", "echo", "enable", "eval", "exec", "exit", "export",
    "false", "fc", "fg", "getopts", "hash", "help", "history", "jobs", "kill", "let", "local", "logout",
    "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift",
    "shopt", "source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "wait",
))
# fmt: on
# Builtins after which the next command is the same program, and is found on the same PATH.
_BEFORE = frozenset([":", "cd", "echo", "pushd", "pwd", "set", "true"])
_STARTUP = ("BASH_ENV", "BASH_FUNC_")  # variables through which bash defines functions before it reads the script
_PATHS = frozenset(["PATH", "BASH_ENV", "EXECIGNORE"])
_WITH_PROGRAMS_OF_ITS_OWN = frozenset(["container"])  # backends with programs other than those of this machine


def missing_program(action: Action, context: EvaluationContext) -> str | None:
    """Return the name of the program that `action` starts with if it certainly exists nowhere, else None.

    A name with a slash is a path. It is reported only as the first program of a script, where the folder is known and
    no other command can create the file, and only if the model may read a file of that path without a question
    (THREAT T124).
    """
    if context.backend in _WITH_PROGRAMS_OF_ITS_OWN or not _usual_environment(context):
        return None
    match action:
        case RunArgv(argv=argv):
            names, begins = ([argv[0]] if argv else []), True
        case RunScript(script=script):
            tree = read(script)
            if isinstance(tree, Opaque) or find_disagreement(script, tree) is not None:
                return None
            names = [name for name in _first_programs(tree) if name not in _BUILTINS]
            begins = bool(names) and names == _names(tree.items[0])
        case _:
            return None
    for place, name in enumerate(names):
        if _absent(name, action.cwd if begins and place == 0 else None, context):
            return name
    return None


def _usual_environment(context: EvaluationContext) -> bool:
    """Return True if programs are found on the PATH of the facts, and no variable defines a function."""
    environment = dict(context.environment)
    usual = environment.get("PATH") == ":".join(context.facts.path)
    return usual and not any(name.startswith(_STARTUP) for name in environment)


def _absent(name: str, folder: str | None, context: EvaluationContext) -> bool:
    """Return True if there is no program `name`. `folder` is the folder of a relative path, None if it is unknown."""
    # THREAT T28: a name with a letter of another script is shown to the user, on the card that explains the letter.
    if not (name.isascii() and name.isprintable()) or name in ("", ".", ".."):
        return False
    if "/" not in name:
        return context.facts.which(name) is None
    if folder is None or ".." in name.split("/"):  # behind a link, `..` leads elsewhere than the words say
        return False
    path = normal(f"{folder}/{name}" if not name.startswith("/") else name)
    reading, verdict = context.evaluate(ReadFile(path))
    readable = isinstance(verdict, Allow) and reading.tiers == (Tier.READ,)
    place = context.facts.look(path)
    return readable and place.kind is Kind.MISSING and inside(place.real, context.facts.workspace)


def _first_programs(tree: Script) -> list[str]:
    """Return the programs that the script starts with, several for a pipeline; empty if they are uncertain."""
    if not all(each.then in (";", "&&") for each in tree.items):
        return []
    found: list[str] = []
    for item in tree.items:
        names = _names(item)
        if names is None:
            return []
        if not found and not _is_before(item, names):
            found = names
    return found


def _names(item: ListElement) -> list[str] | None:
    """Return the programs of one element of a list, or None if one of them is uncertain."""
    commands = _commands(item)
    names = [_name(each) for each in commands or ()]
    return [name for name in names if name is not None] if commands and None not in names else None


def _is_before(item: ListElement, names: list[str]) -> bool:
    """Return True if the element is a command of the shell after which the same programs are found."""
    node = item.node
    return isinstance(node, Command) and names[0] in _BEFORE and not (node.assignments or node.redirects)


def _commands(item: ListElement) -> tuple[Command, ...] | None:
    """Return the commands of one element of a list, or None if one of them is not a simple command."""
    node = item.node
    if isinstance(node, Pipeline):
        plain = tuple(each for each in node.commands if isinstance(each, Command))
        return plain if len(plain) == len(node.commands) and not node.negated else None
    return (node,) if isinstance(node, Command) else None


def _name(command: Command) -> str | None:
    """Return the program of a command whose words run nothing when they are expanded, else None."""
    if any(each.target.literal is None for each in command.redirects):
        return None
    words = list(command.words)
    for each in command.assignments:
        if each.name in _PATHS or isinstance(each, ArrayAssignment):
            return None
        words.append(each.value)
    return command.words[0].literal if command.words and all(map(_inert, words)) else None


def _inert(word: Word) -> bool:
    return all(isinstance(part, Text | Parameter | Glob | Tilde) for part in word.parts)
