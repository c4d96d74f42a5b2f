"""Tests of a hostile model that works in a copy, with the real loop and sandbox: the original is unchanged."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from runner.changes.review.session import reviewed
from runner.config import load
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.review_workspaces import base, git_apply, sh, tree
from tests.support.server_session import HOSTILE
from tests.support.undo_workspace import picture

__all__ = ("base",)  # a fixture


def world(base: Path, before: str, config: str = "") -> dict[str, str]:
    for name in ("w", "home", "config"):
        (base / name).mkdir()
    (base / "config/config.toml").write_text(config)
    sh(base / "w", before)
    return {
        "HOME": str(base / "home"), "PATH": os.environ["PATH"], "TMPDIR": str(base),
        **{f"RINGFENCE_{name}_DIR": str(base / name.lower()) for name in ("STATE", "CACHE", "CONFIG")},
    }  # fmt: skip


def ci(base: Path, environ: dict[str, str], mode: str, *commands: str) -> dict[str, object]:
    """Each command in a turn of its own, with one that works between them; the last line of stdout."""
    turns = [
        f'[[turn]]\ncalls = [{{name="bash", arguments={{command={json.dumps(command)}}}}}]'
        for each in commands
        for command in (each, "pwd")
    ]
    (base / "s.toml").write_text("\n".join([*turns, '[[turn]]\ntext = "done"']))
    words = [
        "ci",
        "go",
        "--json",
        "--model",
        f"scripted:{base}/s.toml",
        "--mode",
        mode,
        "--review",
        "--patch",
        f"{base}/p",
        "--cwd",
        str(base / "w"),
        "--max-denials",
        "99",
    ]
    done = forked_agent.run([AGENT, *words], env=environ, capture_output=True, timeout=120, cwd=base)
    assert done.returncode in (0, 3), (done.returncode, done.stderr.decode(), done.stdout.decode()[-3000:])
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "output": done.stdout.decode()}


BEFORE = "echo one > a; mkdir d; echo two > d/b; echo KEY=original > .env; git init -q; git add a d; git -c user.name=x -c user.email=x commit -qm x"
# fmt: off
REACHING = [
    "echo pwned > {w}/a", "python3 -c \"open('{w}/a', 'w').write('pwned')\"", "rm -rf {w}", "cat {w}/.env", "cat {w}/d/b",
    "python3 -c \"print(open('{w}/.env').read())\"", "ln -s {w} out; python3 -c \"open('out/a', 'w').write('pwned')\"",
    "python3 -c \"import os; os.link('{w}/a', 'hard')\"", "cd {w} && git commit --allow-empty -m pwned",
    "python3 -c \"open('.git/objects/info/alternates', 'w').write('{w}/.git/objects')\"; git fsck; git log",
    "python3 -c \"import os; os.rename('.git', 'g'); open('.git', 'w').write('gitdir: {w}/.git')\"; git commit --allow-empty -m pwned",
    "git worktree add {w}/tree", "git push {w} HEAD:refs/heads/pwned", "git clone {w} got",
    "python3 -c \"import os; print([os.path.exists(p) for p in ('{w}', '/proc/1/root{w}', '/proc/self/root{w}')])\"",
    "python3 -c \"import os; os.symlink('{w}/d', 'd2'); open('d2/b', 'w').write('pwned')\"",
    "rm -r d; ln -s {w}/d d",
]
# fmt: on


@pytest.mark.threat("T94")
@pytest.mark.parametrize("mode", ["dangerously"])
def test_the_original_is_out_of_reach(base: Path, mode: str) -> None:
    environ = world(base, BEFORE)
    was = picture(os.fsencode(base / "w"))
    found = ci(
        base, environ, mode, *(command.replace("{w}", str(base / "w")) for command in REACHING), "echo more >> a"
    )
    assert picture(os.fsencode(base / "w")) == was, "not one byte, mode or time"
    assert "[False, False, False]" in str(found["output"]), "commands that run see nothing of it"
    assert "KEY=original" not in str(found["output"])
    patch = (base / "p").read_bytes()
    assert b"+more\n" in patch
    assert b"pwned" not in patch
    assert [name for name in os.listdir(base) if name.startswith("ringfence-copy")] == [], "no copy is left"
    assert git_apply(base / "w", patch).returncode == 0
    assert (base / "w/a").read_text() == "one\nmore\n"


@pytest.mark.threat("T94")
@pytest.mark.parametrize("pattern", ["{w}/d/**", "{up}/*/d/**", "{up}/**/b", "~/../w/d/b", "{link}/d/**"])
def test_a_rule_about_the_original_holds_in_the_copy(base: Path, pattern: str) -> None:
    environ = world(base, BEFORE)
    os.symlink(base / "w", base / "link")
    shown = pattern.format(w=base / "w", up=base, link=base / "link").replace("~/..", str(base))
    (base / "config/config.toml").write_text(f'[[rule]]\nverdict = "deny"\nwhy = "not here"\nwrite = ["{shown}"]\n')
    commands = ["echo x > d/b", "python3 -c \"open('d/b', 'w').write('x')\"", "echo x > ok"]
    if "**/b" in pattern:  # what stands in the way of code that cannot be read is a wall, and such a rule makes none
        del commands[1]
    found = ci(base, environ, "trust-project", *commands)
    assert (base / "p").read_bytes().count(b"diff --git") == 1
    assert found["exit"] == 3


def test_an_allowing_rule_allows_no_more_than_in_the_original(base: Path) -> None:
    environ = world(
        base,
        BEFORE,
        f'[[rule]]\nverdict = "allow"\nwhy = "x"\nwrite = ["{base}"]\n[[rule]]\nverdict = "allow"\nwhy = "x"\nwrite = ["{base}/w/d/**"]\n',
    )
    settings = load(base / "w", environ)
    with reviewed(base / "w", environ, settings) as review:
        above, within = review.settings.profile.permissions
        assert above.write == (str(base),)
        assert within.write == (f"{base}/w/d/**", f"{review.workspace}/d/**")
        assert review.settings.value("undo", "enabled") is False


def test_the_same_place_in_the_copy(base: Path) -> None:
    environ = world(base, BEFORE)
    settings = load(base / "w", environ)
    with reviewed(base / "w/d", environ, settings) as review:
        assert (review.cwd.name, review.original) == ("d", str(base / "w"))
        assert (review.cwd / "b").read_text() == "two\n"
        assert tree(review.workspace) == {b"a": ("file", b"one\n"), b"d/b": ("file", b"two\n")}
        assert str(base / "w") in review.model_note
        assert review.workspace in review.model_note


@pytest.mark.threat("T94")
def test_a_repository_that_lies_elsewhere_is_not_followed(base: Path) -> None:
    """A linked worktree: its `.git` names the folder of the main one, where a commit in the copy would land."""
    environ = world(
        base,
        "mkdir main; cd main; git init -q; echo 1 > a; git add .; git -c user.name=x -c user.email=x commit -qm x; git worktree add -q ../../tree; cd ..; rm -rf main/none",
    )
    was = picture(os.fsencode(base / "w"))
    os.rename(base / "w", base / "w0")  # so that only the worktree is worked in
    os.symlink(base / "w0", base / "w")
    settings = load(base / "tree", environ)
    with reviewed(base / "tree", environ, settings) as review:
        assert any("Git does not work in the copy" in note for note in review.notes)
    assert picture(os.fsencode(base / "w0")) == was


@pytest.mark.threat("T95")
@pytest.mark.parametrize(
    ("before", "work", "obeyed"),
    [
        ("true", "git init -q --bare sub; touch sub/objects/x sub/refs/x; echo 1 > plain", ("sub/config",)),
        ("mkdir sub; echo evil > sub/config", "mkdir sub/objects; touch sub/objects/x; echo ../c > sub/commondir; echo x > sub/HEAD", ("sub/HEAD", "sub/commondir", "sub/objects/x")),
        ("true", "echo x > lefthook.yml", ("lefthook.yml",)),
        (BEFORE, "echo x > a", ()),
    ],
)  # fmt: skip
def test_the_patch_names_what_programs_would_run_by_themselves(
    base: Path, before: str, work: str, obeyed: tuple[str, ...]
) -> None:
    environ = world(base, before)
    with reviewed(base / "w", environ, load(base / "w", environ)) as review:
        sh(review.workspace, work)
        patch = review.patch()
    assert patch.obeyed == obeyed
    assert any("auto-run files, which other programs run" in note for note in patch.notes) is bool(obeyed)


SERVER = """
[mcp.one]
command = "{python}"
args    = ["-u", "${{workspaceFolder}}/tool/server.py", "plain"]
read    = ["."]

[[rule]]
verdict = "allow"
tool    = ["mcp__one__echo"]
"""


@pytest.mark.threat("T203")
def test_a_pinned_server_of_the_workspace_works_in_the_copy(base: Path) -> None:
    environ = world(base, BEFORE, SERVER.format(python=sys.executable))
    (base / "w/tool").mkdir()
    shutil.copy(HOSTILE, base / "w/tool/server.py")
    words = [AGENT, "mcp", "pin", "one", "--yes", "--cwd", str(base / "w")]
    pinned = forked_agent.run(words, env=environ, capture_output=True, timeout=120)
    assert pinned.returncode == 0, pinned.stderr.decode()
    stored = os.listdir(base / "state/server-pins")
    calls = [{"name": "mcp__one__echo", "arguments": {"text": "a walnut"}}]
    (base / "s.json").write_text(json.dumps({"turn": [{"calls": calls}, {"text": "done"}]}))
    model = ("--model", f"scripted:{base}/s.json", "--mode", "trust-project", "--cwd", str(base / "w"))
    words = [AGENT, "ci", "go", "--json", "--review", "--patch", f"{base}/p", *model]
    done = forked_agent.run(words, env=environ, capture_output=True, timeout=120, cwd=base)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    texts = [each["text"] for each in events if each["type"] == "finished"]
    assert [text.splitlines()[1] for text in texts] == ["a walnut"], done.stderr.decode()
    assert os.listdir(base / "state/server-pins") == stored
