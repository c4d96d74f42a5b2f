"""A machine with a workspace and a home, and the classification of scripts on it."""

import atexit
import os
import shutil
import stat
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from policy.classify import classify
from policy.model.action import (
    RunScript,
)
from policy.model.assessment import Assessment
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile
from policy.rules.rulebook import RuleBook
from policy.toml.profile import parse_profile

BOOK = RuleBook(
    {item.name: item.read_text() for item in (files("policy") / "commands").iterdir() if item.name.endswith(".toml")}
)


@lru_cache(maxsize=1)
def profile() -> Profile:
    return parse_profile((files("profiles") / "default.toml").read_text(), "default.toml")


def look(path: str) -> PathFact:
    real = os.path.realpath(path)
    try:
        mode = os.stat(real).st_mode
    except (OSError, ValueError):
        return PathFact(real, Kind.MISSING)
    return PathFact(real, Kind.FOLDER if stat.S_ISDIR(mode) else Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER)


@lru_cache(maxsize=1)
def machine() -> Facts:
    """A workspace with a repository inside it, a home beside it, and something outside of both."""
    top = Path(os.path.realpath(tempfile.mkdtemp(prefix="classify-")))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    workspace, home = top / "work", top / "home"
    for folder in ("src", ".git/hooks", "other/.git", "bare/objects", "bin", ".vscode", "sub"):
        (workspace / folder).mkdir(parents=True)
    for folder in (".ssh", "project", "state"):
        (home / folder).mkdir(parents=True)
    for name in ("notes.txt", "a.txt", ".env", ".env.example", "src/main.py", "bare/HEAD", "bin/tool", "run.sh"):
        (workspace / name).write_text("x\n")
    (home / ".ssh" / "id_rsa").write_text("decoy\n")
    (home / "letter.txt").write_text("private\n")
    (workspace / "link").symlink_to(home / ".ssh" / "id_rsa")
    (workspace / "outlink").symlink_to(home / "letter.txt")
    programs = {"ls": "/usr/bin/ls", "tool": str(workspace / "bin" / "tool"), "git": "/usr/bin/git"}
    system = (*profile().system, *(f"/etc/{entry}" for entry in profile().etc))
    return Facts(
        str(workspace), str(home), ("/usr/bin",), system, (str(home / "state"),), look, lambda name: programs.get(name)
    )


def judge(script: str) -> Assessment:
    facts = machine()
    text = script.replace("@HOME", facts.home).replace("@WORK", facts.workspace)
    return classify(RunScript(text, facts.workspace), facts, BOOK, profile())
