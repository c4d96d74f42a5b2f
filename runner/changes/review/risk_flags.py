"""Warnings about changes that the user should check before a patch is applied."""

import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from policy.model.frozen import dataclass
from runner.changes.review.apply_plan import PlannedChange
from runner.changes.review.patch_format import LINK, PROGRAM, binary, hunks, node_of, split
from runner.changes.review.tree_diff import like_git
from runner.text.sanitize import visible
from sandbox.workspace.inventory import Changes, Finding, TreeNode

_LARGE = 5 << 20  # bytes
# Files that build tools, test runners and servers read when the user starts them. Auto-run files are in the profile.
_STARTED = (
    "package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "binding.gyp", "Makefile", "makefile",
    "GNUmakefile", "*.mk", "justfile", "Justfile", "Rakefile", "Gemfile", "*.gemspec", "setup.py", "setup.cfg",
    "pyproject.toml", "conftest.py", "noxfile.py", "tox.ini", "sitecustomize.py", "*.pth", "build.rs", "Cargo.toml",
    ".cargo/config.toml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "pom.xml",
    "CMakeLists.txt", "meson.build", "configure", "Dockerfile", "Containerfile", "docker-compose.yml", "compose.yml",
    "compose.yaml", "Vagrantfile", "Jenkinsfile", ".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml",
    ".circleci/config.yml", ".github/workflows/*", ".github/actions/*", "action.yml",
    "composer.json", "Procfile", ".bazelrc", "BUILD", "BUILD.bazel", "WORKSPACE", "flake.nix", "default.nix",
    "shell.nix", ".gitattributes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Danger:
    """A warning about one path. `severe` is True if a general approval outside a terminal (`--yes`) does not cover the
    change.
    """

    path: str
    what: str
    severe: bool


def dangers(
    items: tuple[PlannedChange, ...], secret: Callable[[str], bool], judge: Callable[[Changes], Mapping[str, Finding]]
) -> tuple[Danger, ...]:
    """Return the warnings, in the order of `items`.

    `secret(path)` returns True for a path that must not be read; `judge(changes)` returns the changes that other
    programs run or obey by themselves.
    """
    obeyed = judge(changes_of(items))
    return tuple(danger for item in items for danger in _dangers(item, secret, obeyed))


def changes_of(items: tuple[PlannedChange, ...]) -> dict[str, TreeNode | None]:
    """Return the target state of every path that `items` change."""
    found: dict[str, TreeNode | None] = {item.was: None for item in items if item.was}
    return found | {item.path: node_of(item.new) for item in items}


def _dangers(item: PlannedChange, secret: Callable[[str], bool], obeyed: Mapping[str, Finding]) -> Iterator[Danger]:
    for path in (item.path, item.was) if item.was else (item.path,):
        if path in obeyed:
            yield Danger(path, obeyed[path].why, True)
        if secret(path):
            yield Danger(path, "it has the name of a secret", True)
    new, old = item.new, item.old
    if new is None:
        return
    if new.mode == LINK:
        if why := _leads_out(item.path, os.fsdecode(new.data)):
            yield Danger(item.path, f"it is a link that {why}", True)
        return
    if new.mode == PROGRAM and (old is None or old.mode != PROGRAM):
        yield Danger(item.path, "it becomes executable", False)
    if any(fnmatchcase(f"/{item.path}", f"*/{pattern}") for pattern in _STARTED):
        yield Danger(item.path, "build tools, tests or servers run commands in it", False)
    if binary(new.data):
        yield Danger(item.path, f"it is no text ({len(new.data):,} bytes), so nothing of it is shown", False)
    elif len(new.data) > _LARGE:
        yield Danger(item.path, f"it is very large ({len(new.data):,} bytes)", False)
    elif hidden := _hidden(old.data if old is not None else b"", new.data):
        yield Danger(item.path, f"a new line contains characters that hide or reorder text: {hidden}", False)


def _leads_out(path: str, target: str) -> str:
    """Return, in words, the target of a link out of the workspace or into Git's own folder, else an empty string.

    Only the text of the link counts, because its target may be another link.
    """
    if target.startswith("/"):
        return f"leads to {visible(target, lines=False)}"
    inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if inner == ".." or inner.startswith("../"):
        return "points out of the workspace"
    return "points into Git's own folder" if any(map(like_git, inner.split("/"))) else ""


def _hidden(old: bytes, new: bytes) -> str:
    """Return up to five bidirectional or invisible characters in added lines (CVE-2021-42574), spelled out."""
    if new.isascii():
        return ""
    found: dict[str, None] = {}
    for hunk in hunks(split(old), split(new)):
        for line in hunk.lines:
            if line.startswith(b"+") and not line.isascii():
                text = line.decode("utf-8", "replace")
                found |= {visible(char): None for char in text if unicodedata.category(char) == "Cf"}
    return " ".join(list(found)[:5])
