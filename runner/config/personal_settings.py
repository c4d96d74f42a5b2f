"""The files inside a workspace that programs run because of the user's own settings, as patterns to lock.

`core.hooksPath = .githooks` in `~/.gitconfig` counts from the top of every repository, so a command that may write
there decides what the user's next `git commit` runs. The files are read once, when a session loads its settings.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from policy.languages.settings_paths import (
    GIT,
    HOOKS,
    MERCURIAL,
    NPM,
    SSH,
    VARIABLES,
    SettingKind,
    SettingTable,
    full_path,
    setting_kind,
    setting_paths,
)
from policy.model.secret_paths import inside
from sandbox.inside.regular_file import read_start
from sandbox.workspace.git_settings import included_place, possible_with_includes
from sandbox.workspace.path_patterns import expanded_pattern

_LONGEST = 1 << 20  # bytes of one file
_MOST_FILES = 100  # files that are read through includes
_MOST = 200  # patterns; each is looked up in every repository
_GIT_FILES = (
    *("/etc/gitconfig", "/usr/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig"),
    *("/Library/Developer/CommandLineTools/usr/share/git-core/gitconfig", "~/.gitconfig", "~/.config/git/config"),
)
# The beginning of an assignment, and its value, compiled at first use as in `_SCRIPTS`. The names of variables are
# compared later: a pattern with all of them takes 3 ms to compile.
_ASSIGNED = r"(?:^|(?<=[\s;&|(]))(?:([A-Za-z_]\w*)=|set(?:env)?[ \t]+(?:-\S+[ \t]+)*([A-Za-z_]\w*)[ \t]+)"
_VALUE = r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;&|)]+)"""
_INI: tuple[tuple[SettingTable, tuple[str, ...], tuple[str, ...]], ...] = (  # table, variables, files
    (MERCURIAL, ("HGRCPATH",), ("/etc/mercurial/hgrc", "~/.hgrc", "~/.config/hg/hgrc")),
    (NPM, ("NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG"), ("~/.npmrc",)),
)
_SSH = ("~/.ssh/config", "/etc/ssh/ssh_config")
# Files of JSON or TOML that name programs which an application starts without a request of the user.
_STRUCTURED = (
    "~/.claude/settings.json", "~/.claude.json", "~/.codex/config.toml", "~/.codex/hooks.json",
    "~/.gemini/settings.json", "~/.qwen/settings.json", "~/.cursor/mcp.json", "~/.cursor/hooks.json",
    "~/.codeium/windsurf/mcp_config.json", "~/.aws/amazonq/mcp.json", "~/.copilot/mcp-config.json",
    "~/.config/opencode/opencode.json", "~/.config/crush/crush.json", "~/.config/Code/User/settings.json",
    "~/.config/Code/User/mcp.json", "~/.config/zed/settings.json", "~/.config/helix/languages.toml",
    "~/.config/starship.toml", "~/.config/mise/config.toml", "~/.cargo/config.toml", "~/.config/jj/config.toml",
    "~/.jjconfig.toml", "~/.config/ringfence/config.toml",
)  # fmt: skip
_OURS = "/ringfence/config.toml"
_RUN_KEYS = frozenset((
    "command", "cmd", "program", "executable", "editor", "pager", "notify", "script", "run", "shell", "when", "source",
    "enter", "leave", "cd", "preinstall", "postinstall", "rustc", "rustdoc", "rustc-wrapper", "rustc-workspace-wrapper",
    "linker", "runner", "statusline", "apikeyhelper", "diff-editor", "merge-editor", "diff-formatter",
))  # fmt: skip
# Files that programs read at every start, by the pattern of an include in them.
# fmt: off
_SCRIPTS = (
    (r"(?:^|[\s;&|({])(?:source|\.)[ \t]+([^\s;&|)]+)", (
        "~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile", "~/.bash_aliases", "~/.zshrc", "~/.zshenv",
        "~/.zprofile", "~/.zlogin", "~/.kshrc", "~/.mkshrc", "~/.cshrc", "~/.tcshrc", "~/.config/fish/config.fish",
        "~/.config/direnv/direnvrc", "~/.screenrc", "~/.bashrc.d/*", "~/.zshrc.d/*", "~/.config/fish/conf.d/*")),
    (r"""(?:^|[\s|'"(:])(?:(?:so(?:u(?:r(?:ce?)?)?)?|luaf(?:ile)?|load(?:-file)?)\b!?[ \t]+|dofile\()"""
     r"""["']?([^\s|"')]+)""", (
        "~/.vimrc", "~/.vim/vimrc", "~/.gvimrc", "~/.exrc", "~/.config/nvim/init.vim", "~/.config/nvim/init.lua",
        "~/.emacs", "~/.emacs.d/init.el", "~/.config/emacs/init.el")),
    # a program without `/` is searched on PATH
    (r"""(?:^|[\s;"'{])(?:source(?:-file)?[ \t]+(?:-\w+[ \t]+)*["']?"""
     r"""|run(?:-shell)?[ \t]+(?:-\w+[ \t]+)*["']?(?=[^\s;"']*/))([^\s;"']+)""",
     ("~/.tmux.conf", "~/.config/tmux/tmux.conf")),
    (r"""^[ \t]*(?:source|command[ \t]+source|command[ \t]+script[ \t]+import)[ \t]+(\S+)""",
     ("~/.gdbinit", "~/.lldbinit")),
    (r"""\b(?:load|require)[ \t(]+["']((?:\.|~|/)[^"']+)""", ("~/.irbrc", "~/.pryrc")),
    (r"""\b(?:sys\.)?source[ \t]*\([ \t]*["']([^"']+)""", ("~/.Rprofile", "~/.octaverc")),
    (r"^[ \t]*:(?:script|load|l)[ \t]+(\S+)", ("~/.ghci", "~/.config/ghc/ghci.conf")),
    (r"""\bimport_file(?:_if_available)?[ \t(]+"([^"]+)""", ("~/.iex.exs",)),
    (r"""\b(?:open|execfile|run_path)\([ \t]*["']([^"']+)""", ("~/.pythonrc", "~/.pythonrc.py", "~/.pdbrc.py")),
    (r"^[ \t]*\$include[ \t]+(\S+)", ("~/.inputrc",)),
    (r"^[ \t]*\\ir?[ \t]+'?([^\s']+)", ("~/.psqlrc",)),
    (r"^[ \t]*\.read[ \t]+['\"]?([^\s'\"]+)", ("~/.sqliterc",)),
)
# fmt: on
# Not compiled here: most users have none of these files.
_HERE = r"""^["']?(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`|\$\(git rev-parse --show-toplevel\))(?=/)"""
_HOME = r"""^["']?\$(?:HOME|\{HOME\})(?=/)"""
_ACTIVATION = r"(?:.*/)?bin/activate[\w.]*"  # of a virtual environment, which the user activates knowingly
_LINE = r"\s*([^\s=]+)(?:\s*=\s*|\s+)(.*)"
_TOOLS = r"(?:.*/)?(?:node_modules|\.?venv|vendor/bin)(?:/.*)?"  # programs that the user installs there
# Paths that Git itself writes: a lock on one of them would prevent every commit.
_GITS_OWN = frozenset(
    (".git", ".git/objects", ".git/refs", ".git/refs/heads", ".git/refs/tags", ".git/logs", ".git/info")
)


def personal_patterns(workspace: str, home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return patterns for the files inside the workspace that programs of this user run or read as settings.

    The patterns are relative to the workspace and to each repository in it. `workspace` and `home` are real paths.
    Never raises; files that cannot be read are skipped, because the user's programs cannot read them either.
    """
    variables = {name: value for name, value in environ.items() if name not in ("PWD", "OLDPWD")} | {"HOME": home}
    found: dict[str, None] = {}
    real = _resolver()
    for kind, value, git in _path_settings(home, environ, workspace):
        for path in setting_paths(kind, value, variables):
            for pattern_ in _patterns(path, kind, workspace, home, real):
                found[pattern_] = None
                # If Git treats `.git` itself as a repository, relative paths start there.
                if git and not pattern_.startswith(".git/"):
                    found[f".git/{pattern_}"] = None
    return tuple(found)[: 2 * _MOST]


def _patterns(path: str, kind: SettingKind, workspace: str, home: str, real: Callable[[str], str]) -> Iterator[str]:
    place = full_path(path, workspace, home)
    if not place:
        return
    relative = not path.startswith(("/", "~"))
    tails = {place[len(workspace) + 1 :]} if inside(place, workspace) else set()
    if relative and not tails:  # `../x` of a repository inside the workspace may be in the workspace
        tails = {"/".join(name for name in path.split("/") if name not in ("..", ".", ""))} - {""}
    if not relative and inside(at := real(place), workspace):
        tails.add(at[len(workspace) + 1 :])
    for tail in sorted(tails):
        if not tail:
            yield from HOOKS if kind is SettingKind.HOOKS else ()
        elif tail not in _GITS_OWN and tail.strip("*?[]/"):
            yield re.sub(r"[*?\[]", "?", tail)


def _path_settings(home: str, environ: Mapping[str, str], workspace: str) -> Iterator[tuple[SettingKind, str, bool]]:
    """Yield the kind and the value of every setting that names paths, and True if it is a setting of Git."""
    for name, value in environ.items():
        kind = VARIABLES.get(name) or VARIABLES.get(name.upper())
        if kind is not None and value:
            yield kind, value, name.startswith("GIT_") and kind is not SettingKind.REPOSITORY
    for name, value in _git(home, environ, workspace):
        if kind := setting_kind(name, GIT):
            yield kind, value, True
        for text in (value, name.removeprefix("url.")):
            if text.startswith("ext::"):  # git-remote-ext(1)
                yield SettingKind.COMMAND, text.removeprefix("ext::").removesuffix(".insteadof"), False
    yield from ((kind, value, False) for kind, value in _in_files(home, environ, workspace))


def _in_files(home: str, environ: Mapping[str, str], workspace: str) -> Iterator[tuple[SettingKind, str]]:
    """Yield the kind and the value of every setting in the files of programs other than Git."""
    at = _at(home, environ)
    for place in _settings_files(home, at):
        yield SettingKind.FILE, place
    for table, names, files in _INI:
        given = (path for name in names for path in environ.get(name, "").split(":") if path)
        left = [*(place for path in files for place in at(path)), *(full_path(path, workspace, home) for path in given)]
        yield from _in_ini(left, table, home)
    yield from _ssh([place for path in _SSH for place in at(path)], home)
    for includes, scripts in _SCRIPTS:
        yield from _in_scripts(list(_expanded(scripts, at)), includes, workspace, home)
    for path in (place for each in _STRUCTURED for place in at(each)):
        if content := read_start(path, _LONGEST, follow=True):
            yield from _structured(path, content)


def _in_ini(left: list[str], table: SettingTable, home: str) -> Iterator[tuple[SettingKind, str]]:
    """Yield the kind and the value of every setting in the files `left` and the files that they include."""
    for path in islice(left, _MOST_FILES):
        for name, value in _ini(_text(path)):
            if name == "%include":  # hgrc(5)
                place = full_path(value, os.path.dirname(path), home)
                yield SettingKind.FILE, place
                left += [] if place in left else [place]
            elif kind := setting_kind(name, table):
                yield kind, value


def _ssh(left: list[str], home: str) -> Iterator[tuple[SettingKind, str]]:
    for path in islice(left, _MOST_FILES):
        for line in _text(path).splitlines():
            if (setting := re.fullmatch(_LINE, line)) and (kind := setting_kind(setting[1], SSH)):
                yield kind, setting[2]
            elif setting and setting[1].lower() == "include":  # relative paths start at the folder of the user's file
                for each in setting[2].split():
                    place = full_path(each.strip('"'), f"{home}/.ssh", home)
                    yield SettingKind.FILE, place
                    left += [hit for hit in sorted(expanded_pattern("/", place)) if hit not in left]


def _in_scripts(left: list[str], includes: str, workspace: str, home: str) -> Iterator[tuple[SettingKind, str]]:
    """Yield the files that the scripts `left`, and the scripts that they include, read and run. For scripts of a
    shell, also yield the values of variables, and programs by a relative path, which hooks of a prompt may run.
    """
    for path in islice(left, len(left) + _MOST_FILES):
        shell = includes == _SCRIPTS[0][0]
        for line in _text(path).splitlines():
            if line.lstrip().startswith(("#", '"', ";", "alias ")):
                continue
            for each in filter(None, map(_included_path, re.findall(includes, line))):
                yield SettingKind.FILE, each
                if each.startswith(("/", "~")) and (place := full_path(each, workspace, home)) not in left:
                    left.append(place)
            if shell:
                for name, value in _assignments(line):
                    yield from _assigned(name, value, home)
            if shell or "tmux" in path:
                for word in setting_paths(SettingKind.SCRIPT, line.replace("#(", "$("), {"HOME": home}):
                    if word.startswith(("./", "../")) and not re.fullmatch(f"{_ACTIVATION}|{_TOOLS}", word):
                        yield SettingKind.FILE, word


def _assignments(line: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each assignment to one of `VARIABLES`, also inside other words and quotes."""
    at, beginning, rest = 0, re.compile(_ASSIGNED), re.compile(_VALUE)
    while found := beginning.search(line, at):
        name = found[1] or found[2]
        value = rest.match(line, found.end()) if name in VARIABLES else None
        if value is not None:
            yield name, value[1]
        at = value.end() if value is not None else found.start() + 1


def _assigned(name: str, value: str, home: str) -> Iterator[tuple[SettingKind, str]]:
    """Yield the kind and the value of one assignment of a shell, if the value is known before the shell runs."""
    kind = VARIABLES[name]
    if value[:1] in "\"'" and value[:1] == value[-1:]:
        value = value[1:-1].replace('\\"', '"')
    value = re.sub(_HERE, ".", value.replace("${HOME}", home).replace("$HOME", home))
    if kind in (SettingKind.LIST, SettingKind.MODULES):
        value = ":".join(part for part in value.split(":") if part and "$" not in part)
    if kind in (SettingKind.COMMAND, SettingKind.TYPED, SettingKind.SCRIPT) or (
        "$" not in value and ("/" in value or value[:1] == ".")
    ):
        yield kind, value


def _structured(path: str, content: bytes) -> Iterator[tuple[SettingKind, str]]:
    """Yield the commands in a file of JSON or TOML."""
    try:
        if path.endswith(".toml"):
            import tomllib  # most users have no such file

            document = tomllib.loads(content.decode())
            # Of our own file, tool servers are started; the commands in rules are not.
            left: list[object] = [document.get("mcp") if path.endswith(_OURS) else document]
        else:
            import json

            text = re.sub(r"^\s*//.*$", "", content.decode(), flags=re.MULTILINE)
            left = [json.loads(re.sub(r",(\s*[}\]])", r"\1", text))]
    except (ValueError, RecursionError):
        return
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
        elif isinstance(item, dict):
            left += item.values()
            yield from _commands(item)


def _commands(item: dict[str, object]) -> Iterator[tuple[SettingKind, str]]:
    args = item.get("args")
    for key, value in item.items():
        name = key.lower().rpartition(".")[2]
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str) for word in words):
            continue
        text = [str(word) for word in words]
        if name in _RUN_KEYS or ("." in key and name.endswith(("command", "path", "executable")) and len(text) == 1):
            more = [str(word) for word in args] if isinstance(args, list) and name == "command" else []
            from shlex import join  # most users have no such file

            line = text[0] if isinstance(value, str) and not more else join([*text, *more])
            found = [
                *setting_paths(SettingKind.SCRIPT, line, {}),
                *(setting_paths(SettingKind.FILE, line, {}) if name == "source" else ()),
            ]
            yield from ((SettingKind.FILE, word) for word in found if not re.fullmatch(_TOOLS, word))


def _settings_files(home: str, at: "_At") -> Iterator[str]:
    """Yield the paths of all settings files of this user, and of links: many users link these files into a
    repository.
    """
    read = (*_GIT_FILES, *(path for _, _, files in _INI for path in files), *_SSH, *_STRUCTURED)
    yield from (place for path in read for place in at(path))
    yield from (path for _, scripts in _SCRIPTS for path in _expanded(scripts, at))
    for folder in (home, *(place[:-2] for place in at("~/.config/*"))):
        try:
            with os.scandir(folder) as entries:
                hidden = (each for each in entries if folder != home or each.name.startswith("."))
                yield from (each.path for each in hidden if each.is_symlink())
        except OSError:
            continue


def _expanded(scripts: tuple[str, ...], at: "_At") -> Iterator[str]:
    """Yield the paths of `scripts`; for a path that ends with `/*`, the files in that folder."""
    for path in (place for each in scripts for place in at(each)):
        if not path.endswith("/*"):
            yield path
            continue
        try:
            yield from (f"{path[:-1]}{name}" for name in sorted(os.listdir(path[:-2]))[:_MOST_FILES])
        except OSError:
            continue


def _included_path(word: str) -> str:
    """Return the path that an include of a script names; empty if the path is known only when the script runs."""
    path = re.sub(_HOME, "~", re.sub(_HERE, ".", word)).strip("\"'")
    if path.startswith(("-", "<")) or any(char in path for char in "$`*?{}()=\0") or path in (".", ".."):
        return ""
    return "" if re.fullmatch(_ACTIVATION, path) else path


def _git(home: str, environ: Mapping[str, str], workspace: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting of Git in any file, also of conditional settings."""
    more = [environ.get(name, "") for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")]
    if folder := environ.get("XDG_CONFIG_HOME"):
        more.append(f"{folder}/git/config")
    left = [full_path(path, workspace, home) for path in (*_GIT_FILES, *more) if path]
    for name, value in _git_in_environment(environ):
        yield name, value
        if place := included_place(name, value, workspace, home):
            left.append(place)
    for name, value, place in possible_with_includes(left, home, _LONGEST):
        yield name, place or value


def _git_in_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of Git in environment variables (git-config(1), "ENVIRONMENT")."""
    for name, key in environ.items():
        if name.startswith("GIT_CONFIG_KEY_"):
            yield key.lower(), environ.get(f"GIT_CONFIG_VALUE_{name[15:]}", "")
    parameters = environ.get("GIT_CONFIG_PARAMETERS", "")
    if not parameters:
        return
    from shlex import split  # the variable is rare

    try:
        parts = split(parameters)
    except ValueError:
        return
    for part in parts:
        key, _, value = part.partition("=")
        yield key.lower(), value


def _ini(text: str) -> Iterator[tuple[str, str]]:
    """Yield `section.key` and the value of each line of a file with sections; the key alone before the first one."""
    section = ""
    for line in text.splitlines():
        if line.startswith("[") and "]" in line:
            section = line[1 : line.index("]")].strip() + "."
        elif line.startswith("%include "):
            yield "%include", line.removeprefix("%include ").strip()
        elif not line.startswith(("#", ";")) and "=" in line:
            key, _, value = line.partition("=")
            value = value.strip().strip("\"'")
            if value.startswith("python:"):  # hgrc(5): a file and a function in it
                value = "./" + value.removeprefix("python:").partition(":")[0]
            yield f"{section}{key.strip()}", value


_At = Callable[[str], tuple[str, ...]]


def _at(home: str, environ: Mapping[str, str]) -> _At:
    """Return a function from a path of the user to its possible locations: variables can move whole folders."""
    config, shell = environ.get("XDG_CONFIG_HOME", ""), environ.get("ZDOTDIR", "")

    def places(path: str) -> tuple[str, ...]:
        found = [f"{home}{path[1:]}" if path.startswith("~") else path]
        if path.startswith("~/.config/") and config.startswith("/"):
            found.append(f"{config}{path[9:]}")
        if path.startswith("~/.z") and shell.startswith("/"):
            found.append(f"{shell}{path[1:]}")
        return tuple(dict.fromkeys(found))

    return places


def _text(path: str) -> str:
    return read_start(path, _LONGEST, follow=True).decode("utf-8", "surrogateescape")


def _resolver() -> Callable[[str], str]:
    """Return a function from an absolute, normalised path to its real path, which looks up each folder once: most of
    the files are in few folders.
    """
    folders = {"": ""}  # the real path of each folder, without the slash at its end

    def real(path: str) -> str:
        folder, _, name = path.rpartition("/")
        at = folders.get(folder)
        if at is None:
            at = folders[folder] = real(folder).rstrip("/")
        place = f"{at}/{name}"
        try:
            return os.path.realpath(place) if os.path.islink(place) else place
        except (OSError, ValueError):
            return place

    return real
