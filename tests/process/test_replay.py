"""Tests of replay: a record is evaluated again with its recorded facts or not at all; another policy shows its
differences.
"""

import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.evaluation import EvaluationContext
from policy.grants.grant import GrantScope
from policy.grants.resolve import approve, resolve
from policy.model.action import Action, EditFile, ReadFile, RunArgv, RunScript, WriteFile
from policy.model.assessment import Assessment
from policy.model.facts import GitSource, GitSourceKind, Kind, PathFact, Remotes
from policy.model.profile import MAIN, Source
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Verdict
from policy.permission.flag_rights import FlagRights
from runner.audit.chain import Record, canonical
from runner.audit.decisions import DecisionTrail
from runner.audit.fact_recorder import MOST, FactRecorder
from runner.audit.fact_replay import Recorded
from runner.audit.records import TEXT_KEPT, AnswerSource, Decision, RecordedAnswer, SessionInfo
from runner.audit.reports.replay import NewVerdict, NotRecorded, Policy, recorded_ruling, rejudge
from runner.audit.reports.replay_policies import Policies
from runner.audit.reports.replay_report import Replayed, lines
from runner.config import shipped
from runner.gate.gate import ruling
from runner.gate.policy_tools.expectations import Bench, shipped_tables
from runner.gate.policy_tools.reference_machine import model_facts
from tests.support import forked_agent, grant_questions
from tests.support.agent_program import AGENT
from tests.support.law import number_of_examples
from tests.support.layers import overlays_work
from tests.support.places import TESTS

GOLDEN = TESTS / "golden" / "audit_replay.txt"


class Kept:
    """A log without a disk: every record as its JSON says it."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, object]] = {}
        self.count = 0

    def deed(self, decision: Decision, *, unattended: bool = False, **changed: object) -> DecisionTrail:
        assert decision.noted is not None
        names = []
        for part in decision.noted.parts():
            said = json.loads(canonical(part))
            names.append(str(len(self.parts)))
            self.parts[names[-1]] = said
        info = SessionInfo("default", "/w", unattended, None)
        body = json.loads(canonical({**decision.body("s"), "facts": names, **changed}))
        self.count += 1
        session = json.loads(canonical(info.body("s")))
        return DecisionTrail(Record(self.count, "", body), Record(1, "", session), None)

    def find(self, name: str) -> dict[str, object] | None:
        return self.parts.get(name)


def judged(hearing: EvaluationContext, action: Action, reach: str | None = None) -> tuple[Assessment, Verdict]:
    return replace(hearing, backend=reach).evaluate(action)


def recorded(
    kept: Kept, hearing: EvaluationContext, action: Action, *, reach: str | None = None
) -> tuple[DecisionTrail, Verdict]:
    """Return the record that the loop would write of an action, with an approval of every question, and the verdict."""
    noted = FactRecorder(hearing.facts, hearing.profile)
    assessment, verdict = judged(replace(hearing, facts=noted.facts), action, reach)
    said, final = None, verdict
    if isinstance(verdict, Ask):
        said, final = RecordedAnswer(verdict.question, True, "terminal", None, 1.5), approve(verdict)
    assert not isinstance(final, Ask)
    words = hearing.typed.words if hearing.typed else ()
    decision = Decision("bash", assessment, final, "T1", said, words, (), (), hearing.source, reach, noted)
    return kept.deed(decision, unattended=hearing.unattended), verdict


def same(found: NewVerdict | NotRecorded, verdict: Verdict, deed: DecisionTrail) -> bool:
    """Return True if the replayed verdict equals `verdict` in all its fields and in all fields of the record."""
    if isinstance(found, NotRecorded):
        return False
    body, again = deed.record.body, found.verdict
    return (
        (type(again), again.cell, again.reason) == (type(verdict), verdict.cell, verdict.reason)
        and recorded_ruling(body) is ruling(again)
        and body["tiers"] == [tier.label for tier in found.assessment.tiers]
        and len(found.assessment.effects) == body["counts"]["effects"]  # type: ignore[index]  # an object
    )


@pytest.mark.parametrize("table", list(shipped_tables()), ids=lambda table: table.source)
@pytest.mark.threat("T100")
def test_by_the_same_policy_nothing_differs(table: object) -> None:
    """Over every action of the shipped tables: denied, asked, allowed, by rules, of the file tools, for anybody."""
    bench = Bench(shipped(), None)
    gate = bench.gate(table)  # type: ignore[arg-type]  # parametrize gives no types
    policy = Policy(gate.settings.profile, gate.settings.rules)
    kept, wrong = Kept(), []
    for test in table.tests:  # type: ignore[attr-defined]
        for mode in {each or gate.mode for each, _ in test.expected or ((None, None),)}:
            hearing = EvaluationContext(
                gate.facts, policy.rules, policy.profile, mode, (("A", "b"),), source=test.proposer
            )
            hearing = replace(hearing, unattended=test.unattended)
            deed, verdict = recorded(kept, hearing, test.action(gate.facts, gate.cwd))
            if gate.facts.today is not None:  # the day of the table, and not of the record
                deed.record.body["time"] = f"{gate.facts.today}T12:00:00.000Z"
            if not same(found := rejudge(deed, policy, kept.find), verdict, deed):
                wrong.append((test.shown, mode.value, found))
    assert wrong == []
    assert kept.count >= len(table.tests)  # type: ignore[attr-defined]


GRANTED = [
    ("npm test", "exactly `npm test`", "an approval that was remembered"),
    ("make build", None, "the first thing that is offered"),
]


@pytest.mark.parametrize(("script", "words", "why"), GRANTED)
def test_what_a_grant_allowed_is_allowed_again_and_said_to_be_by_it(script: str, words: str | None, why: str) -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    words = (
        words
        if words in grant_questions.offered_choices(script, hearing)
        else next(iter(grant_questions.offered_choices(script, hearing)))
    )
    grants = tuple(
        replace(
            each,
            id=f"g{number:08x}",
            agent=MAIN,
            span=GrantScope.PROJECT,
            workspace=hearing.facts.workspace,
            session="",
        )
        for number, each in enumerate(grant_questions.approved_grants(script, words, hearing))
    )
    noted = FactRecorder(hearing.facts, hearing.profile)
    heard = replace(hearing, facts=noted.facts)
    assessment, verdict = heard.evaluate(grant_questions.action(script))
    settled = resolve(heard, assessment, verdict, grants)
    assert isinstance(verdict, Ask)
    assert isinstance(settled.verdict, Allow), why
    answer = RecordedAnswer(verdict.question, True, f"grant {grants[0].id}", source=AnswerSource.GRANT)
    names = tuple(each.id for each in settled.by)
    decision = Decision("bash", settled.assessment, settled.verdict, "T1", answer, (), names, settled.by, noted=noted)
    deed = kept.deed(decision)
    found = rejudge(deed, Policy(hearing.profile, hearing.rules), kept.find)
    assert isinstance(found, NewVerdict)
    assert same(found, settled.verdict, deed), why
    assert [each.id for each in found.by] == list(names)
    assert found.without is not None
    assert found.without.name == "ASK"
    denies = rejudge(deed, Policy(grant_questions.profile(DENY), hearing.rules), kept.find)
    assert isinstance(denies, NewVerdict)
    assert ruling(denies.verdict).name == "DENY", "a grant lifts no denial"


DENY = 'deny run=["npm", "**"]; deny run=["make", "**"]'


def test_what_flags_allowed_is_allowed_again_and_said_to_be_by_them(tmp_path: Path) -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    outside = f"{Path(hearing.facts.home).parent}/elsewhere.txt"
    hearing = replace(hearing, typed=FlagRights(read=(outside,), env=(("A", "secret-value"),)), source=Source.PERSON)
    deed, verdict = recorded(kept, hearing, RunScript(f"cat {outside}", hearing.facts.workspace))
    found = rejudge(deed, Policy(hearing.profile, hearing.rules), kept.find)
    assert isinstance(found, NewVerdict)
    assert same(found, verdict, deed)
    assert found.without is not None
    assert "secret-value" not in json.dumps([deed.record.body, kept.parts])


def changed(deed: DecisionTrail, **fields: object) -> DecisionTrail:
    return replace(deed, record=replace(deed.record, body={**deed.record.body, **fields}))


def with_timeout(deed: DecisionTrail, timeout: object) -> dict[str, object]:
    action = deed.record.body["action"]
    assert isinstance(action, dict)
    return {**action, "timeout": timeout}


def without_session(deed: DecisionTrail) -> DecisionTrail:
    return replace(deed, session=None)


UNKNOWN: list[tuple[str, Callable[[DecisionTrail], DecisionTrail], str, str]] = [
    ("an older log", lambda deed: changed(deed, facts=None), "facts that were not recorded", "it names no facts"),
    ("pruned", lambda deed: changed(deed, facts=["9999"]), "facts that are missing", "and they are not there"),
    ("a secret", lambda deed: changed(deed, redacted=["action.script"]), "a secret was removed", "it may be a path"),
    ("a flag's", lambda deed: changed(deed, redacted=["typed"]), "a secret was removed", "a path of a flag"),
    ("no session", without_session, "no session", "whether a user was there is not known"),
    ("a newer log", lambda deed: changed(deed, action={"type": "Fly"}), "not as this version writes it", "no such action"),
    ("fields", lambda deed: changed(deed, action={"type": "RunScript"}), "not as this version writes it", "no script"),
    ("a number", lambda deed: changed(deed, action=with_timeout(deed, 10**400)), "not as this version writes it", "no such time"),
    ("a mode", lambda deed: changed(deed, mode="yolo"), "not as this version writes it", "no such mode"),
    ("a grant", lambda deed: changed(deed, granted=[{"id": "g1"}]), "not as this version writes it", "half a grant"),
    ("a flag", lambda deed: changed(deed, typed=["--fly /x"]), "not as this version writes it", "no such flag"),
    ("malformed", lambda deed: replace(deed, record=replace(deed.record, body={"kind": "refused"})),
     "an invalid call", "nothing was decided"),
]  # fmt: skip


@pytest.mark.threat("T100")
@pytest.mark.parametrize(("name", "change", "kind", "why"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_what_is_not_recorded_is_not_guessed(
    name: str, change: Callable[[DecisionTrail], DecisionTrail], kind: str, why: str
) -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    deed, _ = recorded(kept, hearing, RunScript("cat notes.txt", hearing.facts.workspace))
    found = rejudge(change(deed), Policy(hearing.profile, hearing.rules), kept.find)
    assert isinstance(found, NotRecorded), why
    assert found.kind == kind


CUT = [
    (RunScript("cat notes.txt # " + "x" * TEXT_KEPT, "@"), False, "the end of a script may say anything"),
    (RunArgv(("cat", "x" * TEXT_KEPT), "@"), False, "and so may the words of a program"),
    (WriteFile("@/new.txt", "x" * (TEXT_KEPT + 1)), True, "what a file will hold decides nothing"),
    (EditFile("@/notes.txt", "x" * (TEXT_KEPT + 1), "y"), True, "nor what is replaced in it"),
]


def test_a_secret_in_what_a_file_will_hold_decides_nothing() -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    deed, verdict = recorded(kept, hearing, WriteFile(f"{hearing.facts.workspace}/new.txt", "x"))
    masked = changed(deed, redacted=["action.content"])
    assert same(rejudge(masked, Policy(hearing.profile, hearing.rules), kept.find), verdict, masked)
    found = rejudge(changed(deed, redacted=["action.path"]), Policy(hearing.profile, hearing.rules), kept.find)
    assert found == NotRecorded("a secret was removed", "from path")


@pytest.mark.parametrize(("action", "known", "why"), CUT, ids=lambda each: each if isinstance(each, str) else "")
def test_what_was_cut_is_judged_only_where_it_decides_nothing(action: Action, known: bool, why: str) -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    work = hearing.facts.workspace
    named = {name: str(getattr(action, name)).replace("@", work) for name in ("cwd", "path") if hasattr(action, name)}
    deed, verdict = recorded(kept, hearing, replace(action, **named))
    found = rejudge(deed, Policy(hearing.profile, hearing.rules), kept.find)
    assert isinstance(found, NewVerdict) is known, why
    if known:
        assert same(found, verdict, deed)


@pytest.mark.threat("T100")
def test_a_disk_that_changed_since_changes_nothing(tmp_path: Path) -> None:
    """The file was plain then; now it leads to a key. A machine that never saw either says the same as then."""
    from runner.facts.gather import gather

    work, home = tmp_path / "home" / "w", tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("key")
    work.mkdir()
    (work / "a.txt").write_text("plain")
    settings = shipped()
    facts = gather(str(work), {"HOME": str(home), "PATH": os.environ["PATH"]}, settings.profile)
    hearing, kept = EvaluationContext(facts, settings.rules, settings.profile, Mode.DEFAULT, ()), Kept()
    deed, verdict = recorded(kept, hearing, ReadFile(str(work / "a.txt")))
    assert isinstance(verdict, Allow)
    (work / "a.txt").unlink()
    (work / "a.txt").symlink_to(home / ".ssh" / "id_rsa")
    policy = Policy(settings.profile, settings.rules)
    assert same(rejudge(deed, policy, kept.find), verdict, deed)


def asked(**look: object) -> dict[str, object]:
    return {"look": look, "which": {}, "names": {}, "remotes": {}, "registries": {}}


MACHINE: dict[str, object] = {
    **{"workspace": "/h/w", "home": "/h", "path": [], "system": [], "private": [], "beyond": "", "cache": ""},
}
LOOKS = {
    "/h/w/a/b.txt": "file",
    "/h/w/gone": "missing",
    "/h/w/link": ["folder", "/x/y"],
    "/x/y/z": "file",
    "/d": "other",
}
TOP = {
    "whole": True,
    "file": [],
    "folder": ["a", "src"],
    "other": [],
    "links": {"link": ["folder", "/x/y"], "to": ["file", "/z"]},
}
FOLLOWS = [
    ("/h/w/a/b.txt", PathFact("/h/w/a/b.txt", Kind.FILE), "what was asked"),
    ("/h/w/link", PathFact("/x/y", Kind.FOLDER), "and where it led"),
    ("/h/w/a", PathFact("/h/w/a", Kind.FOLDER), "a real file lies in real folders"),
    ("/h/w", PathFact("/h/w", Kind.FOLDER), "the workspace was one"),
    ("/h", PathFact("/h", Kind.FOLDER), "and what holds it"),
    ("/", PathFact("/", Kind.FOLDER), "the root"),
    ("/x/y", PathFact("/x/y", Kind.FOLDER), "where a link led is real"),
    ("/h/w/a/b.txt/c", PathFact("/h/w/a/b.txt/c", Kind.MISSING), "nothing is in a file"),
    ("/h/w/gone/c/d", PathFact("/h/w/gone/c/d", Kind.MISSING), "nor in what is not there"),
    ("/h/w/link/z", PathFact("/x/y/z", Kind.FILE), "behind a link, what was asked there"),
    ("/h/w/link/z/q", PathFact("/x/y/z/q", Kind.MISSING), "and what follows from that"),
    ("/h/w/link/n", None, "another behind the link"),
    ("/h/w/src", PathFact("/h/w/src", Kind.FOLDER), "what lay in the workspace"),
    ("/h/w/src/b", None, "but not what lay deeper"),
    ("/h/w/to", PathFact("/z", Kind.FILE), "a link of the workspace"),
    ("/h/w/b", PathFact("/h/w/b", Kind.MISSING), "and what did not"),
    ("/h/w/b/c", PathFact("/h/w/b/c", Kind.MISSING), "nor anything in it"),
    ("/h/x", None, "beside the workspace"),
    ("/d/x", None, "below what could not be read"),
    ("/h/w/a/../b", None, "a path that is not in its one spelling"),
    ("/h/w/gone/../b", None, "nor is this"),
]


@pytest.mark.parametrize(("path", "expected", "why"), FOLLOWS, ids=[row[0] for row in FOLLOWS])
def test_what_follows_from_what_was_asked(path: str, expected: PathFact | None, why: str) -> None:
    machine = Recorded(MACHINE, TOP, asked(**LOOKS), None)
    found = machine.facts.look(path)
    assert (None if machine.missing else found) == expected, why


@pytest.mark.parametrize("scope", [[], {}, None, 1, "everywhere"], ids=str)
def test_registries_of_no_known_scope_are_missing(scope: object) -> None:
    machine = Recorded(MACHINE, TOP, {**asked(), "registries": {"npm\0/h/w": [["host.example", scope]]}}, None)
    assert machine.facts.registries("npm", "/h/w") == ()
    assert machine.missing == ["the recorded registries are invalid"]


# fmt: off
SOURCES = [  # the part of the repository, its name in every record
    (GitSource(GitSourceKind.INDEX),                    "index"),
    (GitSource(GitSourceKind.ASSUMED),                  "index entries assumed unchanged"),
    (GitSource(GitSourceKind.HISTORY),                  "history"),
    (GitSource(GitSourceKind.DELETED),                  "deleted files"),
    (GitSource(GitSourceKind.STASH),                    "stash"),
    (GitSource(GitSourceKind.TREE, "HEAD~1"),           "tree of HEAD~1"),
    (GitSource(GitSourceKind.CHANGE, ":/part of it"),   "change of :/part of it"),
    (GitSource(GitSourceKind.CONTENT, "v1"),            "content of v1"),
]
# fmt: on


@pytest.mark.parametrize(("source", "name"), SOURCES, ids=[name for _, name in SOURCES])
def test_parts_of_a_repository_keep_their_names_in_records(source: GitSource, name: str) -> None:
    hearing = grant_questions.evaluation_context()
    recorder = FactRecorder(replace(hearing.facts, tracked=lambda each: (".env",)), hearing.profile)
    recorder.facts.tracked(source)
    assert recorder.parts()[-1]["tracked"] == {name: (".env",)}
    machine = Recorded(MACHINE, TOP, {**asked(), "tracked": {name: [".env"]}}, None)
    assert (machine.facts.tracked(source), machine.missing) == ((".env",), [])


def test_a_session_whose_folder_is_no_path_is_of_no_policy(tmp_path: Path) -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    deed, _ = recorded(kept, hearing, RunScript("cat notes.txt", hearing.facts.workspace))
    assert deed.session is not None
    odd = replace(deed, session=replace(deed.session, body={**deed.session.body, "workspace": "/w/\ud800"}))
    environ = {"HOME": str(tmp_path), "RINGFENCE_CONFIG_DIR": str(tmp_path)}
    assert Policies(environ, None).of(odd) == NotRecorded("a workspace that does not exist", "its name is not a path")


def test_what_was_not_asked_then_may_be_asked_of_today_and_is_said() -> None:
    hearing, kept = grant_questions.evaluation_context(), Kept()
    deed, _ = recorded(kept, hearing, RunScript("cat notes.txt", hearing.facts.workspace))
    other = Policy(grant_questions.profile('deny read=["docs/old/**"]'), hearing.rules)
    found = rejudge(deed, other, kept.find)
    assert found == NotRecorded("facts that were not requested then", f"what `{hearing.facts.workspace}/docs/old` is")
    top = Policy(grant_questions.profile('deny read=["private/**", "nowhere/at/all/**"]'), hearing.rules)
    assert isinstance(rejudge(deed, top, kept.find), NewVerdict), "what lies directly in the workspace is recorded"
    looked = rejudge(deed, other, kept.find, now=hearing.facts.look)
    assert isinstance(looked, NewVerdict)
    assert looked.looked == (f"{hearing.facts.workspace}/docs/old",)
    assert ruling(looked.verdict).name == "ALLOW"


def test_what_is_asked_about_one_action_is_bounded_and_the_rest_counted() -> None:
    noted = FactRecorder(model_facts(shipped().profile), shipped().profile)
    for number in range(5000):
        noted.facts.look(f"/home/you/project/{number:040}")
    *_, part = noted.parts()
    assert len(canonical(part)) < MOST + 1000
    look = part["look"]
    assert isinstance(look, dict)
    assert len(look) + int(str(part["cut"])) == 5000
    assert part["cut"], "and it says so"


def test_no_password_of_an_address_is_kept() -> None:
    facts = model_facts(shipped().profile)
    fetch = {"origin": ("https://me:hunter2hunter2@host.example/a", "git@host.example:b", "https://host.example/c@d")}
    facts = replace(facts, remotes=lambda _: Remotes(fetch=fetch, modules=("ssh://u:p@h/x",)))
    noted = FactRecorder(facts, shipped().profile)
    noted.facts.remotes("/home/you/project")
    *_, part = noted.parts()
    assert "hunter2" not in canonical(part)
    first, second, *_ = noted.parts()
    kept = Recorded(first, second, json.loads(canonical(part)), None).facts.remotes("/home/you/project")
    assert kept.fetch == {"origin": ("https://me:x@host.example/a", "git@host.example:b", "https://host.example/c@d")}
    assert kept.modules == ("ssh://u:x@h/x",)


def mutated(value: object, draw: random.Random) -> object:
    """Return a copy of the JSON value with one place replaced."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(sorted(value))
        return {**value, name: mutated(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        return [*value[:place], mutated(value[place], draw), *value[place + 1 :]]
    return draw.choice(
        [
            None,
            True,
            -1,
            10**40,
            10**400,
            1.5,
            "",
            "x\0y",
            "/\ud800",
            "../..",
            [],
            [[]],
            {},
            {"cut": 5},
            ["a", 1],
            "missing",
        ]
    )


@pytest.mark.threat("T100")
@pytest.mark.parametrize("seed", range(number_of_examples(3, many=8)))
def test_a_log_that_somebody_else_wrote_breaks_nothing(seed: int) -> None:
    """Whatever stands in its records: an answer, or that there is none."""
    draw = random.Random(seed)
    hearing, kept = grant_questions.evaluation_context(), Kept()
    hearing = replace(hearing, typed=FlagRights(read=("/etc/x",)), source=Source.PERSON)
    policy = Policy(grant_questions.profile('deny write=["docs/**"]; ask run=["git", "push"]'), hearing.rules)
    for script in ("cat notes.txt", "git push origin", "npm test > docs/a.md", "rm docs/*", "npm install left-pad"):
        deed, _ = recorded(kept, hearing, RunScript(script, hearing.facts.workspace))
        parts = dict(kept.parts)
        for _ in range(25):
            spoilt = {name: mutated(part, draw) for name, part in parts.items()}
            kept.parts = {name: part for name, part in spoilt.items() if isinstance(part, dict)}
            body = mutated(deed.record.body, draw)
            if isinstance(body, dict):
                found = rejudge(changed(deed, **body), policy, kept.find)
                assert isinstance(found, NewVerdict | NotRecorded)
                told = Replayed()
                told.add(changed(deed, **body), found)
                assert all(line.isprintable() for line in lines(told))


# ---- the command


def agent(*words: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    return forked_agent.run([AGENT, *words], env=environ, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A home whose log has six decisions, and its workspace."""
    home = tmp_path_factory.mktemp("home")
    work = home / "work"
    work.mkdir()
    (work / "a.txt").write_text("a\n")
    (home / "new.toml").write_text(NEW)
    for words in (
        ("cat a.txt",),
        ("--mode", "trust-project", "echo b > b.txt"),
        ("cat ~/.ssh/id_rsa",),
        ("git push",),
        ("git push",),
        ("--read", str(home / "new.toml"), f"cat {home}/new.toml"),
    ):
        agent("exec", "--unattended", *words, cwd=work, home=home)
    return home, work


NEW = """
[[rule]]
verdict = "deny"
write = ["b.txt"]
why = "b is ours"

[[rule]]
verdict = "allow"
run = ["git", "push", "**"]
tier = ["network"]
why = "pushing is fine here"
"""


def test_another_policy_in_words(lived: tuple[Path, Path]) -> None:
    home, work = lived
    done = agent("audit", "replay", "--policy", str(home / "new.toml"), cwd=work, home=home)
    assert done.returncode == 0, done.stderr
    told = re.sub(r"(command:[\w-]+):\d+", r"\1:N", done.stdout.replace(str(home), "/home/you"))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(told)
    assert told == GOLDEN.read_text()


@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_what_commands_changed_is_judged_whatever_their_text_says(tmp_path: Path) -> None:
    home, work = tmp_path, tmp_path / "work"
    work.mkdir()
    (home / ".config/ringfence").mkdir(parents=True)
    (home / ".config/ringfence/config.toml").write_text('flow = "note"\n')
    (home / "new.toml").write_text(NEW)
    (work / "b.txt").write_text("old\n")
    (work / "make.sh").write_text("echo new > b.txt; echo x > c.txt; echo evil > requirements.txt\n")
    ran = ("exec", "--unattended", "--mode", "trust-project")
    agent(*ran, "bash make.sh", cwd=work, home=home)
    (work / "make.sh").write_text("echo worse > requirements.txt; echo y > c.txt\n")
    agent(*ran, "--untrusted", "issue 1", "bash make.sh", cwd=work, home=home)
    agent(*ran, "rm b.txt", cwd=work, home=home)

    def found(*words: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
        done = agent("audit", "replay", "--json", *words, cwd=work, home=home)
        assert done.returncode == 0, done.stderr
        return [
            (each["action"], [(Path(file["path"]).name, file["how"], file["reason"]) for file in each["files"]])
            for each in json.loads(done.stdout)["changes"]
        ]

    assert found() == []
    # The third command is denied as a whole.
    assert found("--policy", str(home / "new.toml")) == [("bash make.sh", [("b.txt", "modified", "protected")])]
    later = ("requirements.txt", "modified", "trusted-later")
    assert found("--flow", "guard") == [("bash make.sh", [later])], "the first command came from the user"
    told = agent("audit", "replay", "--policy", str(home / "new.toml"), cwd=work, home=home).stdout
    assert "held back        1  commands whose changes would not be applied completely" in told
    assert f"modified {work}/b.txt: b is ours ({home}/new.toml:2)" in told


@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_changes_are_judged_by_the_patterns_and_the_limit_of_another_configuration(tmp_path: Path) -> None:
    home, work = tmp_path, tmp_path / "work"
    for name in ("many/a", "many/b", "many/c", "one", "lib/.git/HEAD"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x\n")
    (work / "make.sh").write_text("for d in . lib sub; do mkdir -p $d/tools; echo hook > $d/tools/pre-commit; done\n")
    (work / "clean.sh").write_text("rm -r many one\n")
    ran = ("exec", "--unattended", "--mode", "trust-project")
    for words in (("bash make.sh",), ("bash clean.sh",), ("--write", f"{work}/tools/pre-push", "touch tools/pre-push")):
        agent(*ran, *words, cwd=work, home=home)
    assert not (work / "many").exists()

    def found(*words: str) -> dict[str, list[tuple[str, str, str]]]:
        done = agent("audit", "replay", "--json", *words, cwd=work, home=home)
        assert done.returncode == 0, done.stderr
        changes = json.loads(done.stdout)["changes"]
        return {
            each["action"]: [
                (str(Path(file["path"]).relative_to(work)), file["how"], file["reason"]) for file in each["files"]
            ]
            for each in changes
        }

    assert found() == {}
    for most, expected in ((4, 0), (3, 5), (0, 0)):
        (home / "new.toml").write_text(f"[sandbox]\nmost_deleted = {most}\n")
        rows = found("--policy", str(home / "new.toml")).get("bash clean.sh", [])
        assert [row[1:] for row in rows] == [("deleted", "deletions")] * expected, "four files and a folder"
    (home / "new.toml").write_text("[sandbox]\nmost_deleted = 3\ntransactions = false\n")
    assert found("--policy", str(home / "new.toml")) == {}, "without transactions nothing is held back"
    (home / ".gitconfig").write_text("[core]\nhooksPath = tools\n")
    rows = found()["bash make.sh"]
    assert {row[0] for row in rows} == {"lib/tools", "lib/tools/pre-commit", "tools", "tools/pre-commit"}, "not `sub`"
    assert {row[2] for row in rows} == {"auto-run"}
    assert list(found()) == ["bash make.sh"], "a file that the user opened by name is no finding"


def test_a_malformed_call_is_counted_and_not_judged(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    calls = '[[turn]]\ncalls = [{ name = "bash", arguments = { command = "ls" } }, { name = "nope", arguments = {} }]\n'
    (tmp_path / "script.toml").write_text(calls)
    agent("run", f"--model=scripted:{tmp_path}/script.toml", "go", cwd=work, home=tmp_path)
    counted = json.loads(agent("audit", "stats", "--json", cwd=work, home=tmp_path).stdout)["decisions"]
    replayed = json.loads(agent("audit", "replay", "--json", cwd=work, home=tmp_path).stdout)
    assert (counted, replayed["replayed"], replayed["malformed"]) == (2, 1, 1), "both numbers are explained"
    told = agent("audit", "replay", cwd=work, home=tmp_path).stdout
    assert "1 malformed call not replayed: no policy judges a call that is no action" in told


def test_a_step_of_the_user_is_counted_and_is_no_malformed_call(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    calls = '[[turn]]\ncalls = [{ name = "write", arguments = { path = "a", content = "b" } }]\n'
    (tmp_path / "script.toml").write_text(calls)
    agent("run", "--mode=accept-edits", f"--model=scripted:{tmp_path}/script.toml", "go", cwd=work, home=tmp_path)
    assert (work / "a").read_text() == "b"
    agent("undo", cwd=work, home=tmp_path)
    assert not (work / "a").exists()
    replayed = json.loads(agent("audit", "replay", "--json", cwd=work, home=tmp_path).stdout)
    assert (replayed["replayed"], replayed["malformed"], replayed["by_user"]) == (1, 0, 1)
    told = agent("audit", "replay", cwd=work, home=tmp_path).stdout
    assert "1 step of the user not replayed: a policy judges actions of the model" in told


ENDS = [
    ((), 0, {"allowed": 0, "asked": 0, "denied": 0, "tier": 0}, "by what holds now, nothing differs"),
    (("--policy", "@/new.toml"), 0, {"allowed": 2, "asked": 0, "denied": 1, "tier": 0}, "another file"),
    (("--policy", "@/new.toml", "--fail-above", "execute"), 1, {"allowed": 2, "asked": 0, "denied": 1, "tier": 0}, "network is above"),
    (("--policy", "@/new.toml", "--fail-above", "network"), 0, {"allowed": 2, "asked": 0, "denied": 1, "tier": 0}, "and not above itself"),
    (("--policy", "@/new.toml", "--command", "cat"), 0, {"allowed": 0, "asked": 0, "denied": 0, "tier": 0}, "of some only"),
    (("--mode", "plan"), 0, {"allowed": 0, "asked": 0, "denied": 2, "tier": 0}, "another mode, for flags as well"),
    (("--mode", "dangerously"), 0, {"allowed": 2, "asked": 0, "denied": 0, "tier": 0}, "a key stays a key"),
    (("--matrix", "write=deny"), 0, {"allowed": 0, "asked": 0, "denied": 1, "tier": 0}, "another cell"),
    (("--matrix", "write/plan=deny"), 0, {"allowed": 0, "asked": 0, "denied": 0, "tier": 0}, "of a mode that nothing was in"),
    (("--matrix", "network/default=allow"), 0, {"allowed": 2, "asked": 0, "denied": 0, "tier": 0}, "a milder one"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "counts", "why"), ENDS, ids=[row[3] for row in ENDS])
def test_the_ends_of_a_replay(
    lived: tuple[Path, Path], words: tuple[str, ...], code: int, counts: dict[str, int], why: str
) -> None:
    home, work = lived
    given = [word.replace("@", str(home)) for word in words]
    done = agent("audit", "replay", "--json", *given, cwd=work, home=home)
    told = json.loads(done.stdout)
    assert (done.returncode, told["counts"], told["unknown"]) == (code, counts, []), (why, done.stderr)
    assert bool(told["above"]) is bool(code)


WRONG = [
    (("--policy", "none.toml"), "there is no policy `none.toml`"),
    (("--policy", "."), "is not a configuration folder"),
    (("--matrix", "secret=allow"), "is not possible"),
    (("--matrix", "write=maybe"), "is not a cell of the matrix"),
    (("--matrix", "write/later=deny"), "is not a cell of the matrix"),
    (("--matrix", "rite=deny"), "there is no tier `rite`"),
    (("--matrix", "a.txt"), "is not a matrix"),
    (("--fail-above", "netwrk"), "there is no tier `netwrk`"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_what_cannot_be_meant_is_said(lived: tuple[Path, Path], words: tuple[str, ...], said: str) -> None:
    home, work = lived
    done = agent("audit", "replay", *words, cwd=work, home=home)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_folder_that_is_gone_and_had_a_configuration_of_its_own(tmp_path: Path) -> None:
    home, work = tmp_path, tmp_path / "work"
    (work / ".ringfence").mkdir(parents=True)
    (work / ".ringfence" / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["true"]\nwhy = "x"\n')
    assert agent("exec", "true", cwd=work, home=home).returncode == 3
    assert json.loads(agent("audit", "replay", "--json", cwd=work, home=home).stdout)["counts"]["allowed"] == 0
    work.rename(home / "elsewhere")
    told = json.loads(agent("audit", "replay", "--json", cwd=home, home=home).stdout)
    assert [each["why"] for each in told["unknown"]] == ["a workspace that does not exist"]
    plain = agent("audit", "replay", "--strict", cwd=home, home=home)
    assert (plain.returncode, plain.stdout.splitlines()) == (
        1,
        ["none of 1 decision could be replayed", "unknown     1  a workspace that does not exist (record 5)"],
    )


@pytest.mark.parametrize("more", [(), ("--review", "--patch", "@/p")], ids=["in place", "on a copy"])
def test_what_a_pipeline_did_is_the_same_by_the_same_policy(tmp_path: Path, more: tuple[str, ...]) -> None:
    """With rules about paths, a hostile configuration of the repository that does not count, and files of the job."""
    home, work = tmp_path / "home", tmp_path / "home" / "work"
    (work / ".ringfence").mkdir(parents=True)
    (work / ".ringfence" / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["cat", "**"]\nwhy = "x"\n')
    (work / "a.txt").write_text("a\n")
    (home / ".config" / "ringfence").mkdir(parents=True)
    rules = f'[[rule]]\nverdict = "deny"\nwrite = ["{work}/kept/**"]\nwhy = "kept"\n'
    (home / ".config" / "ringfence" / "config.toml").write_text(rules)
    outside = tmp_path / "job" / "env"
    outside.parent.mkdir()
    outside.write_text("")
    calls = [
        "cat a.txt",
        "mkdir kept; echo b > kept/b",
        f"cat {work}/a.txt",
        f"echo x > {outside}",
        "rm a.txt",
        "git push",
    ]
    turns = [f'[[turn]]\ncalls = [{{name = "bash", arguments = {{command = {json.dumps(each)}}}}}]' for each in calls]
    read = '[[turn]]\ncalls = [{name = "read", arguments = {path = "a.txt"}}]'
    (tmp_path / "s.toml").write_text("\n".join([read, *turns, '[[turn]]\ntext = "done"']))
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "GITHUB_ENV": str(outside)}
    words = ["ci", "go", "--json", "--model", f"scripted:{tmp_path}/s.toml", "--max-denials", "99"]
    words += [word.replace("@", str(tmp_path)) for word in more]
    done = forked_agent.run([AGENT, *words], env=environ, cwd=work, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    told = json.loads(agent("audit", "replay", "--json", cwd=home, home=home).stdout)
    assert (told["differences"], told["unknown"], told["replayed"]) == ([], [], len(calls) + 1)
    stricter = json.loads(agent("audit", "replay", "--json", "--mode", "plan", cwd=home, home=home).stdout)
    assert stricter["counts"]["denied"] >= 1


def test_a_configuration_that_was_named_for_one_run_counts_for_that_run(tmp_path: Path) -> None:
    home, work = tmp_path, tmp_path / "work"
    work.mkdir()
    (work / "one.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["true"]\nwhy = "x"\n')
    assert agent("exec", "--config", "one.toml", "true", cwd=work, home=home).returncode == 3
    assert agent("exec", "true", cwd=work, home=home).returncode == 0
    told = json.loads(agent("audit", "replay", "--json", cwd=home, home=home).stdout)
    assert (told["replayed"], told["differences"], told["unknown"]) == (2, [], [])
    (work / "one.toml").unlink()
    told = json.loads(agent("audit", "replay", "--json", cwd=home, home=home).stdout)
    assert [each["why"] for each in told["unknown"]] == ["a configuration that is missing"]
