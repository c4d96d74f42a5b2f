"""Tests of real Git in hostile repositories: a command that only reads never runs a program named by their settings."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.tier import Tier
from policy.toml.profile import parse_profile
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from runner.facts.git.drivers import drivers
from tests.support.git_template import ENVIRON, Template
from tests.support.places import ROOT
from tests.support.rule_examples import BOOK

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}
_PLAIN |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Repository:
    """A throw-away repository with a program, `evil`, that leaves a mark when it runs."""

    def __init__(self, top: Path, template: Template) -> None:
        self._template = template
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
        """Copy the repository of the template to a folder."""
        return self._template.copy(path)

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


def two_commits(path: Path) -> None:
    """Make a repository with two commits and a change of the same length as what it replaces."""

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=path, env=ENVIRON, check=True)

    git("init", "-q")
    (path / ".git/info").mkdir()
    (path / "a").write_text("one\n")
    (path / ".gitattributes").write_text("a diff=ev filter=ev merge=ev\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (path / "a").write_text("two\n")
    git("commit", "-q", "-a", "-m", "second")
    (path / "a").write_text("six\n")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"), two_commits)


@pytest.fixture
def repository(template: Template, tmp_path: Path) -> Repository:
    return Repository(tmp_path.resolve(), template)


def in_a_file(repository: Repository) -> None:
    repository.append("[include]\n\tpath = more\n")
    (repository.path / ".git/more").write_text(f'[filter "ev"]\nclean = {repository.evil}\n')


def in_a_quoted_file(repository: Repository) -> None:
    repository.append('[includeIf "onbranch:main"] path = "../mo\\\nre x" ; why not\n')
    (repository.path / "more x").write_text(f'[filter "ev"] clean = {repository.evil}\n')


def in_a_file_whose_name_ends_in(blank: str) -> Callable[[Repository], None]:
    def plant(repository: Repository) -> None:
        repository.append(f'[include]\n\tpath = "more{blank}"\n')
        (repository.path / f".git/more{blank}").write_text(f'[filter "ev"]\nclean = {repository.evil}\n')

    return plant


def in_a_folder_whose_name_ends_in_a_blank(repository: Repository) -> None:
    repository.set("filter.ev.clean")
    (repository.path / ".git").rename(repository.path / "evil ")
    (repository.path / ".git").write_text("gitdir: evil \n")


def as_the_inside_of_a_repository(head: str = "") -> Callable[[Repository], None]:
    """The workspace is the inside of its own repository; `head` is what a link in the place of `HEAD` leads to."""

    def plant(repository: Repository) -> None:
        repository.set("filter.ev.clean")
        repository.set("core.worktree", str(repository.path))
        for part in sorted((repository.path / ".git").iterdir()):
            part.rename(repository.path / part.name)
        (repository.path / ".git").rmdir()
        if head:
            (repository.path / "HEAD").unlink()
            (repository.path / "HEAD").symlink_to(head)

    return plant


def with_its_objects_elsewhere(repository: Repository) -> None:
    """The workspace has a `HEAD` and says where the rest is."""
    repository.set("diff.ev.textconv")
    (repository.path / ".git").rename(repository.top / "store ")
    (repository.top / "store /info/attributes").write_text("a diff=ev\n")
    shutil.rmtree(repository.path)
    repository.path.mkdir()
    (repository.top / "store /HEAD").rename(repository.path / "HEAD")
    (repository.path / "commondir").write_text("../store \n")


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


# Columns: the planted setting, the command that would run it with an ordinary environment, why.
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
    (in_a_file_whose_name_ends_in(" "), "status", "an included file whose name ends in a blank"),
    (in_a_file_whose_name_ends_in("\u00a0"), "status", "in a blank that is none for Git"),
    (in_a_file_whose_name_ends_in("\v"), "status", "in a vertical tab"),
    (in_a_folder_whose_name_ends_in_a_blank, "status", "a `.git` file with a name that ends in a blank"),
    (as_the_inside_of_a_repository(), "status", "the workspace is the inside of a repository"),
    (as_the_inside_of_a_repository("refs/heads/main"), "status", "its `HEAD` is a link"),
    (as_the_inside_of_a_repository("refs/heads/none"), "status", "its `HEAD` is a link to nothing"),
    (with_its_objects_elsewhere, "log -p", "a `HEAD`, and a `commondir` that says where `objects` are"),
    (
        appends('[diff.Ev "x"]\ntextconv = EVIL\n', "a diff=ev.x\n"),
        "diff",
        "a name that is joined of two parts of a header",
    ),
    (appends('[filter.a.b "c"]\nclean = EVIL\n', "a filter=a.b.c\n"), "status", "and of more of them"),
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
    "alias.status", "alias.log", "alias.diff", "uploadpack.packObjectsHook", "hook.ev.command", "tar.tar.command", "tar.ev.command",
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
    "count-objects -v", "check-attr -a a", "show-branch", "notes list", "bisect log", "archive HEAD", "archive --format=tar HEAD",
    "archive --format=zip HEAD",
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


def appended(text: bytes, name: str = ".git/config") -> Callable[[Repository], None]:
    def plant(repository: Repository) -> None:
        with (repository.path / name).open("ab") as file:
            file.write(text)

    return plant


def a_git_file_of_another_kind(repository: Repository) -> None:
    (repository.path / ".git").rename(repository.top / "elsewhere")
    (repository.path / ".git").write_bytes(f"gitdir: {repository.top}/elsewhere\0x\n".encode())


BEYOND = [
    (appended(b"[core]\n\tpager = a\rb\n"), "a carriage return inside a line"),
    (appended(b"[core]\n\tpager = a\0b\n"), "a NUL byte"),
    (appended(b"[core]\n\tpager = a\\"), "a backslash at the end"),
    (appended(b"[core]\n\tpager = \\x\n"), "an escape that Git does not know"),
    (appended(b'[core]\n\tpager = "a\n'), "an open quotation mark"),
    (appended(b"[.a]\nb = c\n"), "a section without a name"),
    (appended(b"[include]\npath = %(prefix)/x\n"), "an included file that only Git can find"),
    (appended(b"[include]\npath\n"), "an included file without a name"),
    (appended(b"[include]\npath = config\n"), "settings that include themselves"),
    (appended(b"a\0\n", ".git/commondir"), "a folder of settings with NUL in its name"),
    (sets("gc.recentObjectsHook"), "a program of newer versions, of which every one named is started"),
    (sets("tar.zip.command"), "a format of archives that comes before Git's own of that name"),
    (a_git_file_of_another_kind, "a `.git` file with NUL in its name"),
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


def a_bare_one(sub: Path, repository: Repository) -> None:
    repository.run("clone", "-q", "--bare", ".", str(sub))


def with_a_link_as_head(target: str) -> Callable[[Path, Repository], None]:
    def layout(sub: Path, repository: Repository) -> None:
        a_bare_one(sub, repository)
        (sub / "HEAD").unlink()
        (sub / "HEAD").symlink_to(target)

    return layout


def without_objects(sub: Path, repository: Repository) -> None:
    a_bare_one(repository.path / "store ", repository)
    sub.mkdir()
    (repository.path / "store /HEAD").rename(sub / "HEAD")
    (sub / "commondir").write_text("../store \n")


def of_a_file(sub: Path, repository: Repository) -> None:
    a_bare_one(repository.path / "evil ", repository)
    sub.mkdir()
    (sub / ".git").write_text("gitdir: ../evil \r\n")


def of_a_link(sub: Path, repository: Repository) -> None:
    a_bare_one(repository.path / "evil", repository)
    sub.mkdir()
    (sub / ".git").symlink_to("../evil")


def with_a_head_of_any_kind(text: str) -> Callable[[Path, Repository], None]:
    def layout(sub: Path, repository: Repository) -> None:
        a_bare_one(sub, repository)
        (sub / "HEAD").write_text(text)

    return layout


def with_objects_that_are_a_link(sub: Path, repository: Repository) -> None:
    a_bare_one(sub, repository)
    (sub / "objects").rename(repository.path / "o")
    (sub / "objects").symlink_to("../o")


def with_objects_that_are_a_program(sub: Path, repository: Repository) -> None:
    a_bare_one(sub, repository)
    (sub / "objects").rename(repository.path / "o")
    (sub / "objects").write_text("x")
    (sub / "objects").chmod(0o755)


INNER: list[tuple[Callable[[Path, Repository], None], str]] = [
    (a_bare_one, "a bare repository"),
    (with_a_link_as_head("refs/heads/main"), "its `HEAD` is a link"),
    (with_a_link_as_head("refs/heads/none"), "its `HEAD` is a link to nothing"),
    (with_a_head_of_any_kind("ref:\n\t refs/heads/main"), "odd blanks in `HEAD`"),
    (with_a_head_of_any_kind("a" * 64 + "!"), "the name of a commit, and more"),
    (without_objects, "`commondir` in place of `objects`"),
    (of_a_file, "a `.git` file with a name that ends in a blank"),
    (of_a_link, "`.git` is a link"),
    (with_objects_that_are_a_link, "`objects` is a link"),
    (with_objects_that_are_a_program, "`objects` is a file that may be run"),
]


@pytest.mark.threat("T30")
@pytest.mark.parametrize(("layout", "why"), INNER, ids=[row[1] for row in INNER])
def test_what_git_takes_for_an_inner_repository_is_one_for_the_policy(
    repository: Repository, layout: Callable[[Path, Repository], None], why: str
) -> None:
    sub = repository.path / "sub"
    layout(sub, repository)
    found = repository.run("rev-parse", "--absolute-git-dir", at=sub).strip()
    assert found != str(repository.path / ".git"), f"Git itself takes it for none: {why}"
    environ = {"HOME": str(repository.home), "PATH": _PLAIN["PATH"]}
    facts = gather(str(repository.path), environ, PROFILE)
    for script in ("cd sub && git diff", "git -C sub status", "cd sub && git log -p"):
        assert classify(RunScript(script, str(repository.path)), facts, BOOK, PROFILE).tiers[0] is Tier.EXECUTE, why
    if not (sub / ".git").exists():  # the second wall: Git itself refuses what only looks like a repository
        refused = repository.looks("-C", "sub", "log")
        assert refused.returncode != 0, why
        assert b"safe.bareRepository" in refused.stderr, why


def test_a_workspace_that_is_the_inside_of_a_repository_can_be_read(repository: Repository) -> None:
    a_bare_one(repository.top / "bare.git", repository)
    repository.path = repository.top / "bare.git"
    assert b"second" in repository.looks("log").stdout


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ('[diff "x"]\n', []),
        ('[diff "x"] textconv', ["diff.x"]),
        ('[ filter "x"]\n', []),
        ('[filter "x\n"]\n', []),
        ('; [filter "x"]\nclean = y\n', []),
        ('[filter "x"', []),
        ('[hook "build"]\ncommand = x\n', ["hook.build"]),
        ('[merge "a b.c"]driver=x\n', ["merge.a b.c"]),
        ("[diff.A.b]\ncommand=x\n", ["diff.a.b"]),
        ('[diff.A.b "C d"]\ncommand=x\n', ["diff.a.b.C d"]),
        ('[diff ""]\ncommand=x\n', ["diff."]),
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
