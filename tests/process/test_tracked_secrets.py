"""Tests of secret files in the history of Git: a command that prints them causes a question, and no other command
does.
"""

import copy
import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from policy.classify import classify
from policy.handlers.git_contents import _NO_PATCH, _PATCH
from policy.model.action import RunScript
from policy.model.assessment import Assessment, Reason
from policy.model.facts import Facts, GitSource, GitSourceKind
from policy.model.tier import Tier
from runner.config import shipped
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from runner.facts.git.objects import Objects, Unreadable
from runner.facts.git.tracked_secrets import tracked
from tests.support.git_template import ENVIRON, ObjectReader, Template
from tests.support.law import examples

SETTINGS = shipped()
TOKEN = "t0ken-in-the-history"


class Repository:
    """A project with a home of its own beside it. `cache` is where the program under test keeps what it read."""

    def __init__(self, top: Path) -> None:
        self.work, self.home, self.cache = top / "work", top / "home", top / "cache"
        for folder in (self.work, self.home, self.cache):
            folder.mkdir(exist_ok=True)
        self.objects = ObjectReader(self.work)

    def two_commits(self) -> None:
        self.git("init", "-q")
        self.write("src/a.py", "a = 1\n")
        self.commit()
        self.write("src/a.py", "a = 2\n")
        self.commit()

    def id(self, name: str) -> str:
        """Return the id of an object that exists."""
        found = self.objects.id(name)
        assert found is not None, name
        return found

    def with_another_cache(self, cache: Path) -> "Repository":
        """Return the same repository, of which the program under test has read nothing yet."""
        other = copy.copy(self)
        other.cache = cache
        return other

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.work, env=ENVIRON, capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace")

    def write(self, name: str, text: str) -> None:
        (self.work / name).parent.mkdir(parents=True, exist_ok=True)
        (self.work / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "-m", "c")

    def secret(self, name: str = ".env") -> None:
        self.write(name, f"KEY={TOKEN}\n")
        self.commit()
        self.write(name, f"KEY={TOKEN}\nKEY={TOKEN}-2\n")
        self.commit()

    def facts(self) -> Facts:
        environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "RINGFENCE_CACHE_DIR": str(self.cache)}
        return gather(str(self.work), environ, SETTINGS.profile)

    def assessment(self, script: str) -> Assessment:
        return classify(RunScript(script, str(self.work)), self.facts(), SETTINGS.rules, SETTINGS.profile)

    def tier(self, script: str) -> Tier:
        return self.assessment(script).tiers[0]

    def reasons(self, script: str) -> tuple[Reason, ...]:
        return self.assessment(script).reasons

    def found(self, kind: str, revision: str = "") -> tuple[str, ...] | None:
        source = GitSource(GitSourceKind(kind), revision)
        return tracked(str(self.work), SETTINGS.profile, str(self.home), lambda: self.cache)(source)


Make: TypeAlias = Callable[[Repository], object]


class Repositories:
    """Repositories by the function that makes their state out of their first two commits, each made once."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._template = Template(folders.mktemp("template"), lambda top: Repository(top).two_commits())
        self._made: dict[Make, Repository] = {}

    def new(self, top: Path) -> Repository:
        """Return a repository with two commits in a folder of its own, which a test may change."""
        return Repository(self._template.copy(top))

    def made(self, make: Make) -> Repository:
        """Return the repository of all tests that name this function. They only read it."""
        if make not in self._made:
            self._made[make] = self.new(self._folders.mktemp("made"))
            make(self._made[make])
        return self._made[make]

    def close(self) -> None:
        for each in self._made.values():
            each.objects.close()


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    result = Repositories(tmp_path_factory)
    yield result
    result.close()


@pytest.fixture
def repository(repositories: Repositories, tmp_path: Path) -> Iterator[Repository]:
    new = repositories.new(tmp_path)
    yield new
    new.objects.close()


def _clean(repository: Repository) -> None:
    """Leave the two commits as they are."""


@pytest.fixture(scope="module")
def clean(repositories: Repositories) -> Repository:
    return repositories.made(_clean)


def _masked(repository: Repository) -> None:
    """Have a secret in the last two commits, and an empty file in its place, as the sandbox shows it."""
    repository.secret()
    repository.write(".env", "")


@pytest.fixture(scope="module")
def holds(repositories: Repositories) -> Repository:
    return repositories.made(_masked)


# fmt: off
PRINTS = [  # with {id}, the id of the secret file
    "git show", "git show HEAD", "git show {id}", "git show --stat {id}", "git show HEAD -- .env", "git show HEAD -- '.e*'",
    "git show --stdin <<< {id}", "git show $(git rev-parse HEAD)", "git show HEAD~1 HEAD",
    "git log -p", "git log -p -- '.e*'", "git log -1 -u", "git log -U0", "git log --patch --all", "git log --cc", "git log -p -S KEY",
    "git log -p -- .", "git log --stat -p", "git whatchanged -p", "git reflog -p", "git stash list -p", "git stash show -p",
    "git diff HEAD~1 HEAD", "git diff HEAD~1", "git diff HEAD~1 HEAD -- '*env'", "git diff --cached", "git diff", "git diff HEAD",
    "git diff --stat -p HEAD~1", "git diff HEAD~1..HEAD", "git diff -- '*'", "git diff --check HEAD~1", "git diff -R",
    "git diff-tree -p HEAD", "git diff-tree --stdin -p <<< HEAD", "git diff-index -p HEAD~1", "git diff-files -p",
    "git range-diff HEAD~1 HEAD~1 HEAD",
    "git cat-file -p {id}", "git cat-file blob {id}", "git cat-file --batch <<< {id}", "git cat-file --batch --batch-all-objects",
    "echo {id} | git cat-file --batch", "git ls-files -s | awk '{{print $2}}' | git cat-file --batch", "git cat-file --textconv {id}",
    "git grep --cached KEY", "git grep KEY HEAD~1", "git grep KEY HEAD -- '*env'", "git grep -e KEY HEAD", "git grep KEY $(git rev-list --all)",
    "git archive HEAD", "git archive HEAD | tar -xO .env", "git archive --format=zip HEAD", "git fast-export --all",
    "git format-patch --stdout -1", "git config --blob={id} --list", "git config list --blob={id}",
    "git status -v", "git blame $(git ls-files | head -1)", "cd src && git log -p", "git -C src log -p", "for i in 1; do git log -p; done",
    "git difftool -y HEAD~1", "git merge-tree HEAD~1 HEAD~1 HEAD", "git rebase --show-current-patch", "git add -p",
    "git log --remerge-diff", "git bundle create - HEAD",
    "git show ':/c'", "git show 'HEAD^{{/c: x}}'", "git show 'HEAD@{{12:00}}'", "git log -p --full-diff -- src", "git log -p --follow -- src/a.py",
    "git --literal-pathspecs log -p -- . ':!.env'", "git --icase-pathspecs log -p -- SRC", "git log -p -- '[.]e*'", "git log -p -- ':(glob)*'",
    "git log -p -- '\\.*'", "git diff src --", "git stash show", "git log -p -- ./", "git log -p -- src/..", "git log -p -- ':(icase)x'",
    "cd src && git log -p -- . ':!.env' ..",
    "git config --get-regexp --blob={id} .", "git config --get-all --blob {id} KEY", "git mktree <<< '100644 blob {id} x'",
    "git hash-object -t tree -w --stdin < src/a.py", "git pack-objects --stdout --all", "git for-each-ref --format='%(raw)'", "git tag -l --format='%(raw)'", "git branch --format='%(raw)'",
    "git notes add -C {id}", "git notes append -c {id} HEAD",
]
NAMES_ONLY = [  # print no content of a file that is secret
    "git status", "git log", "git log --oneline -5", "git log --stat", "git log --name-only", "git log --numstat --all", "git log -p -- src",
    "git log -p -- src/a.py", "git log -p src/a.py", "git show --stat", "git show --name-only HEAD", "git show HEAD:src/a.py", "git show -s HEAD",
    "git show main --stat", "git show HEAD -- src", "git diff --stat HEAD~1", "git diff --name-only", "git diff --quiet", "git diff HEAD~1 -- src",
    "git diff src/a.py", "git diff -- src/a.py", "git diff HEAD~1 HEAD -- '*.py'", "git diff --cached --name-status",
    "git diff HEAD~1 -- . ':!.env'", "git log -p -- . ':(exclude).env'", "git diff --no-index src/a.py src/a.py",
    "git ls-files", "git ls-files -s", "git ls-tree -r HEAD", "git cat-file -t {id}", "git cat-file -s {id}", "git cat-file -e {id}",
    "git cat-file --batch-check <<< {id}", "git cat-file -p HEAD", "git cat-file commit HEAD", "git cat-file -p HEAD:src/a.py",
    "git grep a", "git grep -n a -- src", "git grep -e a", "git blame src/a.py", "git shortlog -sn", "git rev-list --objects --all", "git rev-parse HEAD",
    "git reflog", "git stash list", "git diff-tree -r HEAD", "git fast-export --all --no-data", "git config --list", "git log -L1,1:src/a.py", "git log -p -- 'src/*'", "git log --stat -m", "git branch -v",
    "git show --stat main src/a.py", "git cat-file -p main", "git cat-file commit main", "git for-each-ref --format='%(refname) %(contents:subject)'", "git tag -n",
    "git config --get user.name", "git config --get-regexp '^user' x", "git hash-object src/a.py", "git notes list", "git describe --abbrev=4 --always",
    "cd src && git diff HEAD~1 -- .", "git -C src log -p -- .", "git log -p -- ../work/src",
]
REFUSED = [
    "git show HEAD:.env", "git config --blob=HEAD:.env --list", "git config get --blob HEAD:.env a.b", "git blame .env", "git log -L1,2:.env",
    "git cat-file -p HEAD:.env", "git diff --no-index .env src/a.py", "git show :.env",
    # a flag that takes no further word, so the next one is a file or another flag
    "git blame --abbrev .env HEAD", "git annotate --abbrev .env HEAD", "git config --get --blob=HEAD:.env KEY", "git config --get-all --file=.env x",
]
# fmt: on


def said(script: str, repository: Repository) -> str:
    return script.format(id=repository.objects.id("HEAD:.env") or repository.id("HEAD:src/a.py"))


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", PRINTS)
def test_what_prints_a_secret_that_git_keeps_is_a_question(script: str, holds: Repository) -> None:
    assert holds.tier(said(script, holds)) >= Tier.READ_OUTSIDE


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", REFUSED)
def test_a_secret_that_is_named_is_refused(script: str, holds: Repository) -> None:
    assert holds.tier(script) is Tier.SECRET


@pytest.mark.threat("T117")
@pytest.mark.parametrize("packed", [False, True])
def test_settings_with_a_login_count_in_the_versions_that_hold_it(repository: Repository, packed: bool) -> None:
    many = "".join(f"setting-{number}=yes\n" for number in range(200))
    repository.write("web/.npmrc", f"{many}//r.example/:_authToken={TOKEN}\n")
    repository.write("locales/auth.json", '{"login": "Sign in"}')
    repository.commit()
    repository.write("web/.npmrc", f"{many}save-exact=true\n")
    repository.commit()
    if packed:
        repository.git("gc", "-q")
    assert repository.found("tree", "HEAD~1") == repository.found("history") == ("web/.npmrc",)
    assert repository.found("tree", "HEAD") == repository.found("index") == ()
    rows = {
        "git show HEAD~1:web/.npmrc": Tier.SECRET,
        "cd web && git show HEAD~1:./.npmrc": Tier.SECRET,
        "git cat-file -p HEAD~1:web/.npmrc": Tier.SECRET,
        "git show HEAD:web/.npmrc": Tier.READ,
        "git show :web/.npmrc": Tier.READ,
        "git show HEAD~1:locales/auth.json": Tier.READ,
        "git log -p": Tier.READ_OUTSIDE,
        "git log -p -- src": Tier.READ,
        "cat web/.npmrc": Tier.READ,
    }
    assert {script: repository.tier(script) for script in rows} == rows


@pytest.mark.threat("T117")
@pytest.mark.parametrize("packed", [False, True])
def test_settings_that_are_too_large_to_be_read_count_as_a_login(repository: Repository, packed: bool) -> None:
    repository.write(".npmrc", f"//r.example/:_authToken={TOKEN}\n" + "#" * (9 << 20))
    repository.write("web/.npmrc", "")
    repository.commit()
    if packed:
        repository.git("gc", "-q")
    assert repository.found("tree", "HEAD") == repository.found("index") == (".npmrc",)
    assert repository.tier("git show HEAD:.npmrc") is Tier.SECRET
    assert repository.tier("git show HEAD:web/.npmrc") is Tier.READ


@pytest.mark.parametrize("script", NAMES_ONLY)
def test_what_prints_names_or_other_files_asks_nothing(script: str, holds: Repository) -> None:
    assert holds.tier(said(script, holds)) is Tier.READ


UNTOLD = (
    "--literal",
    "--icase",
    "difftool",
    "rebase",
    "add -p",
    "--remerge-diff",
    "bundle",
    "--textconv",
    "grep KEY $(",
    "blame $(",
    "merge-tree",
    "mktree",
    "-t tree",
    "pack-objects",
    "notes",
)  # a question, or a change, whatever is tracked


@pytest.mark.parametrize("script", [each for each in PRINTS if not any(word in each for word in UNTOLD)])
def test_where_no_secret_is_tracked_nothing_is_asked(script: str, clean: Repository) -> None:
    script = script.replace("'.e*'", "'.x*'").replace(" .env", " x")  # a name that is no secret
    assert clean.tier(said(script, clean)) is Tier.READ


# ---- the trees that are shown

# fmt: off
AT_HEAD = [  # print what differs at HEAD, its parents and the index
    "git show", "git show HEAD", "git show @", "git show -U0 --color=never", "git show -1", "git show HEAD -- .", "git -C src show", "git --no-pager show",
    "git log -p -1", "git log -1 --patch", "git log -p -n1", "git log -p -n 1 HEAD", "git log --max-count=1 -u @", "git log -1 --format=%h --cc",
    "git diff HEAD", "git diff --cached", "git diff --staged HEAD", "git diff @", "git diff HEAD -- .", "git diff --cached --word-diff",
    "git diff HEAD HEAD", "git diff HEAD..", "git diff ..HEAD", "git show HEAD HEAD:src/a.py", "for i in 1 2; do git show; done",
]
AT_NAMES = ["git show main", "git diff main", "git log -p -1 main", "git diff main HEAD", "git diff main..HEAD", "git show {head}", "git show --stat {head}",
            "git diff {head}", "git show main HEAD", "git show HEAD~0", "git diff --cached main^0", "git show v1", "git diff v1..main", "git show {short}"]
PARENTS = ["git diff HEAD~1 HEAD", "git diff HEAD^", "git diff HEAD~1", "git diff main~1..main"]
BEYOND = [  # print older commits, or may
    "git log -p", "git log -p -2", "git log -p -n2", "git log -p -n -1", "git log -p -1 -2", "git log -p -1 --skip=1", "git log -p -1 --grep=secret", "git log -p -1 -- .env",
    "git log -p -1 -- .", "git log -p -1 -S KEY", "git log -p -1 --diff-filter=M", "git log -p -1 --reverse --all", "git log -p -1 -g", "git log -p -1 --follow src/a.py",
    "git log -p -1 HEAD main~1", "git log -p -1 HEAD~4..HEAD~3", "git log -p -1 ':/secret'", "git log -p -1 --walk-reflogs",
    "git log -p -1 --no-merges", "git show -2", "git show --max-count=9", "git show -m", "git show --all", "git show -g", "git show --remerge-diff",
    "git show HEAD~3", "git show HEAD~2", "git show HEAD^^^", "git show main~3", "git show v1~3", "git show {head}~3", "git show 'HEAD@{{3}}'", "git show HEAD~4..HEAD", "git show HEAD HEAD~3",
    "git show $(git rev-parse HEAD~3)", "git show --stdin <<< HEAD~3", "git show {id}", "git show {old}", "git diff {old}", "git diff HEAD~3", "git diff HEAD~3..", "git diff HEAD~3...HEAD",
    "git diff --merge-base HEAD~3", "git diff -U HEAD~3", "git diff --unified HEAD~3", "git show -U HEAD~3", "git diff --cached HEAD~3", "git diff HEAD HEAD~3", "git diff HEAD^^^",
    "git stash show -p", "git whatchanged -p -1", "git reflog -p -1", "git diff-tree -p HEAD", "git archive HEAD",
    "git checkout -q HEAD~3; git show", "git update-ref HEAD HEAD~3; git show -1", "for i in 1 2; do git show; git checkout -q HEAD~1; done",
    "git read-tree HEAD~3; git diff --cached", "git branch x HEAD~3; git show x", "f() {{ git diff --cached; }}; git reset -q --soft HEAD~3; f",
]
# fmt: on


def _old(repository: Repository) -> None:
    """Have a secret in the past: from four commits before HEAD to three, in none of the last two."""
    repository.secret()
    repository.git("rm", "-q", ".env")
    repository.commit()
    for number in range(2):
        repository.write("src/a.py", f"a = {number}\n")
        repository.commit()
    repository.git("tag", "-a", "-m", "t", "v1")


@pytest.fixture(scope="module")
def past(repositories: Repositories) -> Repository:
    return repositories.made(_old)


def filled(script: str, repository: Repository) -> str:
    head, id, old = (repository.id(name) for name in ("HEAD", "v1~3:.env", "v1~3"))
    return script.format(head=head, short=head[:8], id=id, old=old[:8])


@pytest.mark.parametrize("script", [*AT_HEAD, *AT_NAMES, *PARENTS])
def test_an_old_secret_is_no_question_for_what_shows_other_commits(script: str, past: Repository) -> None:
    assert past.found("history") == (".env",)
    assert past.tier(filled(script, past)) is Tier.READ


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", BEYOND)
def test_what_may_show_an_old_secret_is_a_question(script: str, past: Repository) -> None:
    assert any(
        (reason.tier is Tier.READ_OUTSIDE and "stored by Git" in reason.text) or reason.tier > Tier.READ_OUTSIDE
        for reason in past.reasons(filled(script, past))
    )


def _shown(repository: Repository) -> None:
    """Have every name mean the last commit that has the secret."""
    _old(repository)
    repository.git("checkout", "-q", "-B", "main", "v1~3")
    repository.git("tag", "-f", "-m", "t", "v1", "main")
    repository.git("tag", "keep", "main")


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", [*AT_HEAD, *AT_NAMES, *PARENTS])
def test_a_secret_that_is_shown_is_a_question(script: str, repositories: Repositories, tmp_path: Path) -> None:
    repository = repositories.made(_shown).with_another_cache(tmp_path)
    head = repository.id("HEAD")
    assert repository.tier(script.format(head=head, short=head[:8])) >= Tier.READ_OUTSIDE


@functools.cache
def _at(name: str) -> Make:
    """Return the function that has HEAD name a commit before or behind an old secret."""

    def make(repository: Repository) -> None:
        _old(repository)
        repository.git("checkout", "-q", "--detach", name)

    return make


def _merge(repository: Repository) -> None:
    """Have HEAD merge two lines of which the second removed the secret, which the merge does not have."""
    repository.git("checkout", "-q", "-b", "second", "HEAD~1")
    repository.secret()
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-commit", "--no-ff", "second")
    repository.git("rm", "-q", "-f", ".env")
    repository.commit()


def _unborn(repository: Repository) -> None:
    _old(repository)
    repository.git("checkout", "-q", "--orphan", "none")


def _replaced(repository: Repository) -> None:
    _old(repository)
    repository.git("replace", "HEAD", "HEAD~3")


def _grafted(repository: Repository) -> None:
    _old(repository)
    repository.write(".git/info/grafts", f"{repository.id('HEAD')} {repository.id('HEAD~3')}\n")


def _ambiguous(repository: Repository) -> None:
    _old(repository)
    repository.git("tag", "other", "v1~3")
    repository.git("branch", "other")


def _named_as_an_id(repository: Repository) -> None:
    _old(repository)
    repository.git("branch", repository.id("HEAD")[:8], "v1~3")


def _symbolic(repository: Repository) -> None:
    _old(repository)
    repository.git("branch", "other", "v1~3")
    repository.git("symbolic-ref", "refs/heads/main", "refs/heads/other")


def _packed_references(repository: Repository) -> None:
    _old(repository)
    repository.git("gc", "-q")
    repository.git("pack-refs", "--all")


# fmt: off
WHERE = [  # how the repository is, what is asked of it, and whether a secret is shown or may be
    (_at("v1~3"), "git show", True), (_at("v1~2"), "git show", True),
    (_at("v1~2"), "git log -p -1", True), (_at("v1~2"), "git diff --cached", False),
    (_at("v1~1"), "git show", False), (_at("v1~1"), "git diff HEAD", False),
    (_at("v1~5"), "git show", False), (_merge, "git show", True), (_merge, "git log -p -1", True),
    (_merge, "git show HEAD^1", False), (_merge, "git show HEAD^2", True), (_merge, "git diff HEAD^1", False), (_merge, "git diff HEAD^2", True), (_merge, "git diff HEAD", False),
    (_unborn, "git diff --cached", False), (_unborn, "git show", False), (_unborn, "git show HEAD~1", True),
    (_replaced, "git show", True), (_grafted, "git show", True), (_ambiguous, "git show other", True), (_named_as_an_id, "git show {short}", True),
    (_symbolic, "git show main", True), (_symbolic, "git show", True), (_packed_references, "git show main", False), (_packed_references, "git show v1", False),
    (_packed_references, "git show v1~3", True), (_packed_references, "git show {short}", False), (_packed_references, "git show {short}~3", True),
]
# fmt: on


@pytest.mark.threat("T117")
@pytest.mark.parametrize(("make", "script", "asked"), WHERE)
def test_the_commit_that_is_shown_is_found(
    make: Make, script: str, asked: bool, repositories: Repositories, tmp_path: Path
) -> None:
    repository = repositories.made(make).with_another_cache(tmp_path)
    short = (repository.objects.id("HEAD") or "")[:8]  # none where HEAD names no commit yet
    assert (repository.tier(script.format(short=short)) >= Tier.READ_OUTSIDE) is asked


@pytest.mark.threat("T117")
def test_many_secrets_hide_no_other(repository: Repository) -> None:
    for number in range(300):
        repository.write(f"keys/{number}.pem", "x")
    repository.secret("zone/.env")
    assert repository.tier("git log -p -- zone") is Tier.READ_OUTSIDE
    assert repository.tier("git show -- zone") is Tier.READ_OUTSIDE


@pytest.mark.threat("T117")
def test_what_lies_in_a_secret_folder_is_selected(repository: Repository) -> None:
    repository.write("deep/a.pem/b", "x")
    repository.commit()
    assert repository.found("index") == repository.found("history") == ("deep/a.pem/",)
    for path in ("'deep/a.pem/*'", "'deep/*/b'", "'deep/*b'", "'deep?a.pem?b'", "'d*/b'", "deep", "."):
        assert repository.tier(f"git log -p -- {path}") >= Tier.READ_OUTSIDE, path
    for path in ("src", "'src/*'", "deep/a.py", "'*/a.py' ':!deep/a.pem'", ". ':!deep'"):
        assert repository.tier(f"git log -p -- {path}") is Tier.READ, path
    assert repository.tier("git log -p -- . ':!deep/a.pem/b'") is Tier.READ_OUTSIDE


# ---- what is brought back

# fmt: off
BRINGS = [  # bring an old secret into the workspace or the index, for the rest of the script to print
    "git checkout v1~3 && grep -r KEY .", "git checkout v1~3 && cat .e*", "git checkout -q --detach v1~3; make", "git checkout v1~3 -- '*env'; tail *", "git switch --detach v1~3 && grep -r KEY .",
    "git checkout v1~3; git grep KEY", "git reset v1~3 && git diff", "git reset -q v1~3 -- . && git diff", "git restore --source v1~3 --staged . && git diff", "git restore -s v1~3 ':(glob)**' && cat .e*",
    "git worktree add build/tree v1~3; cat build/tree/.e*", "git worktree add -d build/tree v1~3 && grep -r KEY build/tree", "git bisect start v1 v1~5; grep -r KEY .", "git bisect run grep -r KEY .",
    "git cherry-pick v1~4 && cat .e*", "git cherry-pick v1~4..v1~3 && cat .e*", "git revert --no-edit v1~2; grep -r KEY .", "git merge v1~3 && cat .e*", "git rebase v1~3 && cat .e*",
    "git rebase --onto v1~3 main && cat .e*", "for b in main v1~3; do git checkout -q $b; grep -r x .; done", "f() {{ grep -r KEY .; }}; git checkout -q {old}; f", "git checkout {old} && python3 x.py",
    "if git checkout -q v1~3; then head *; fi", "git checkout $(git rev-parse v1~3) && grep -r KEY .", "git checkout -b x v1~3 && grep -r KEY .", "git checkout main~2; git checkout HEAD~1; tail .en*", "while true; do git checkout -q HEAD~1; cat .e*; done",
    "for i in 1 2 3; do git checkout -q @^; cat *; done", "git branch -f x v1~3; git checkout x; cat .e*", "git update-ref refs/heads/main v1~3; git checkout main; cat .e*", "git fetch . v1~3:y && git checkout y && cat .e*",
    "git log -L1,1:src/a.py",
]
BRINGS_NONE = [
    "git checkout v1~3", "git switch --detach v1~3", "cd src && git checkout v1~3", "git checkout v1~3 && ls -a", "test -d src && git checkout v1~3", "git checkout v1~3 && echo done && git status", "git worktree add build/tree v1~3", "git reset v1~3 && git status",
    "git checkout main && make", "git checkout -b x && make", "git switch -c x && cat src/a.py", "git checkout v1 && grep -r KEY .", "git checkout {head} && make", "git worktree add build/tree && cat build/tree/src/a.py",
    "git stash && make && git stash pop && cat src/a.py", "git restore src/a.py && cat src/a.py", "git restore --staged . && git diff", "git reset && git diff", "git merge main && make", "git rebase main && make",
    "git rebase --continue && make", "git cherry-pick main && make", "git revert --no-edit HEAD && make", "git checkout -- src/a.py; cat src/a.py", "git bisect start v1 v1~5",
    "git checkout main~1 && make", "git stash && git checkout main && make && git stash pop", "for f in a b; do git checkout main; cat src/a.py; done", "git reset HEAD~1 && git diff",
    "git commit -qm x -a && git checkout main && make", "git branch -a && git checkout main && make",
]
# fmt: on


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", BRINGS)
def test_what_brings_a_secret_back_for_others_to_print_is_a_question(script: str, past: Repository) -> None:
    assert any(reason.tier is Tier.READ_OUTSIDE for reason in past.reasons(filled(script, past)))


@pytest.mark.parametrize("script", BRINGS_NONE)
def test_what_brings_no_secret_back_or_prints_nothing_asks_nothing(script: str, past: Repository) -> None:
    assert all(reason.tier is not Tier.READ_OUTSIDE for reason in past.reasons(filled(script, past)))


# fmt: off
BELOW_GIT = [  # read what Git has packed; `tail -c +3 OBJECT` behind a head of gzip is what `gzip -dc` unpacks
    "cat .git/objects/aa/bb", "(printf '\\x1f\\x8b\\x08\\0'; tail -c +3 .git/objects/aa/bb) | gzip -dc", "cd .git/objects && cat aa/*", "find .git/objects -type f -exec cat {{}} +",
    "tar c .git | base64", "grep -ra KEY .git", "cat .git/objects/pack/*.pack", "cat .git/rebase-merge/patch", "cat .git/rebase-apply/0001", "cat .git/rr-cache/a/preimage", "od -c .git/lfs/objects/aa/bb/aabb",
    "cat src/../.git/objects/aa/bb", "cat < .git/objects/aa/bb", "cp .git/objects/aa/bb x",
]
BESIDE = ["cat .git/HEAD", "cat .git/logs/HEAD", "ls .git/objects", "find .git/objects -type f", "du -sh .git", "git verify-pack -v .git/objects/pack/*.idx", "grep -r KEY .", "tar c src", "cat .gitignore"]
# fmt: on


@pytest.mark.threat("T117")
@pytest.mark.parametrize("script", BELOW_GIT)
def test_reading_what_git_has_packed_is_a_question_where_a_secret_is_in_it(
    script: str, past: Repository, clean: Repository
) -> None:
    assert any(reason.tier is Tier.READ_OUTSIDE for reason in past.reasons(filled(script, past)))
    assert all(reason.tier is not Tier.READ_OUTSIDE for reason in clean.reasons(script.replace("{{}}", "{}")))


@pytest.mark.parametrize("script", BESIDE)
def test_reading_beside_it_asks_nothing(script: str, past: Repository) -> None:
    assert past.tier(script) is Tier.READ


@pytest.mark.threat("T117")
def test_what_was_checked_out_before_and_what_was_put_aside_are_looked_at(repository: Repository) -> None:
    repository.write("id_rsa", "x")
    repository.git("add", "-f", "id_rsa")
    repository.git("stash", "-q")
    assert repository.found("stash") == ("id_rsa",)
    assert repository.tier("git stash pop && cat id_*") is Tier.READ_OUTSIDE
    assert repository.tier("git stash pop") is Tier.WRITE
    repository.git("checkout", "-q", "-b", "other")
    assert repository.tier("git checkout - && cat *") is Tier.WRITE
    repository.secret()
    repository.git("checkout", "-q", "main")
    assert repository.tier("git checkout - && cat *") is Tier.READ_OUTSIDE
    assert repository.tier("git switch - && cat *") is Tier.READ_OUTSIDE
    assert repository.tier("git switch -") is Tier.WRITE


@pytest.mark.threat("T117")
def test_a_tag_of_a_secret_is_no_commit(repository: Repository) -> None:
    repository.secret()
    repository.git("tag", "light", "HEAD:.env")
    repository.git("tag", "-a", "-m", "t", "heavy", "HEAD:.env")
    for name in ("light", "heavy"):
        for script in (
            f"git show --stat {name}",
            f"git show -s {name}",
            f"git cat-file -p {name}",
            f"git cat-file blob {name}",
        ):
            assert repository.tier(script) is Tier.READ_OUTSIDE, script


@pytest.mark.threat("T117")
def test_a_log_of_lines_follows_a_file_to_the_name_of_a_secret(repository: Repository) -> None:
    repository.write(".env", "".join(f"line{n}\n" for n in range(9)) + TOKEN)
    repository.commit()
    assert repository.tier("git log -L1,1:src/a.py") is Tier.READ
    repository.git("mv", ".env", "settings.txt")
    repository.write("settings.txt", "".join(f"line{n}\n" for n in range(9)) + "other")
    repository.commit()
    assert TOKEN in repository.git("log", "-L1,10:settings.txt"), "otherwise this proves nothing"
    assert repository.tier("git log -L1,10:settings.txt") is Tier.READ_OUTSIDE
    repository.git("config", "log.follow", "true")
    assert TOKEN in repository.git("log", "-p", "settings.txt"), "otherwise this proves nothing"
    environ = {"HOME": str(repository.home), "PATH": ENVIRON["PATH"]}
    facts = repository.facts()
    env = dict(child_environment(facts, environ, SETTINGS.profile)) | dict(facts.reading)
    done = subprocess.run(["git", "log", "-p", "settings.txt"], cwd=repository.work, env=env, capture_output=True)
    assert b"other" in done.stdout, done.stderr
    assert TOKEN.encode() not in done.stdout
    assert repository.tier("git -c log.follow=true log -p settings.txt") is Tier.UNKNOWN


# ---- what is there


@pytest.mark.threat("T117")
def test_names_are_found_wherever_git_keeps_them(repository: Repository) -> None:
    assert (repository.found("index"), repository.found("history")) == ((), ())
    repository.write("deep/er/.env", "x")
    repository.git("add", "-f", "deep/er/.env")
    assert (repository.found("index"), repository.found("history")) == (("deep/er/.env",), ())
    repository.commit()
    repository.git("rm", "-q", "deep/er/.env")
    repository.commit()
    assert (repository.found("index"), repository.found("history")) == ((), ("deep/er/.env",))
    assert repository.tier("git diff") is Tier.READ, "the index holds none any more"
    assert repository.tier("git log -p") is Tier.READ_OUTSIDE


@pytest.mark.threat("T117")
@pytest.mark.parametrize("form", ["index.version=2", "index.version=4", "core.splitIndex=true"])
def test_a_search_reads_the_index_of_what_is_assumed_unchanged(form: str, repository: Repository) -> None:
    repository.secret()
    repository.git("-c", form, "update-index", "--force-write-index")
    (repository.work / ".env").unlink()  # as the mask hides it
    assert repository.tier("git grep KEY") is Tier.READ
    assert TOKEN not in repository.git("grep", "-c", "", "--", ".")
    repository.git("-c", form, "update-index", "--assume-unchanged", ".env")
    assert TOKEN in repository.git("grep", "KEY"), "otherwise this proves nothing"
    for script in ("git grep KEY", "git grep -n KEY -- .", "git grep --recurse-submodules -e KEY"):
        assert repository.tier(script) is Tier.READ_OUTSIDE, script
    for script in ("git grep KEY -- src", "git grep --no-index KEY", "git grep KEY -- ':!.env'"):
        assert repository.tier(script) is Tier.READ, script


def _stash(repository: Repository) -> None:
    repository.write("id_rsa", "x")
    repository.git("add", "-f", "id_rsa")
    repository.git("stash", "-q")


def _amended(repository: Repository) -> None:
    repository.secret("id_rsa")
    repository.git("reset", "-q", "--hard", "HEAD~2")


def _branch(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "other")
    repository.secret("id_rsa")
    repository.git("checkout", "-q", "main")


def _tag(repository: Repository) -> None:
    repository.secret("id_rsa")
    repository.git("tag", "-a", "-m", "t", "v1")
    repository.git("reset", "-q", "--hard", "HEAD~2")
    repository.git("reflog", "expire", "--expire=now", "--all")


def _packed(repository: Repository) -> None:
    for number in range(40):  # with deltas of trees
        repository.write(f"many/f{number}", str(number))
    repository.commit()
    repository.secret("many/id_rsa")
    repository.git("rm", "-q", "many/id_rsa")
    repository.commit()
    repository.git("gc", "-q", "--aggressive", "--prune=now")
    assert not list((repository.work / ".git/objects").glob("[0-9a-f][0-9a-f]"))


def _alternate(repository: Repository) -> None:
    _packed(repository)
    repository.git("clone", "-q", "--shared", ".", "../copy")
    repository.work = repository.work.parent / "copy"


def _merged(repository: Repository) -> None:
    _branch(repository)
    repository.git("merge", "-q", "--no-ff", "-m", "m", "other")
    repository.git("branch", "-D", "-q", "other")
    repository.git("rm", "-q", "id_rsa")
    repository.commit()
    repository.git("reflog", "expire", "--expire=now", "--all")


HISTORIES = [_stash, _amended, _branch, _tag, _packed, _alternate, _merged]


@pytest.mark.threat("T117")
@pytest.mark.parametrize("make", HISTORIES, ids=[each.__name__.strip("_") for each in HISTORIES])
def test_every_history_is_read(make: Make, repository: Repository) -> None:
    assert repository.found("history") == ()
    make(repository)
    found = repository.found("history")
    assert found is not None
    assert [name.rpartition("/")[2] for name in found] == ["id_rsa"]


@pytest.mark.threat("T117")
@pytest.mark.parametrize("settings", [("index.version=4",), ("core.splitIndex=true",), ("index.version=2",)])
def test_every_form_of_the_index_is_read(settings: tuple[str, ...], repository: Repository) -> None:
    for number in range(20):
        repository.write(f"many/f{number}", str(number))
    repository.write("many/x/.env", "x")
    words = [part for each in settings for part in ("-c", each)]
    repository.git(*words, "add", "-A", "-f")
    repository.git(
        *words, "update-index", "--force-write-index", *(["--split-index"] if "split" in settings[0] else [])
    )
    assert repository.found("index") == ("many/x/.env",)


@pytest.mark.threat("T117")
def test_what_is_not_understood_is_not_known(repository: Repository) -> None:
    index = repository.work / ".git/index"
    index.write_bytes(b"DIRC\0\0\0\x05" + index.read_bytes()[8:])
    assert repository.found("index") is None
    assert repository.tier("git diff") is Tier.READ_OUTSIDE
    config = repository.work / ".git/config"
    config.write_text(config.read_text() + "[extensions]\n\tobjectFormat = sha256\n")
    assert repository.found("history") is None
    assert repository.tier("git log -p") is Tier.READ_OUTSIDE


@pytest.mark.threat("T117")
def test_damaged_objects_make_a_history_unknown_and_never_an_error(repository: Repository) -> None:
    _packed(repository)
    pack = next((repository.work / ".git/objects/pack").glob("*.pack"))
    data = pack.read_bytes()
    pack.chmod(0o600)
    found = set()
    for at in range(12, len(data) - 20, max(len(data) // 60, 1)):
        pack.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        for each in (repository.cache / "tracked").glob("*"):
            each.unlink()
        found.add(repository.found("history"))
    assert None in found


def test_a_cache_that_cannot_be_used_changes_no_answer(repository: Repository) -> None:
    repository.secret()
    (repository.cache).rmdir()
    repository.cache.write_text("no folder")
    assert repository.tier("git log -p") is Tier.READ_OUTSIDE
    assert repository.tier("git log") is Tier.READ


@pytest.mark.threat("T117")
def test_a_long_history_is_read_in_parts(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        repository.write("src/a.py", str(number))
        repository.commit()
    monkeypatch.setattr("runner.facts.git.tracked_secrets._MOST_OBJECTS", 12)
    looks = 0
    while (found := repository.found("history")) is None:
        looks += 1
        assert looks < 20
    assert looks > 2, "one look does not reach"
    assert found == ()
    repository.secret("old/.env")
    assert repository.found("history") == ("old/.env",), "only what is new is read"
    for each in (repository.cache / "tracked").glob("*"):
        each.write_bytes(b"damaged")
    monkeypatch.setattr("runner.facts.git.tracked_secrets._MOST_OBJECTS", 10_000)
    assert repository.found("history") == ("old/.env",)


@pytest.mark.threat("T117")
def test_the_flags_that_show_differences_are_those_of_git(holds: Repository) -> None:
    """Real Git is the judge: a flag of the tables with which `git log` prints content is one that is asked about."""
    git = SETTINGS.rules.find("git")
    log = git.sub("log") if git is not None else None
    assert log is not None
    for flag in sorted(log.flags):
        if flag not in _PATCH:
            assert TOKEN not in printed("log", flag, holds), flag
        if flag in _NO_PATCH:
            assert TOKEN not in printed("show", flag, holds), flag


def printed(command: str, flag: str, repository: Repository) -> str:
    done = subprocess.run(
        ["git", command, flag], cwd=repository.work, env=ENVIRON, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode("utf-8", "replace")


# fmt: off
COMMANDS = ["log", "show", "diff", "whatchanged", "reflog", "stash show", "stash list", "diff-tree", "diff-index", "diff-files", "range-diff",
            "grep KEY", "grep -e KEY", "cat-file -p", "cat-file blob", "cat-file --batch", "archive", "fast-export", "rev-list", "shortlog",
            "status", "blame", "format-patch --stdout", "merge-base", "ls-tree", "ls-files", "for-each-ref", "describe"]
FLAGS = ["-p", "-s", "--stat", "--name-only", "-m", "-c", "--cc", "--cached", "--all", "-U1", "--full-diff", "--raw", "--numstat", "-1", "-R", "-z",
         "--follow", "--oneline", "-W", "--word-diff", "--no-patch", "-q", "--summary", "-v", "--root", "-t", "-r", "--check", "--no-data", "-g",
         "--patch-with-stat", "--objects", "--binary", "--exit-code", "-S KEY", "-G KEY", "--color-words", "-C", "-M", "--diff-filter=M", "-B"]
REVISIONS = ["HEAD", "HEAD~1", "main", "HEAD~1..HEAD", "{id}", "HEAD:src/a.py", "HEAD^{{tree}}", ":/c", "@", "HEAD~1 HEAD", "{id}^{{}}", "stash@{{0}}",
             "HEAD:", "HEAD:src", "src", "src/a.py", "."]
PATHS = ["", "--", "-- src", "-- .", "-- '*'", "-- ':!.env'", "-- . ':(exclude).env'", "-- '.e*'", "-- src/a.py", "-- '?env'", "-- '*/a.py'"]
# fmt: on


@pytest.mark.threat("T117")
@examples(60, many=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(COMMANDS),
    flags=st.lists(st.sampled_from(FLAGS), max_size=3),
    revisions=st.lists(st.sampled_from(REVISIONS), max_size=2),
    paths=st.sampled_from(PATHS),
    fed=st.sampled_from(["", "<<< {id}", "<<< HEAD"]),
)
def test_law_what_git_prints_of_a_secret_was_asked_about(
    command: str, flags: list[str], revisions: list[str], paths: str, fed: str, holds: Repository
) -> None:
    """LAW: a line with which real Git prints the content of a secret file is no read."""
    prints_no_secret_as_a_read(said(" ".join(["git", command, *flags, *revisions, paths, fed]), holds), holds)


def prints_no_secret_as_a_read(script: str, repository: Repository) -> None:
    if repository.tier(script) is not Tier.READ:
        return
    environ = {**ENVIRON, "GIT_PAGER": "cat", "HOME": str(repository.home)}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=repository.work,
        env=environ,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert TOKEN.encode() not in done.stdout, script


@pytest.fixture(scope="module")
def shapes(repositories: Repositories) -> list[Repository]:
    """Repositories with a secret at HEAD, before HEAD, long before HEAD, in one line of a merge, and at no branch."""
    makes = (_old, _merge, _unborn, _packed_references, *map(_at, ("v1~2", "v1~3", "v1~1")))
    return [repositories.made(make) for make in makes]


# fmt: off
COMPARED = ["HEAD", "@", "main", "v1", "HEAD~1", "HEAD^", "HEAD^2", "HEAD~2", "v1~3", "main~3", "second", "{a}", "{b}", "{c}", "{b}^", "HEAD~1..HEAD", "..main", "v1~3..",
            "main..v1", "HEAD...v1", "^main", "HEAD^!", "HEAD^@", "HEAD:src", "src", "HEAD~0", "@~1", "v1^0", "heads/main", "refs/tags/v1", "tags/v1~3", "HEAD^{{commit}}", "-U", "-1", "-n1",
            "-n", "1", "--max-count", "-01", "-1"]
# fmt: on


@functools.cache
def commits(repository: Repository) -> dict[str, str]:
    """Return the beginnings of the ids of three commits of a repository that only is read."""
    ids = [line[:8] for line in repository.git("log", "--all", "--format=%H").split()]
    return {"a": ids[0], "b": ids[len(ids) // 2], "c": ids[-3]}


@pytest.mark.thorough
@pytest.mark.threat("T117")
@examples(75, many=1200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, 6),
    command=st.sampled_from(["log -p -1", "log -p", "show", "diff", "diff --cached", "log -u -n 1", "show --staged"]),
    words=st.lists(st.one_of(st.sampled_from(COMPARED), st.sampled_from(FLAGS)), max_size=3),
    paths=st.sampled_from(["", "", "--", "-- src", "-- .", "-- ':!.env'"]),
)
def test_law_what_git_shows_of_a_commit_was_asked_about(
    which: int, command: str, words: list[str], paths: str, shapes: list[Repository]
) -> None:
    """LAW: the same for revisions, wherever in the history the secret is."""
    repository = shapes[which]
    script = " ".join(["git", command, *words, paths]).format_map(commits(repository))
    prints_no_secret_as_a_read(script, repository)


def test_a_damaged_pack_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/pack-1.pack").write_bytes(b"PACK")
    (tmp_path / "pack/pack-1.idx").write_bytes(b"damaged")
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(Unreadable), Objects(str(tmp_path)):
        pass
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.threat("T02")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("reference", "script"),
    [
        ("refs/tags/--output=x", "git log $(git describe --tags --abbrev=0)..HEAD"),
        ("refs/heads/-b", "git log $(git branch --show-current)"),
        ("refs/heads/-b", 'git log "$(git rev-parse --abbrev-ref HEAD)"'),
    ],
)
def test_the_name_of_a_reference_may_become_a_flag_only_if_one_begins_with_a_dash(
    reference: str, script: str, packed: bool, repository: Repository
) -> None:
    repository.git("tag", "v1")
    assert repository.tier(script) is Tier.READ
    repository.git("update-ref", reference, "HEAD")
    if packed:
        repository.git("pack-refs", "--all")
    assert repository.tier(script) is Tier.EXECUTE
