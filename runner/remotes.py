"""The remotes that a repository's own settings name: read when a command that talks to one is judged, not before."""

import os
from collections.abc import Iterator

from policy.pattern import pattern
from policy.remotes import USUAL, Remotes
from runner.drivers import Beyond, git_folders, pointed, text_of, value_of, with_includes

_HEADER = pattern(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = pattern(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?\Z")
_JOINED = pattern(r"\\\r?\n")
_MOST = 500  # of each; a question about more says nothing

Setting = tuple[str, str, str, str]  # section and key in lower case, subsection, value


def remotes(folder: str, home: str) -> Remotes:
    """Of the repository that holds `folder`; nothing when there is none, or it cannot be read. Never raises."""
    try:
        root = _root(os.path.realpath(folder))
        return _read(root, home) if root else Remotes()
    except (Beyond, OSError, ValueError):
        return Remotes()


def _root(folder: str) -> str | None:
    while True:
        bare = os.path.isfile(f"{folder}/HEAD") and os.path.isdir(f"{folder}/objects")
        if bare or os.path.lexists(f"{folder}/.git"):
            return folder
        if folder == "/":
            return None
        folder = os.path.dirname(folder)


def _read(root: str, home: str) -> Remotes:
    settings: list[Setting] = []
    branch = ""
    for own in git_folders(root):
        common = pointed(f"{own}/commondir", "", own) or own
        for path, _ in with_includes([f"{common}/config", f"{common}/config.worktree"], home):
            settings += _settings(text_of(path))
        head = text_of(f"{own}/HEAD").strip()
        branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
    fetch: dict[str, tuple[str, ...]] = {}
    push: dict[str, tuple[str, ...]] = {}
    groups: dict[str, tuple[str, ...]] = {}
    instead: list[tuple[str, str]] = []
    instead_push: list[tuple[str, str]] = []
    modules: list[str] = []
    programs: dict[str, str] = {}
    one: dict[tuple[str, str], str] = {}  # of settings of which the last counts
    if len(settings) > 20 * _MOST:
        return Remotes()  # a later setting may lead elsewhere: nothing is known for certain
    for section, name, key, value in settings:
        if section == "remote" and name and key == "vcs":
            programs[name] = value
        elif section == "remote" and name and key in ("url", "pushurl"):
            found = fetch if key == "url" else push
            found[name] = (*found.get(name, ()), value)
        elif section == "remotes" and not name:
            groups[key] = tuple(value.split())
        elif section == "url" and key in ("insteadof", "pushinsteadof"):
            (instead if key == "insteadof" else instead_push).append((value, name))
        elif section == "submodule" and key == "url":
            modules.append(value)
        else:
            one[f"{section}.{name}", key] = value
    mine = f"branch.{branch}"
    usual = one.get((mine, "remote")) or (next(iter(fetch)) if len(fetch) == 1 else USUAL)
    base = next(iter(fetch.get(usual, ())), "")
    modules += [value for section, _, key, value in _settings(text_of(f"{root}/.gitmodules"))
                if section == "submodule" and key == "url"]  # fmt: skip
    if max(map(len, (fetch, push, groups, instead, instead_push, modules))) > _MOST:
        return Remotes()
    for name, program in programs.items():  # git-config(1), `remote.<name>.vcs`
        fetch[name] = tuple(f"{program}::{address}" for address in fetch.get(name, ("",)))
    return Remotes(
        fetch=fetch,
        push=push,
        groups=groups,
        usual=usual,
        usual_push=one.get((mine, "pushremote")) or one.get(("remote.", "pushdefault")) or usual,
        modules=tuple(dict.fromkeys(_placed(value, base) for value in modules)),
        instead=tuple(instead),
        instead_push=tuple(instead_push),
    )


def _placed(address: str, base: str) -> str:
    """A submodule's address may be relative to that of the repository. Git takes away parts, even the host.

    Source: `relative_url` of Git's submodule code: `../../evil.test/x` from `https://example.org/a` is
    `https://evil.test/x`.
    """
    if not address.startswith(("./", "../")):
        return address
    base, sign = base.removesuffix("/"), "/"
    while address.startswith(("./", "../")):
        if address.startswith("../"):
            sign = "/" if "/" in base else ":"
            base = base.rpartition(sign)[0] or "."
        address = address.partition("/")[2]
    return f"{base}{sign}{address}".removesuffix("/")


def _settings(text: str) -> Iterator[Setting]:
    section = name = ""
    for raw in _JOINED.sub("", text.removeprefix("\ufeff")).split("\n"):
        line, at = raw.strip(), 0
        while header := _HEADER.match(line, at):
            section, dot, rest = header[1].partition(".")
            section, name = (
                section.lower(),
                value_of(f'"{header[2]}"') if header[2] is not None else rest if dot else "",
            )
            at = header.end()
            while at < len(line) and line[at].isspace():
                at += 1
        found = _KEY.match(line, at)
        if section and found and found[2] is not None:
            yield section, name, found[1].lower(), value_of(found[2])
