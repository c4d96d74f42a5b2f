"""Real Git in real hostile repositories: nothing that their settings name runs for a command that only reads."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.action import RunScript
from policy.classify import classify
from policy.profile_file import parse_profile
from policy.tier import Tier
from runner.drivers import drivers
from runner.facts import child_environment, gather
from tests.test_commands import BOOK

PROFILE = parse_profile(
    (Path(__file__).resolve().parent.parent / "profiles" / "default.toml").read_text(), "profiles/default.toml"
)
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}
_PLAIN |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Repository:
    """A throw-away repository with a program, `evil`, that leaves a mark when it runs."""

    def __init__(self, top: Path) -> None:
        self.top, self.path, self.home = top, top / "project", top / "home"
        self.mark = top / "ran"
        self.home.mkdir()
        self.evil = top / "evil"
        self.evil.write_text(f'#!/bin/sh\necho "$@" >> {self.mark}\ncat "$@" 2>/dev/null\nexit 0\n')
        self.evil.chmod(0o755)
        self.make(self.path)

    def run(self, *words: str, at: Path | None = None, check: bool = True) -> str:
        env = _PLAIN | {"HOME": str(self.home), "GIT_ALLOW_PROTOCOL": "file:ssh"}
        done = subprocess.run(["git", *words], cwd=at or self.path, env=env, capture_output=True, check=False)
        assert not check or done.returncode == 0, (words, done.stderr)
        return done.stdout.decode("utf-8", "replace")

    def make(self, path: Path) -> Path:
        """A repository with two commits and a change of the same length as what it replaces."""
        path.mkdir(parents=True, exist_ok=True)
        self.run("init", "-q", "-b", "main", at=path)
        (path / "a").write_text("one\n")
        (path / ".gitattributes").write_text("a diff=ev filter=ev merge=ev\n")
        self.run("add", ".", at=path)
        self.run("commit", "-q", "-m", "first", at=path)
        (path / "a").write_text("two\n")
        self.run("commit", "-q", "-a", "-m", "second", at=path)
        (path / "a").write_text("six\n")
        return path

    def set(self, key: str, value: str | None = None, at: Path | None = None) -> None:
        self.run("config", key, value or str(self.evil), at=at)

    def append(self, text: str, path: str = ".git/config") -> None:
        with (self.path / path).open("a") as file:
            file.write(text.replace("EVIL", str(self.evil)))

    def submodule(self, name: str = "sub", *, at: Path | None = None) -> Path:
        """An inner repository that the index records, and whose own folder holds its settings."""
        outer = at or self.path
        inner = self.make(outer / name)
        self.run("-c", "advice.addEmbeddedRepo=false", "add", name, at=outer)
        self.run("commit", "-q", "-m", name, "--", name, at=outer)
        return inner

    def ran(self) -> bool:
        found = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return found

    def looks(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """The command with the environment that a permit to read gives it, outside of any sandbox."""
        environ = {"HOME": str(self.home), "PATH": _PLAIN["PATH"]}
        facts = gather(str(self.path), environ, PROFILE)
        assert facts.beyond == ""
        env = dict(child_environment(facts, environ, PROFILE)) | dict(facts.reading)
        return subprocess.run(["git", *words], cwd=self.path, env=env, capture_output=True, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path.resolve())


def in_a_file(repository: Repository) -> None:
    repository.append("[include]\n\tpath = more\n")
    (repository.path / ".git/more").write_text(f'[filter "ev"]\nclean = {repository.evil}\n')


def in_a_quoted_file(repository: Repository) -> None:
    repository.append('[includeIf "onbranch:main"] path = "../mo\\\nre x" ; why not\n')
    (repository.path / "more x").write_text(f'[filter "ev"] clean = {repository.evil}\n')


def in_the_home(repository: Repository) -> None:
    repository.append("[include]\n\tPATH = ~/x/more\n")
    (repository.home / "x").mkdir()
    (repository.home / "x/more").write_text("[include]\npath=again\n[core]\n")
    (repository.home / "x/again").write_text(f'[filter "ev"] clean = {repository.evil}\n')


def for_one_worktree(repository: Repository) -> None:
    repository.set("extensions.worktreeConfig", "true")
    repository.append('[filter "ev"]\nclean = EVIL\n', ".git/config.worktree")


def linked_worktree(repository: Repository) -> None:
    repository.set("filter.ev.clean")
    repository.run("worktree", "add", "-q", "-f", str(repository.top / "tree"), "main~0", "--detach")
    repository.path = repository.top / "tree"
    (repository.path / "a").write_text("ten\n")


def in_a_submodule(repository: Repository) -> None:
    repository.set("filter.ev.clean", at=repository.submodule())


def in_an_absorbed_submodule(repository: Repository) -> None:
    inner = repository.submodule()
    repository.append('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n', ".gitmodules")
    repository.run("submodule", "absorbgitdirs")
    assert (inner / ".git").is_file()
    repository.set("filter.ev.clean", at=inner)


def in_a_submodule_of_a_submodule(repository: Repository) -> None:
    middle = repository.submodule()
    repository.set("filter.ev.clean", at=repository.submodule("far", at=middle))


def in_a_submodule_of_a_split_index(repository: Repository) -> None:
    in_a_submodule(repository)
    repository.run("update-index", "--split-index")


def shown_in_full(repository: Repository) -> None:
    repository.set("diff.submodule", "diff")
    repository.set("diff.ev.textconv", at=repository.submodule())


def fetched(*settings: tuple[str, str]) -> Callable[[Repository], None]:
    """A partial clone that lacks what the command needs."""

    def plant(repository: Repository) -> None:
        blob = repository.run("rev-parse", "HEAD~1:a").strip()
        (repository.path / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
        repository.set("core.repositoryFormatVersion", "1")
        repository.set("extensions.partialClone", "origin")
        repository.set("remote.origin.promisor", "true")
        for key, value in settings:
            repository.set(key, value)

    return plant


def merged(repository: Repository) -> None:
    repository.run("stash", "-q")
    repository.run("checkout", "-q", "-b", "side", "HEAD~1")
    (repository.path / "a").write_text("ten\n")
    repository.run("commit", "-q", "-a", "-m", "side")
    repository.run("merge", "-q", "-X", "ours", "main")
    repository.set("merge.ev.driver")


def sets(key: str, value: str = "") -> Callable[[Repository], None]:
    return lambda repository: repository.set(key, value)


def appends(text: str, attributes: str = "") -> Callable[[Repository], None]:
    def plant(repository: Repository) -> None:
        repository.append(text)
        if attributes:
            (repository.path / ".gitattributes").write_text(attributes)

    return plant


def hook(repository: Repository) -> None:
    (repository.top / "hooks").mkdir()
    (repository.top / "hooks/post-index-change").symlink_to(repository.evil)
    repository.set("core.hooksPath", str(repository.top / "hooks"))
    os.utime(repository.path / ".gitattributes", (1, 1))  # something that `status` refreshes


# What is planted, the command that runs it with an ordinary environment, why.
PLANTED: list[tuple[Callable[[Repository], None], str, str]] = [
    (sets("core.fsmonitor"), "status", "a monitor of the file system"),
    (hook, "status", "a hook"),
    (sets("diff.external"), "diff", "an external diff"),
    (sets("diff.ev.command"), "diff", "a diff driver"),
    (sets("diff.ev.textconv"), "diff", "a converter, for diff"),
    (sets("diff.ev.textconv"), "log -p", "for log"),
    (sets("diff.ev.textconv"), "show HEAD", "for show"),
    (sets("diff.ev.textconv"), "blame a", "for blame"),
    (sets("filter.ev.clean"), "status", "a filter, for status"),
    (sets("filter.ev.clean"), "diff", "for diff"),
    (sets("filter.ev.clean"), "describe --always --dirty", "for describe"),
    (sets("filter.ev.process"), "diff", "a filter that stays"),
    (sets("filter.ev.smudge"), "archive HEAD", "a filter on the way out"),
    (merged, "log -1 --remerge-diff", "a merge driver"),
    (appends('[FILTER "ev"] clean = EVIL\n'), "status", "a section in capitals, its key beside it"),
    (appends('[core][filter "ev"]clean=EVIL\n'), "status", "two sections on a line"),
    (appends("[filter.EV]\nclean = EVIL\n"), "status", "the older way to write it"),
    (appends('[filter "e\\"v\\\\"]\nclean = EVIL\n', 'a filter=e"v\\\n'), "status", "quotes within the name"),
    (appends('[filter "a] b"]\nclean = EVIL\n[filter "ev"]\nclean=EVIL\n'), "status", "a bracket within a name"),
    (appends('\t[filter "ev"]\r\n\tclean = EVIL\r\n'), "status", "another kind of line end"),
    (in_a_file, "status", "an included file"),
    (in_a_quoted_file, "status", "included on a condition, over two lines"),
    (in_the_home, "status", "included twice over, from the home"),
    (for_one_worktree, "status", "the settings of one worktree"),
    (linked_worktree, "status", "a linked worktree"),
    (in_a_submodule, "status", "an inner repository"),
    (in_a_submodule, "diff", "an inner repository, for diff"),
    (in_an_absorbed_submodule, "status", "an inner repository with its settings in the outer one"),
    (in_a_submodule_of_a_submodule, "status", "two levels down"),
    (in_a_submodule_of_a_split_index, "status", "an index in two files"),
    (shown_in_full, "diff", "an inner repository that is compared line by line"),
    (
        fetched(("remote.origin.url", "file:///nowhere"), ("remote.origin.uploadpack", "")),
        "log -p",
        "a partial clone whose remote is a program",
    ),
    (
        fetched(("remote.origin.url", "ssh://127.0.0.1/x"), ("core.sshCommand", "")),
        "log -p",
        "a partial clone by a secure shell of its own",
    ),
]


@pytest.mark.threat("T30")
@pytest.mark.parametrize(("plant", "command", "why"), PLANTED, ids=[f"{row[2]}: {row[1]}" for row in PLANTED])
def test_what_a_repository_names_does_not_run_for_a_reader(
    repository: Repository, plant: Callable[[Repository], None], command: str, why: str
) -> None:
    plant(repository)
    repository.ran()
    looked = repository.looks(*command.split())
    assert not repository.ran(), (why, looked.stderr)
    # The judge of this test: with an ordinary environment the same command does run it.
    repository.run(*command.split(), check=False)
    assert repository.ran(), why


NAMING = (
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy", "core.askPass",
    "core.alternateRefsCommand", "diff.external", "diff.ev.command", "diff.ev.textconv", "filter.ev.clean",
    "filter.ev.smudge", "filter.ev.process", "merge.ev.driver", "merge.default", "gpg.program", "gpg.ssh.program",
    "gpg.ssh.defaultKeyCommand", "credential.helper", "sequence.editor", "interactive.diffFilter", "trailer.ev.cmd",
    "trailer.ev.command", "pager.log", "pager.diff", "pager.show", "pager.status", "pager.branch", "pager.blame",
    "pager.grep", "pager.stash", "browser.ev.cmd", "man.ev.cmd", "diff.tool", "difftool.ev.cmd", "mergetool.ev.cmd",
    "alias.status", "alias.log", "alias.diff", "uploadpack.packObjectsHook", "hook.ev.command", "tar.tar.command",
    "web.browser",
)  # fmt: skip
READERS = (
    "status", "status --short --branch", "diff", "diff --stat", "diff HEAD~1", "diff --cached", "diff-files -p",
    "diff-index -p HEAD", "log -p", "log --stat", "log --graph --oneline --all", "show", "show HEAD:a", "show --stat",
    "blame a", "annotate a", "grep six", "grep -n two HEAD", "grep --recurse-submodules six", "submodule status",
    "submodule status --recursive", "stash list", "stash list -p", "stash show -p", "describe --always --dirty",
    "describe --all --broken", "ls-files -m", "ls-files -s --recurse-submodules", "ls-tree -r HEAD",
    "cat-file -p HEAD:a", "branch -avv", "tag -l", "remote -v", "reflog", "shortlog -s HEAD", "rev-list --all", "fsck",
    "range-diff HEAD~1..HEAD HEAD~1..HEAD", "whatchanged -p", "worktree list", "config --list", "for-each-ref",
    "count-objects -v", "check-attr -a a", "show-branch", "notes list", "bisect log",
)  # fmt: skip


@pytest.mark.threat("T30")
def test_no_reading_command_runs_anything_of_a_repository_that_names_programs_everywhere(
    repository: Repository,
) -> None:
    repository.run("stash", "-q")
    repository.run("stash", "apply", "-q")
    inner = repository.submodule()
    repository.append('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n', ".gitmodules")
    for at in (repository.path, inner):
        for key in NAMING:
            repository.set(key, at=at)
        repository.set("log.showSignature", "true", at=at)
        repository.set("diff.submodule", "diff", at=at)
        repository.set("status.submoduleSummary", "true", at=at)
        repository.set("diff.ev.cachetextconv", "true", at=at)
    repository.ran()
    for command in READERS:
        done = repository.looks(*command.split())
        assert not repository.ran(), (command, done.stderr)
        assert done.returncode == 0 or command in ("bisect log", "notes list"), (command, done.stderr)
    assert not (repository.path / ".git/refs/notes").exists(), "no cache of converted text"


def test_a_reader_sees_the_plain_difference(repository: Repository) -> None:
    for key in ("diff.ev.textconv", "filter.ev.clean"):
        repository.set(key)
    assert b"-two\n+six\n" in repository.looks("diff").stdout
    repository.set("diff.ev.command")
    assert b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-two\n+six\n" in repository.looks("diff").stdout
    (repository.path / "a").write_bytes(b"\0" * 10)
    repository.run("config", "--unset", "diff.ev.command")
    assert b"\0" not in repository.looks("diff").stdout, "a file that is no text stays off the terminal"


def test_filters_stay_for_commands_that_change_something(repository: Repository) -> None:
    """Without its clean filter Git would commit in the clear what that encrypts."""
    repository.set("filter.ev.clean")
    environ = {"HOME": str(repository.home), "PATH": _PLAIN["PATH"]}
    facts = gather(str(repository.path), environ, PROFILE)
    env = dict(child_environment(facts, environ, PROFILE))
    subprocess.run(["git", "add", "a"], cwd=repository.path, env=env, check=True)
    assert repository.ran()


def test_settings_of_a_submodule_that_is_the_workspace_are_understood(repository: Repository) -> None:
    in_an_absorbed_submodule(repository)
    found = drivers(str(repository.path / "sub"), str(repository.home))
    assert found.beyond == ""
    assert ("filter.ev.clean", "") in found.settings


def far_away(repository: Repository) -> None:
    repository.set("core.worktree", "../../home")


def many(repository: Repository) -> None:
    repository.append("".join(f'[filter "f{number}"]\nclean = EVIL\n' for number in range(100)))


def newer_index(repository: Repository) -> None:
    in_a_submodule(repository)
    repository.run("update-index", "--index-version", "4")


def pipe(repository: Repository) -> None:
    repository.append("[include]\npath = pipe\n")
    os.mkfifo(repository.path / ".git/pipe")


def no_text(repository: Repository) -> None:
    with (repository.path / ".git/config").open("ab") as file:
        file.write(b'[filter "\xff\xfe"]\nclean = x\n')


def very_long(repository: Repository) -> None:
    repository.append("# x\n" * 300_000)


BEYOND = [
    (far_away, "working files elsewhere, with an index and attributes of their own"),
    (many, "more names than fit into an environment"),
    (newer_index, "an index whose names are compressed, with inner repositories"),
    (pipe, "an included file that is none"),
    (no_text, "a name in no encoding"),
    (very_long, "settings that nobody wrote"),
]


@pytest.mark.parametrize(("plant", "why"), BEYOND, ids=[row[1] for row in BEYOND])
def test_where_settings_cannot_be_outranked_git_is_a_question(
    repository: Repository, plant: Callable[[Repository], None], why: str
) -> None:
    plant(repository)
    facts = gather(str(repository.path), {"HOME": str(repository.home)}, PROFILE)
    assert facts.beyond, why
    action = RunScript("git status", str(repository.path))
    assert classify(action, facts, BOOK, PROFILE).tiers[0] is Tier.EXECUTE, why


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ('[diff "x"]\n', ["diff.x"]),
        ('[ filter "x"]\n', []),
        ('[filter "x\n"]\n', []),
        ('; [filter "x"]\n', ["filter.x"]),
        ('[filter "x"', []),
        ('[hook "build"]\ncommand = x\n', ["hook.build"]),
        ('[merge "a b.c"]\n', ["merge.a b.c"]),
        ("[diff.A.b]\n", ["diff.a.b"]),
        ('[remote "origin"]\nurl = x\n', []),
    ],
)
def test_names_in_a_file(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(text)
    found = drivers(str(tmp_path), "/nonexistent").settings
    assert sorted({key.rpartition(".")[0] for key, _ in found}) == names


def test_law_any_bytes_are_answered(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for data in (b"\0", b"\xff" * 999, b"[" * 999, b'[filter "' * 999, b"\\" * 999, b"[include]\npath=\0x\n"):
        (tmp_path / ".git/config").write_bytes(data)
        (tmp_path / ".git/index").write_bytes(b"DIRC\0\0\0\2" + data + b"\0\0\xe0\0" + data)
        drivers(str(tmp_path), "/nonexistent")
