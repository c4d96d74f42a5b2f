"""Offline forms of commands: package managers that were told to connect to no host, and commands that may start without
network because they fetch only what is missing.
"""

import re

from policy.interpreter.command_call import Call
from policy.model.abstract_word import AbstractWord
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rule import CommandRule

# The next word after a flag is its value for the parsers of npm and pnpm.
_VALUES = frozenset(["true", "false", "null", "undefined"])
# Flags of pip and Yarn 1 whose value is the next word, even if that word looks like a flag.
_VALUED = frozenset((
    "-r", "--requirement", "-c", "--constraint", "-t", "--target", "-d", "--dest", "-w", "--wheel-dir", "-f",
    "--find-links", "-e", "--editable", "-i", "--index-url", "--pypi-url", "--extra-index-url", "--platform",
    "--python-version", "--implementation", "--abi", "--root", "--prefix", "--src", "--upgrade-strategy", "-C",
    "--config-setting", "--config-settings", "--global-option", "--build-option", "--no-binary", "--only-binary",
    "--progress-bar", "--report", "--log", "--cache-dir", "--proxy", "--timeout", "--retries", "--cert",
    "--client-cert", "--trusted-host", "--exists-action", "--use-feature", "--use-deprecated", "--group", "--cwd",
    "--cache-folder", "--modules-folder", "--mutex", "--network-timeout", "--network-concurrency", "--registry",
    "--otp", "--use-yarnrc",
))  # fmt: skip
# Packages that are fetched from their address: `git+ssh://..`, `git@host:path`, `github:name/repository`.
_ADDRESS = re.compile(r"(?!file:)(?:[^/@]+@)?[A-Za-z][A-Za-z0-9+.-]*:|.*git\+|.*://|.*@(?!file:)[A-Za-z+]+:")
# For npm, pnpm and Yarn a repository on GitHub: `name/repository`.
_REPOSITORY = re.compile(r"[^./~@:][^/:]*/[^/]+")
# A word that names a source elsewhere, in a form that `_ADDRESS` shares with the names of scripts (`lint:fix`).
_ELSEWHERE = re.compile(r"(?:github|gitlab|bitbucket|gist|git|npm|jsr):|.*git\+|.*://", re.IGNORECASE)
# Names of variables that select the host of packages, such as `npm_config_registry`, `UV_INDEX_URL` and `GOPROXY`.
_SELECTING = re.compile(r"registr|index|proxy|mirror|find_links|userconfig|globalconfig|config_file", re.IGNORECASE)
_PATH = re.compile(r"\.{0,2}/|\.{1,2}(?:\[|$)|~|file:|.*/.*\.(?:whl|zip|tar\.gz)$")
_LOCAL_URL = re.compile(r"(?:[^=]*=)?file://")


def offline_rule(call: Call) -> CommandRule:
    """Return the rule of `call`, without a network if the command certainly needs no host.

    The sandbox of the command has no host, so a wrong answer can only make the command fail.
    """
    if not _certain(call):
        return call.rule
    why = "works without a network, and may run code of packages that are already on this machine"
    return replace(call.rule, tier=Tier.EXECUTE, why=why, registry="", consequence=None)


def fetches_only_missing(call: Call) -> bool:
    """Return True if an `offline_first` command may start without network, because no word asks it to fetch.

    The answer opens no host. A wrong one costs a run that fails, or a question that a run without network would have
    made unnecessary.
    """
    if any(map(_SELECTING.search, call.state.exports)):
        return False
    rule = call.rule
    operands: list[str] = []
    texts = [text for word in call.words for text in word.texts or ("",)]
    if "--" in texts and not rule.subs:
        texts = texts[: texts.index("--") + 2]  # after it, the program and its own words
    skip = False
    for text in texts:
        if skip:
            skip = False
        elif text[:1] == "-" and text != "-":
            skip = text in _VALUED and rule.paths and text not in ("-e", "--editable")
            if text.partition("=")[0] in rule.fetching and (rule.paths or not operands):
                return False  # a flag after the first operand belongs to the program that the operand names
        else:
            operands.append(text)
    if any(_ELSEWHERE.match(text) and not _LOCAL_URL.match(text) for text in texts):
        return False
    if rule.subs:  # `yarn` alone installs, and `pnpm -r add x` too
        subs = map(rule.sub, operands)
        fetching = (sub for sub in subs if sub is not None and sub.tier >= Tier.NETWORK and not sub.offline_first)
        return bool(operands) and "" not in operands and next(fetching, None) is None
    if rule.paths:
        return bool(operands) and all(map(_PATH.match, operands))
    first = next((text for text in operands if text != "--"), "")
    return "@" not in first[1:] and not (rule.grammar == "npx" and _REPOSITORY.fullmatch(first))


def _certain(call: Call) -> bool:
    """Return True if a literal flag or an exported variable keeps the command offline, and no word may undo it."""
    rule = call.rule
    texts = _texts_before_end(call.words)
    if texts is None:
        return False
    given = any(text in rule.offline and text[:1] == "-" for text in texts)
    by_variable = _by_variable(call)
    if not (given or call.offline or by_variable):
        return False
    if rule.subs and not by_variable and any(text[:1] != "-" for text in texts):
        return False  # a subcommand that has no rule of its own
    stems = {_name(flag) for flag in rule.offline if flag[:1] == "-"}
    for index, text in enumerate(texts):
        if text in rule.offline:
            before, after = texts[index - 1] if index else "", texts[index + 1] if texts[index + 1 :] else ""
            if before in _VALUED or after in _VALUES:
                return False
        elif text[:1] == "-":
            if _undoes(text, stems) or ("://" in text and not _LOCAL_URL.match(text)):
                return False
        elif text[:1] == "+" or (_ADDRESS.match(text) and not _LOCAL_URL.match(text)):
            return False  # `+nightly`: another toolchain, which Cargo may fetch
        elif call.label.startswith(("npm ", "pnpm", "yarn")) and _REPOSITORY.fullmatch(text):
            return False
    return True


def _by_variable(call: Call) -> bool:
    """Return True if an exported variable keeps the command offline, and the script exports no variable with another
    effect, such as `GOPRIVATE`.
    """
    exports = [each.partition("=") for each in call.state.exports]
    return all(mark for _, mark, _ in exports) and any(name in call.rule.offline for name, _, _ in exports)


def _texts_before_end(words: list[AbstractWord]) -> list[str] | None:
    """Return the texts of the words before `--`; None if one is known only at run time."""
    texts = []
    for word in words:
        if word.text is None:
            return None
        if word.text == "--":
            break
        texts.append(word.text)
    return texts


def _name(flag: str) -> str:
    """Return the name of a flag without its dashes, its negation and its value."""
    return flag.lstrip("-").removeprefix("no-").partition("=")[0]


def _undoes(text: str, stems: set[str]) -> bool:
    """Return True if the word may be another form of one of the flags: `--no-offline`, `--offline=false`, or the
    abbreviation `--no-off`.
    """
    name = _name(text)
    if len(text) <= len("-o") or not name:
        return False
    return any(stem.startswith(name) or name.startswith(stem) for stem in stems)
