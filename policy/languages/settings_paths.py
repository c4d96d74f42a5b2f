"""Paths in settings of programs: the settings that name files to run or read, and the words of a value that are paths.

If it is uncertain whether a word is a path, it is taken as a path: then one more file is protected from changes.
Sources: git-config(1), githooks(5), gitcredentials(7), git(1) "ENVIRONMENT VARIABLES", hgrc(5), npm-config(7),
ssh_config(5), bash(1), environ(7), python(1), node(1), perlrun(1), ruby(1), java(1), ld.so(8), less(1), vim(1).
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache

from policy.model.glob import glob, late
from policy.model.secret_paths import normal


class SettingKind(Enum):
    """The ways in which the value of a setting names paths.

    Attributes:
        FILE: the value is the path of a file or folder that is read or run.
        HOOKS: the value is a folder of hooks.
        LIST: the value is a list of paths with `:` between them.
        COMMAND: a command line that the program runs automatically: each word may be a path.
        TYPED: a command line that runs when the user calls it by name: only the programs that it runs are paths.
        SCRIPT: lines of shell text: the programs and the scripts of interpreters are paths, other arguments are not.
        REPOSITORY: a folder that Git uses as the folder `.git` of a repository.
        MODULES: folders with `:` between them, in which Python searches the modules that it loads at every start.
    """

    FILE = "file"
    HOOKS = "hooks"
    LIST = "list"
    COMMAND = "command"
    TYPED = "typed"
    SCRIPT = "script"
    REPOSITORY = "repository"
    MODULES = "modules"


SettingTable = tuple[tuple[SettingKind, tuple[str, ...]], ...]

# fmt: off
# Full names of settings in lower case, by kind (the first matching pattern is used). `*` matches any text, including
# dots. The hooks in `init.templatedir` become hooks of new repositories. `core.attributesfile` selects drivers and
# filters of the settings. `*.editor` matches core and sequence, and `*.command` matches diff, hook, tar and trailer.
GIT: SettingTable = (
    (SettingKind.HOOKS, ("core.hookspath",)),
    (SettingKind.FILE, (
        "init.templatedir", "core.attributesfile", "commit.template", "include.path", "includeif.*.path",
        "difftool.*.path", "mergetool.*.path", "browser.*.path", "man.*.path", "lfs.customtransfer.*.path",
        "instaweb.modulepath",
    )),
    (SettingKind.TYPED, (
        "alias.*", "guitool.*.cmd", "difftool.*.cmd", "mergetool.*.cmd", "browser.*.cmd", "man.*.cmd", "instaweb.httpd",
        "imap.tunnel", "sendemail.*cmd", "sendemail.*smtpserver", "submodule.*.update",
    )),
    (SettingKind.COMMAND, (
        "remote.*.uploadpack", "remote.*.receivepack", "core.fsmonitor", "core.alternaterefscommand", "core.askpass",
        "core.gitproxy", "core.sshcommand", "*.editor", "core.pager", "pager.*", "credential.*helper", "diff.external",
        "interactive.difffilter", "*.textconv", "filter.*.clean", "filter.*.smudge", "filter.*.process",
        "lfs.extension.*.clean", "lfs.extension.*.smudge", "merge.*.driver", "gpg.*program", "*.defaultkeycommand",
        "uploadpack.packobjectshook", "gc.recentobjectshook", "*.command", "trailer.*.cmd",
    )),
)
# Settings of Mercurial as `section.name`, and of npm as names, because `.npmrc` has no sections.
MERCURIAL: SettingTable = (
    (SettingKind.FILE, ("extensions.*",)),
    (SettingKind.TYPED, ("alias.*", "extdiff.*", "fix.*:command")),
    (SettingKind.COMMAND, (
        "hooks.*", "ui.editor", "ui.ssh", "ui.merge", "pager.pager", "merge-tools.*.executable", "*encode.*",
    )),
)
NPM: SettingTable = (
    (SettingKind.FILE, ("onload-script", "init-module", "userconfig", "globalconfig")),
    (SettingKind.COMMAND, (
        "script-shell", "shell", "node-options", "git", "editor", "browser", "viewer",
    )),
)
# The value of `match` may contain `exec COMMAND`.
SSH: SettingTable = (
    (SettingKind.FILE, ("pkcs11provider", "securitykeyprovider", "xauthlocation")),
    (SettingKind.COMMAND, ("proxycommand", "localcommand", "knownhostscommand", "match")),
)
VARIABLES: Mapping[str, SettingKind] = {
    name: kind
    for kind, names in (
        (SettingKind.COMMAND, (
            "GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_ASKPASS",
            "GIT_PAGER", "GIT_PROXY_COMMAND", "SSH_ASKPASS", "SUDO_ASKPASS", "PAGER", "MANPAGER", "SYSTEMD_PAGER",
            "BAT_PAGER", "DELTA_PAGER", "AWS_PAGER", "GH_PAGER", "PSQL_PAGER", "EDITOR", "VISUAL", "FCEDIT",
            "SUDO_EDITOR", "SYSTEMD_EDITOR", "HGEDITOR", "HGMERGE", "SVN_EDITOR", "KUBE_EDITOR", "PSQL_EDITOR",
            "GH_EDITOR", "BROWSER", "GH_BROWSER", "LESSOPEN", "LESSCLOSE", "PROMPT_COMMAND", "SHELL", "SVN_SSH",
            "CVS_RSH", "RSYNC_RSH", "HGSSH", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS",
            "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "VIMINIT", "EXINIT", "LUA_INIT", "FZF_DEFAULT_COMMAND",
            "FZF_DEFAULT_OPTS", "NPM_CONFIG_SCRIPT_SHELL", "NPM_CONFIG_NODE_OPTIONS", "GOFLAGS", "MAVEN_OPTS",
            "GRADLE_OPTS", "SBT_OPTS", "ANT_OPTS", "JAVA_OPTS", "P4EDITOR", "P4DIFF", "P4MERGE", "P4PAGER",
            "TAR_OPTIONS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER",
        )),
        (SettingKind.FILE, (
            "BASH_ENV", "ENV", "ZDOTDIR", "PYTHONSTARTUP", "AWS_CONFIG_FILE", "PSQLRC", "NPM_CONFIG_USERCONFIG",
            "NPM_CONFIG_GLOBALCONFIG", "PIP_CONFIG_FILE", "CURL_HOME", "WGETRC", "GNUPGHOME", "OPENSSL_CONF", "PHPRC",
            "OPENSSL_MODULES", "XDG_CONFIG_HOME", "STARSHIP_CONFIG", "RIPGREP_CONFIG_PATH", "R_PROFILE",
            "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_SYSTEM", "GIT_CONFIG", "TF_CLI_CONFIG_FILE", "DOCKER_CONFIG", "ANSIBLE_CONFIG", "INPUTRC",
            "DIRENV_CONFIG", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "GIT_ATTR_GLOBAL", "GIT_ATTR_SYSTEM", "LESSKEYIN",
            "LESSKEY", "XINITRC", "NODE_REPL_EXTERNAL_MODULE", "SCREENRC", "GRADLE_USER_HOME", "P4CONFIG", "P4ENVIRO",
        )),
        (SettingKind.LIST, (
            "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DOTNET_STARTUP_HOOKS", "KUBECONFIG", "HGRCPATH",
            "PHP_INI_SCAN_DIR", "XDG_CONFIG_DIRS", "MAKEFILES",
        )),
        (SettingKind.REPOSITORY, ("GIT_DIR", "GIT_COMMON_DIR")),
        (SettingKind.SCRIPT, ("CC", "CXX")),
        (SettingKind.TYPED, ("PS0", "PS1", "PS2", "PS4", "PROMPT", "PERL5DB")),
        (SettingKind.MODULES, ("PYTHONPATH",)),
    )
    for name in names
}
# Names of hooks (githooks(5)). If the folder of hooks is the workspace itself, which stays writable, these files are
# locked.
HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
    "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
    "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
    "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change", "p4-changelist",
    "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit",
)
# Variables and commands that expand to the top of the worktree, or to the folder `.git`.
_TOP = (
    r"\$\{?(?:PWD|GIT_WORK_TREE|GIT_PREFIX|CLAUDE_PROJECT_DIR|workspaceFolder)\b[^}/]*\}?"
    r"|\$\(\s*(?:pwd(?: -[LP])?|git rev-parse --show-(?:toplevel|cdup))\s*\)"
    r"|`\s*(?:pwd(?: -[LP])?|git rev-parse --show-(?:toplevel|cdup))\s*`"
)
_GIT_FOLDER = (
    r"\$\{?GIT_(?:COMMON_)?DIR\}?|\$\(\s*git rev-parse --(?:absolute-)?git-(?:common-)?dir\s*\)"
)
# Each match of `_TOP` and `_GIT_FOLDER` contains one of these. Most texts contain none, so nothing is compiled.
_TOP_WORDS = ("PWD", "pwd", "GIT_", "CLAUDE_PROJECT_DIR", "workspaceFolder", "git rev-parse")
_WRAPPERS = frozenset((
    "exec", "env", "command", "builtin", "nohup", "nice", "setsid", "sudo", "doas", "time", "xargs", "timeout",
    "stdbuf", "then", "do", "else", "if", "while", "until", "!", "eval", "trap", "and", "or", "not",
))
_FLAGS_BEFORE_FILE = frozenset(("-F", "--rcfile", "--init-file"))  # ssh(1), bash(1)
_FLAGS_BEFORE_PROGRAM = frozenset(("-x", "--exec", "--extcmd", "--upload-pack", "--receive-pack", "-exec", "-execdir"))
_INTERPRETERS = frozenset((
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "node", "deno", "bun", "luajit", "tclsh",
    "Rscript", "guile", "elixir", "java", "osascript", "source", ".",
))
_VERSIONED = ("python", "pypy", "perl", "ruby", "php", "lua")  # interpreters whose name may end in a version
_ASSIGNMENT = late(r"[A-Za-z_]\w*=")
_VARIABLE = late(r"\$(?:\{([A-Za-z_]\w*)[^}]*\}|([A-Za-z_]\w*)|\{[^}]*\}|[@*#?$!0-9-])")
_FILE_NAME = late(r"\.?[\w-]*[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)+|\.[A-Za-z][\w-]*")
# fmt: on
_UNKNOWN = "\0"
_MAX_DEPTH = 4  # command lines inside the words of command lines


@lru_cache(maxsize=1024)
def setting_kind(name: str, table: SettingTable) -> SettingKind | None:
    """Return the kind of the setting with the full name `name`; None if its value names no paths."""
    lower = name.lower()
    return next((kind for kind, patterns in table if any(glob(lower, pattern) for pattern in patterns)), None)


def setting_paths(kind: SettingKind, value: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths in a value, with variables expanded by `variables`, the user's environment. Relative paths are
    relative to the folder in which the program starts."""
    match kind:
        case SettingKind.FILE | SettingKind.HOOKS:
            yield value
        case SettingKind.LIST:
            yield from filter(None, re.split(r"[:\s]+", value))
        case SettingKind.MODULES:
            for folder in value.split(":"):
                for name in ("sitecustomize", "usercustomize"):
                    yield f"{folder or '.'}/{name}.py"
                    yield f"{folder or '.'}/{name}"
        case SettingKind.REPOSITORY:
            for name in ("config", "config.worktree", "commondir", "hooks", "info/attributes"):
                yield f"{value}/{name}"
        case SettingKind.SCRIPT:
            yield from _command_paths(value, variables, all_words=False, loose=False)
        case SettingKind.COMMAND | SettingKind.TYPED:
            yield from _command_paths(value.removeprefix("!"), variables, all_words=kind is SettingKind.COMMAND)


def full_path(path: str, top: str, home: str) -> str:
    """Return the absolute, normalised form of a path from `setting_paths` that is relative to `top`; empty if the path
    is unusable or unknown (`~name`). `~` is `home`."""
    path = path.removeprefix(":(optional)")  # of newer versions of Git (git-config(1))
    if "\0" in path or not path or path.startswith("%("):
        return ""
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    elif path.startswith("~"):
        return ""
    return normal(path if path.startswith("/") else f"{top}/{path}")


def _command_paths(
    text: str, variables: Mapping[str, str], *, all_words: bool, loose: bool = True, depth: int = 0
) -> Iterator[str]:
    """Yield the words of a command line that may be paths: the programs that it runs, and the scripts of interpreters.
    `all_words`: all arguments too. `loose`: also arguments that begin like a relative path."""
    # True if the next word is a program, a script of an interpreter, or a module.
    runs, reads, module = True, False, False
    for word, quoted in _split_words(text, variables):
        if word is None:
            runs, reads, module = True, False, False
            continue
        if depth < _MAX_DEPTH and quoted and any(char in word for char in " \t\n;|&$`"):
            yield from _command_paths(word, variables, all_words=all_words, loose=loose, depth=depth + 1)
            if loose and "/" in word and not any(char in word for char in "\n;|&$`"):
                yield word  # the whole word may be a path with a blank
            runs = reads = False
            continue
        if runs and _ASSIGNMENT.match(word) and not loose:
            continue
        if (runs and _ASSIGNMENT.match(word)) or (loose and ("=./" in word or "=../" in word)):
            yield from _argument_paths(word)
            continue
        if runs and not word.startswith("-"):
            if word.startswith("@") or "/" in word:  # other programs are found on PATH
                yield from _path_in_word(word.removeprefix("@"), certain=word.startswith("@"))
            runs, reads = word in _WRAPPERS, _is_interpreter(word)
        elif word in _FLAGS_BEFORE_PROGRAM:
            runs = True
        elif all_words and word in _FLAGS_BEFORE_FILE:
            reads = True
        elif reads and word in ("-c", "-e", "-m"):
            reads, module = False, word == "-m"
        elif module:  # a module of Python, which the current folder may contain
            yield from (word.replace(".", "/"), word.replace(".", "/") + ".py")
            module = False
        elif word.startswith("-") and word != "-":
            yield from _argument_paths(word) if all_words else ()
        elif reads:
            yield from _path_in_word(word, certain=True)
            reads = False
        elif all_words or (loose and word.startswith(("./", "../"))):
            yield from _path_in_word(word.removeprefix("@"), certain=False)


def _is_interpreter(program: str) -> bool:
    name = program.rpartition("/")[2]
    if name in _INTERPRETERS:
        return True
    versions = (name.removeprefix(each) for each in _VERSIONED if name.startswith(each))
    return any(all(char == "." or char.isdecimal() for char in version) for version in versions)


def _argument_paths(word: str) -> Iterator[str]:
    """Yield the path in a word such as `-r./x`, `--require=./x`, `-javaagent:./x` or `NAME=./x`."""
    if word.startswith(("-D", "-X")):
        return
    _, equals, value = word.partition("=")
    if equals:
        yield from _path_in_word(value, certain=False)
    elif ":" in word:
        yield from _path_in_word(word.partition(":")[2], certain=False)
    elif word.startswith("-") and not word.startswith("--"):
        yield from _path_in_word(word[2:], certain=False)


def _path_in_word(word: str, *, certain: bool) -> Iterator[str]:
    """Yield the part of a word that can be a path. If `certain`, a name without `/` is a path too."""
    start, unknown, end = word.partition(_UNKNOWN)
    if unknown:
        # `$X/tools/run`: the variable may name the workspace. `tools/$X`: any file of that folder.
        word = start.rpartition("/")[0] if start else end.rpartition(_UNKNOWN)[2].lstrip("/")
        if not word or not (start or end.startswith("/")):
            return
        certain = certain or bool(start)
    if "://" in word or word.startswith("refs/") or word in ("/", "-", ".", ".."):
        return
    if "/" in word or certain or _FILE_NAME.fullmatch(word):
        yield word


def _split_words(text: str, variables: Mapping[str, str]) -> Iterator[tuple[str | None, bool]]:
    """Yield each word of a command line, and True if a part of the word was quoted. A word None begins a new command.

    NUL in a word represents text known only at run time.
    """
    text = text.replace(_UNKNOWN, "")
    if ("$" in text or "`" in text) and any(each in text for each in _TOP_WORDS):
        text = re.sub(_GIT_FOLDER, ".git", re.sub(_TOP, ".", text))
    inner: list[str] = []
    word, has_word, quoted, quote, at = "", False, False, "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'" and at + 1 < len(text):
            word, has_word, at = word + text[at + 1], True, at + 2
            continue
        if char in "\"'" and quote in ("", char):
            quote, has_word, quoted = "" if quote else char, True, True
        elif quote != "'" and (text.startswith("$(", at) or char == "`"):
            end = _closing_bracket(text, at + 2, ")") if char == "$" else text.find("`", at + 1)
            end = end if end >= 0 else len(text)
            inner.append(text[at + (2 if char == "$" else 1) : end])
            word, has_word, at = word + _UNKNOWN, True, end
        elif quote != "'" and char == "$" and (found := _VARIABLE.match(text, at)):
            word += variables.get(found[1] or found[2] or "", _UNKNOWN)
            has_word, at = True, found.end() - 1
        elif quote:
            word += char
        elif char in " \t" or char in ";|&(){}<>\n":
            if has_word or word:
                yield word, quoted
            word, has_word, quoted = "", False, False
            if char in ";|&(){}\n":
                yield None, False
        else:
            word, has_word = word + char, True
        at += 1
    if has_word or word:
        yield word, quoted
    for each in inner:
        yield None, False
        yield from _split_words(each, variables)


def _closing_bracket(text: str, at: int, mark: str) -> int:
    """Return the position of the bracket `mark` that closes the bracket before `at`, or -1 if it is missing."""
    depth = 1
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == mark)
        if depth == 0:
            return place
    return -1
