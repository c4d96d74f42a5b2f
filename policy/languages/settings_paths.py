"""Paths that a program's settings make it run or read: which settings do that, and which words of a value are paths.

Read generously: a path too many is one more file that commands cannot change.
Sources: git-config(1), githooks(5), gitcredentials(7), git(1) "ENVIRONMENT VARIABLES", hgrc(5), npm-config(7),
ssh_config(5), bash(1), environ(7), python(1), node(1), perlrun(1), ruby(1), java(1), ld.so(8), less(1), vim(1).
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache

from policy.model.glob import glob
from policy.model.secret_paths import normal


class SettingKind(Enum):
    """The ways in which the value of a setting names paths.

    Attributes:
        FILE: the value is the path of a file or folder that is read or run.
        HOOKS: the value is a folder of hooks.
        LIST: paths with `:` between them.
        COMMAND: a command line that the program runs by itself: each word may be a path.
        TYPED: a command line that runs when the user asks for it by name: only what is run in it counts.
        SCRIPT: lines of which only the programs count, and the files that interpreters read: no argument does.
        REPOSITORY: a folder that Git takes for the inside of a repository.
        MODULES: folders with `:` between them, in which Python looks for modules that it loads at every start.
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
# Full names of settings in lower case, by kind (the first pattern that fits counts). `*` stands for any text, dots
# included. The hooks of `init.templatedir` become those of a new repository, `core.attributesfile` chooses among the
# drivers and filters of the settings, `*.editor` is that of core and sequence, and `*.command` that of diff, hook, tar
# and trailer.
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
# `section.name` of Mercurial, and the names of npm (`.npmrc` has no sections).
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
# The value of `match` may have `exec` in it.
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
# githooks(5): what Git looks for in a folder of hooks. Where that is the whole workspace, which stays writable, these
# are locked.
HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
    "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
    "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
    "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change", "p4-changelist",
    "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit",
)
# Folders and variables that are the top of the worktree, or Git's own folder, wherever a program starts.
_TOP = (
    r"\$\{?(?:PWD|GIT_WORK_TREE|GIT_PREFIX|CLAUDE_PROJECT_DIR|workspaceFolder)\b[^}/]*\}?"
    r"|\$\(\s*(?:pwd(?: -[LP])?|git rev-parse --show-(?:toplevel|cdup))\s*\)"
    r"|`\s*(?:pwd(?: -[LP])?|git rev-parse --show-(?:toplevel|cdup))\s*`"
)
_GIT_FOLDER = (
    r"\$\{?GIT_(?:COMMON_)?DIR\}?|\$\(\s*git rev-parse --(?:absolute-)?git-(?:common-)?dir\s*\)"
)
_WRAPPERS = frozenset((
    "exec", "env", "command", "builtin", "nohup", "nice", "setsid", "sudo", "doas", "time", "xargs", "timeout",
    "stdbuf", "then", "do", "else", "if", "while", "until", "!", "eval", "trap", "and", "or", "not",
))
_FILE_FOLLOWS = frozenset(("-F", "--rcfile", "--init-file"))  # ssh(1), bash(1)
_BEFORE_PROGRAM = frozenset(("-x", "--exec", "--extcmd", "--upload-pack", "--receive-pack", "-exec", "-execdir"))
_READS_FILE = (
    r"(?:.*/)?(?:(?:ba|da|z|k|mk|fi|c|tc)?sh|(?:python|pypy|perl|ruby|php|lua)[\d.]*|node|deno|bun|luajit|tclsh|Rscript"
    r"|guile|elixir|java|osascript|source|\.)"
)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)[^}]*\}|([A-Za-z_]\w*)|\{[^}]*\}|[@*#?$!0-9-])")
_LIKE_A_FILE = re.compile(r"\.?[\w-]*[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)+|\.[A-Za-z][\w-]*")
# fmt: on
_UNKNOWN = "\0"
_DEEPEST = 4  # command lines inside the words of command lines


@lru_cache(maxsize=1024)
def kind_of(name: str, table: SettingTable) -> SettingKind | None:
    """Return how the setting with this full name names paths; None for one that names none."""
    lower = name.lower()
    return next((kind for kind, patterns in table if any(glob(lower, pattern) for pattern in patterns)), None)


def paths(kind: SettingKind, value: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths in a value, as they are written but for the expansion of variables: relative ones count from the
    folder in which the program starts. `variables`: what the user's environment says."""
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
            yield from _in_command(value, variables, every=False, loose=False)
        case SettingKind.COMMAND | SettingKind.TYPED:
            yield from _in_command(value.removeprefix("!"), variables, every=kind is SettingKind.COMMAND)


def located(path: str, top: str, home: str) -> str:
    """Return the absolute, normalised form of a path from `paths`, as seen from the folder `top`; empty for one that
    cannot lie anywhere. `~` is the home; `~name` is not known."""
    path = path.removeprefix(":(optional)")  # of newer versions of Git (git-config(1))
    if "\0" in path or not path or path.startswith("%("):
        return ""
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    elif path.startswith("~"):
        return ""
    return normal(path if path.startswith("/") else f"{top}/{path}")


def _in_command(
    text: str, variables: Mapping[str, str], *, every: bool, loose: bool = True, depth: int = 0
) -> Iterator[str]:
    """Yield the words of a command line that may be paths. `every`: arguments as well, not only what is run. `loose`:
    at least those that begin like a path."""
    # Whether the next word is a program, the file that an interpreter reads, or a module.
    runs, reads, module = True, False, False
    for word, quoted in _words(text, variables):
        if word is None:
            runs, reads, module = True, False, False
            continue
        if depth < _DEEPEST and quoted and any(char in word for char in " \t\n;|&$`"):
            yield from _in_command(word, variables, every=every, loose=loose, depth=depth + 1)
            if loose and "/" in word and not any(char in word for char in "\n;|&$`"):
                yield word  # a path with a blank in it
            runs = reads = False
            continue
        if runs and _ASSIGNED.match(word) and not loose:
            continue
        if (runs and _ASSIGNED.match(word)) or (loose and ("=./" in word or "=../" in word)):
            yield from _in_argument(word)
            continue
        if runs and not word.startswith("-"):
            if word.startswith("@") or "/" in word:  # any other program is looked for on PATH
                yield from _as_path(word.removeprefix("@"), sure=word.startswith("@"))
            runs, reads = word in _WRAPPERS, re.fullmatch(_READS_FILE, word) is not None
        elif word in _BEFORE_PROGRAM:
            runs = True
        elif every and word in _FILE_FOLLOWS:
            reads = True
        elif reads and word in ("-c", "-e", "-m"):
            reads, module = False, word == "-m"
        elif module:  # of Python: looked for in the folder that it starts in, before any other
            yield from (word.replace(".", "/"), word.replace(".", "/") + ".py")
            module = False
        elif word.startswith("-") and word != "-":
            yield from _in_argument(word) if every else ()
        elif reads:
            yield from _as_path(word, sure=True)
            reads = False
        elif every or (loose and word.startswith(("./", "../"))):
            yield from _as_path(word.removeprefix("@"), sure=False)


def _in_argument(word: str) -> Iterator[str]:
    """Yield the paths in `-r./x`, `--require=./x`, `-javaagent:./x` and `NAME=./x`."""
    if word.startswith(("-D", "-X")):
        return
    _, equals, value = word.partition("=")
    if equals:
        yield from _as_path(value, sure=False)
    elif ":" in word:
        yield from _as_path(word.partition(":")[2], sure=False)
    elif word.startswith("-") and not word.startswith("--"):
        yield from _as_path(word[2:], sure=False)


def _as_path(word: str, *, sure: bool) -> Iterator[str]:
    """Yield the part of a word that can be a path. `sure`: a name without `/` is one, too."""
    before, unknown, after = word.partition(_UNKNOWN)
    if unknown:
        # `$X/tools/run`: the variable may name the workspace. `tools/$X`: any file of that folder.
        word = before.rpartition("/")[0] if before else after.rpartition(_UNKNOWN)[2].lstrip("/")
        if not word or not (before or after.startswith("/")):
            return
        sure = sure or bool(before)
    if "://" in word or word.startswith("refs/") or word in ("/", "-", ".", ".."):
        return
    if "/" in word or sure or _LIKE_A_FILE.fullmatch(word):
        yield word


def _words(text: str, variables: Mapping[str, str]) -> Iterator[tuple[str | None, bool]]:
    """Yield the words of a command line, and whether a quotation mark stood in each; None where a new command begins.

    What only the shell could tell is the character NUL.
    """
    text = re.sub(_GIT_FOLDER, ".git", re.sub(_TOP, ".", text.replace(_UNKNOWN, "")))
    inner: list[str] = []
    word, there, quoted, quote, at = "", False, False, "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'" and at + 1 < len(text):
            word, there, at = word + text[at + 1], True, at + 2
            continue
        if char in "\"'" and quote in ("", char):
            quote, there, quoted = "" if quote else char, True, True
        elif quote != "'" and (text.startswith("$(", at) or char == "`"):
            end = _closing(text, at + 2, ")") if char == "$" else text.find("`", at + 1)
            end = end if end >= 0 else len(text)
            inner.append(text[at + (2 if char == "$" else 1) : end])
            word, there, at = word + _UNKNOWN, True, end
        elif quote != "'" and char == "$" and (found := _VARIABLE.match(text, at)):
            word += variables.get(found[1] or found[2] or "", _UNKNOWN)
            there, at = True, found.end() - 1
        elif quote:
            word += char
        elif char in " \t" or char in ";|&(){}<>\n":
            if there or word:
                yield word, quoted
            word, there, quoted = "", False, False
            if char in ";|&(){}\n":
                yield None, False
        else:
            word, there = word + char, True
        at += 1
    if there or word:
        yield word, quoted
    for each in inner:
        yield None, False
        yield from _words(each, variables)


def _closing(text: str, at: int, mark: str) -> int:
    """Return the position of the bracket that closes the one before `at`, or -1 if there is none."""
    depth = 1
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == mark)
        if depth == 0:
            return place
    return -1
