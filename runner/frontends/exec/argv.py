"""The words after `agent exec`, `agent why` and `agent sandbox show`, parsed without typer
(`runner/agent/options.py`).
"""

from typing import TYPE_CHECKING

from runner.agent.options import FILE_TOOLS, Given, least, not_known, options_of, parse_backend, parse_mode
from runner.problems import usage

if TYPE_CHECKING:
    from runner.gate.gate import GateArgs


def wants_help(words: list[str]) -> bool:
    """Return True if `--help` or `-h` is among the words before `--`."""
    own = words[: words.index("--")] if "--" in words else words
    return "--help" in own or "-h" in own


def without_values(words: list[str]) -> list[str]:
    """Return the command line for the record, without the values of `--env`. THREAT T40: a value may be a
    credential.
    """
    kept: list[str] = []
    for index, word in enumerate(words):
        if "--" in kept:
            return [*kept, *words[index:]]
        flag, name = word.startswith("--env="), word.removeprefix("--env=")
        value = flag or kept[-1:] == ["--env"]
        kept.append(f"{'--env=' if flag else ''}{name.partition('=')[0]}=..." if value and "=" in name else word)
    return kept


def parse_gate(command: str, words: list[str]) -> "GateArgs":
    """Parse the words after `exec`, `why` or `sandbox show`. Raise a usage error that says what to type instead."""
    known, found = options_of(command), list[tuple[str, str]]()
    plain: list[str] = []
    argv: tuple[str, ...] | None = None
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            argv = tuple(queue)
            break
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        name, sign, value = word.partition("=")
        if name not in known:
            if plain:  # `agent exec ls -la`: the quotes are missing, not an option
                _check_form(command, [*plain, word, *queue], None)
            what, why = f"`agent {command}` has no option `{name}`", f"it knows {', '.join(known)}"
            fix = f"see `agent {command} --help`; a script or program that starts with `-` goes after `--`"
            raise not_known(what, why, name, known, fix)
        takes = known[name].metavar
        if takes and not sign:
            if not queue:
                raise usage(f"`{name}` needs a value", "it is the last word", f"see `agent {command} --help`")
            value = queue.pop(0)
        elif sign and not takes:
            raise usage(f"`{name}` takes no value", f"you gave it `{value}`", f"write just `{name}`")
        found.append((name, value))
    given = Given.of_words(command, found)
    tool = given.text("tool")
    bare = command == "sandbox show" and not plain and argv is None  # shows the standard rights
    if not bare and (tool is None or argv is not None or len(plain) > 1):
        _check_form(command, plain, argv)
    from runner.gate.gate import GateArgs  # slow to import: help texts and usage errors need no gate

    return GateArgs(
        script=plain[0] if plain else None,
        argv=argv,
        mode=parse_mode(given.text("mode")),
        unattended=given.switch("unattended"),
        cwd=given.text("cwd"),
        config=given.text("config"),
        json=given.switch("json"),
        limits=given.texts("limit"),
        timeout=given.text("timeout"),
        backend=parse_backend(given.text("backend")),
        least=least(given.switch("accept_partial"), given.text("require")),
        unix=given.switch("unix"),
        background=_background(given),
        preview=_preview(given),
        guard_token=given.text("guard_token"),
        tool=_tool(tool, argv, given.text("path")),
        path=given.text("path"),
        read=given.texts("read"),
        write=given.texts("write"),
        hosts=given.texts("host"),
        env=given.texts("env"),
        untrusted=given.text("untrusted"),
    )


def _background(given: Given) -> bool:
    """Return True for `--background`. Raise a usage error for a limit that such a command does not have."""
    found = given.switch("background")
    if found and any(each.partition("=")[0].strip() == "output" for each in given.texts("limit")):
        why = "the output of a command in the background is read later, and only its newest part is kept"
        raise usage("--background and `--limit output` exclude each other", why, "leave one of them out")
    return found


def _preview(given: Given) -> bool:
    """Return True for `--preview`. Raise a usage error for an option that gives what a preview never has."""
    found = given.switch("preview")
    if not found:
        return False
    reasons = {
        "--background": "the changes are shown when the command has ended",
        "--host": "a preview has no network, because what was sent cannot be taken back",
        "--write": "only changes of the workspace can be kept back",
    }
    for name, why in reasons.items():
        if given.switch("background") if name == "--background" else given.texts(name[2:]):
            raise usage(f"--preview and {name} exclude each other", why, "leave one of them out")
    return True


def _tool(name: str | None, argv: tuple[str, ...] | None, path: str | None) -> str | None:
    """Return the name of a file tool, or None for None.

    Raise a usage error for another name, for a tool together with a program, and for a path without a tool.
    """
    if name is None:
        if path is None:
            return None
        raise usage("`--path` needs `--tool`", "the paths of a script are in its text", "add `--tool read`")
    if name not in FILE_TOOLS or argv is not None:
        what = f"`--tool {name}` cannot be explained" if argv is None else "`--tool` and a program exclude each other"
        why = f"the file tools are {', '.join(FILE_TOOLS)}; a command is given as a script"
        raise not_known(what, why, name, FILE_TOOLS, "write for example `agent why --tool write --path notes.txt`")
    return name


def _check_form(command: str, plain: list[str], argv: tuple[str, ...] | None) -> None:
    """Raise a usage error unless there is one script, or words after `--`. Other forms would need a guess at quotes."""
    if argv is not None and plain:
        raise usage(
            f"`{plain[0]}` is before `--`",
            f"`agent {command}` takes one script, or the words of one program after `--`, not both",
            f"write `agent {command} [options] -- {' '.join([*plain, *argv])}`",
        )
    if argv == () or (argv is None and not plain):
        raise usage(
            "there is nothing to judge" if command == "why" else "there is nothing to run",
            f"`agent {command}` takes one script in quotes, or the words of one program after `--`",
            f"try: agent {command} 'git status'",
        )
    if len(plain) > 1:
        joined = " ".join(plain)
        raise usage(
            f"`agent {command}` got {len(plain)} words where it takes one script",
            "how the words were quoted is unknown, so they are not joined",
            f"write `agent {command} '{joined}'` for a script, or `agent {command} -- {joined}` for one program",
        )
