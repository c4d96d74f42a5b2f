"""Logins that a checkout left in Git's files: settings, files that settings name, remote addresses, reflogs.

The settings of other version control systems are searched too.

SOURCE: git-config(1), gitcredentials(7), git-credential-store(1), gitrepository-layout(5), gitmodules(5);
github.com/actions/checkout (a token in `http.*.extraheader` of `.git/config`, unless `persist-credentials: false`).
"""

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import islice

from policy.languages.git_config import LONGEST, GitConfigError, Setting, read_settings
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from runner.changes import safe_open
from runner.frontends.ci import login_words
from runner.frontends.ci.login_words import TextKind
from runner.problems import usage
from runner.secrets.secret import SHORTEST, Secret
from sandbox.inside.regular_file import read_start
from sandbox.workspace.git_settings import UncertainSettingsError, git_folders, included_by

_KEYS = re.compile(
    r".*(?:pass(?:word|wd|phrase)?|token|secret|(?:api|private|access|secret)-?key|extraheader|pwd|creds|cookie)"
    r"|_?auth|authorization|credentials?"
)
_PRINTING = frozenset(("credential.helper", "core.askpass"))
_REACHING = frozenset(("core.sshcommand", "core.gitproxy", "imap.tunnel"))
_COMMANDS = _PRINTING | _REACHING
# Keys of any tool whose value is a command line, or a part of one.
_COMMAND_KEYS = re.compile(r".*(?:command|cmd|program|tunnel|args|options?|hook)")
_KEY_FILES = frozenset(("http.cookiefile", "http.sslkey", "http.proxysslkey", "sendemail.smtpsslclientkey"))
_STORE = re.compile(r"--file(?:=|\s+)(?:\"([^\"]+)\"|'([^']+)'|(\S+))")
_HIDING = re.compile(r"\\(?:\r?\n)?")
_HEADERS = re.compile(r'(?:[ \t]*\[[A-Za-z0-9.-]+(?:[ \t]+"(?:[^"\\\n]|\\[^\n])*")?\])+')
_MOST = 1000  # files of settings
_MOST_LOGINS = 200  # logins of one file that are reported and masked
_LONGEST_TEXT = 16 << 20  # bytes of any other file
# Folders of a repository that contain the content of tracked files, and no text files of Git.
_NO_TEXT = ("objects", "lfs/objects", "lfs/incomplete", "lfs/tmp", "annex/objects", "annex/tmp")
_ALTERNATES = ("objects/info/alternates", "objects/info/http-alternates")
_SECRET_FOLDERS = ("annex/creds", "git-crypt/keys")  # every file is a key as a whole
_OTHER_FOLDERS = re.compile(r"/(?:\.(?:hg|sl|jj|bzr|pijul|svn)|_darcs|CVS)(?:/|\Z)")
_PASSED_OVER = re.compile(r"index|sharedindex\..*|COMMIT_EDITMSG|TAG_EDITMSG|.*\.(?:pack|idx|rev|bitmap)")
_RECORDS = re.compile(r"(?:^|/)(?:logs/.*|rebase-(?:merge|apply)/.*|sequencer/.*|[A-Z_]*(?:HEAD|MSG)|packed-refs)")
# Files of other version control systems in a working folder: their settings, and the addresses of repositories.
_OTHER_TOOLS = re.compile(
    r"/(?:\.hg/hgrc(?:-not-shared)?|\.sl/(?:config|hgrc)|\.jj/(?:repo/)?config\.toml|\.bzr/branch/(?:branch\.conf|parent)"
    r"|_darcs/prefs/[a-z]+|\.pijul/config|CVS/Root|\.svn/auth/.*)\Z"
)
_IN_GIT = re.compile(r"(?:^|/)\.git(?:/|$)")


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """A login in a file that every command in the workspace can read.

    Attributes:
        file: The path, relative to the workspace if it is inside, else absolute.
        key: The name of the setting as `git config --list` prints it, or a description such as `a comment`.
        working: True if the file is a working file, or outside of the workspace: then the login cannot be removed
            from a copy without a visible change.
    """

    file: str
    key: str
    working: bool


Logins = tuple[tuple[str, str], ...]  # the name of the setting (or a description), and the login


def credentials(workspace: str) -> tuple[StoredLogin, ...]:
    """Return the logins in version control files that a command in the workspace could read.

    Register these logins and their words with the redactor, except short ones and names of files.
    """
    found = []
    gits = _git_folders(workspace)
    for path, _, logins in _unclean(workspace, gits):
        within = inside(path, workspace)
        shown = os.path.relpath(path, workspace) if within else path
        working = not within or not any(inside(path, git) for git in gits)
        for key, words in logins:
            found.append(StoredLogin(shown, key, working))
            for part in {words, *words.split()[:_MOST_LOGINS]}:
                # In a helper program that prints a login, its first line and names of files are not secret.
                if len(part) >= SHORTEST and not part.startswith("#!") and not os.path.lexists(part):
                    Secret(part)
    return tuple(found)


def refuse(kept: tuple[StoredLogin, ...], *, review: bool = False) -> None:
    """Raise a usage error if `kept` has a login. With `review`, ignore logins that can be removed from a copy."""
    kept = tuple(each for each in kept if each.working or not review)
    if not kept:
        return
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    other = ", or add --review, whose copy has no credentials" if not any(each.working for each in kept) else ""
    raise usage(
        f"`{kept[0].file}` contains a credential: `{kept[0].key}`{more}",
        "every command in the workspace could read the credential",
        "check out without credentials (GitHub: `persist-credentials: false` for actions/checkout; GitLab: "
        f"`FF_GIT_URLS_WITHOUT_TOKENS: 'true'`){other}",
    )


def strip(copy: str) -> None:
    """Remove the logins that `credentials` finds from a copy of a workspace. Raise OSError if a write fails."""
    for path, cleaned, _ in _unclean(copy, _git_folders(copy)):
        if not inside(path, copy):
            continue
        above, name = safe_open.split(os.path.relpath(path, copy))
        top = safe_open.open_root(copy)
        try:
            with safe_open.folder(top, above) as folder:
                handle = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                with open(handle, "wb") as file:
                    file.write(cleaned)
        finally:
            os.close(top)


def without(content: bytes) -> tuple[bytes, Logins]:
    """Return settings of Git without logins, and the removed logins with the names of their settings.

    The returned settings are empty if the settings cannot be read with certainty, have more than `_MOST_LOGINS` logins,
    or would still contain a login.
    """
    try:
        settings = read_settings(content)
    except GitConfigError as error:
        return b"", ((f"line {error.line}, which cannot be read with certainty", ""),)
    logins = [pair for each in settings for pair in _logins_of(each)]
    if len(logins) > _MOST_LOGINS:
        return b"", tuple(logins[:_MOST_LOGINS])
    text = _decoded(content)
    rest = dict.fromkeys(_anywhere(text))
    unnamed = (word for word in rest if not any(word in known for _, known in logins))
    logins = [*logins, *(("a comment", word) for word in islice(unnamed, _MOST_LOGINS))]
    if not logins:
        return content, ()
    text = login_words.without(text, TextKind.SETTINGS)
    try:
        text = _without_settings(text, [each for each in read_settings(_encoded(text)) if any(_words_of(each))])
        left = any(any(_words_of(each)) for each in read_settings(_encoded(text))) or any(_anywhere(text))
    except GitConfigError:
        left = True
    return b"" if left else _encoded(text), tuple(logins)


def _logins_of(setting: Setting) -> Logins:
    """Return the logins in one setting, each with the name of the setting, from which the logins are removed."""
    words = tuple(dict.fromkeys(_words_of(setting)))
    name = login_words.without_addresses(setting.name)
    for word in words:
        name = name.replace(word, "")
    return tuple((name, word) for word in words)


def _words_of(setting: Setting) -> Iterator[str]:
    """Return the logins in one setting."""
    value = setting.value or ""
    plain = f"{setting.section}.{setting.key}"
    command = plain in _COMMANDS or value.startswith("!") or setting.section == "alias"
    if not command and _KEYS.fullmatch(setting.key) and value.strip():
        yield from [value] if value.lower() not in ("true", "false") else ()
        value = ""
    for text in (value, setting.subsection or ""):
        yield from login_words.value(text)
        if "::" in text:  # an address may be a command (git-remote-ext(1))
            yield from login_words.transport(text.partition("::")[2])
    if command or _COMMAND_KEYS.fullmatch(setting.key):
        yield from (login_words.transport if plain in _REACHING else login_words.command)(value)
        yield from login_words.printed(value) if plain in _PRINTING else ()


def _anywhere(text: str) -> Iterator[str]:
    """Yield the logins anywhere in a settings text, including comments and headers, also with backslash escapes."""
    yield from login_words.logins(text, TextKind.SETTINGS)
    yield from login_words.addresses(_HIDING.sub("", text))


def _without_settings(text: str, dropped: list[Setting]) -> str:
    """Return a settings text without some of the settings. A header before a setting on the same line stays."""
    lines: list[str | None] = [*text.split("\n")]
    for setting in dropped:
        header = _HEADERS.match(lines[setting.line - 1] or "")
        lines[setting.line - 1] = header[0] if header else None
        lines[setting.line : setting.last] = [None] * (setting.last - setting.line)
    return "\n".join(line for line in lines if line is not None)


def _unclean(workspace: str, gits: tuple[str, ...]) -> Iterator[tuple[str, bytes, Logins]]:
    """Yield each file that holds logins: its path, its content without them, and the logins."""
    settings, texts = _files(workspace, gits)
    secrets: dict[str, str] = {}  # files that are secret as a whole, and the setting that names each
    known = set(settings)
    while settings:
        path = settings.pop()
        content = read_start(path, LONGEST + 1, follow=False)
        cleaned, logins = without(content)
        if logins:
            yield path, cleaned, logins
        for place, name in _named(path, content, workspace):
            if not any(inside(place, top) for top in (workspace, *gits)) or not os.path.isfile(place):
                continue
            if name:
                secrets[place] = name
            elif place not in known and len(known) < _MOST:
                known.add(place)
                settings.append(place)
    for path, name in sorted(secrets.items()):
        if content := read_start(path, _LONGEST_TEXT + 1, follow=False):
            yield path, b"", ((f"the file of `{name}`", _decoded(content)),)
    for path in texts:
        if path not in known and path not in secrets:
            cleaned, logins = _without_logins(path, read_start(path, _LONGEST_TEXT + 1, follow=False))
            if logins:
                yield path, cleaned, logins


def _without_logins(path: str, content: bytes) -> tuple[bytes, Logins]:
    """Return the content of another file of Git without logins, and the logins.

    A file that can be read as settings is treated as a copy of settings.
    """
    if any(f"/{each}/" in path for each in _SECRET_FOLDERS):
        return (b"", (("a key", _decoded(content)),)) if content else (content, ())
    if not _OTHER_TOOLS.search(path):
        with contextlib.suppress(GitConfigError):
            if read_settings(content):
                return without(content)
    text = _decoded(content)
    if path.endswith("netrc") and (words := tuple(login_words.netrc(text))):
        return b"", tuple(("a password", word) for word in words)
    kind = TextKind.RECORD if _RECORDS.search(path) and "/lfs/" not in path else TextKind.OTHER
    found = tuple(islice(login_words.addresses(text), _MOST_LOGINS))
    others = (word for word in dict.fromkeys(login_words.logins(text, kind)) if word not in found)
    logins = (*(("an address", word) for word in found), *(("a login", word) for word in islice(others, _MOST_LOGINS)))
    if not logins:
        return content, ()
    cleaned = login_words.without(text, kind)
    return b"" if any(login_words.logins(cleaned, kind)) else _encoded(cleaned), logins


def _named(path: str, content: bytes, workspace: str) -> Iterator[tuple[str, str]]:
    """Return the files that settings name: included files with an empty name, login files with the name of the
    setting.
    """
    home = os.path.expanduser("~")
    try:
        settings = read_settings(content)
    except GitConfigError:
        return
    for setting in settings:
        try:
            for place in included_by(path, setting, home):
                yield os.path.realpath(place), ""
        except (UncertainSettingsError, ValueError):
            continue  # a file that only Git can find is outside of the workspace
        value, plain = setting.value or "", f"{setting.section}.{setting.key}"
        places = [value] if plain in _KEY_FILES else []
        if plain == "credential.helper":
            places = [next(filter(None, found)) for found in _STORE.findall(value)]
        words = (
            [part for word in value.split() for part in (word, word.partition("=")[2])] if plain in _COMMANDS else []
        )
        for place in (*places, *(word.strip("!\"';") for word in words)):
            above = os.path.dirname(path)
            for base in (workspace, above, os.path.dirname(above)):  # the base depends on Git's working folder
                real = os.path.realpath(os.path.join(base, os.path.expanduser(place))) if "\0" not in place else "/"
                # A helper in the working files is a program of the project; a file in Git's folder may hold a login.
                if place in places or _IN_GIT.search(real):
                    yield real, plain


def _files(workspace: str, gits: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the files of settings, with `.gitmodules` and `.lfsconfig`, and the other files to search for logins.

    The others are the text files of Git's folders, and the settings of other version control systems.
    """
    settings: list[str] = []
    texts: list[str] = []
    skipped: set[str] = set()
    for top in gits:
        for folder, folders, files in os.walk(top, followlinks=False):
            skipped |= {f"{folder}/{each}" for each in _NO_TEXT} if "HEAD" in files else set()
            folders[:] = [name for name in folders if f"{folder}/{name}" not in skipped]
            for name in (*files, *(_ALTERNATES if "HEAD" in files else ())):
                real = os.path.realpath(f"{folder}/{name}")
                if not _PASSED_OVER.fullmatch(name) and any(inside(real, each) for each in (workspace, *gits)):
                    (settings if name in ("config", "config.worktree") else texts).append(real)
    for folder, folders, files in os.walk(workspace, followlinks=False):
        folders[:] = [name for name in folders if name != ".git"]
        for name in (".gitmodules", ".lfsconfig"):
            real = os.path.realpath(f"{folder}/{name}") if name in files else "/"
            settings += [real] if inside(real, workspace) else []
        if _OTHER_FOLDERS.search(folder):
            others = [os.path.realpath(path) for name in files if _OTHER_TOOLS.search(path := f"{folder}/{name}")]
            texts += [real for real in others if inside(real, workspace)]
    return list(dict.fromkeys(settings)), list(dict.fromkeys(texts))


def _git_folders(workspace: str) -> tuple[str, ...]:
    """Return the Git folders that a command in the workspace could read, without those inside another one.

    They are the folders of all repositories below the workspace, and that of the workspace itself, even if that folder
    is outside of the workspace.
    """
    found: list[str] = []
    for folder, folders, files in os.walk(workspace, followlinks=False):
        names = {*folders, *files}
        if "HEAD" in names and ("objects" in names or "commondir" in names):
            found.append(folder)
            folders.clear()
        elif ".git" in folders:
            found.append(f"{folder}/.git")
            folders.remove(".git")
    with contextlib.suppress(UncertainSettingsError):  # Git refuses such a repository, too
        found += [path for git in git_folders(workspace) for path in (git.path, git.common)]
    reals = [os.path.realpath(path) for path in found]
    return tuple(
        path for path in dict.fromkeys(reals) if not any(path != each and inside(path, each) for each in reals)
    )


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
