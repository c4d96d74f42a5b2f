"""Rules about variables: those that a script may set without changing what the shell or a program does."""

import re
from enum import IntEnum
from fnmatch import fnmatchcase


class VariableReach(IntEnum):
    """The reach of a variable. OWN: only the script reads it. PASSED: later programs may obey it. SHELL: bash itself,
    or every program, obeys it.
    """

    OWN = 0
    PASSED = 1
    SHELL = 2


# The longer expressions are texts: `re` compiles them at their first use and keeps them, and most commands use none.
# Of the variables in `_LOOKS`, these never name a file: counts, switches, and terminal types, which hold no `/`
# (terminfo(5)). If the script does not export them, they may have any value.
_INERT = (
    r"NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLORTERM|COLUMNS|LINES|TERM|CI|SOURCE_DATE_EPOCH|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
)
# When exported, these only change the appearance of output.
_LOOKS = rf"LC_[A-Z]+|LANG|LANGUAGE|TZ|GIT_OPTIONAL_LOCKS|DEBIAN_FRONTEND|NODE_ENV|{_INERT}"
_VALUE = re.compile(r"[A-Za-z0-9_.,+@ -]*(/[A-Za-z0-9_+-]+)*")
_TRAVERSAL = re.compile(r"(^|/)\.\.?(/|$)|^[/:]")  # LC_ALL and TZ may name files
_PAGERS = frozenset(["PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"])

# Harmless values of a clock, a counter and the separators (the interpreter relies on no splitting after IFS is set).
_SAFE_VALUES = {"SECONDS": re.compile("[0-9]{1,9}"), "OPTIND": re.compile("1"), "IFS": re.compile("[ \t\n]*")}
# bash obeys these even when they are not exported.
_SHELL = (
    r"BASH.*|CDPATH|CHILD_MAX|COMP.*|DIRSTACK|EMACS|ENV|EPOCH.*|EUID|EXECIGNORE|FCEDIT|FIGNORE|FUNC.*|GLOBIGNORE|GROUPS"
    r"|HIST.*|HOME|HOST.*|IFS|IGNOREEOF|INPUTRC|INSIDE_EMACS|LINENO|MAIL.*|MAPFILE|OLDPWD|OPT.*|PATH|PIPESTATUS"
    r"|POSIXLY_CORRECT|PPID|PROMPT_.*|PS[0-9]|PWD|RANDOM|READLINE_.*|SECONDS|SHELL.*|SHLVL|SRANDOM|TIMEFORMAT|TMOUT|UID"
    r"|auto_resume|histchars|_"
)
# Programs obey these, some in lower case too (npm_config_.., http_proxy), and the environment in the sandbox already
# contains some of them.
_TOOLS = (
    r"(LD|DYLD|GLIBC|GCONV|MALLOC|GIT|SSH|GPG|PYTHON|PIP|NODE|NPM|RUBY|GEM|BUNDLE|PERL|LUA|PHP|JAVA|JDK|MAVEN|GRADLE|GO|CARGO"
    r"|RUST|MAKE|CMAKE|CC|CXX|TAR|GREP|RIPGREP|LESS|MAN|PAGER|EDITOR|VISUAL|BROWSER|XDG|TMP|TEMP|DOCKER|KUBE|AWS|CURL|WGET"
    r"|SYSTEMD|DBUS|TERMINFO|NLSPATH|LOCPATH|LOCALDOMAIN|HOSTALIASES|RES_OPTIONS|USER|LOGNAME|TZDIR|DISPLAY|RINGFENCE)"
    r"([A-Z0-9]*(_.*)?)|.*_PROXY|.*(PATH|OPTIONS|OPTS|FLAGS|COMMAND|EDITOR|PAGER|PRELOAD|ASKPASS)"
)


def variable_reach(name: str, value: str | None, inherited: tuple[str, ...], *, exported: bool) -> VariableReach:
    """Return the reach of setting `name`. `value` is None if it is known only at run time.

    `inherited` are name patterns of variables that are in a command's environment from the start, so that setting one
    exports it.
    """
    if re.fullmatch(_LOOKS, name):
        harmless = value is not None and _VALUE.fullmatch(value) and not _TRAVERSAL.search(value)
        return VariableReach.OWN if harmless or (not exported and re.fullmatch(_INERT, name)) else VariableReach.PASSED
    if name in _PAGERS:
        return VariableReach.OWN if value in ("cat", "") else VariableReach.SHELL
    if value is not None and not exported and name in _SAFE_VALUES and _SAFE_VALUES[name].fullmatch(value):
        return VariableReach.OWN
    if re.fullmatch(_SHELL, name):
        return VariableReach.SHELL
    if re.fullmatch(_TOOLS, name, re.IGNORECASE):
        # The script does not export the variable, but it may be in the environment already.
        return VariableReach.SHELL if exported or name != name.lower() else VariableReach.OWN
    if exported:
        return VariableReach.PASSED  # closed world: some program may obey a name that no table contains
    known = any(fnmatchcase(name, pattern) for pattern in inherited)
    return VariableReach.PASSED if known else VariableReach.OWN


# Some variables configure the guards of a command, and others make a loader, a shell or Git run another program than
# the one that was judged. Sources: ld.so(8), bash(1), git(1).
_UNDOING = (
    (r"(?:LD|DYLD)_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN",
     "the system's own libraries obey it in every program, which could run other code than was judged"),
    (r"(?i:(?:.*_)?PROXY|NO_PROXY|npm_config_(?:https_|http_|no)?proxy)",
     "the only way out is the sandbox's own proxy, which sets it itself"),
    (r"(?i:GIT_(?!(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)\Z).*|SSH_ASKPASS|GPG_.*)",
     "Git obeys it, and it could undo what keeps a repository's own settings from starting programs"),
    (r"XDG_CONFIG_(?:HOME|DIRS)|CURL_HOME|WGETRC|RIPGREP_CONFIG_PATH",
     "programs that only read obey settings from there, Git among them, and those may start other programs"),
    (r"RINGFENCE_.*|TMPDIR|PAGER|MANPAGER|SYSTEMD_PAGER|LESSOPEN|LESSCLOSE|LESSSECURE|EDITOR|VISUAL",
     "the sandbox sets it itself, or programs start by it what was not judged"),
)  # fmt: skip


def undone_guard(name: str) -> str | None:
    """Return why `name` must not be set for a command from outside the script; None if it may.

    Such a variable would undo a guard of the command.
    """
    if re.fullmatch(_SHELL, name):
        return "bash obeys it, so the script could do something else than what was judged"
    return next((why for names, why in _UNDOING if re.fullmatch(names, name)), None)
