"""The Python interpreter: `-m pip install x` is judged as `pip install x`, and as the code that Python runs for it."""

from policy.handlers import packages
from policy.interpreter.command_call import Call
from policy.model.abstract_word import AbstractWord, literal
from policy.model.tier import Tier

# Modules that are also programs of that name. Python looks for a module in the current folder first, so none is a read.
_PROGRAMS = frozenset(
    ["pip", "uv", "build", "twine", "tox", "nox", "pytest", "mypy", "black", "isort", "ruff", "flake8", "pylint"]
)
_SERVERS = frozenset(["http.server", "pydoc", "xmlrpc.server", "smtpd", "webbrowser"])
_ENDS = frozenset(["-c", "-m"])  # what follows belongs to the program
_TAKES = frozenset("WXQ")


def python(call: Call) -> None:
    """Judge a Python interpreter, and the module that it runs."""
    packages.python(call)
    module, rest = _module(call.words)
    if call.quiet or module is None:
        return
    if module.text in _PROGRAMS:
        call.inner([literal(module.text or "", module.span), *rest])
    elif module.text in _SERVERS:
        call.add_fact(Tier.NETWORK, "talks to a network", module, flag=f"-m {module.text}")


def _module(words: list[AbstractWord]) -> tuple[AbstractWord | None, list[AbstractWord]]:
    """Return the module after `-m`, and its own words; None if there is no module, or it is not certain."""
    position = 0
    while position < len(words):
        text = words[position].text
        if text is None or text[:1] != "-" or text in ("-", "--") or text.startswith("--"):
            return None, []
        for index, letter in enumerate(text[1:], 1):
            after = text[index + 1 :]
            if f"-{letter}" in _ENDS:
                if letter == "c":
                    return None, []
                rest = words[position + 1 :]
                if after:
                    return literal(after, words[position].span), rest
                return (rest[0], rest[1:]) if rest else (None, [])
            if letter in _TAKES:
                position += not after
                break
        position += 1
    return None, []
