"""The options of a hosted session on a command line, without typer: words to options, and options to words."""

from collections.abc import Sequence

from runner.agent.options import Given, options_of
from runner.problems import usage

HOST = "serve session"  # the command in the table of options


def host_words(given: Given, cwd: str) -> list[str]:
    """Return the words that give the options of `given` to the process of a session. `cwd` is the working folder."""
    words = []
    for name, option in options_of(HOST).items():
        if name != option.name or name == "--cwd":
            continue
        if not option.metavar:
            words += [name] if given.switch(option.key) else []
        elif option.many:
            words += [f"{name}={value}" for value in given.texts(option.key)]
        else:
            value = given.text(option.key)
            value = str(number) if value is None and (number := given.number(option.key)) is not None else value
            words += [f"{name}={value}"] if value is not None else []
    return [*words, f"--cwd={cwd}"]


def parse_host(words: Sequence[str]) -> tuple[Given, int | None, str]:
    """Return the options, the descriptor of the lifeline, and the name of the report. Raise a usage error."""
    known = options_of(HOST)
    values: list[tuple[str, str]] = []
    lifeline, report = None, ""
    queue = list(words)
    while queue:
        name, sign, value = queue.pop(0).partition("=")
        own = name in ("--lifeline", "--report")
        if not own and name not in known:
            raise usage(f"`agent serve session` has no option `{name[:40]}`", "it is started by other commands", _FIX)
        if (own or known[name].metavar) and not sign:
            if not queue:
                raise usage(f"`{name}` has no value", "the command line ends", _FIX)
            value = queue.pop(0)
        if name == "--lifeline":
            if not value.isdecimal():
                raise usage(f"`{value[:40]}` is not a descriptor", "it is a number", _FIX)
            lifeline = int(value)
        elif name == "--report":
            if not value.isalnum():
                raise usage(f"`{value[:40]}` is not the name of a report", "it has other characters", _FIX)
            report = value
        else:
            values.append((name, value))
    return Given.of_words(HOST, values), lifeline, report


_FIX = "start a session with `agent attach`"
