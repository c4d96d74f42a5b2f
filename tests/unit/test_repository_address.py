"""Addresses of repositories, and the words of the Git tools: what reaches Git, and what never does."""

from pathlib import Path

import pytest

from policy.model.action import RunArgv
from policy.model.tier import Tier
from policy.model.verdict import Problem
from runner.frontends.research.address import RepositoryAddress, repository_address
from runner.problems import Exit, Stopped
from tests.support.permission_machine import assess, machine
from tools.arguments import parse
from tools.git import GIT_TOOLS
from tools.paths import SeenFiles

# fmt: off
GOOD: list[tuple[str, str, str, str]] = [
    ("https://github.com/acme/web",          "https://github.com/acme/web",      "github.com",      "web"),
    ("https://github.com/acme/web.git",      "https://github.com/acme/web.git",  "github.com",      "web"),
    ("https://GitHub.com:8443/acme/web/",    "https://GitHub.com:8443/acme/web/", "github.com:8443", "web"),
    ("https://git.sr.ht/~user/a.b",          "https://git.sr.ht/~user/a.b",      "git.sr.ht",       "a-b"),
    ("github.com/acme/web",                  "https://github.com/acme/web",      "github.com",      "web"),
    ("http://127.0.0.1:8080/a.git",          "http://127.0.0.1:8080/a.git",      "127.0.0.1:8080",  "a"),
]
BAD: list[tuple[str, str]] = [
    ("--upload-pack=touch made",                   "an option"),
    ("-u",                                         "a short option"),
    ("ext::sh -c 'touch made'",                    "a program as transport"),
    ("https::ext::sh",                             "a helper for a helper"),
    ("fd::7",                                      "a descriptor"),
    ("",                                           "nothing"),
    ("https://user:password@example.org/a",        "a password"),
    ("https://github.com@evil.example/a",          "a user name that looks like a host"),
    ("https://exa\u202emple.org/a",                "a character that turns the text around"),
    ("https://ex\u0430mple.org/a",                 "a letter of another alphabet"),
    ("https://example.org/a b",                    "a blank"),
    ("https://example.org/a'; touch made; '",      "quotes"),
    ("https://example.org/a$(id)",                 "a substitution"),
    ("https://example.org/a\nb",                   "a line break"),
    ("https://example.org/../a",                   "a path upwards"),
    ("https://example.org/a?b=c",                  "a query"),
    ("https://example.org/a#b",                    "a fragment"),
    ("https://example.org/%2e%2e/a",               "an escape"),
    ("https://-example.org/a",                     "a host like an option"),
    ("https:///a",                                 "no host"),
    ("http://example.org/a",                       "no encryption"),
    ("http://localhost.evil.example/a",            "a name that only begins like this machine"),
    ("ssh://git@github.com/a/b",                   "a scheme that needs a key"),
    ("git@github.com:a/b",                         "the same, short"),
    ("git://github.com/a/b",                       "a scheme without a proxy"),
    ("ftp://example.org/a",                        "another scheme"),
    ("/no/such/folder",                            "no folder"),
    ("file:///no/such/folder",                     "no folder by address"),
    ("file://host/etc",                            "a host"),
    ("/etc",                                       "a folder without a repository"),
]
# fmt: on


@pytest.mark.parametrize(("text", "url", "host", "name"), GOOD)
def test_an_address_is_taken(text: str, url: str, host: str, name: str) -> None:
    found = repository_address(text, "/")
    assert found == RepositoryAddress(url, host, local=host.startswith("127."))
    assert found.name == name


@pytest.mark.threat("T255")
@pytest.mark.parametrize(("text", "why"), BAD, ids=[row[1] for row in BAD])
def test_an_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(Stopped) as raised:
        repository_address(text, "/")
    assert raised.value.exit_code == Exit.USAGE, why


def test_a_folder_is_an_address(tmp_path: Path) -> None:
    (tmp_path / "one/.git").mkdir(parents=True)
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "with blank/.git").mkdir(parents=True)
    for text in ("one", "./one", "link", str(tmp_path / "one"), f"file://{tmp_path}/one"):
        found = repository_address(text, str(tmp_path))
        assert found == RepositoryAddress(f"file://{tmp_path}/one", "", f"{tmp_path}/one")
    with pytest.raises(Stopped):
        repository_address("with blank", str(tmp_path))


# fmt: off
WORDS: list[tuple[str, dict[str, object], list[str] | None, str]] = [
    ("git_log", {}, ["log", "--no-color", "--date=short", "--format=%h %ad %an: %s", "--max-count=30", "HEAD", "--"], "the defaults"),
    ("git_log", {"revision": "v1..v2~3", "path": "src/a b.py", "count": 1, "stat": True},
     ["log", "--no-color", "--date=short", "--format=%h %ad %an: %s", "--max-count=1", "--stat", "v1..v2~3", "--", "src/a b.py"], "a range and a path"),
    ("git_log", {"message": "--all", "added": "-p"},
     ["log", "--no-color", "--date=short", "--format=%h %ad %an: %s", "--max-count=30", "--grep=--all", "--fixed-strings", "-S-p", "HEAD", "--"], "texts stay values"),
    ("git_log", {"revision": "--output=/tmp/x"},            None, "a flag in place of a revision"),
    ("git_log", {"revision": "-1"},                         None, "a short flag"),
    ("git_log", {"revision": ":/secret"},                   None, "a search"),
    ("git_log", {"revision": "HEAD^{/secret}"},             None, "a search below a commit"),
    ("git_log", {"revision": "main@{1 year ago}"},          None, "a time"),
    ("git_log", {"revision": "HEAD --all"},                 None, "two words"),
    ("git_log", {"revision": ""},                           None, "nothing"),
    ("git_log", {"path": ":(top)a"},                        None, "magic of a pathspec"),
    ("git_log", {"path": "-x"},                             None, "a path like a flag"),
    ("git_log", {"path": "/etc/passwd"},                    None, "an absolute path"),
    ("git_log", {"path": "../x"},                           None, "a path upwards"),
    ("git_log", {"path": "*.env"},                          None, "a wildcard"),
    ("git_log", {"path": "a\nb"},                           None, "a line break"),
    ("git_show", {"revision": "HEAD~2^1", "stat": True},    ["show", "--no-color", "--no-ext-diff", "--no-textconv", "--stat", "HEAD~2^1", "--"], "a commit"),
    ("git_show", {"revision": "v1", "path": "a", "whole": True}, ["show", "--no-color", "--no-textconv", "v1:a", "--"], "a whole file"),
    ("git_show", {"revision": "v1", "whole": True},         None, "a whole file without a path"),
    ("git_show", {"revision": "v1..v2", "path": "a", "whole": True}, None, "a file of a range"),
    ("git_show", {"revision": "v1:.env"},                   None, "a file in the revision"),
    ("git_blame", {"path": "a", "first": 3, "lines": 2},    ["blame", "--date=short", "-L", "3,+2", "HEAD", "--", "a"], "lines"),
    ("git_blame", {"path": "a", "revision": "--contents=/etc/passwd"}, None, "a flag"),
    ("git_diff", {"before": "v1"},                          ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "v1", "HEAD", "--"], "two commits"),
    ("git_diff", {"before": "--no-index", "after": "a"},    None, "a flag"),
    ("git_checkout", {"revision": "v1"},                    ["checkout", "--quiet", "--detach", "v1", "--"], "a version"),
    ("git_checkout", {"revision": "v1..v2"},                None, "a range"),
    ("git_checkout", {"revision": "--recurse-submodules"},  None, "a flag"),
]
# fmt: on


@pytest.mark.threat("T254")
@pytest.mark.parametrize(("name", "arguments", "words", "why"), WORDS, ids=[f"{row[0]}: {row[3]}" for row in WORDS])
def test_the_words_for_git(name: str, arguments: dict[str, object], words: list[str] | None, why: str) -> None:
    tool = next(each for each in GIT_TOOLS if each.name == name)
    args = parse(tool, arguments, None)
    assert not isinstance(args, Problem)
    action = tool.plan(args, "/w", SeenFiles())
    if words is None:
        assert isinstance(action, Problem), why
    else:
        assert isinstance(action, RunArgv)
        assert list(action.argv) == ["git", *words]


def test_references_are_listed() -> None:
    tool = next(each for each in GIT_TOOLS if each.name == "git_refs")
    for kind, places in (("all", 3), ("branches", 2), ("tags", 1)):
        args = parse(tool, {"kind": kind}, None)
        assert not isinstance(args, Problem)
        action = tool.plan(args, "/w", SeenFiles())
        assert isinstance(action, RunArgv)
        assert sum(word.startswith("refs/") for word in action.argv) == places
    assert isinstance(parse(tool, {"kind": "refs/stash"}, None), Problem)


@pytest.mark.threat("T254")
def test_every_command_of_the_tools_only_reads_but_the_checkout() -> None:
    for tool in GIT_TOOLS:
        args = parse(tool, _least(tool.name), None)
        assert not isinstance(args, Problem)
        action = tool.plan(args, machine().workspace, SeenFiles())
        assert isinstance(action, RunArgv)
        tiers = assess(action, "").tiers
        assert max(tiers) <= (Tier.WRITE if tool.name == "git_checkout" else Tier.READ), tool.name


def _least(name: str) -> dict[str, object]:
    needed: dict[str, dict[str, object]] = {
        "git_show": {"revision": "v1"},
        "git_blame": {"path": "a"},
        "git_diff": {"before": "v1", "stat": True},
        "git_checkout": {"revision": "v1"},
    }
    return needed.get(name, {})
