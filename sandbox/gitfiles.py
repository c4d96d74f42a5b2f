"""Which of the files that Git makes in a new repository start nothing, and where its settings lead.

Those that start nothing need not be set aside. Closed world: a key that is not on the list, or a line that is read with
any doubt, is not harmless. Sources: git-config(1), gitrepository-layout(5), githooks(5).
"""

import os
import re
import stat

from policy.secrecy import inside

_MOST = 64 << 10  # bytes
_INCLUDED = 100  # files of settings that are followed
_OPENS = re.compile(r"\s*\[(?P<name>[A-Za-z0-9-]+)[^\]]*\]")
_NAMES = re.compile(r"\s*(?P<key>[A-Za-z][A-Za-z0-9-]*)\s*=(?P<value>.*)")
_COMMENT = re.compile(r'\s[#;][^"]*$')
_SECTION = re.compile(r'\[(?P<name>[a-z]+)(?: "(?P<inner>[\w./@+ -]*)")?\]')
_SETTING = re.compile(r"(?P<key>[A-Za-z]+) ?= ?(?P<value>[^\\\"#;`$]*)")
# fmt: off
_KEYS: dict[str, dict[str, str]] = {
    "core": dict.fromkeys(
        (
            *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "symlinks", "ignorecase"),
            "precomposeunicode",
        ),
        r"true|false|always|\d",
    ),
    "extensions": {"objectformat": r"sha1|sha256", "refstorage": r"files|reftable"},
    "user":   {"name": r".*", "email": r".*"},
    "remote": {
        "url": r"(?:(?:https|http|git|ssh)://\w[\w.@-]*(?::\d+)?)?/[\w./~@+-]*",
        "fetch": r"\+?refs/[\w./*-]*:refs/[\w./*-]*",
    },
    "branch": {"remote": r"[\w][\w.-]*", "merge": r"refs/[\w./-]*"},
}
# fmt: on


def harmless(path: str, workspace: str) -> bool:
    """Whether what lies at `path`, of a kind that Git obeys, is as Git itself makes it and starts nothing."""
    try:
        status = os.lstat(path)
        name = os.path.basename(path)
        if stat.S_ISDIR(status.st_mode):
            return name == "hooks" and all(_sample(entry) for entry in os.scandir(path))
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            return False
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            text = file.read(_MOST)
    except (OSError, ValueError):
        return False
    if name == "config":
        return _settings(text)
    if name == "commondir":  # where settings are looked for: in what is looked at as a repository itself
        shared = common(os.path.dirname(path))
        return text == "../..\n" and all(os.path.lexists(f"{shared}/{part}") for part in ("HEAD", "objects", "refs"))
    return name == ".git" and _pointer(text, path, workspace)


def common(folder: str) -> str:
    """Where the settings and hooks of the repository whose inside is `folder` lie: `commondir` says it."""
    text = _text(f"{folder}/commondir").rstrip("\r\n")
    return os.path.realpath(os.path.join(folder, text)) if text and "\0" not in text else folder


def named(folder: str, top: str) -> set[str]:
    """The folder of hooks, and further files of settings, that the settings in `folder` name.

    `top`: the folder from which a relative folder of hooks counts. Plain joined paths: they may lead anywhere, and to
    nothing.
    """
    found: set[str] = set()
    left = [f"{folder}/config", f"{folder}/config.worktree"]
    while left and len(found) < _INCLUDED:
        config = left.pop()
        section = ""
        for line in _text(config).split("\n"):
            if opened := _OPENS.match(line):
                section, line = opened["name"].lower(), line[opened.end() :]
            setting = _NAMES.match(line)
            if setting is None or "\0" in line:
                continue
            value = os.path.expanduser(_COMMENT.sub("", setting["value"]).replace('"', "").strip())
            if setting["key"].lower() == "hookspath" and section == "core":
                found.add(os.path.normpath(os.path.join(top, value)))
            elif setting["key"].lower() == "path" and section in ("include", "includeif"):
                place = os.path.normpath(os.path.join(os.path.dirname(config), value))
                left += [place] if place not in found else []
                found.add(place)
    return found


def _text(path: str) -> str:
    """What is in a regular file; nothing when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # `open` does not take a folder, not even to close it
            return ""
        with open(handle, encoding="utf-8", errors="surrogateescape", closefd=False) as file:
            return file.read(_MOST)
    except OSError:
        return ""
    finally:
        os.close(handle)


def _sample(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".sample") and entry.is_file(follow_symlinks=False)


def _settings(text: str) -> bool:
    keys: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if section := _SECTION.fullmatch(line):
            keys = _KEYS.get(section["name"], {})
        elif setting := _SETTING.fullmatch(line):
            known = keys.get(setting["key"].lower())
            if known is None or not re.fullmatch(known, setting["value"].strip()):
                return False
        elif line:
            return False
    return True


def _pointer(text: str, path: str, workspace: str) -> bool:
    """A worktree's or a submodule's: it leads into a repository of this workspace, where the settings are watched."""
    target = text.removeprefix("gitdir: ").removesuffix("\n")
    if target == text or "\n" in target:
        return False
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))
    kept = re.search(r"/\.git/(?:worktrees|modules)/", place)
    return kept is not None and inside(place, workspace) and os.path.realpath(place) == place
