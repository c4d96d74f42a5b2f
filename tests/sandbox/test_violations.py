"""Tests of violations, as both users: blocks of the sandbox are reported, errors of the program itself are not."""

import os
import shutil

import pytest

from tests.support.sandbox_bench import Bench

PY = "/usr/bin/python3 -c"

# fmt: off
PLAIN = [
    ("cat no-such-file",                                             "a file that is missing"),
    ("cat {ws}/no-such-file",                                        "by its whole path"),
    ("cat 'no*/x'",                                                  "a pattern that matches nothing"),
    ("ls /usr/no-such-folder; ls /etc/no-such.conf; false",          "missing in system folders"),
    ("cat /tmp/none; cat ~/.none; false",                            "missing in its own places"),
    ("no-such-command",                                              "no such command"),
    ("/usr/bin/no-such-command",                                     "nor by its path"),
    ("./file.txt",                                                   "a file that is no program"),
    ("{ws}/file.txt",                                                "nor by its path"),
    ("grep x file.txt",                                              "nothing found"),
    ("false",                                                        "a plain failure"),
    (f"{PY} 'raise SystemExit(3)'",                                  "a status of its own"),
    (f"{PY} 'assert 1 == 2'",                                        "a failing test"),
    ("mkdir -p shut && chmod 000 shut && ls {ws}/shut; s=$?; chmod 700 shut; exit $s", "a folder it closed itself"),
    ("touch own && chmod 000 own && cat {ws}/own; s=$?; chmod 600 own; exit $s", "a file it closed itself"),
    ("mkdir -p ro && chmod 500 ro && echo x > {ws}/ro/x; s=$?; chmod 700 ro; exit $s", "a folder it made read-only"),
    ("mkdir -p full/x && rmdir {ws}/full",                           "a folder that is not empty"),
    ("ln -s nowhere dangling; cat {ws}/dangling",                    "a link to nothing"),
    ("chown 12345 {ws}/file.txt",                                    "another owner"),
    ("test -e /var/lib/dpkg/none",                                   "a question"),
    (f"{PY} 'import socket; socket.create_connection((\"127.0.0.1\", 1))'", "nobody listens on its own loopback"),
    ("curl -sS http://localhost:9/ || exit 7",                       "nor by name"),
    ("git -C {ws} log",                                              "no repository"),
    ("gcc missing.c",                                                "a compiler's complaint"),
    ("sh -c 'echo Permission denied >&2; exit 1'",                   "words without a path"),
    ("kill -0 999999",                                               "no such process"),
]
# fmt: on


# What a reader may not do: change files, or use sockets or a compiler.
NOT_BY_READERS = ("chmod", "mkdir", "ln -s", "chown", "socket", "curl", "gcc")


@pytest.mark.threat("T66")
@pytest.mark.parametrize(
    ("script", "why", "rights"),
    [
        pytest.param(script, why, rights, id=f"{why}-{rights}")
        for rights in ("workspace-write", "read-only")
        for script, why in PLAIN
        if rights == "workspace-write" or not any(word in script for word in NOT_BY_READERS)
    ],
)
def test_a_failure_of_its_own_is_no_violation(bench: Bench, script: str, why: str, rights: str) -> None:
    try:
        answer = bench.run(script.replace("{ws}", str(bench.workspace)), rights=rights, locked=[".git/config"])
        assert answer["status"] != 0 or "test -e" in script, answer
        assert answer["violations"] == [], why
    finally:
        for name in ("shut", "ro", "full"):
            shutil.rmtree(bench.workspace / name, ignore_errors=True)
        for name in ("own", "dangling"):
            (bench.workspace / name).unlink(missing_ok=True)


# fmt: off
STOPPED = [
    (f"{PY} 'open(\"/var/tmp/x\", \"w\")'",          "workspace-write", "/var/tmp/x",           "not among",            "a file outside"),
    ("cat {outside}/target.txt",                     "workspace-write", "{outside}/target.txt", "not among",            "a file outside, read"),
    ("cat {home}/.ssh/id_rsa",                       "workspace-write", "{home}/.ssh/id_rsa",   "not among",            "a key in the home"),
    ("cat {base}/way/file.txt",                      "workspace-write", "{base}/way/file.txt",  "its target `{ws}/file.txt`", "a link outside, to what was given"),
    ("cat {ws}/out/target.txt",                      "workspace-write", "{ws}/out/target.txt",  "leads to `{outside}/", "a link that leads out"),
    ("echo x > {ws}/out/new",                        "workspace-write", "{ws}/out/new",         "leads to `{outside}/", "and writing behind it"),
    ("echo x > {ws}/.git/config",                    "workspace-write", "{ws}/.git/config",     "kept read-only",       "a locked file"),
    ("mv {ws}/.git {ws}/gone",                       "workspace-write", "{ws}/.git",            "kept read-only",       "a pinned folder"),
    ("echo x > {ws}/hard",                           "workspace-write", "{ws}/hard",            "kept read-only",       "a file with names elsewhere"),
    ("cat {ws}/.env",                                "workspace-write", "{ws}/.env",            "masked",               "a secret"),
    ("cat .env",                                     "read-only", "{ws}/.env",            "masked",               "a secret by a short name"),
    ("touch {ws}/new",                               "read-only", "{ws}",                 "may not change",       "a change by a reader"),
    ("echo x > /proc/sys/kernel/hostname",           "workspace-write", "/proc/sys/kernel/hostname", "belongs to the kernel", "a setting of the kernel"),
    ("echo x > /usr/planted",                        "workspace-write", "/usr/planted",         "may not write",        "a system folder"),
    (f"{PY} 'import socket; socket.socket(socket.AF_UNIX)'", "workspace-write", "", "may not use AF_UNIX sockets", "a family"),
    (f"{PY} 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'", "workspace-write", "", "network is closed", "a host"),
]
# fmt: on


@pytest.mark.threat("T66")
@pytest.mark.parametrize(("script", "rights", "path", "words", "why"), STOPPED, ids=[row[4] for row in STOPPED])
def test_what_was_stopped_is_told(bench: Bench, script: str, rights: str, path: str, words: str, why: str) -> None:
    workspace = bench.workspace

    def filled(text: str) -> str:
        return text.format(ws=workspace, home=bench.home, outside=bench.outside, base=bench.base)

    (workspace / ".git").mkdir(exist_ok=True)
    (workspace / "sub").mkdir(exist_ok=True)
    for name in (".git/config", ".env"):
        (workspace / name).write_text("own\n")
    if not (workspace / "out").is_symlink():
        (workspace / "out").symlink_to(bench.outside)
        os.link(bench.outside / "target.txt", workspace / "hard")
        (bench.base / "way").symlink_to(workspace)
    bench.own(workspace)
    answer = bench.run(filled(script), rights=rights, locked=[".git/config"], hidden=[".env"])
    assert answer["status"] != 0, answer
    told = [violation for violation in answer["violations"] if violation[1].startswith(filled(path))]
    assert told, answer
    assert filled(words) in told[0][0], why
    assert told[0][2], "what the user can do"
    assert told[0][3] == "guess"


@pytest.mark.whole_matrix("root reads such a folder, another user does not")
def test_a_folder_that_nobody_may_read_is_not_called_read_only(bench: Bench) -> None:
    """Such a folder is masked, so changing its modes fails with "Read-only file system", which explains nothing."""
    shut = bench.workspace / "closed"
    shut.mkdir()
    bench.own(shut)
    shut.chmod(0)
    try:
        answer = bench.run("chmod 755 closed")
    finally:
        shut.chmod(0o755)
        shut.rmdir()
    if bench.user != "nobody":  # root reads every folder before it starts a command, so nothing is masked
        assert (answer["status"], answer["violations"]) == (0, [])
        return
    assert answer["status"] != 0
    what, path, fix, how = answer["violations"][0][:4]
    assert (path, how) == (str(shut), "guess")
    assert "its modes let nobody read it" in what
    assert "read-only" not in what
    assert "chmod u+rwx" in fix
