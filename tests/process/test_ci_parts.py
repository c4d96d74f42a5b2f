"""Tests of the parts of `agent ci`: Git settings without credentials, workflow commands in output, and budgets from
flags and files.
"""

import io
import os
import random
import subprocess
from pathlib import Path

import pytest

from policy.model.profile import Profile
from runner.config.load import packaged
from runner.frontends.ci import git_logins, host_environment
from runner.frontends.ci.summary import code
from runner.frontends.ci.workflow import JobLog
from runner.problems import Stopped
from runner.text.sanitize import without_ci_commands
from tests.fuzz import fuzz_git
from tests.support.job import HEADER, commands

TOKEN = "ghs_0123456789abcdef"

# fmt: off
SETTINGS: list[tuple[str, str, list[str], str]] = [
    ("[core]\n\tbare = false\n", "[core]\n\tbare = false\n", [], "nothing to take out"),
    (f'[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic {HEADER}\n[core]\n\tbare = false\n',
     '[http "https://github.com/"]\n[core]\n\tbare = false\n', ["http.https://github.com/.extraheader"], "actions/checkout"),
    (f'[http] extraHeader = "A: {TOKEN}"\n', "[http]\n", ["http.extraheader"], "on the line of its section"),
    (f"[http]\n\textraheader = A: \\\n  {TOKEN}\n\tproxy = x\n", "[http]\n\tproxy = x\n", ["http.extraheader"], "over two lines"),
    ("[http]\n\textraheader =\n", "[http]\n\textraheader =\n", [], "an empty one clears the list"),
    (f'[remote "origin"]\n\turl = https://x:{TOKEN}@h/r.git\n', '[remote "origin"]\n\turl = https://h/r.git\n',
     ["remote.origin.url"], "a login in an address"),
    (f'[remote "origin"]\n\turl = https://{TOKEN}@h/r.git\n', '[remote "origin"]\n\turl = https://h/r.git\n',
     ["remote.origin.url"], "a token for a name"),
    ('[remote "origin"]\n\turl = ssh://git@h/r.git\n', '[remote "origin"]\n\turl = ssh://git@h/r.git\n', [], "a name is none"),
    ('[remote "origin"]\n\turl = git@h:r.git\n', '[remote "origin"]\n\turl = git@h:r.git\n', [], "nor here"),
    (f'[url "https://x:{TOKEN}@h/"]\n\tinsteadOf = https://h/\n', '[url "https://h/"]\n\tinsteadOf = https://h/\n',
     ["url.https://h/.insteadof"], "in the name of a section"),
    (f"# https://x:{TOKEN}@h/\n", "# https://h/\n", ["a comment"], "in a comment"),
    (f"[github]\n\toauthtoken = {TOKEN}\n", "[github]\n", ["github.oauthtoken"], "a token of a tool"),
    (f"[http]\n\tproxy = http://u:{TOKEN}@p:1\n", "[http]\n\tproxy = http://p:1\n", ["http.proxy"], "of a proxy"),
]
# fmt: on


@pytest.mark.threat("T89")
@pytest.mark.parametrize(("text", "expected", "keys", "why"), SETTINGS, ids=[row[3] for row in SETTINGS])
def test_settings_of_git_without_credentials(text: str, expected: str, keys: list[str], why: str) -> None:
    cleaned, kept = git_logins.without(text.encode())
    found = cleaned.decode()
    assert found == expected, why
    assert [key for key, _ in kept] == keys, why
    assert TOKEN not in found
    assert HEADER not in found


# fmt: off
LINES: list[tuple[str, bool]] = [
    ("::error::x", True), ("  ::error::x", True), ("\t::group::", True), ("::", True), ("a ::error::x", False),
    ("##[error]x", True), ("a ##[error]x", True), ("##vso[task.setvariable]", True), ("##teamcity[x]", True),
    ("### a heading", False), ("a # b", False), (":::x::y", True), ("###[x]", True), ("a: b", False), ("", False),
]
# fmt: on


@pytest.mark.threat("T90")
@pytest.mark.parametrize(("line", "command"), LINES)
def test_a_line_that_could_be_a_command_is_text(line: str, command: bool) -> None:
    assert (without_ci_commands(line) != line) is command
    assert not without_ci_commands(line).lstrip().startswith("::")
    assert "##[" not in without_ci_commands(line)
    assert "##vso[" not in without_ci_commands(line)
    assert without_ci_commands(line).replace("\u200b", "") == line


def test_a_log_in_pieces_is_the_log_in_lines() -> None:
    sink = io.StringIO()
    log = JobLog(sink, github=True)
    for piece in ("a:", ":b\n:", ":er", "ror::x\n", "#", "#[add-", "mask]y"):
        log.write(piece)
    log.group("turn 1")
    log.write("::stop-commands::mine")
    log.end()
    assert set(commands(sink.getvalue())) == {"::group::turn 1", "::endgroup::"}
    assert sink.getvalue().count("::stop-commands::") == 3


def test_the_word_that_ends_the_silence_is_another_each_time() -> None:
    words = set()
    for _ in range(20):
        sink = io.StringIO()
        JobLog(sink, github=True)
        words.add(sink.getvalue())
    assert len(words) == 20


def test_code_in_a_cell_is_letters_and_entities() -> None:
    assert code("a|b`c`<d>\n@e") == "<code>a&#124;b&#96;c&#96;&#60;d&#62;␊&#64;e</code>"


# fmt: off
FOLDERS: list[tuple[dict[str, str], set[str], str]] = [
    ({}, set(), "no job"),
    ({"GITHUB_ENV": "/r/_temp/_cmd/env"}, {"/r/_temp/_cmd/env", "/r/_temp/_cmd"}, "the file and its folder"),
    ({"GITHUB_ENV": "/w/env"}, {"env"}, "in the workspace: its name, since a place would close all of it"),
    ({"GITHUB_ENV": "/tmp/env"}, {"/tmp/env"}, "never all of /tmp"),
    ({"RUNNER_TEMP": "/r/_temp"}, {"/r/_temp"}, "what checkouts leave there"),
    ({"RUNNER_TEMP": "/"}, set(), "never everything"),
    ({"RUNNER_TEMP": "/tmp"}, set(), "nor all of /tmp"),
    ({"GITHUB_ENV": "relative"}, set(), "no path"),
    ({"DOCKER_HOST": "unix:///run/user/7/docker.sock"}, {"/run/user/7/docker.sock"}, "a daemon elsewhere"),
    ({"DOCKER_HOST": "tcp://x:1"}, set(), "no file"),
    ({"KUBECONFIG": "/proc/self/stat:/proc/version"}, {"/proc/self/stat", f"/proc/{os.getpid()}/stat", "/proc/version"}, "a list of files"),
    ({"SIGNING_KEY": "/proc/version"}, {"/proc/version"}, "a name that speaks of a secret"),
    ({"SIGNING_KEY": "/nowhere"}, set(), "which is not there"),
    ({"PATH": "/proc/version"}, set(), "one that does not"),
    ({"DOCKER_CONFIG": "/"}, set(), "never everything"),
]
# fmt: on


@pytest.mark.parametrize(("environ", "expected", "why"), FOLDERS, ids=[row[2] for row in FOLDERS])
def test_files_of_the_job_are_secrets(environ: dict[str, str], expected: set[str], why: str) -> None:
    profile: Profile = packaged().profile
    found = host_environment.deny_job_files(profile, environ, "/w")
    new = {*found.secret_paths, *found.secret_names} - {*profile.secret_paths, *profile.secret_names}
    assert new == expected, why


# where the repository lies, how it is made, why
PLACES: list[tuple[str, tuple[str, ...], str]] = [
    (".", ("init",), "the workspace itself"),
    ("app", ("init",), "a checkout below the workspace"),
    ("a/b/c", ("init",), "and deeper"),
    ("mirror.git", ("init", "--bare"), "a bare repository"),
]


@pytest.mark.parametrize(("place", "words", "why"), PLACES, ids=[row[2] for row in PLACES])
def test_credentials_are_found_wherever_a_repository_lies(
    tmp_path: Path, place: str, words: tuple[str, ...], why: str
) -> None:
    top = tmp_path / place
    subprocess.run(["git", words[0], "-q", *words[1:], str(top)], check=True)
    assert git_logins.credentials(str(tmp_path)) == (), why
    subprocess.run(["git", "-C", str(top), "config", "http.extraheader", f"A: {TOKEN}"], check=True)
    (found,) = git_logins.credentials(str(tmp_path))
    assert (found.key, found.file.endswith("config")) == ("http.extraheader", True)
    git_logins.strip(str(tmp_path))
    assert git_logins.credentials(str(tmp_path)) == ()
    subprocess.run(["git", "-C", str(top), "config", "--list"], check=True, capture_output=True)


WORD = "hunter2-and-more"
# files and their content, the file and the key that are named (nothing: no login), why
# fmt: off
LOGINS: list[tuple[dict[str, str], tuple[str, str] | None, str]] = [
    ({".git/config": "[include]\n\tpath = \"more \"\n", ".git/more ": f'[http]\n\textraheader = A: {WORD}\n'},
     (".git/more ", "http.extraheader"), "an included file"),
    ({".git/config": '[includeIf "gitdir:x"]\n\tpath = ../creds.cfg\n', "creds.cfg": f"[http]\n\textraheader = A: {WORD}\n"},
     ("creds.cfg", "http.extraheader"), "included among the working files"),
    ({".git/config": "[credential]\n\thelper = store --file .git/kept\n", ".git/kept": f"https://u:{WORD}@h\n"},
     (".git/kept", "the file of `credential.helper`"), "a store below Git's folder"),
    ({".git/config": "[credential \"https://h\"]\n\thelper = \"store '--file=kept'\"\n", "kept": f"https://u:{WORD}@h\n"}, None,
     "no file: the option has quotes of its own around it"),
    ({".git/config": "[credential \"https://h\"]\n\thelper = store --file=kept\n", "kept": f"https://u:{WORD}@h\n"},
     ("kept", "the file of `credential.helper`"), "a store among the working files"),
    ({".git/credentials": f"https://u:{WORD}@h\n"}, (".git/credentials", "an address"), "a store that nothing names"),
    ({".git/x.netrc": f"machine h login u password {WORD}\n"}, (".git/x.netrc", "a password"), "a file of curl's"),
    ({".git/config": "[credential]\n\thelper = !.git/help.sh\n", ".git/help.sh": "echo password=hunter2\n"},
     (".git/help.sh", "the file of `credential.helper`"), "a helper that lies in Git's folder"),
    ({".git/config": "[core]\n\tsshCommand = ssh -oIdentityFile=.git/id -F /dev/null\n", ".git/id": "hunter2\n"},
     (".git/id", "the file of `core.sshcommand`"), "a key in Git's folder"),
    ({".git/config.bak": f"[http]\n\textraheader = A: {WORD}\n"}, (".git/config.bak", "http.extraheader"), "a copy of settings"),
    ({".lfsconfig": f"[lfs]\n\turl = https://u:{WORD}@h/r\n"}, (".lfsconfig", "lfs.url"), "of a tool"),
    ({".git/config": f'[remote "o"]\n\turl = https://{WORD}:x-oauth-basic@h/r\n'}, (".git/config", "remote.o.url"), "a token for a name"),
    ({".git/config": f'[remote "o"]\n\turl = https://{WORD}:@h/r\n'}, (".git/config", "remote.o.url"), "without a word after it"),
    ({".git/config": '[remote "o"]\n\turl = https://u:hunter2@x@h/r\n'}, (".git/config", "remote.o.url"), "two signs"),
    ({".git/config": "[credential]\n\thelper = \"!f() { echo username=u; echo password=hunter2; }; f\"\n"},
     (".git/config", "credential.helper"), "a helper that holds the password"),
    ({".git/config": "[credential]\n\thelper = !f() { echo username=u; echo password=hunter2; }; f\n"},
     (".git/config", "a comment"), "a helper that Git takes for a comment from its first semicolon on"),
    ({".git/config": "[credential]\n\thelper = \"!f() { echo \\\"password=hunter2\\\"; }; f\"\n"},
     (".git/config", "credential.helper"), "the same in quotes"),
    ({".git/config": "[credential]\n\thelper = \"!printf 'hunter2 %s'\"\n"}, (".git/config", "credential.helper"), "without its name"),
    ({".git/config": "[credential]\n\thelper = \"!curl -H 'Authorization: Bearer hunter2and3' h\"\n"},
     (".git/config", "credential.helper"), "in a header"),
    ({".git/config": "[credential]\n\thelper = \"!f() { echo \\\"password=$TOKEN\\\"; }; f\"\n"}, None, "a helper that reads a variable"),
    ({".git/config": "[credential]\n\thelper =\n\thelper = cache --timeout=300\n\thelper = !gh auth git-credential\n"}, None,
     "helpers without a word of it"),
    ({".git/config": f"[core]\n\taskPass = echo {WORD}\n"}, (".git/config", "core.askpass"), "a program that prints it"),
    ({".git/config": "[core]\n\taskPass = .git/ask\n", ".git/ask": f"#!/bin/sh\necho {WORD}\n"},
     (".git/ask", "the file of `core.askpass`"), "a program of Git's folder that prints it"),
    ({".git/config": "[core]\n\tsshCommand = sshpass -p hunter2 ssh\n"}, (".git/config", "core.sshcommand"), "a word on a command line"),
    ({".git/config": "[http]\n\tcookieFile = .git/jar\n", ".git/jar": f"h\tTRUE\t/\tTRUE\t0\tid\t{WORD}\n"},
     (".git/jar", "the file of `http.cookiefile`"), "cookies"),
    ({".git/config": f'[remote "o"]\n\turl = https://h/r?private_token={WORD}\n'}, (".git/config", "remote.o.url"), "in a query"),
    ({".git/config": f'[remote "o"]\n\tpushurl = https://h/r?a=b&access_token={WORD}\n'}, (".git/config", "remote.o.pushurl"), "in another"),
    ({".git/config": '[remote "o"]\n\turl = https://h/r?author=x&depth=1\n'}, None, "a query without one"),
    ({".git/config": f'[submodule "s"]\n\turl = https://u:{WORD}@h/r\n'}, (".git/config", "submodule.s.url"), "of a submodule"),
    ({".gitmodules": f'[submodule "s"]\n\turl = https://u:{WORD}@h/r\n'}, (".gitmodules", "submodule.s.url"), "of the working files"),
    ({".git/config": f"[sendemail.work]\n\tsmtpPass = {WORD}\n"}, (".git/config", "sendemail.work.smtppass"), "of mail"),
    ({".git/config": f"[imap]\n\tpass = {WORD}\n"}, (".git/config", "imap.pass"), "of another"),
    ({".git/config": f"[http]\n\tproxy = http://u:{WORD}@p:1\n"}, (".git/config", "http.proxy"), "of a proxy"),
    ({".git/config": f'[http]\n\tproxy = "http://u:\\\n{WORD}@p:1"\n'}, (".git/config", "http.proxy"), "over two lines"),
    ({".git/config": f'[http "https://u:{WORD}@h/"]\n\tsslVerify = true\n'}, (".git/config", "http.https://h/.sslverify"), "in a header"),
    ({".git/config": "[core]\n\tpager = a\rb\n"}, (".git/config", "line 2, which cannot be read with certainty"), "who knows"),
    ({".git/FETCH_HEAD": f"{'a' * 40}\t\tbranch 'm' of https://u:{WORD}@h/r\n"}, (".git/FETCH_HEAD", "an address"), "what was fetched"),
    ({".git/logs/refs/heads/m": f"a b N <e> 1 +0\tclone: from https://u:{WORD}@h/r\n"}, (".git/logs/refs/heads/m", "an address"), "a reflog"),
    ({".git/modules/objects/config": f"[http]\n\textraheader = A: {WORD}\n"},
     (".git/modules/objects/config", "http.extraheader"), "a submodule of an odd name"),
    ({".git/worktrees/w/config.worktree": f"[http]\n\textraheader = A: {WORD}\n"},
     (".git/worktrees/w/config.worktree", "http.extraheader"), "of one worktree"),
    ({"sub/HEAD": "x", "sub/commondir": "../c", "c/HEAD": "x", "c/objects/x": "", "c/config": f"[http]\n\textraheader = A: {WORD}\n"},
     ("c/config", "http.extraheader"), "a repository in two folders"),
    ({".git/config": '[remote "o"]\n\turl = git@h:r.git\n[user]\n\tname = x\n[url "https://h/"]\n\tinsteadOf = gh:\n'}, None, "an ordinary one"),
    ({".git/config": "[credential]\n\tusername = a-user\n[http]\n\temptyAuth = true\n"}, None, "names, and keys that sound alike"),
    ({".git/COMMIT_EDITMSG": "https://user:password@example.org\n"}, None, "a message"),
    ({"notes.txt": f"https://u:{WORD}@h\n"}, None, "a working file that nothing names"),
]
# fmt: on


@pytest.mark.threat("T89")
@pytest.mark.parametrize(("files", "expected", "why"), LOGINS, ids=[row[2] for row in LOGINS])
def test_logins_that_git_keeps_are_found_and_taken_out(
    tmp_path: Path, files: dict[str, str], expected: tuple[str, str] | None, why: str
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    found = git_logins.credentials(str(tmp_path))
    if expected is None:
        assert found == (), why
        return
    assert expected in [(each.file, each.key) for each in found], (why, found)
    with pytest.raises(Stopped) as error:
        git_logins.refuse(found)
    shown = f"{error.value.problem}"
    assert "hunter2" not in shown
    assert expected[0] in shown or len(found) > 1, why
    if not found[0].working:
        git_logins.refuse(found, review=True)
    git_logins.strip(str(tmp_path))
    assert git_logins.credentials(str(tmp_path)) == (), why
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in left, why
    subprocess.run(["git", "-C", str(tmp_path), "config", "--list"], check=True, capture_output=True)


PASS = "hunter2-0k"
# fmt: off
ADDRESSES = [  # of any server: with a login, in forms that are no `https://`
    f"ext::sshpass -p {PASS} ssh u@h %S", f"ext::sshpass -p{PASS} ssh u@h %S", f"ext::tool --token% {PASS} %S", f"ext::tool --password {PASS} %S", f"ext::curl -u user:{PASS} h",
    f"ext::curl -H 'PRIVATE-TOKEN: {PASS}' h", f"ext::curl -H 'Authorization: token {PASS}' h", f"ext::env SSHPASS={PASS} sshpass -e ssh h", f"hg::https://u:{PASS}@h/r", f"ext::x -p {PASS}",
    f"user:{PASS}@host:path/x.git", f"user:{PASS}@[::1]:x.git", f"user:{PASS}@github.com/x/y.git", f"ssh://user:{PASS}@host/x", f"HTTPS://u:{PASS}@h/r", f"codecommit::us://u:{PASS}@r", f"u:{PASS}@proxy:3128",
]
KEYS = [  # a setting as a whole: section, key
    ('remote "o"', "url"), ('remote "o"', "pushurl"), ('remote "o"', "proxy"), ('remote "o"', "lfsurl"), ("http", "proxy"), ('http "https://h"', "proxy"), ("lfs", "url"), ('submodule "s"', "url"),
    ('branch "m"', "remote"), ('branch "m"', "pushRemote"), ('svn-remote "svn"', "url"), ('bundle "b"', "uri"), ('url "https://h/"', "insteadOf"),
]
VALUES = [
    f'[core]\n\tgitProxy = proxycmd -p {PASS} for x\n', f'[core]\n\tgitProxy = "socat --proxyauth=u:{PASS} x"\n', f"[core]\n\tsshCommand = SSHPASS={PASS} sshpass -e ssh\n",
    f'[url "u:{PASS}@h:"]\n\tinsteadOf = https://h/\n', f'[lfs "customtransfer.x"]\n\targs = --password {PASS}\n', f'[credential]\n\thelper = "!printf \'username=u\\\\npassword={PASS}\\\\n\'"\n',
    f'[alias]\n\tx = "!curl -u u:{PASS} https://h"\n', f'[alias]\n\tx = "!curl -H \\"Authorization: token {PASS}\\" https://h"\n', f"[sendemail]\n\tsendmailCmd = msmtp --password {PASS}\n",
    f"[imap]\n\ttunnel = \"sshpass -p {PASS} ssh h\"\n", f"[imap]\n\ttunnel = x; sshpass -p {PASS} ssh h\n", f"[jira]\n\tapi-key = {PASS}\n", f"[x]\n\tauth = {PASS}\n", f"[bz]\n\tpwd = {PASS}\n",
    f'[remote "o"]\n\tannex-s3creds = {PASS}\n', f"[gerrit]\n\tcookie = {PASS}\n", f"[a]\n\tb = c\n# old: u:{PASS}@h:x\n", f"[a]\n\tb = c\n# extraheader = AUTHORIZATION: basic {PASS}\n",
]
FILES = [  # of Git, and of tools like it
    (".git/lfs/logs/2020.log", f"> Authorization: Basic {PASS}AAA\n"), (".git/lfs/cache/locks/x", f"https://u:{PASS}@h/x\n"), (".git/logs/HEAD", f"0 1 a <a@b> 1 +0\tpull u:{PASS}@h:x: Fast-forward\n"),
    (".git/worktrees/a/logs/HEAD", f"0 1 a <a@b> 1 +0\tclone: from u:{PASS}@h:x\n"), (".git/FETCH_HEAD", f"1\t\tbranch 'main' of u:{PASS}@h:x\n"), (".git/packed-refs", f"# https://u:{PASS}@h\n"),
    (".git/description", f"token: {PASS}\n"), (".git/branches/x", f"u:{PASS}@h:x#main\n"), (".git/remotes/o", f"URL: u:{PASS}@h:x\nPull: x\n"), (".git/MERGE_MSG", f"Merge branch 'a' of https://u:{PASS}@h/x\n"),
    (".git/hooks/pre-push", f"#!/bin/sh\ncurl -u u:{PASS} https://h\n"), (".git/hooks/pre-push", f"#!/bin/sh\nexport TOKEN={PASS}\n"), (".git/hooks/x.sample", f'curl -H "Authorization: Bearer {PASS}" h\n'),
    (".git/cookies", f"h\tTRUE\t/\tFALSE\t0\tsession\t{PASS}\n"), (".git/svn/auth/svn.simple/a", f"K 8\npassword\nV 10\n{PASS}\nEND\n"), (".git/annex/creds/a", f"{PASS}\n"),
    (".git/git-crypt/keys/default", f"\0GITCRYPTKEY\0{PASS}"), (".git/objects/info/alternates", f"https://u:{PASS}@h/x\n"), (".git/objects/info/http-alternates", f"https://u:{PASS}@h/x\n"),
    (".hg/hgrc", f"[auth]\nx.password = {PASS}\n"), (".hg/hgrc", f"[paths]\ndefault = https://u:{PASS}@h/x\n"), (".hg/hgrc-not-shared", f"[http_proxy]\npasswd = {PASS}\n"), ("a/.sl/config", f"[paths]\ndefault = https://u:{PASS}@h/x\n"),
    (".jj/repo/config.toml", f'[git]\npush = "https://u:{PASS}@h"\n'), (".bzr/branch/branch.conf", f"parent_location = https://u:{PASS}@h/\n"), (".svn/auth/svn.simple/a", f"K 8\npassword\nV 10\n{PASS}\nEND\n"),
    ("CVS/Root", f":pserver:u:{PASS}@h:/x\n"),
]
ORDINARY = [  # what a project has without a login
    (".git/config", """[remote "o"]
\turl = git@github.com:x/y.git
\turl = ssh://git@ssh.github.com:443/x/y.git
\turl = https://bob@github.com/x/y.git
\turl = user@host:~/x@2.git
\turl = codecommit::eu-west-1://profile@repo
\turl = "ext::ssh -i ~/.ssh/id -p 2222 u@h %S 'x'"
\tfetch = +refs/heads/*:refs/remotes/origin/*
[alias]
\tlg = log --pretty=format:'%C(yellow)%h %an <%ae>: %s' --date=format:'%H:%M'
\tdone = "!echo done and dusted"
\tauth = "!gh auth login"
\ttok = "!gh auth token --hostname github.com"
\tsecret = "!git secret reveal"
\trun = "!docker run -u 1000:1000 --rm x"
\th = "!f() { curl -sH \\"Authorization: Bearer $TOKEN\\" https://h; }; f"
\tg = "!f() { curl -u \\"$USER:$PASS\\" https://h; }; f"
[core]
\tsshCommand = ssh -i ~/.ssh/deploy_key_2 -p 2222 -F /dev/null
\tgitProxy = none for x
[http]
\tproxy = http://proxy:3128
\tproxyAuthMethod = basic
\temptyAuth = true
\tuserAgent = git/2.39 (x; y:z)
[sendemail]
\tsmtpAuth = LOGIN PLAIN
\tsmtpServerOption = -t
[branch "main"]
\tdescription = fix token: rotate password handling
[lfs "https://h/x.git/info/lfs"]
\taccess = basic
# token: see the vault; password=<yours>
"""),
    (".git/hooks/pre-commit", """#!/usr/bin/env bash
# ID: 138fd403232d2ddd5efb44317e38bf03
cache_key="v2-$(md5sum x)"
GPG_KEY=$1
TOKEN="${TOKEN:-}"
read -s -p "Password: " password
curl -H "Authorization: token $GITHUB_TOKEN" https://api.github.com
docker run -u node:node --rm x
ssh -p 2222 user@host ls
export PASSWORD_STORE_DIR=~/.password-store2
"""),
    (".git/logs/HEAD", "0 1 A <a@b.c> 1 +0\tcommit: set token=abc123def in tests; user:name@host.com/x\n0 1 A <a@b> 1 +0\tclone: from github.com:x/y.git\n"),
    (".git/FETCH_HEAD", "1\t\tbranch 'main' of github.com:x/y\n1\tnot-for-merge\ttag 'v1@2' of ssh://git@h:22/x\n"),
    (".git/lfs/logs/1.log", "git-lfs/3.3.0\nAccessDownload=none\n  goroutine 1 [running]:\nmain.main() /x.go:17 +0x1b\n"),
    (".git/rebase-merge/git-rebase-todo", "pick abc1234 token: fix password=x1y2z3 handling\n"),
    (".hg/hgrc", "[paths]\ndefault = https://bob@h/x\n[ui]\nusername = A B <a@b.c>\n[auth]\nx.username = u\n"),
]
EVERY = [
    *((".git/config", f"[{section}]\n\t{key} = \"{address}\"\n") for section, key in KEYS for address in ADDRESSES),
    *((".git/config", text) for text in VALUES), *FILES,
]
# fmt: on


@pytest.mark.threat("T89")
def test_every_form_of_a_login_is_found_and_taken_out(tmp_path: Path) -> None:
    for number, (name, text) in enumerate(EVERY):
        top = tmp_path / str(number)
        for each in (".git/HEAD", ".git/objects/info/packs", ".git/refs/x", name):
            (top / each).parent.mkdir(parents=True, exist_ok=True)
            (top / each).write_text(text if each == name else "")
        found = git_logins.credentials(str(top))
        assert {each.file for each in found} == {name}, (name, text, found)
        assert PASS not in found[0].key
        git_logins.strip(str(top))
        assert git_logins.credentials(str(top)) == (), text
        assert PASS.encode() not in (top / name).read_bytes(), text


@pytest.mark.parametrize(("name", "text"), ORDINARY, ids=[row[0] for row in ORDINARY])
def test_ordinary_files_hold_no_login(name: str, text: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert git_logins.credentials(str(tmp_path)) == ()


def spelled(value: str, rng: random.Random) -> str:
    """A value of a setting with quotes, and lines that are continued, at random places."""
    text, quoted = '"', True
    for char in value:
        if rng.random() < 0.15 or (not quoted and char in ";# "):
            text, quoted = f'{text}"', not quoted
        text += rng.choice(("\\\n", "\\\r\n")) if rng.random() < 0.1 else ""
        text += '"' if not quoted and char in ";# " else ""
        quoted = quoted or char in ";# "
        text += char
    return f'{text}"' if quoted else text


@pytest.mark.threat("T89")
def test_law_no_way_to_write_a_login_hides_it_from_us_and_not_from_git(tmp_path: Path) -> None:
    rng = random.Random(89)
    kinds = (
        ("[http]", "extraHeader", f"Authorization: basic {WORD}"),
        ('[remote "o"]', "url", f"https://u:{WORD}@h/r"),
        ('[submodule "s"]', "url", f"https://h/r?access_token={WORD}"),
        (f'[url "https:/\\/u:{WORD}@h/"]', "insteadOf", "https://h/"),
        ("[credential]", "helper", f"!f() {{ echo password={WORD}; }}; f"),
        ("[sendemail.work]", "smtpPass", WORD),
        ("[core]", "askPass", f"echo {WORD}"),
    )
    for _ in range(150):
        text = "[a]\nb = c\n"
        for header, key, value in rng.choices(kinds, k=rng.randint(1, 3)):
            text += f"{header}{rng.choice((' ', chr(10), chr(13) + chr(10)))}{key} = {spelled(value, rng)}\n"
        cleaned, logins = git_logins.without(text.encode())
        assert logins, text
        (tmp_path / "config").write_bytes(cleaned)
        left = fuzz_git.git_settings(str(tmp_path / "config"))
        assert left is not None, (text, cleaned)
        assert WORD not in str(left), (text, cleaned)
        assert WORD.encode() not in cleaned, text


HUGE = [
    (".git/logs/HEAD", "a." * (1 << 20), "the beginnings of a million addresses"),
    (".git/logs/HEAD", "https://u:p@h " * 100_000, "very many logins"),
    (".git/x", f"ghs_{'a1' * 20} " * 50_000, "very many tokens"),
    (".git/config", "[a]\nb = https://u:p@h\n" * 30_000, "settings with very many"),
    (".git/config", "# https://u:p@h\n" * 40_000, "comments"),
    (".git/config", "[a]\nb = " + "token" + " " * 900_000 + "\n", "a very long blank"),
]


@pytest.mark.threat("T89")
@pytest.mark.parametrize(("name", "text", "why"), HUGE, ids=[row[2] for row in HUGE])
def test_a_hostile_file_of_git_takes_no_time_that_grows_with_its_square(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    """Were it so, each of these would take hours, and the runner of the tests would end it."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    assert len(git_logins.credentials(str(tmp_path))) <= 400, why
    git_logins.strip(str(tmp_path))
    assert git_logins.credentials(str(tmp_path)) == (), why


@pytest.mark.threat("T89")
def test_what_is_no_part_of_git_stays_in_a_copy_so_it_stops_the_run(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitmodules").write_text(f'[submodule "s"]\n\turl = https://u:{WORD}@h/r\n')
    with pytest.raises(Stopped):
        git_logins.refuse(git_logins.credentials(str(tmp_path)), review=True)


@pytest.mark.threat("T89")
def test_logins_of_the_repository_of_a_linked_worktree_are_found(tmp_path: Path) -> None:
    run = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(tmp_path / "main")]
    run[1:1] = ["-c", "commit.gpgsign=false", "-c", f"core.hooksPath={os.devnull}"]
    subprocess.run(["git", "init", "-q", str(tmp_path / "main")], check=True)
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*run, "worktree", "add", "-q", str(tmp_path / "tree")], check=True, capture_output=True)
    subprocess.run([*run, "config", "http.extraheader", f"A: {WORD}"], check=True)
    (found,) = git_logins.credentials(str(tmp_path / "tree"))
    assert (found.file, found.working) == (str(tmp_path / "main/.git/config"), True)


def test_no_variable_of_a_job_is_passed_on() -> None:
    names = (
        "GITHUB_TOKEN",
        "GITHUB_ENV",
        "ACTIONS_RUNTIME_TOKEN",
        "RUNNER_TEMP",
        "CI_JOB_TOKEN",
        "INPUT_PROMPT",
        "GITLAB_X",
    )
    environ = dict.fromkeys((*names, "CI", "PATH", "LANG"), "x")
    assert set(host_environment.command_environment(environ)) == {"CI", "PATH", "LANG"}
    assert set(host_environment.command_environment(environ, keep={"GITHUB_TOKEN"})) == {
        "CI",
        "PATH",
        "LANG",
        "GITHUB_TOKEN",
    }
