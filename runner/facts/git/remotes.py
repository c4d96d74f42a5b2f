"""Git remotes that a repository's own settings name, read only when a command that contacts one is judged."""

import os

from policy.languages.git_config import Setting
from policy.model.facts import USUAL, Remotes
from sandbox.workspace.git_settings import (
    UncertainSettingsError,
    git_folders,
    is_repository,
    read_file,
    settings_of,
    with_includes,
)

_MOST = 500  # of each; a question about more is not readable


def remotes(folder: str, home: str) -> Remotes:
    """Return the remotes of the repository around `folder`; empty if there is none, or it cannot be read. Never
    raises.
    """
    try:
        root = os.path.realpath(folder)
        while not (is_repository(root) or os.path.lexists(f"{root}/.git")):
            if root == "/":
                return Remotes()
            root = os.path.dirname(root)
        return _read(root, home)
    except (UncertainSettingsError, OSError, ValueError):
        return Remotes()


def _read(root: str, home: str) -> Remotes:
    settings: list[Setting] = []
    branch = ""
    for git in git_folders(root):
        settings += [found.setting for found in with_includes(git.files, home)]
        head = (read_file(f"{git.path}/HEAD") or b"").decode("utf-8", "surrogateescape").strip()
        branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
    fetch, push = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    groups: dict[str, tuple[str, ...]] = {}
    instead, instead_push = list[tuple[str, str]](), list[tuple[str, str]]()
    modules: list[str] = []
    programs: dict[str, str] = {}
    one: dict[str, str] = {}  # by full name: settings whose last value applies
    if len(settings) > 20 * _MOST:
        return Remotes()  # a later setting may name another host: nothing is certain
    for setting in settings:
        section, name, key, value = setting.section, setting.subsection or "", setting.key, setting.value
        if value is None:
            continue
        if section == "remote" and name and key == "vcs":
            programs[name] = value
        elif section == "remote" and name and key in ("url", "pushurl"):
            addresses = fetch if key == "url" else push
            addresses[name] = (*addresses.get(name, ()), value)
        elif section == "remotes" and not name:
            groups[key] = tuple(value.split())
        elif section == "url" and key in ("insteadof", "pushinsteadof"):
            (instead if key == "insteadof" else instead_push).append((value, name))
        elif section == "submodule" and key == "url":
            modules.append(value)
        else:
            one[setting.name] = value
    mine = f"branch.{branch}"
    usual = one.get(f"{mine}.remote") or (next(iter(fetch)) if len(fetch) == 1 else USUAL)
    base = next(iter(fetch.get(usual, ())), "")
    modules += [each.value for each in settings_of(f"{root}/.gitmodules")
                if each.section == "submodule" and each.key == "url" and each.value is not None]  # fmt: skip
    if max(map(len, (fetch, push, groups, instead, instead_push, modules))) > _MOST:
        return Remotes()
    for name, program in programs.items():  # git-config(1), `remote.<name>.vcs`
        fetch[name] = tuple(f"{program}::{address}" for address in fetch.get(name, ("",)))
    return Remotes(
        fetch=fetch,
        push=push,
        groups=groups,
        usual=usual,
        usual_push=one.get(f"{mine}.pushremote") or one.get("remote.pushdefault") or usual,
        modules=tuple(dict.fromkeys(_placed(value, base) for value in modules)),
        instead=tuple(instead),
        instead_push=tuple(instead_push),
    )


def _placed(address: str, base: str) -> str:
    """Return the address of a submodule, which may be relative to its repository's. Git removes segments, even the
    host.

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
