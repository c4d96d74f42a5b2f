"""Logins that a checkout left in Git's files: settings, what settings name, addresses that were fetched, reflogs.

SOURCE: git-config(1), gitcredentials(7), git-credential-store(1), gitrepository-layout(5), gitmodules(5);
github.com/actions/checkout (a token in `http.*.extraheader` of `.git/config`, unless `persist-credentials: false`).
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice

from policy.git_config import LONGEST, GitConfigError, Setting, read_settings
from policy.record import dataclass
from policy.secrecy import inside
from runner import live_secrets
from runner.problems import usage
from runner.secrets import Secret
from runner.token_shapes import shaped
from runner.undo import below
from sandbox.git_settings import UncertainSettingsError, git_folders, included_by

_LOGIN = re.compile(r"(?P<kept>://)(?P<login>[^/\s\"'<>]+)@")
_PARAMETER = re.compile(r"(?P<kept>[?&#;](?P<name>[\w.-]+)=)(?P<value>[^&#;\s\"'<>]+)")
_NO_WORDS = ("x-oauth-basic", "x-token-auth")  # in place of a password, where the name is the token
_SIGNED = ("SIGNATURE", "SIG", "JWT")  # names of parameters, beside those that a variable could have
# In a command or a header: a password that is written out, and not the name of a variable.
_WRITTEN = (
    re.compile(
        r"(?:\b|_)(?:password|passwd|token|secret)[\"']?\s{0,4}[=:\s]\s{0,4}[\"']?([^\s\"';&|)}$`]+)", re.IGNORECASE
    ),
    re.compile(r"\b(?:bearer|basic)\s+([A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE),
    re.compile(r"\bsshpass\s+-p\s*([^\s$`]+)"),
)
_ASSIGNED = re.compile(
    r"(?P<kept>(?:\b|_)(?:password|passwd|token|secret)=[\"']?)(?P<value>[^\s\"';&|)}$`\\]+)", re.IGNORECASE
)
_PRINTED = re.compile(r"\b(?:echo|printf)\s+([^;&|)}\n]+)")
_HARMLESS = ("username", "protocol", "host", "path", "quit")  # git-credential(1), what a helper may print
_KEYS = re.compile(r".*(?:pass(?:word|wd|phrase)?|token|secret|apikey|extraheader|privatekey)")
_COMMANDS = frozenset(("credential.helper", "core.askpass", "core.sshcommand", "core.gitproxy"))
_STORE = re.compile(r"--file(?:=|\s+)(?:\"([^\"]+)\"|'([^']+)'|(\S+))")
_HIDING = re.compile(r"\\(?:\r?\n)?")
_HEADERS = re.compile(r'(?:[ \t]*\[[A-Za-z0-9.-]+(?:[ \t]+"(?:[^"\\\n]|\\[^\n])*")?\])+')
_MOST = 1000  # files of settings
_MOST_LOGINS = 200  # of a file, that are told and masked
_LONGEST_TEXT = 16 << 20  # bytes of any other file
_NO_TEXT = ("objects", "lfs")  # folders of a repository
_PASSED_OVER = re.compile(r"index|sharedindex\..*|.*MSG|.*\.(?:sample|pack|idx|rev|bitmap)")
_IN_GIT = re.compile(r"(?:^|/)\.git(?:/|$)")


@dataclass(frozen=True, slots=True)
class Kept:
    """A login in a file that every command in the workspace can read.

    Attributes:
        file: the path, below the workspace or absolute.
        key: what holds it, in a user's words, without the login: mostly a name as `git config --list` prints it.
        working: whether the file is one of the working files, or lies outside of the workspace, so that a copy of the
            workspace without the login would differ from it.
    """

    file: str
    key: str
    working: bool


Logins = tuple[tuple[str, str], ...]  # what holds each, and its words


def credentials(workspace: str) -> tuple[Kept, ...]:
    """Return the logins in Git's files that a command in the workspace could read. What they hold is masked from now
    on."""
    found = []
    gits = _git_folders(workspace)
    for path, _, logins in _unclean(workspace, gits):
        within = inside(path, workspace)
        shown = os.path.relpath(path, workspace) if within else path
        working = not within or not any(inside(path, git) for git in gits)
        for key, words in logins:
            found.append(Kept(shown, key, working))
            for part in {words, *words.split()[:_MOST_LOGINS]}:
                # Of a program that prints one, the first line and the names of files are none.
                if len(part) >= live_secrets.SHORTEST and not part.startswith("#!") and not os.path.lexists(part):
                    Secret(part)
    return tuple(found)


def refuse(kept: tuple[Kept, ...], *, review: bool = False) -> None:
    """Raises a usage error when there are any. With `review`, for those only that cannot be taken out of a copy."""
    kept = tuple(each for each in kept if each.working or not review)
    if not kept:
        return
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    other = ", or add --review, whose copy has none" if not any(each.working for each in kept) else ""
    raise usage(
        f"`{kept[0].file}` holds a credential: `{kept[0].key}`{more}",
        "every command in the workspace can read it, and a prompt could ask one to",
        "check out without it (GitHub: `persist-credentials: false` for actions/checkout; GitLab: "
        f"`FF_GIT_URLS_WITHOUT_TOKENS: 'true'`){other}",
    )


def strip(copy: str) -> None:
    """Take the logins out of Git's files in a copy of a workspace. Raises OSError."""
    for path, cleaned, _ in _unclean(copy, _git_folders(copy)):
        if not inside(path, copy):
            continue
        above, name = below.split(os.path.relpath(path, copy))
        top = below.open_root(copy)
        try:
            with below.folder(top, above) as folder:
                handle = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                with open(handle, "wb") as file:
                    file.write(cleaned)
        finally:
            os.close(top)


def without(content: bytes) -> tuple[bytes, Logins]:
    """Return settings of Git without logins, and what was taken out: the name of each setting and the login.

    Settings that cannot be read with certainty may hold anything: of those nothing is left.
    """
    try:
        settings = read_settings(content)
    except GitConfigError as error:
        return b"", ((f"line {error.line}, which cannot be read with certainty", ""),)
    logins = [(_without_addresses(each.name), word) for each in settings for word in _words_of(each)]
    if len(logins) > _MOST_LOGINS:
        return b"", tuple(logins[:_MOST_LOGINS])
    text = _decoded(content)
    rest = dict.fromkeys((*_anywhere(text), *(found["value"] for found in _ASSIGNED.finditer(text))))
    unnamed = (word for word in rest if not any(word in known for _, known in logins))
    logins = [*logins, *(("a comment", word) for word in islice(unnamed, _MOST_LOGINS))]
    if not logins:
        return content, ()
    text = _ASSIGNED.sub(lambda found: found["kept"], _without_addresses(text))
    try:
        text = _without_settings(text, [each for each in read_settings(_encoded(text)) if any(_words_of(each))])
        left = any(any(_words_of(each)) for each in read_settings(_encoded(text))) or any(_anywhere(text))
    except GitConfigError:
        left = True
    return b"" if left else _encoded(text), tuple(logins)


def _words_of(setting: Setting) -> Iterator[str]:
    """The logins in one setting."""
    value = setting.value or ""
    yield from _addresses(value)
    yield from _addresses(setting.subsection or "")
    plain = f"{setting.section}.{setting.key}"
    if plain in _COMMANDS or value.startswith("!"):
        yield from _written(value)
        yield from _printed(value)
    elif _KEYS.fullmatch(setting.key) and value.strip() and value.lower() not in ("true", "false"):
        yield value


def _addresses(text: str) -> Iterator[str]:
    """The logins in addresses, and what is somebody's key by its shape."""
    for found in _LOGIN.finditer(text):
        if word := _password(found):
            yield word
    for found in _PARAMETER.finditer(text):
        if _speaks(found["name"]):
            yield found["value"]
    for start, end in shaped(text):
        yield text[start:end]


def _anywhere(text: str) -> Iterator[str]:
    """The logins in addresses of a text of settings: in comments, and in headers, also as a backslash hides them."""
    yield from _addresses(text)
    yield from _addresses(_HIDING.sub("", text))


def _password(found: re.Match[str]) -> str:
    """The secret part of the login of an address; empty for a name alone, which an address may have."""
    name, _, word = found["login"].partition(":")
    web = found.string[max(0, found.start() - 5) : found.start()].lower().endswith(("http", "https"))
    if not word or word in _NO_WORDS:
        return name if web and len(name) >= live_secrets.SHORTEST else word
    return word


def _speaks(name: str) -> bool:
    name = name.replace("-", "_").replace(".", "_")
    return live_secrets.speaks_of_one(name) or name.upper().endswith(_SIGNED)


def _written(text: str) -> Iterator[str]:
    for each in _WRITTEN:
        yield from each.findall(text)


def _printed(text: str) -> Iterator[str]:
    """Yield the literal words that a command prints, without variables and the public fields of a helper."""
    for words in _PRINTED.findall(text):
        for word in words.split():
            name, equals, value = word.strip("\"'").partition("=")
            literal = value if equals else name
            if name not in _HARMLESS and literal and literal[0] not in "$-%`<>" and not literal.startswith("\\n"):
                yield literal


def _without_addresses(text: str) -> str:
    """A text without what `_addresses` finds."""
    text = _LOGIN.sub(lambda found: found["kept"] if _password(found) else found[0], text)
    text = _PARAMETER.sub(lambda found: found["kept"] if _speaks(found["name"]) else found[0], text)
    kept, last = [], 0
    for start, end in sorted(shaped(text)):
        kept.append(text[last:start])
        last = max(last, end)
    return "".join((*kept, text[last:]))


def _without_settings(text: str, dropped: list[Setting]) -> str:
    """A text of settings without some of them. What stands before one on its line, a header, stays."""
    lines: list[str | None] = [*text.split("\n")]
    for setting in dropped:
        header = _HEADERS.match(lines[setting.line - 1] or "")
        lines[setting.line - 1] = header[0] if header else None
        lines[setting.line : setting.last] = [None] * (setting.last - setting.line)
    return "\n".join(line for line in lines if line is not None)


def _unclean(workspace: str, gits: tuple[str, ...]) -> Iterator[tuple[str, bytes, Logins]]:
    """Each file that holds logins: its path, its content without them, and the logins."""
    settings, texts = _files(workspace, gits)
    secrets: dict[str, str] = {}  # files that are secret as a whole, and the setting that names each
    known = set(settings)
    while settings:
        path = settings.pop()
        content = _content(path, LONGEST)
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
        if content := _content(path, _LONGEST_TEXT):
            yield path, b"", ((f"the file of `{name}`", _decoded(content)),)
    for path in texts:
        if path not in known and path not in secrets:
            cleaned, logins = _without_logins(os.path.basename(path), _content(path, _LONGEST_TEXT))
            if logins:
                yield path, cleaned, logins


def _without_logins(name: str, content: bytes) -> tuple[bytes, Logins]:
    """Any other file of Git without logins: what reads as settings is a copy of some."""
    with contextlib.suppress(GitConfigError):
        if read_settings(content):
            return without(content)
    text = _decoded(content)
    if name.endswith("netrc") and (words := tuple(_written(text))):
        return b"", tuple(("a password", word) for word in words)
    found = islice(_addresses(text), _MOST_LOGINS)
    return _encoded(_without_addresses(text)), tuple(("an address", word) for word in found)


def _named(path: str, content: bytes, workspace: str) -> Iterator[tuple[str, str]]:
    """The files that settings name: those that are included with an empty name, those that hold logins with the name of
    the setting."""
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
            continue  # what only Git can find lies elsewhere
        value, plain = setting.value or "", f"{setting.section}.{setting.key}"
        places = [value] if plain == "http.cookiefile" else []
        if plain == "credential.helper":
            places = [next(filter(None, found)) for found in _STORE.findall(value)]
        words = (
            [part for word in value.split() for part in (word, word.partition("=")[2])] if plain in _COMMANDS else []
        )
        for place in (*places, *(word.strip("!\"';") for word in words)):
            above = os.path.dirname(path)
            for base in (workspace, above, os.path.dirname(above)):  # where Git starts depends on what it does
                real = os.path.realpath(os.path.join(base, os.path.expanduser(place))) if "\0" not in place else "/"
                # A program of the project may be a helper; what lies among Git's files was put there.
                if place in places or _IN_GIT.search(real):
                    yield real, plain


def _files(workspace: str, gits: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The files of settings, `.gitmodules` and `.lfsconfig` of the working files among them, and all others of Git's
    folders that may hold a text."""
    settings: list[str] = []
    texts: list[str] = []
    for top in gits:
        for folder, folders, files in os.walk(top, followlinks=False):
            if "HEAD" in files:
                folders[:] = [name for name in folders if name not in _NO_TEXT]
            for name in files:
                real = os.path.realpath(f"{folder}/{name}")
                if not _PASSED_OVER.fullmatch(name) and any(inside(real, each) for each in (workspace, *gits)):
                    (settings if name in ("config", "config.worktree") else texts).append(real)
    for folder, folders, files in os.walk(workspace, followlinks=False):
        folders[:] = [name for name in folders if name != ".git"]
        for name in (".gitmodules", ".lfsconfig"):
            real = os.path.realpath(f"{folder}/{name}") if name in files else "/"
            settings += [real] if inside(real, workspace) else []
    return list(dict.fromkeys(settings)), list(dict.fromkeys(texts))


def _git_folders(workspace: str) -> tuple[str, ...]:
    """Git's own folders that a command in the workspace could read: of every repository below it, and that of the
    workspace where it lies elsewhere. The outermost of each."""
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


def _content(path: str, most: int) -> bytes:
    """The beginning of a regular file that is no link; empty when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # `open` does not take a folder, not even to close it
        os.close(handle)
        return b""
    try:
        with open(handle, "rb") as file:
            return file.read(most + 1)
    except OSError:
        return b""


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
