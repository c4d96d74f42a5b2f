"""Ordinary coding sessions: the recorded calls of an agent, judged with and without the rules about information flow.

The recordings are Markdown files of SpecStory in a public repository, which the user gives as a Git directory because
they cannot be shipped. The files of that repository are laid out as the workspace. Each recorded call becomes the action
that this program would have; nothing is run. Commands count as having changed what their words say that they write.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from policy.evaluation import EvaluationContext
from policy.flow.finding import FlowFinding, Sink
from policy.flow.trusted_later import trusted_later
from policy.flow.trusted_text import TrustedText
from policy.model.action import (
    Action,
    EditFile,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    ReadFile,
    RunScript,
    SearchWeb,
    WriteFile,
)
from policy.model.assessment import Assessment, EffectKind, Scope
from policy.model.frozen import replace
from policy.model.tier import Mode
from policy.model.verdict import Allow
from runner.config import load
from runner.facts.gather import gather
from runner.flow.session_flow import SessionFlow

HERE = Path(__file__).parent
SESSIONS = 50
_CALL = re.compile(
    r'^<tool-use data-tool-type="(?P<type>\w+)" data-tool-name="(?P<name>[\w.-]+)"><details>\n<summary>.*?</summary>\n'
    r"(?P<body>.*?)^</details></tool-use>",
    re.MULTILINE | re.DOTALL,
)
_USER = re.compile(r"^_\*\*User \(.*?\)\*\*_\n(?P<text>.*?)(?=^---$|^_\*\*(?:User|Agent) \()", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"<!-- (?P<agent>[\w ]+) Session (?P<id>[\w-]+)")
_FENCE = re.compile(r"^```(?:bash|sh)\n(?P<code>.*?)\n```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"^ ?`(?P<code>[^\n]+)`$", re.MULTILINE)
_EDITED = re.compile(
    r"[Tt]he file (?P<path>/\S+) has been (?:updated|created)|File created successfully at: (?P<new>/\S+)"
)
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (?P<path>.+)$", re.MULTILINE)
_REFUSED = "The user doesn't want to proceed with this tool use"
# Commands that write a list of dependencies, which their words do not name.
_MANIFESTS = (
    (re.compile(r"\bgo (?:get|mod (?:tidy|edit|init))\b"), "go.mod"),
    (
        re.compile(r"\bnpm (?:install|i|add|uninstall|update)\b|\b(?:pnpm|yarn|bun) (?:add|remove|install)\b"),
        "package.json",
    ),
    (re.compile(r"\b(?:uv|poetry|cargo) (?:add|remove)\b"), "pyproject.toml"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that the rules about information flow add: the call in short, and the findings."""

    call: str
    findings: tuple[FlowFinding, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """The result of one session.

    Attributes:
        name: The name of the recording.
        calls: The number of its calls that were judged.
        sources: The sources of untrusted text in it.
        asked_anyway: The number of calls about which the user is asked without the rules.
        added: The additional questions.
    """

    name: str
    calls: int
    sources: tuple[str, ...]
    asked_anyway: int
    added: tuple[Asked, ...]


def sessions(repository: Path, limit: int = SESSIONS) -> Iterator[Session]:
    """Yield the results of the sessions with the most calls. `repository` is a Git directory."""
    with tempfile.TemporaryDirectory(prefix="flow-sessions-", dir="/var/tmp") as folder:
        work = Path(os.path.realpath(folder)) / "work"
        work.mkdir()
        (work.parent / "home").mkdir()
        archive = subprocess.run(["git", f"--git-dir={repository}", "archive", "HEAD"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(work)], input=archive.stdout, check=True)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(work)]
        for words in (["init", "-q"], ["remote", "add", "origin", "https://github.com/specstoryai/getspecstory"]):
            subprocess.run([*git, *words], check=True)
        environ = {"HOME": str(work.parent / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        for path, text in _recordings(work)[:limit]:
            cwd = str(work / "specstory-cli") if "specstory-cli" in path.parts else str(work)
            settings = load(work, environ, config=HERE / "sessions.toml")
            facts = gather(str(work), environ, settings.profile)
            context = EvaluationContext(facts, settings.rules, settings.profile, Mode.TRUST_PROJECT, ())
            yield _judged(path.stem, text, context, cwd)


def _recordings(work: Path) -> list[tuple[Path, str]]:
    """Return one recording of each session: the longest. Those with the most calls come first."""
    longest: dict[str, tuple[int, Path, str]] = {}
    for path in sorted(work.rglob(".specstory/history/*.md")):
        text = path.read_text(errors="replace")
        found = _ID.search(text)
        key = found["id"] if found else path.stem
        count = len(_CALL.findall(text))
        if key not in longest or longest[key][0] < count:
            longest[key] = (count, path.relative_to(work), text)
    ordered = sorted(longest.values(), key=lambda each: (-each[0], str(each[1])))
    return [(path, text) for _, path, text in ordered]


def _judged(name: str, text: str, context: EvaluationContext, cwd: str) -> Session:
    workspace = context.facts.workspace
    remotes = context.facts.remotes(workspace)
    known = {address for each in (remotes.fetch, remotes.push) for found in each.values() for address in found}
    registries = frozenset(
        host for program in ("go", "npm", "pip") for host, _ in context.facts.registries(program, workspace)
    )
    trusted = TrustedText().with_text(*known).with_hosts(registries)
    flow = SessionFlow(None, guarded=True, workspace=workspace, trusted=trusted, remotes=remotes)
    calls = asked = 0
    added: list[Asked] = []
    places = sorted([*_USER.finditer(text), *_CALL.finditer(text)], key=lambda match: match.start())
    for place in places:
        if place.re is _USER:
            flow.hear(place["text"])
            continue
        body = _at_home(place["body"], workspace)
        for action in _actions(place["type"], place["name"], body, cwd):
            calls += 1
            assessment, plain = context.evaluate(action)
            guarded = replace(context, flow=flow.state(Mode.TRUST_PROJECT))
            verdict = guarded.decide(assessment)
            findings = (*guarded.flow_findings(assessment), *_held(action, assessment, flow, workspace))
            asked += not isinstance(plain, Allow)
            held = any(each.sink is Sink.TRUSTED_LATER for each in findings)
            if isinstance(plain, Allow) and (held or not isinstance(verdict, Allow)):
                added.append(Asked(_short(action), findings))
                for each in findings:
                    if each.sink is Sink.SENDS:
                        flow.hear(each.what)  # the user approved the destination
            if _REFUSED not in body:
                connects = [each for each in assessment.effects if each.kind is EffectKind.CONNECTS and each.target]
                usual = [each.target for each in connects if each.scope is Scope.SYSTEM]
                flow.saw(action, body, hosts=[each.target for each in connects], usual=usual, tiers=assessment.tiers)
    return Session(name, calls, tuple(each.words for each in flow.untrusted), asked, tuple(added))


def _at_home(text: str, workspace: str) -> str:
    """Return `text` with the folder of the recorded repository replaced by the workspace."""
    return re.sub(r"/(?:Users|home)/\w+(?:/[\w.-]+)*?/getspecstory(?=[/\s'\"`:),]|$)", workspace, text)


def _actions(kind: str, name: str, body: str, cwd: str) -> Iterator[Action]:
    """Yield the actions of a recorded call. Calls of tools without an effect, such as lists of tasks, have none."""
    inline, fence = _INLINE.search(body), _FENCE.search(body)
    if kind == "shell":
        code = (
            fence["code"]
            if fence and (not inline or fence.start() < inline.start())
            else inline["code"]
            if inline
            else ""
        )
        if code:
            yield RunScript(code, cwd)
    elif name == "WebFetch" and inline:
        yield FetchAddress(inline["code"])
    elif name in ("WebSearch", "web_search") and inline:
        yield SearchWeb(inline["code"], "kagi", "kagi.com")
    elif kind == "read" and inline:
        yield ReadFile(_absolute(inline["code"], cwd))
    elif kind in ("search", "grep"):
        yield GlobFiles("*", cwd) if name == "Glob" else GrepFiles(inline["code"] if inline else "", cwd)
    elif kind == "write":
        paths = [match["path"] or match["new"] for match in _EDITED.finditer(body)]
        paths += [match["path"] for match in _PATCHED.finditer(body)]
        if not paths and inline:
            paths = [inline["code"]]
        for path in dict.fromkeys(paths):
            place = _absolute(path, cwd)
            yield WriteFile(place, body) if name in ("Write", "write_file") else EditFile(place, "old", body)


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(path if path.startswith("/") else f"{cwd}/{path}")


def _held(action: Action, assessment: Assessment, flow: SessionFlow, workspace: str) -> list[FlowFinding]:
    """Return a finding for each file that is trusted later and that a command changes by its words."""
    if not flow.untrusted or not isinstance(action, RunScript):
        return []
    paths = [
        each.target
        for each in assessment.effects
        if each.kind in (EffectKind.WRITES, EffectKind.DELETES) and each.exact and each.scope is Scope.WORKSPACE
    ]
    paths += [f"{workspace}/{name}" for pattern, name in _MANIFESTS if pattern.search(action.script)]
    changed = dict.fromkeys(path for path in paths if trusted_later(path, workspace))
    return [FlowFinding(Sink.TRUSTED_LATER, path, flow.untrusted[-1].words) for path in changed]


def _short(action: Action) -> str:
    match action:
        case RunScript():
            return action.script.replace("\n", " ")[:100]
        case FetchAddress():
            return f"fetch {action.url}"[:100]
        case EditFile() | WriteFile():
            return f"{action.tool} {action.path}"[-100:]
        case _:
            return action.kind
