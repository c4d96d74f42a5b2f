"""Handlers of package managers and Python: the code that they download, and project files that make them run code."""

import re

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence
from policy.model.facts import Kind
from policy.model.tier import Tier

# Files, in the current folder or one above it, that a program runs or uses before it reads its arguments.
_PROJECT_FILES = {
    "yarn": (".yarnrc.yml", ".yarnrc"),  # name a yarn program of the project
    "pnpm": (".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "pnpm-workspace.yaml", ".npmrc"),
    "composer": ("composer.json",),  # plug-ins
    "poetry": (".poetry", ".venv", "poetry.toml"),  # plug-ins; a Python of the project, which is started
    "pdm": (".pdm-plugins", ".venv", "pdm.toml"),
    "uv pip": (".venv", "uv.toml", "pyproject.toml", ".python-version"),  # `uv --version` does not use them
    "cargo": ("rust-toolchain.toml", "rust-toolchain", ".cargo"),  # another toolchain, another compiler
}

# Flags of Python that do not change the search for modules, and flags that remove the current folder from the search.
_NEUTRAL_FLAGS = frozenset(["-B", "-E", "-s", "-u", "-q", "-X"])
_NO_CURRENT_FOLDER = frozenset(["-I", "-P"])
_READING_MODULES = frozenset(["pip", "json.tool"])  # modules that have a rule
# Formats that rpm may apply to a tag, and text outside of tags.
_FORMATS = re.compile(r":(?:date|day|shescape|perms|octal|hex|humansi|humaniec|string|arraysize|fflags|depflags)\}")
_OUTSIDE_TAGS = re.compile(r"(?:^|\})[^{%]*")
_SUFFIXES = (".py", ".pyc", ".so", ".pyd")
# Modules that pip may import, besides the standard library.
_PIP_MODULES = frozenset((
    "IPython", "OpenSSL", "PIL", "_distutils_hack", "_manylinux", "attr", "brotli", "brotlicffi", "cachecontrol",
    "certifi", "chardet", "charset_normalizer", "colorama", "cryptography", "ctags", "distlib", "docutils", "filelock",
    "google", "h2", "idna", "importlib_metadata", "importlib_resources", "ipywidgets", "java", "jinja2", "jnius",
    "keyring", "lockfile", "mock", "msgpack", "ntlm", "packaging", "pip", "pkg_resources", "platformdirs", "pygments",
    "pyparsing", "railroad", "redis", "requests", "resolvelib", "rich", "setuptools", "simplejson", "six", "socks",
    "sphinx", "tenacity", "toml", "tomli", "tomli_w", "tornado", "truststore", "typing_extensions", "urllib3",
    "urllib3_secure_extra", "webencodings", "wheel", "zstandard",
))  # fmt: skip


def packages(call: Call) -> None:
    """Judge a package manager. A download includes running the downloaded code: install scripts, build back ends."""
    judge(call)
    if call.rule.tier is Tier.READ or call.quiet:
        for program, files in _PROJECT_FILES.items():
            if f"{call.label} ".startswith(f"{program} "):
                _report_project_files(call, program, files)
    elif call.rule.tier is Tier.NETWORK:
        call.runs("runs code that it downloads", consequence=Consequence.RUNS_DOWNLOADED)
    judge_packages(call)


def judge_packages(call: Call) -> None:
    """Report malicious and misspelled packages, if the command may install some."""
    if call.rule.tier >= Tier.EXECUTE and not call.quiet:
        from policy.handlers.suspicious_packages import report_packages  # only for a command that may install

        report_packages(call)


def npx(call: Call) -> None:
    """Judge `npx PROGRAM`. An installed program of the project is run; any other program is downloaded first."""
    first = call.words[0].text if call.words else None
    cwds = call.state.cwds or ()
    if first and first[:1] not in ("-", "@", ".") and "/" not in first and cwds:
        look = call.facts.look
        if all(look(f"{cwd}/node_modules/.bin/{first}").kind is not Kind.MISSING for cwd in cwds):
            call.runs("is a program of the project", program=first, consequence=Consequence.RUNS_PROJECT_PROGRAM)
            call.quiet = True  # nothing is downloaded
            return
    packages(call)


def rpm(call: Call) -> None:
    """Judge `rpm -q --qf FORMAT`. THREAT: the format `:expand` evaluates text of a package as a macro."""
    judge(call)
    for name in ("--qf", "--queryformat"):
        value = call.flags.get(name)
        if name not in call.flags:
            continue
        rest = _FORMATS.sub("}", value.text) if value is not None and value.text is not None else ":"
        if ":" in _OUTSIDE_TAGS.sub("", rest) or "%|" in rest:
            call.unknown(f"`rpm {name}` with an unknown format", value)


def _judge_reading_module(call: Call) -> None:
    """Judge `python -m pip list` and `-m json.tool`, which only read if no file of the current folder can replace a
    module.
    """
    words = list(call.words)
    safe = False
    while words and words[0].text in _NEUTRAL_FLAGS | _NO_CURRENT_FOLDER:
        safe = safe or words[0].text in _NO_CURRENT_FOLDER
        del words[: 2 if words[0].text == "-X" else 1]
    module = words[1].text if len(words) > 1 and words[0].text == "-m" else None
    known = module in _READING_MODULES
    if not known or not (safe or _no_shadowing_file(call)):
        judge(call)
    if known:
        inner = [literal(module or "", words[1].span), *words[2:]]
        call.after = call.run(inner)
        call.quiet = True


def _no_shadowing_file(call: Call) -> bool:
    """Return True if the current folder contains no file with the name of a module that pip may load."""
    from sys import stdlib_module_names

    names = call.facts.names
    call.findings.beyond_plain_edits = True  # files that the script itself creates there are not examined
    for cwd in call.state.cwds or ("",):
        entries = names(cwd) if cwd else None
        if entries is None:
            return False
        for name in entries:
            stem, _, rest = name.partition(".")
            if (not rest or f".{name}".endswith(_SUFFIXES)) and (stem in stdlib_module_names or stem in _PIP_MODULES):
                return False
    return True


def _report_project_files(call: Call, program: str, files: tuple[str, ...]) -> None:
    """Report those of `files` that exist. THREAT: even for a list or a version, a program of the project may run."""
    look, workspace = call.facts.look, call.facts.workspace
    call.findings.beyond_plain_edits = True  # files that the script itself creates there are not examined
    if call.state.cwds is None:
        call.runs("runs in a folder known only at run time", program=program, consequence=None)
    for cwd in call.state.cwds or ():
        at = look(cwd).real
        while True:
            for file in files:
                if look(f"{at.rstrip('/')}/{file}").kind is not Kind.MISSING:
                    predicate = f"uses `{file}`, which may name a program of the project"
                    call.runs(predicate, program=program, consequence=None)
                    return
            if at in ("/", workspace):
                break
            at = at.rpartition("/")[0] or "/"


# Modules that are also programs with the same name. Python searches the current folder first, so a file there may
# replace any of these modules.
_PROGRAMS = frozenset(
    ["pip", "uv", "build", "twine", "tox", "nox", "pytest", "mypy", "black", "isort", "ruff", "flake8", "pylint"]
)
_SERVERS = frozenset(["http.server", "pydoc", "xmlrpc.server", "smtpd"])
_ADDRESS_FLAGS = ("-b", "--bind", "-n")  # of these servers
_LAST_FLAGS = frozenset(["-c", "-m"])  # the later words are arguments of the program
_VALUE_FLAGS = frozenset("WXQ")


def python(call: Call) -> None:
    """Judge a Python interpreter, and the module that it runs."""
    _judge_reading_module(call)
    module, rest = _split_module(call.words)
    if call.quiet or module is None:
        return
    if module.text in _PROGRAMS:
        call.run([literal(module.text or "", module.span), *rest])
    elif module.text in _SERVERS and _listens_inside(rest):
        call.uses_loopback(word=module)
    elif module.text in (*_SERVERS, "webbrowser"):
        call.add_fact(Tier.NETWORK, "connects to a network", module, flag=f"-m {module.text}")


def _listens_inside(words: list[AbstractWord]) -> bool:
    """Return True if a server with these arguments is only reached from the sandbox."""
    from policy.model.host_words import listens_on_loopback  # only for a server

    texts = [word.text for word in words]
    given = [texts[index + 1] for index, text in enumerate(texts[:-1]) if text in _ADDRESS_FLAGS]
    given += [text.partition("=")[2] for text in texts if text is not None and text.startswith("--bind=")]
    return None not in texts and all(listens_on_loopback(text or "?") for text in given)


def _split_module(words: list[AbstractWord]) -> tuple[AbstractWord | None, list[AbstractWord]]:
    """Return the module after `-m` and its arguments; None and nothing if there is no module or it is uncertain."""
    position = 0
    while position < len(words):
        text = words[position].text
        if text is None or text[:1] != "-" or text in ("-", "--") or text.startswith("--"):
            return None, []
        for index, letter in enumerate(text[1:], 1):
            after = text[index + 1 :]
            if f"-{letter}" in _LAST_FLAGS:
                if letter == "c":
                    return None, []
                rest = words[position + 1 :]
                if after:
                    return literal(after, words[position].span), rest
                return (rest[0], rest[1:]) if rest else (None, [])
            if letter in _VALUE_FLAGS:
                position += not after
                break
        position += 1
    return None, []
