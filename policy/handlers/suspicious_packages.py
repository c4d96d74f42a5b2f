"""Packages that an install names and that are known to be malicious, or whose names are probably misspelled.

THREAT T172: the tables of malicious and popular packages are imported only when a command names a package to install.
No such list is complete: a name that is not reported is not thereby safe.
"""

import re
from collections.abc import Iterator

from policy.interpreter.command_call import STANDARD_INPUT, Call
from policy.model.abstract_word import AbstractWord, literal, tokens
from policy.model.tier import Tier

# The ecosystem of each program; its subcommands whose operands are all packages; those whose first operand is a package
# and whose other words are arguments of the program that is started. An empty subcommand: the program has none.
_PROGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "pip": ("pypi", ("install", "wheel", "download"), ()),
    "easy_install": ("pypi", ("",), ()),
    "pipx": ("pypi", ("install", "inject", "upgrade"), ("run",)),
    "uv": ("pypi", ("add", "pip install", "tool install", "tool upgrade"), ("tool run", "run")),
    "uvx": ("pypi", (), ("",)),
    "poetry": ("pypi", ("add",), ()),
    "pdm": ("pypi", ("add",), ()),
    "pipenv": ("pypi", ("install", "upgrade"), ()),
    "rye": ("pypi", ("add", "install"), ()),
    "npm": ("npm", ("install", "i", "in", "ins", "inst", "isntall", "add", "install-test", "it", "update", "up",
                    "upgrade", "udpate"), ("exec", "x")),
    "npx": ("npm", (), ("",)),
    "bunx": ("npm", (), ("",)),
    "pnpx": ("npm", (), ("",)),
    "yarn": ("npm", ("add", "upgrade", "up", "global add"), ("dlx",)),
    "pnpm": ("npm", ("add", "install", "i", "update", "up", "upgrade"), ("dlx",)),
    "bun": ("npm", ("add", "a", "install", "i", "update"), ("x",)),
    "cargo": ("cargo", ("add", "install", "binstall"), ()),
    "gem": ("rubygems", ("install", "i", "update", "fetch"), ("exec",)),
    "bundle": ("rubygems", ("add",), ()),
}  # fmt: skip
_ALIASES = {"bundler": "bundle"}
_SHOWN = {"pypi": "PyPI", "rubygems": "RubyGems"}
_PIP = re.compile(r"pip[0-9.]+\Z")
# Flags whose value is the next word: the value is no package.
_PYPI_VALUES = """-r --requirement --requirements -c --constraint -e --editable -t --target -i --index-url --index
    --extra-index-url -f --find-links --prefix --root --python -p --python-version --platform --group -G --extra
    --cache-dir --proxy --log --source --optional"""
_NPM_VALUES = "--registry --prefix --tag --cache --loglevel --userconfig --cwd --dir --filter"
_CARGO_VALUES = """-F --features --git --path --branch --tag --rev --registry --index --root --target -p --package
    --manifest-path -j --jobs --profile --bin --example --rename"""
_GEM_VALUES = """-s --source -i --install-dir -n --bindir -P --trust-policy --group --git --path --branch --require"""
_VALUES = {
    "pypi": frozenset(_PYPI_VALUES.split()),
    "npm": frozenset(_NPM_VALUES.split()),
    "cargo": frozenset(_CARGO_VALUES.split()),
    "rubygems": frozenset(_GEM_VALUES.split()),
}
# The same, for single programs: `-w` of pnpm and `-F` and `-C` of Yarn take no value.
_OWN_VALUES = {
    "npm": frozenset(["-C", "-w", "--workspace"]), "npx": frozenset(["-C", "-w", "--workspace"]),
    "pnpm": frozenset(["-C", "-F"]), "pnpx": frozenset(["-C", "-F"]),
}  # fmt: skip
_PACKAGES = {"pypi": ("--with", "--from", "--spec"), "npm": ("--package", "-p")}  # flags whose value is a package
_REPLACING = frozenset(["--from", "--spec", "--package", "-p"])  # of them, those that make the first operand a program
_VERSIONS = {"cargo": ("--version", "--vers"), "rubygems": ("-v", "--version")}
_LISTS = frozenset(["-r", "--requirement", "--requirements"])  # flags whose value is a file that lists packages
_ELSEWHERE = frozenset(["--git", "--path"])  # the package comes from another place

_PYPI = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*([=@<>~!^ ].*)?\Z")
_EXTRAS = re.compile(r"[A-Za-z0-9._-]+\[[A-Za-z0-9,._-]+\][=<>~!0-9A-Za-z.,]*\Z")
_NPM = re.compile(r"((?:@[^/@:]+/)?[^/@:]+)(?:@(.*))?\Z")
_OTHERS = re.compile(r"([A-Za-z0-9_.-]+)(?:[@:](.*))?\Z")
_EXACT = re.compile(r"\s*(?:={1,3}|@)?\s*v?([0-9][\w.+-]*)\s*\Z")
_FILES = (".whl", ".zip", ".tar.gz", ".tgz", ".gem", ".crate", ".txt")


def report_packages(call: Call) -> None:
    """Report each package that this install names and that is known to be malicious, or probably misspelled."""
    for ecosystem, text, version, word in _named(call):
        found = _judged(ecosystem, text, version)
        if found is not None:
            shown, predicate = found
            short = f"installs `{shown}`, which {predicate}"
            call.add_sentence(Tier.DANGEROUS, f"`{shown}` {predicate}", short, word, None)


def _judged(ecosystem: str, text: str, version: str) -> tuple[str, str] | None:
    """Return the package that `text` names and what is wrong with it; None for a package that is in no list."""
    for _ in range(3):  # an alias of npm names another package
        name, wanted = split_name(ecosystem, text)
        if ecosystem != "npm" or not wanted.startswith("npm:"):
            break
        text = wanted.removeprefix("npm:")
    if not name:
        return None
    from policy.handlers.malicious_packages import known_malicious

    registry = _SHOWN.get(ecosystem, ecosystem)
    normal, exact = normalized(ecosystem, name), _EXACT.match(version or wanted)
    if (entry := known_malicious(ecosystem, normal)) is not None:
        if not entry.versions:
            return name, f"is a known malicious package ({registry}, {entry.date}, {entry.source})"
        if exact and exact[1] in entry.versions:
            return name, f"is known to be malicious in version {exact[1]} ({registry}, {entry.date}, {entry.source})"
        return None
    from policy.handlers.package_spelling import misspelling

    if near := misspelling(ecosystem, normal):
        return name, f"differs by {near[0]} from `{near[1]}`, so the name may be misspelled"
    return None


def normalized(ecosystem: str, name: str) -> str:
    """Return the name by which the registry of `ecosystem` finds the package `name`."""
    lower = name.lower()
    match ecosystem:
        case "pypi":
            return re.sub(r"[-_.]+", "-", lower)
        case "cargo":
            return lower.replace("-", "_")
        case _:
            return lower


def split_name(ecosystem: str, text: str) -> tuple[str, str]:
    """Return the name and the version that a word of an install asks for; empty texts for a file or a URL."""
    nothing = ("", "")
    if text[:1] in ("", ".", "/", "~", "-") or text.endswith(_FILES):
        return nothing
    pattern = {"pypi": _PYPI, "npm": _NPM}.get(ecosystem, _OTHERS)
    body = text.partition(";")[0].strip() if ecosystem == "pypi" else text
    match = pattern.match(body)
    if match is None:
        return nothing
    name, wanted = match[1], (match[2] or "").strip()
    if ("/" in wanted or ":" in wanted) and not wanted.startswith("npm:"):
        return nothing  # a URL, a repository or a folder
    if ecosystem == "pypi" and "," in wanted:  # `==1.0,!=1.1`
        wanted = next((each for each in wanted.split(",") if each.strip().startswith("==")), "")
    return name, wanted


def _named(call: Call) -> Iterator[tuple[str, str, str, AbstractWord]]:
    """Yield the ecosystem, the text, the version of a flag and the word of each package that the install names."""
    program, *subcommand = call.label.split()
    program = "pip" if _PIP.match(program) else _ALIASES.get(program, program)
    if program not in _PROGRAMS:
        return
    ecosystem, whole, first = _PROGRAMS[program]
    known = (*whole, *first)
    version, replaced = "", False
    words: list[AbstractWord] = []
    rest = list(call.words)
    while rest:
        word = rest.pop(0)
        text, sub = word.text, " ".join(subcommand)
        if sub in first and words:
            break  # arguments of the program that is started
        if text is not None and text[:1] == "-" and len(text) > 1:
            flag, equals, value = text.partition("=")
            takes_package = flag in _PACKAGES.get(ecosystem, ()) and (ecosystem != "npm" or sub in first)
            takes_version = flag in _VERSIONS.get(ecosystem, ())
            takes_value = flag in _VALUES[ecosystem] or flag in _OWN_VALUES.get(program, ())
            if flag in _ELSEWHERE and ecosystem != "pypi":
                return
            if equals:
                word = literal(value, word.span)
            elif rest and (takes_package or takes_version or takes_value):
                word = rest.pop(0)
            else:
                continue
            if flag in _LISTS and sub in known:
                stdin = call.frame.stdin_texts if word.text in (*STANDARD_INPUT, "/dev/fd/0") else ()
                for each in tokens(word.content or stdin):
                    yield ecosystem, each, "", word
            if takes_version:
                version = word.text or ""
            elif takes_package and sub in known:
                replaced = replaced or flag in _REPLACING
                for each in (word.text or "").split(","):
                    yield ecosystem, each, "", word
        elif sub in known:
            words.append(word)
        elif text is None or not any(each.startswith(f"{sub} {text}".strip()) for each in known):
            return
        else:
            subcommand.append(text)
    if (program == "uv" and subcommand == ["run"]) or (replaced and " ".join(subcommand) in first):
        return  # the first operand is no package
    for word in words:
        # `name[extra]` without quotes is a glob, which bash leaves as it is if no file has such a name.
        for text in word.texts or (*word.hints, *((word.pattern,) if _EXTRAS.match(word.pattern) else ())):
            yield ecosystem, text, version, word
