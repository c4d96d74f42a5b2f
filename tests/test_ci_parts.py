"""The parts of `agent ci`: settings of Git without credentials, lines that are no commands, budgets by flags and files."""

import io
import os
import subprocess
from pathlib import Path

import pytest
from job import HEADER, commands

from policy.profile import Profile
from runner.ci import surroundings
from runner.ci.summary import code
from runner.ci.workflow import JobLog, broken
from runner.config.load import packaged

TOKEN = "ghs_0123456789abcdef"

# fmt: off
SETTINGS: list[tuple[str, str, list[str], str]] = [
    ("[core]\n\tbare = false\n", "[core]\n\tbare = false\n", [], "nothing to take out"),
    (f'[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic {HEADER}\n[core]\n\tbare = false\n',
     '[http "https://github.com/"]\n[core]\n\tbare = false\n', ["http.https://github.com/.extraheader"], "actions/checkout"),
    (f'[http] extraHeader = "A: {TOKEN}"\n', "[http]\n", ["http.extraHeader"], "on the line of its section"),
    (f"[http]\n\textraheader = A: \\\n  {TOKEN}\n\tproxy = x\n", "[http]\n\tproxy = x\n", ["http.extraheader"], "over two lines"),
    ("[http]\n\textraheader =\n", "[http]\n\textraheader =\n", [], "an empty one clears the list"),
    (f'[remote "origin"]\n\turl = https://x:{TOKEN}@h/r.git\n', '[remote "origin"]\n\turl = https://h/r.git\n',
     ["remote.origin.url"], "a login in an address"),
    (f'[remote "origin"]\n\turl = https://{TOKEN}@h/r.git\n', '[remote "origin"]\n\turl = https://h/r.git\n',
     ["remote.origin.url"], "a token for a name"),
    ('[remote "origin"]\n\turl = ssh://git@h/r.git\n', '[remote "origin"]\n\turl = ssh://git@h/r.git\n', [], "a name is none"),
    ('[remote "origin"]\n\turl = git@h:r.git\n', '[remote "origin"]\n\turl = git@h:r.git\n', [], "nor here"),
    (f'[url "https://x:{TOKEN}@h/"]\n\tinsteadOf = https://h/\n', '[url "https://h/"]\n\tinsteadOf = https://h/\n',
     ["url.https://h/.url"], "in the name of a section"),
    (f"# https://x:{TOKEN}@h/\n", "# https://h/\n", [".# https://x".replace("# https://x", "#https://")], "in a comment"),
    (f"[github]\n\toauthtoken = {TOKEN}\n", "[github]\n", ["github.oauthtoken"], "a token of a tool"),
    (f"[http]\n\tproxy = http://u:{TOKEN}@p:1\n", "[http]\n\tproxy = http://p:1\n", ["http.proxy"], "of a proxy"),
]
# fmt: on


@pytest.mark.threat("T89")
@pytest.mark.parametrize(("text", "expected", "keys", "why"), SETTINGS, ids=[row[3] for row in SETTINGS])
def test_settings_of_git_without_credentials(text: str, expected: str, keys: list[str], why: str) -> None:
    found, kept = surroundings.without(text)
    assert found == expected, why
    assert len(kept) == len(keys), (why, kept)
    if why != "in a comment":
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
    assert (broken(line) != line) is command
    assert not broken(line).lstrip().startswith("::")
    assert "##[" not in broken(line)
    assert "##vso[" not in broken(line)
    assert broken(line).replace("\u200b", "") == line


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
    found = surroundings.closed(profile, environ, "/w")
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
    assert surroundings.credentials(str(tmp_path)) == (), why
    subprocess.run(["git", "-C", str(top), "config", "http.extraheader", f"A: {TOKEN}"], check=True)
    (found,) = surroundings.credentials(str(tmp_path))
    assert (found.key, found.file.endswith("config")) == ("http.extraheader", True)
    surroundings.strip(str(tmp_path))
    assert surroundings.credentials(str(tmp_path)) == ()
    subprocess.run(["git", "-C", str(top), "config", "--list"], check=True, capture_output=True)


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
    assert set(surroundings.environment(environ)) == {"CI", "PATH", "LANG"}
    assert set(surroundings.environment(environ, keep={"GITHUB_TOKEN"})) == {"CI", "PATH", "LANG", "GITHUB_TOKEN"}
