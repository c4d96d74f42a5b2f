"""A folder on the disk and rules as users write them, with the classification and decision of scripts there."""

import atexit
import os
import shutil
import stat
import tempfile
from dataclasses import replace
from datetime import date
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from policy.classify import classify
from policy.decide import decide
from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Layer, PermissionRule, Profile, Source
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Allow, Ask, Verdict
from policy.permission.file import LISTS, permissions
from policy.rules.rulebook import RuleBook
from policy.toml.profile import parse_profile
from policy.toml.schema import read

BOOK = RuleBook(
    {item.name: item.read_text() for item in (files("policy") / "commands").iterdir() if item.name.endswith(".toml")}
)
PROFILE = parse_profile((files("profiles") / "default.toml").read_text(), "default.toml")
FOLDERS = ("docs", "docs/old", "migrations", "src", "sub", "bin", ".git/hooks", "private")
FILES = ("package.json", "docs/a.md", "docs/old/b.md", "migrations/1.sql", "src/x.py", "private/plan.txt", "notes.txt")


def look(path: str) -> PathFact:
    real = os.path.realpath(path)
    try:
        mode = os.stat(real).st_mode
    except (OSError, ValueError):
        return PathFact(real, Kind.MISSING)
    return PathFact(real, Kind.FOLDER if stat.S_ISDIR(mode) else Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER)


@lru_cache(maxsize=1)
def machine() -> Facts:
    """A project with a few folders, a link out of it and one within, a home and something outside of both."""
    top = Path(os.path.realpath(tempfile.mkdtemp(prefix="rules-", dir="/var/tmp")))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    work, home = top / "home" / "work", top / "home"
    for folder in FOLDERS:
        (work / folder).mkdir(parents=True)
    for place in (home / "out", top / "log", top / "private-log"):
        place.mkdir()
    for name in FILES:
        (work / name).write_text("x\n")
    for name in ("syslog", "auth"):
        (top / "log" / name).write_text("x\n")
    (work / "docs" / "leak").symlink_to(work / "src")
    (work / "docs" / "away").symlink_to(home / "out")
    (work / "sql").symlink_to(work / "migrations")
    tool = work / "bin" / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    programs = {
        "tool": str(tool),
        **{name: f"/usr/bin/{name}" for name in ("npm", "git", "ls", "rm", "sh", "bash", "curl", "frobnicate")},
    }
    system = (*PROFILE.system, *(f"/etc/{entry}" for entry in PROFILE.etc))
    return Facts(str(work), str(home), ("/usr/bin",), system, (), look, lambda name: programs.get(name))


@lru_cache(maxsize=512)
def rules(text: str, layer: Layer = Layer.USER) -> tuple[PermissionRule, ...]:
    """`allow run=["npm", "test"]; deny write=["docs/**"]`: a rule a line or between `;`, with a reason put in."""
    tables = []
    for line in text.replace(";", "\n").splitlines():
        verdict, _, keys = line.strip().partition(" ")
        if verdict:
            pairs = keys.replace("] ", "]\n").replace("TOP", str(Path(machine().home).parent))
            tables.append(f'[[rule]]\nverdict = "{verdict}"\nwhy = "said so"\n{pairs}\n')
    return permissions(read("\n".join(tables), "c.toml", {}, LISTS), layer)


def profile(text: str, layer: Layer = Layer.USER) -> Profile:
    return replace(PROFILE, permissions=rules(text, layer))


def assess(action: Action | str, text: str, *, source: Source = Source.MODEL, today: date | None = None) -> Assessment:
    facts = replace(machine(), today=today)
    if isinstance(action, str):
        top = str(Path(facts.home).parent)
        action = RunScript(action.replace("@TOP", top).replace("@WORK", facts.workspace), facts.workspace)
    return classify(action, facts, BOOK, profile(text), source)


def judge(
    action: Action | str,
    text: str,
    mode: Mode = Mode.DEFAULT,
    *,
    unattended: bool = False,
    source: Source = Source.MODEL,
    today: date | None = None,
) -> Verdict:
    found = assess(action, text, source=source, today=today)
    facts = replace(machine(), today=today)
    return decide(found, facts, profile(text), mode, unattended=unattended, environment=())


def ruling(verdict: Verdict) -> Ruling:
    return Ruling.ALLOW if isinstance(verdict, Allow) else Ruling.ASK if isinstance(verdict, Ask) else Ruling.DENY
