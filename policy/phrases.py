"""What the gate says to people: what an action does to them, and why it was refused. One safe line each."""

from collections.abc import Sequence
from typing import Protocol, assert_never

from policy.action import Action, EditFile, GlobFiles, GrepFiles, ListFolder, ReadFile, RunArgv, RunScript, WriteFile
from policy.assessment import Assessment, Effect, EffectKind, Scope
from policy.secrecy import inside
from policy.verdict import Rights, Terms

_LONGEST = 100  # characters of an action shown inside a sentence; the whole of it is shown elsewhere
_MOST = 3  # paths or hosts named before "and N more"

# In the order in which a reader wants to hear them: the worst first.
_DOING = (
    (EffectKind.PRIVILEGE, "asks for rights that the sandbox does not give"),
    (EffectKind.UNKNOWN, "cannot be read with certainty"),
    (EffectKind.DELETES, "deletes"),
    (EffectKind.WRITES, "changes"),
    (EffectKind.CONNECTS, "connects to"),
    (EffectKind.RUNS, "runs code that cannot be checked beforehand"),
    (EffectKind.READS, "reads"),
)


class Around(Protocol):
    """Where the reader stands: Facts and Terms both say it."""

    @property
    def workspace(self) -> str: ...
    @property
    def home(self) -> str: ...


def named(action: Action, around: Around) -> str:
    """The action in backticks, on one line, cut when long; nothing in it can move a cursor."""
    return f"`{plain(_text(action, around))}`"


def question(assessment: Assessment, terms: Terms, around: Around) -> str:
    """One line: what the action does, and all that a yes would let it do."""
    told = doing(assessment, around)
    mark = ": " if told.startswith("`") else " "
    return f"{named(assessment.action, around)}{mark}{told}. {powers(terms, around)}. Allow it?"


def doing(assessment: Assessment, around: Around) -> str:
    """What the effects say, as the end of a sentence that starts with the action."""
    said = []
    for kind, words in _DOING:
        effects = [effect for effect in assessment.effects if effect.kind is kind and not _ordinary(effect)]
        if not effects:
            continue
        targets = _list([_target(effect, around) for effect in effects])
        bracketed = kind in (EffectKind.PRIVILEGE, EffectKind.UNKNOWN, EffectKind.RUNS)
        said.append(f"{words} ({targets})" if bracketed else f"{words} {targets}")
    if said:
        return _and(said)
    return plain(assessment.reasons[0].text, 200) if assessment.reasons else "cannot be read with certainty"


def powers(terms: Terms, around: Around) -> str:
    """All that these terms give beyond reading the project and the system."""
    given = []
    if terms.rights is Rights.WORK:
        given.append("run code and change files in this project")
    if terms.write:
        given.append(f"change {_list([near(path, around) for path in terms.write])}")
    if terms.read:
        given.append(f"read {_list([near(path, around) for path in terms.read])}")
    if terms.hosts:
        given.append(f"talk to {_list(list(terms.hosts))}")
    network = "" if terms.hosts else ", without network"
    return (
        f"A yes lets it {_and(given)}{network}, and nothing more" if given else "A yes lets it read, and nothing more"
    )


def near(path: str, around: Around) -> str:
    """`path` as a person would write it: relative to the project, or with `~`."""
    if inside(path, around.workspace):
        return plain(path[len(around.workspace.rstrip("/")) + 1 :] or "the project folder")
    if around.home != "/" and inside(path, around.home):
        return plain("~" + path[len(around.home) :])
    return plain(path)


def secrets_read(assessment: Assessment, around: Around) -> str | None:
    """What it would do to secrets, or None when no effect names one."""
    said = []
    for kind, words in ((EffectKind.DELETES, "deletes"), (EffectKind.WRITES, "changes"), (EffectKind.READS, "reads")):
        effects = [item for item in assessment.effects if item.scope is Scope.SECRET and item.kind is kind]
        if effects:
            said.append(f"{words} {_list([_target(effect, around) for effect in effects])}")
    return _and(said) if said else None


def _ordinary(effect: Effect) -> bool:
    """Reading the project and the system: so common that naming it hides what matters."""
    return effect.kind is EffectKind.READS and effect.scope in (Scope.WORKSPACE, Scope.SYSTEM, Scope.SCRATCH)


def _target(effect: Effect, around: Around) -> str:
    shown = near(effect.target, around) if effect.target.startswith("/") else plain(effect.target)
    return shown if effect.exact else f"files below {shown}"


def _text(action: Action, around: Around) -> str:
    match action:
        case RunScript(script=script):
            return script.strip()
        case RunArgv(argv=argv):
            return " ".join(map(_quoted, argv))
        case ReadFile(path=path):
            return f"read {near(path, around)}"
        case WriteFile(path=path):
            return f"write {near(path, around)}"
        case EditFile(path=path):
            return f"edit {near(path, around)}"
        case ListFolder(path=path):
            return f"ls {near(path, around)}"
        case GlobFiles(pattern=pattern, root=root):
            return f"glob {_quoted(pattern)} in {near(root, around)}"
        case GrepFiles(pattern=pattern, root=root):
            return f"grep {_quoted(pattern)} in {near(root, around)}"
        case never:
            assert_never(never)


def _quoted(word: str) -> str:
    bare = word and all(char.isalnum() or char in "@%+=:,./-_" for char in word)
    return word if bare else "'" + word.replace("'", "'\\''") + "'"


def plain(text: str, most: int = _LONGEST) -> str:
    """One line of printable characters: what cannot be printed is spelled out, so that nothing hides."""
    shown = "".join(char if char.isprintable() else _spelled(char) for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _spelled(char: str) -> str:
    return {"\n": "⏎", "\t": " "}.get(char) or f"<U+{ord(char):04X}>"


def _list(items: list[str]) -> str:
    unique = list(dict.fromkeys(items))
    if len(unique) > _MOST:
        return ", ".join(unique[:_MOST]) + f" and {len(unique) - _MOST} more"
    return _and(unique)


def _and(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
