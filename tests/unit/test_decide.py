"""Tests of decisions: the matrix, the protected minimum, the exact terms, and properties that no change may break."""

import ast
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.decide import decide, deciding_cell
from policy.describe.matrix import rows, table
from policy.describe.summary import question
from policy.interpreter.interpreter import denied_reason
from policy.model.action import Action, ReadFile, RunArgv, RunScript, WriteFile
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets
from policy.model.tier import MATRIX, Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny, Limits, Rights, Terms, Verdict
from policy.toml.profile import parse_profile
from tests.support.places import ROOT

PACKAGES = ("policy", "sandbox", "tools", "runner", "profiles")
PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")
ENVIRONMENT = (("HOME", "/home/u"), ("PATH", "/usr/bin"))
MISSING = (
    "/home/u/p/.vscode",
    "/home/u/p/.vscode/tasks.json",
    "/var/tmp/new",
    "/var/tmp/deep",
    "/var/tmp/deep/new",
    "/home/u/new",
    "/home/u/p/new",
)


def look(path: str) -> PathFact:
    return PathFact(path, Kind.MISSING if path in MISSING else Kind.FILE)


FACTS = Facts(
    workspace="/home/u/p",
    home="/home/u",
    path=("/usr/bin",),
    system=("/usr", "/etc/passwd", "/home/u/.pyenv"),
    private=("/home/u/.local/state/ringfence", "/srv/state"),
    look=look,
    which=lambda name: None,
)
READ, WRITE, DELETE = EffectKind.READS, EffectKind.WRITES, EffectKind.DELETES
RUN, CONNECT, UNKNOWN = EffectKind.RUNS, EffectKind.CONNECTS, EffectKind.UNKNOWN


def assess(
    tiers: list[Tier], effects: list[Effect], action: Action | None = None, *, plain_edit: bool = False
) -> Assessment:
    reasons = tuple(Reason(tier, f"because of {tier.label}", RuleRef(RuleKind.COMMAND, "x", 7)) for tier in tiers)
    return Assessment(action or RunScript("x y", "/home/u/p"), tuple(effects), reasons, plain_edit)


def verdict(
    assessment: Assessment, mode: Mode, *, unattended: bool = False, facts: Facts = FACTS, profile: Profile = PROFILE
) -> Verdict:
    return decide(assessment, facts, profile, mode, unattended=unattended, environment=ENVIRONMENT)


def terms(assessment: Assessment, mode: Mode = Mode.DANGEROUSLY) -> Terms:
    found = verdict(assessment, mode)
    assert isinstance(found, Allow), found
    return found.permit.terms


def denial(assessment: Assessment, mode: Mode = Mode.DANGEROUSLY, *, unattended: bool = False) -> Deny:
    found = verdict(assessment, mode, unattended=unattended)
    assert isinstance(found, Deny), found
    return found


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_matrix_as_printed_is_the_reviewed_one() -> None:
    assert table() == (ROOT / "tests" / "golden" / "matrix.txt").read_text()


def test_every_tier_has_a_row_and_every_mode_a_column() -> None:
    assert [row[0] for row in rows()] == ["tier", *(tier.label for tier in MATRIX)]
    assert {row[0] for row in rows()[1:]} == {tier.label for tier in Tier}
    assert [f"{tier}, {tier!s}, {tier:>12}" for tier in (Tier.READ_OUTSIDE,)] == [
        "read-outside, read-outside, read-outside"
    ]
    assert all(len(row) == 1 + len(Mode) for row in rows())


@pytest.mark.parametrize(("tier", "mode"), list(itertools.product(Tier, Mode)))
def test_one_tier_decides_as_its_cell_says(tier: Tier, mode: Mode) -> None:
    found = verdict(assess([tier], [], plain_edit=True), mode)
    assert {Allow: Ruling.ALLOW, Ask: Ruling.ASK, Deny: Ruling.DENY}[type(found)] is MATRIX[tier][mode]
    assert (found.cell.tier, found.cell.mode) == (tier, mode)
    assert found.reason.tier is tier


DECIDING = [
    # tiers, mode, plain edit, ruling, deciding tier, why
    ([Tier.READ, Tier.NETWORK], Mode.DEFAULT, False, Ruling.ASK, Tier.NETWORK, "the strictest cell wins"),
    ([Tier.WRITE, Tier.EXECUTE], Mode.DEFAULT, False, Ruling.ASK, Tier.EXECUTE, "of equal cells the worst tier"),
    ([Tier.WRITE, Tier.NETWORK], Mode.DONT_ASK, False, Ruling.DENY, Tier.NETWORK, "dont-ask denies the network"),
    ([Tier.WRITE], Mode.ACCEPT_EDITS, True, Ruling.ALLOW, Tier.WRITE, "a plain edit"),
    ([Tier.WRITE], Mode.ACCEPT_EDITS, False, Ruling.ASK, Tier.WRITE, "git commit writes, but is no plain edit"),
    ([Tier.WRITE, Tier.EXECUTE], Mode.ACCEPT_EDITS, True, Ruling.ASK, Tier.EXECUTE, "plain, but code runs too"),
    ([Tier.SECRET, Tier.DANGEROUS], Mode.DANGEROUSLY, True, Ruling.DENY, Tier.SECRET, "the floor holds everywhere"),
    ([Tier.DENIED, Tier.SECRET], Mode.DANGEROUSLY, True, Ruling.DENY, Tier.DENIED, "the denied list is named first"),
    ([], Mode.TRUST_PROJECT, False, Ruling.ASK, Tier.UNKNOWN, "nothing to say is unknown"),
]


@pytest.mark.parametrize(("tiers", "mode", "plain", "ruling", "tier", "why"), DECIDING)
def test_deciding_cell(tiers: list[Tier], mode: Mode, plain: bool, ruling: Ruling, tier: Tier, why: str) -> None:
    cell = deciding_cell(assess(tiers, [], plain_edit=plain), mode)
    assert (cell.ruling, cell.tier) == (ruling, tier), why


# --- terms ------------------------------------------------------------------------------------------------------------


# tiers, mode, edit of a plain file, first mode that allows, first mode that asks, why
LIFTING = [
    ([Tier.WRITE],              Mode.PLAN,     True,  Mode.ACCEPT_EDITS,  Mode.DEFAULT, "a plain edit"),
    ([Tier.WRITE],              Mode.PLAN,     False, Mode.TRUST_PROJECT, Mode.DEFAULT, "another write"),
    ([Tier.WRITE, Tier.EXECUTE], Mode.PLAN,    False, Mode.TRUST_PROJECT, Mode.DEFAULT, "code"),
    ([Tier.NETWORK],            Mode.PLAN,     False, None,               Mode.DEFAULT, "no mode allows it but one that is never named"),
    ([Tier.NETWORK],            Mode.DONT_ASK, False, None,               Mode.DEFAULT, "the same"),
    ([Tier.SECRET],             Mode.DEFAULT,  False, None,               None,         "no mode"),
    ([Tier.DENIED, Tier.WRITE], Mode.PLAN,     False, None,               None,         "no mode"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tiers", "mode", "plain", "allowed", "asked", "why"), LIFTING, ids=[f"{r[1]}-{r[5]}" for r in LIFTING]
)
def test_a_denial_names_the_modes_that_lift_it(
    tiers: list[Tier], mode: Mode, plain: bool, allowed: Mode | None, asked: Mode | None, why: str
) -> None:
    found = denial(assess(tiers, [], plain_edit=plain), mode)
    assert (found.allowed_in, found.asked_in) == (allowed, asked), why
    for lifting, expected in ((allowed, Allow), (asked, Ask)):
        if lifting is not None:
            assert isinstance(verdict(assess(tiers, [], plain_edit=plain), lifting), expected), "and they do"


def effect(kind: EffectKind, target: str, scope: Scope, *, exact: bool = True) -> Effect:
    return Effect(kind, target, scope, exact)


OUT, IN, SYS = Scope.OUTSIDE, Scope.WORKSPACE, Scope.SYSTEM
GRANTED = [
    # tiers, effects, rights, read, write, hosts, why
    ([Tier.READ], [effect(READ, "/home/u/p/a", IN)], Rights.READ_ONLY, (), (), (), "reading the project"),
    ([Tier.READ], [effect(READ, "/usr/bin/ls", SYS)], Rights.READ_ONLY, (), (), (), "reading the system"),
    ([Tier.READ], [], Rights.READ_ONLY, (), (), (), "echo reads nothing at all"),
    (
        [Tier.WRITE],
        [effect(WRITE, "/home/u/p/a", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "changing the project",
    ),
    (
        [Tier.EXECUTE],
        [effect(RUN, "pytest", Scope.NONE)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "code runs",
    ),
    (
        [Tier.UNKNOWN],
        [effect(UNKNOWN, "eval", Scope.NONE)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "nobody can tell, an approval was given",
    ),
    (
        [Tier.UNKNOWN],
        [],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "a tier without effects has nothing to narrow by",
    ),
    ([Tier.WRITE], [effect(READ, "/home/u/p/a", IN)], Rights.READ_ONLY, (), (), (), "the effects say what it needs"),
    ([Tier.READ_OUTSIDE], [effect(READ, "/srv/x", OUT)], Rights.READ_ONLY, ("/srv/x",), (), (), "the named file"),
    ([Tier.READ_OUTSIDE], [effect(READ, "/srv/d", OUT, exact=False)], Rights.READ_ONLY, ("/srv/d",), (), (), "a bound"),
    ([Tier.READ_OUTSIDE], [effect(READ, "/var/tmp/new", OUT)], Rights.READ_ONLY, (), (), (), "nothing there to show"),
    ([Tier.NETWORK], [effect(CONNECT, "a.b", Scope.NONE)], Rights.READ_ONLY, (), (), ("a.b",), "the named host"),
    (
        [Tier.NETWORK, Tier.WRITE],
        [effect(CONNECT, "a.b", Scope.NONE), effect(WRITE, "/home/u/p/a", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        ("a.b",),
        "a download into the project",
    ),
    (
        [Tier.WRITE_OUTSIDE],
        [effect(WRITE, "/var/tmp/old", OUT)],
        Rights.READ_ONLY,
        (),
        ("/var/tmp/old",),
        (),
        "this file",
    ),
    (
        [Tier.WRITE_OUTSIDE],
        [effect(WRITE, "/var/tmp/deep/new", OUT)],
        Rights.READ_ONLY,
        (),
        ("/var/tmp",),
        (),
        "a new name is a write to the folder that will hold it",
    ),
    (
        [Tier.WRITE_OUTSIDE],
        [effect(DELETE, "/var/tmp/old", OUT)],
        Rights.READ_ONLY,
        (),
        ("/var/tmp",),
        (),
        "so is removing",
    ),
    (
        [Tier.WRITE_OUTSIDE],
        [effect(READ, "/srv/d/x", OUT), effect(WRITE, "/srv/d", OUT, exact=False)],
        Rights.READ_ONLY,
        (),
        ("/srv/d",),
        (),
        "what may be changed may be read",
    ),
    (
        [Tier.WRITE_OUTSIDE],
        [effect(WRITE, "/dev/null", OUT)],
        Rights.READ_ONLY,
        (),
        (),
        (),
        "every sandbox has its own",
    ),
    (
        [Tier.READ_OUTSIDE],
        [effect(READ, "/proc/cpuinfo", OUT)],
        Rights.READ_ONLY,
        (),
        (),
        (),
        "the sandbox has its own /proc",
    ),
    # The classifier contradicts itself: the tier that a user accepted is the limit, not the effects.
    ([Tier.READ], [effect(WRITE, "/home/u/p/a", IN)], Rights.READ_ONLY, (), (), (), "tier read never writes"),
    ([Tier.READ], [effect(CONNECT, "a.b", Scope.NONE)], Rights.READ_ONLY, (), (), (), "tier read never connects"),
    ([Tier.WRITE], [effect(WRITE, "/srv/x", OUT)], Rights.READ_ONLY, (), (), (), "tier write stays inside"),
    (
        [Tier.EXECUTE],
        [effect(READ, "/srv/x", OUT), effect(RUN, "x", Scope.NONE)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "and execute",
    ),
    # Auto-run files open by their exact name, once the user accepted more than a plain write.
    (
        [Tier.WRITE],
        [effect(WRITE, "/home/u/p/.git/config", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "locked stays locked",
    ),
    (
        [Tier.DANGEROUS],
        [effect(WRITE, "/home/u/p/.git/config", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        ("/home/u/p/.git/config",),
        (),
        "an approval opens this one",
    ),
    (
        [Tier.DANGEROUS],
        [effect(WRITE, "/home/u/p/sub/.vscode/tasks.json", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        ("/home/u/p/sub/.vscode/tasks.json",),
        (),
        "in a nested repository too",
    ),
    (
        [Tier.DANGEROUS],
        [effect(DELETE, "/home/u/p/src/a", IN)],
        Rights.WORKSPACE_WRITE,
        (),
        (),
        (),
        "and nothing that is not locked",
    ),
]


@pytest.mark.parametrize(("tiers", "effects", "rights", "read", "write", "hosts", "why"), GRANTED)
def test_terms_are_what_the_effects_need(
    tiers: list[Tier],
    effects: list[Effect],
    rights: Rights,
    read: tuple[str, ...],
    write: tuple[str, ...],
    hosts: tuple[str, ...],
    why: str,
) -> None:
    found = terms(assess(tiers, effects, plain_edit=True))
    assert (found.rights, found.read, found.write, found.hosts) == (rights, read, write, hosts), why


def test_terms_carry_the_profile_and_the_environment() -> None:
    found = terms(assess([Tier.READ], []))
    assert found.hidden == PROFILE.secret_names
    assert found.shown == PROFILE.public_names
    assert found.locked == PROFILE.locked
    assert found.system == FACTS.system
    assert dict(found.env) == dict(ENVIRONMENT) | {"TMPDIR": "/run/tmp"}
    assert (found.workspace, found.home) == (FACTS.workspace, FACTS.home)
    assert found.limits == PROFILE.limits


@pytest.mark.threat("T62")
def test_only_what_may_change_the_workspace_gets_the_cache_and_its_variables() -> None:
    facts = replace(FACTS, cache="/srv/state/kept", caching=(("XDG_CACHE_HOME", "/home/u/.cache"),))
    work = verdict(assess([Tier.EXECUTE], []), Mode.TRUST_PROJECT, facts=facts)
    look = verdict(assess([Tier.READ], []), Mode.DEFAULT, facts=facts)
    assert isinstance(work, Allow)
    assert isinstance(look, Allow)
    assert (work.permit.terms.cache, dict(work.permit.terms.env)["XDG_CACHE_HOME"]) == (facts.cache, "/home/u/.cache")
    assert (look.permit.terms.cache, "XDG_CACHE_HOME" in dict(look.permit.terms.env)) == ("", False)


def test_who_may_fetch_uses_the_cache_in_place_of_what_is_there_already() -> None:
    facts = replace(FACTS, cache="/srv/state/kept", fetching=(("CARGO_HOME", "/home/u/.cache/cargo"),))
    inner = effect(EffectKind.WRITES, "/home/u/p/x", Scope.WORKSPACE)
    fetches = assess([Tier.NETWORK, Tier.EXECUTE], [effect(EffectKind.CONNECTS, "a.org:443", Scope.NONE), inner])
    rows = [(fetches, True), (assess([Tier.EXECUTE], []), False), (assess([Tier.READ], []), False)]
    for assessment, expected in rows:
        found = verdict(assessment, Mode.DANGEROUSLY, facts=facts)
        assert isinstance(found, Allow)
        assert ("CARGO_HOME" in dict(found.permit.terms.env)) is expected


def test_unix_sockets_can_be_forbidden_and_are_never_for_a_look() -> None:
    forbidden = replace(PROFILE, unix_sockets=False)
    rows = [(PROFILE, Tier.EXECUTE, True), (forbidden, Tier.EXECUTE, False), (PROFILE, Tier.READ, False)]
    for profile, tier, expected in rows:
        found = verdict(assess([tier], []), Mode.TRUST_PROJECT, profile=profile)
        assert isinstance(found, Allow)
        assert found.permit.terms.unix is expected


@pytest.mark.threat("T45")
@pytest.mark.parametrize(
    "root", ["/", "/home", "/home/u", "/home/u/.ssh", "/srv", "/srv/state", "/home/u/.config", "/etc"]
)
def test_a_system_root_that_would_show_a_secret_is_left_out(root: str) -> None:
    facts = replace(FACTS, system=("/usr", root))
    found = verdict(assess([Tier.READ], []), Mode.DEFAULT, facts=facts)
    assert isinstance(found, Allow)
    assert found.permit.terms.system == ("/usr",)


FLOORS = [
    # effect, part of the answer, why
    (effect(READ, "/home/u/.ssh/id_rsa", OUT), "~/.ssh/id_rsa", "a key that the classifier called outside"),
    (effect(READ, "/home/u/.ssh", OUT), "~/.ssh", "the folder itself"),
    (effect(READ, "/home/u/.cargo/credentials.toml", OUT), "credentials", "a pattern below the home"),
    (effect(READ, "/srv/other/.env", OUT), ".env", "a secret by its name, anywhere"),
    (effect(READ, "/etc/ssh/ssh_host_rsa_key", OUT), "ssh_host", "a pattern below /etc"),
    (effect(WRITE, "/home/u/.ssh/authorized_keys", OUT), "authorized_keys", "writing one is no better"),
    (effect(READ, "/srv/state/audit.db", OUT), "audit.db", "our own state"),
    (effect(WRITE, "/srv/state/audit.db", OUT), "audit.db", "our own state"),
    (effect(READ, "/home/u", OUT), "all of your home folder", "the home holds the keys"),
    (effect(READ, "/", OUT, exact=False), "all of /", "so does everything"),
    (effect(READ, "/etc", OUT), "all of /etc", "/etc holds /etc/shadow"),
    (effect(WRITE, "/home/u", OUT, exact=False), "all of your home folder", "the home may never be writable"),
    (effect(WRITE, "/home", OUT, exact=False), "all of /home", "nor what contains it"),
    (effect(WRITE, "/", OUT, exact=False), "all of /", "nor everything"),
    (effect(WRITE, "/srv", OUT, exact=False), "all of /srv", "nor what contains our state"),
    (effect(WRITE, "/home/u/new", OUT), "all of your home folder", "a new file in the home needs the home writable"),
    (effect(DELETE, "/home/u/notes", OUT), "all of your home folder", "so does removing one"),
    (effect(WRITE, "/proc/sys/kernel/core_pattern", OUT), "kernel", "root on the host by one write"),
    (effect(WRITE, "/sys/power/state", OUT), "kernel", "nor this"),
    (effect(WRITE, "/dev/sda", OUT), "kernel", "nor a disk"),
]


@pytest.mark.threat("T37")
@pytest.mark.parametrize(("item", "part", "why"), FLOORS)
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.TRUST_PROJECT, Mode.DANGEROUSLY])
def test_no_yes_and_no_mode_grants_these(item: Effect, part: str, why: str, mode: Mode) -> None:
    tier = Tier.READ_OUTSIDE if item.kind is READ else Tier.DANGEROUS
    found = denial(assess([tier], [item]), mode)
    assert found.cell.tier in (Tier.SECRET, Tier.DENIED)
    assert found.cell.ruling is Ruling.DENY
    assert part in found.problem.why, why
    assert "no mode allows that" in found.problem.why
    assert found.problem.fix


@pytest.mark.threat("T37")
@pytest.mark.parametrize(
    ("workspace", "why"),
    [
        ("/", "everything"),
        ("/home/u", "the home"),
        ("/home", "the folder of homes"),
        ("/home/u/.ssh", "a key folder"),
        ("/home/u/.ssh/deeper", "inside one"),
        ("/srv", "our state is in it"),
        ("/srv/state", "our state itself"),
        ("/etc", "the shadow file is in it"),
        ("/proc/1", "the kernel's"),
        ("/dev", "the kernel's"),
    ],
)
def test_nothing_runs_where_the_workspace_would_open_secrets(workspace: str, why: str) -> None:
    facts = replace(FACTS, workspace=workspace)
    found = verdict(assess([Tier.READ], []), Mode.DANGEROUSLY, facts=facts)
    assert isinstance(found, Deny), why
    assert "--cwd" in found.problem.fix


@pytest.mark.parametrize(
    ("asked_for", "wall", "expected", "why"),
    [
        (None, 120.0, 120.0, "the profile's"),
        (5.0, 120.0, 5.0, "the action's own"),
        (300.0, 120.0, 300.0, "longer is fine"),
        (6000.0, 120.0, 600.0, "up to ten minutes"),
        (300.0, 30.0, 30.0, "never past a wall that a user lowered"),
        (None, 3600.0, 3600.0, "a person may set more"),
        (0.0, 120.0, 120.0, "no time at all is nonsense"),
        (-1.0, 120.0, 120.0, "so is less"),
        (float("nan"), 120.0, 120.0, "so is this"),
        (float("inf"), 120.0, 120.0, "and this"),
    ],
)
def test_wall_time(asked_for: float | None, wall: float, expected: float, why: str) -> None:
    for action in (RunScript("x", "/home/u/p", asked_for), RunArgv(("x",), "/home/u/p", asked_for)):
        assessment = assess([Tier.READ], [], action)
        limits = Limits(wall=wall, pids=7)
        found = decide(
            assessment, FACTS, PROFILE, Mode.DEFAULT, unattended=True, environment=ENVIRONMENT, limits=limits
        )
        assert isinstance(found, Allow)
        assert found.permit.terms.limits == replace(limits, wall=expected), why


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.threat("T03")
def test_reading_a_key_is_refused_in_plain_words() -> None:
    item = effect(READ, "/home/u/.ssh/id_rsa", Scope.SECRET)
    action = RunScript("cat ~/.ssh/id_rsa", "/home/u/p")
    problem = denial(assess([Tier.READ, Tier.SECRET], [item], action)).problem
    assert problem.what == "`cat ~/.ssh/id_rsa` was refused"
    assert problem.why == "reads ~/.ssh/id_rsa, a private key; no mode allows that"
    assert problem.fix == "run it in your own shell if it is intended; the agent cannot get an approval for it"


WAYS = [
    # tiers, plain edit, mode, unattended, must be in the fix, must not be, why
    ([Tier.WRITE], True, Mode.PLAN, False, ["--mode accept-edits"], ["dangerously"], "the mildest mode that allows it"),
    ([Tier.WRITE], False, Mode.PLAN, False, ["--mode trust-project"], ["accept-edits"], "accept-edits would ask"),
    ([Tier.NETWORK], False, Mode.PLAN, False, ["--mode default"], ["dangerously"], "only a question allows it"),
    ([Tier.NETWORK], False, Mode.DEFAULT, True, ["at a terminal"], ["--mode"], "a user must be there"),
    ([Tier.EXECUTE], False, Mode.DEFAULT, True, ["--mode trust-project", "at a terminal"], ["dangerously"], "two ways"),
    ([Tier.NETWORK], False, Mode.DONT_ASK, True, ["--mode default"], ["dangerously"], "dont-ask denies, default asks"),
    (
        [Tier.DENIED],
        False,
        Mode.DANGEROUSLY,
        False,
        ["[deny] commands"],
        ["--mode"],
        "the list is the user's to change",
    ),
    ([Tier.SECRET], False, Mode.DANGEROUSLY, False, ["in your own shell"], ["--mode"], "no mode helps"),
]


@pytest.mark.parametrize(("tiers", "plain", "mode", "unattended", "there", "absent", "why"), WAYS)
def test_the_fix_is_true(
    tiers: list[Tier], plain: bool, mode: Mode, unattended: bool, there: list[str], absent: list[str], why: str
) -> None:
    assessment = assess(tiers, [], plain_edit=plain)
    fix = denial(assessment, mode, unattended=unattended).problem.fix
    assert all(part in fix for part in there), (why, fix)
    assert not any(part in fix for part in absent), (why, fix)
    for other in Mode:  # every mode that the fix names really helps
        if f"`--mode {other.value}`" in fix:
            assert isinstance(verdict(assessment, other), Allow | Ask)


def test_the_question_says_what_it_does_and_what_a_yes_gives() -> None:
    effects = [effect(CONNECT, "a.b", Scope.NONE), effect(WRITE, "/home/u/p/out.txt", IN)]
    action = RunScript("curl -o out.txt https://a.b/", "/home/u/p")
    found = verdict(assess([Tier.NETWORK, Tier.WRITE], effects, action), Mode.DEFAULT)
    assert isinstance(found, Ask)
    assert found.question == (
        "`curl -o out.txt https://a.b/` changes out.txt and connects to a.b. An approval lets it run code and change files in "
        "the workspace and connect to a.b, and nothing more. Allow it?"
    )
    assert found.question == question(found.assessment, found.terms, FACTS)


def test_a_question_about_a_network_says_that_a_yes_gives_none() -> None:
    """A host that nobody can name is not opened, so an approval to `git push` would be a promise that nobody keeps."""
    action = RunScript("git push", "/home/u/p")
    found = verdict(assess([Tier.NETWORK], [effect(CONNECT, "", Scope.NONE)], action), Mode.DEFAULT)
    assert isinstance(found, Ask)
    assert found.question.endswith(
        "An approval lets it read, and nothing more; the host is known only at run time: the connection is then blocked, "
        "and one more approval, `--host` or a rule allows its host. Allow it?"
    )


@pytest.mark.threat("T28")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ls\x1b[2J\x1b[31m", "escape sequences"),
        ("ls\rrm -rf x", "a carriage return hides what came before"),
        ("ls \u202e txt.exe", "text that runs backwards"),
        ("ls\nrm -rf x\n\tb", "many lines"),
        ("ls \u200b\u2028", "invisible characters"),
        ("x" * 100_000, "a very long one"),
    ],
)
def test_a_question_is_one_safe_line(text: str, why: str) -> None:
    found = verdict(
        assess([Tier.UNKNOWN], [effect(UNKNOWN, text, Scope.NONE)], RunScript(text, "/home/u/p")), Mode.DEFAULT
    )
    assert isinstance(found, Ask)
    assert found.question.isprintable(), why
    assert len(found.question) < 600, why
    told = denial(assess([Tier.UNKNOWN], [], RunScript(text, "/home/u/p")), Mode.PLAN).problem
    assert told.what.isprintable(), why


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        (ReadFile("/home/u/p/src/a.py"), "`read src/a.py`"),
        (ReadFile("/home/u/notes"), "`read ~/notes`"),
        (WriteFile("/srv/x", "data"), "`write /srv/x`"),
        (RunArgv(("echo", "a b", "it's"), "/home/u/p"), """`echo 'a b' "it's"`"""),
    ],
)
def test_actions_are_named_as_people_write_them(action: Action, shown: str) -> None:
    assert denial(assess([Tier.UNKNOWN], [], action), Mode.PLAN).problem.what == f"{shown} was refused"


# --- the denied list --------------------------------------------------------------------------------------------------

DENIED = [
    # pattern, command (None: known only at run time), found, why
    (("rm", "-rf", "*"), ["rm", "-rf", "x"], True, "as written"),
    (("rm", "-rf", "*"), ["rm", "-fr", "x"], True, "another order"),
    (("rm", "-rf", "*"), ["rm", "-r", "-f", "x"], True, "apart"),
    (("rm", "-rf", "*"), ["rm", "x", "-rvf"], True, "in a larger cluster, at the end"),
    (("rm", "-rf", "*"), ["/bin/rm", "-rf", "x"], True, "with its folder"),
    (("rm", "-rf", "*"), ["rm", "-r", "x"], False, "only one of the two flags"),
    (("rm", "-rf", "*"), ["rm", None], True, "may be -rf"),
    (("rm", "-rf", "*"), ["ls", "-rf"], False, "another program"),
    (("rm", "-rf", "*"), [None, "-rf", "x"], False, "an unknown program is tier unknown, not this"),
    (("rm", "-rf", "*"), [], False, "no command at all"),
    (("git", "push"), ["git", "push", "origin", "main"], True, "a pattern is a beginning"),
    (("git", "push"), ["git", "-C", "sub", "push"], True, "options in between"),
    (("git", "push"), ["git", "log"], False, "another subcommand"),
    (("git", "push"), ["git", "log", None], False, "which an unknown operand does not change"),
    (("git", "push"), ["git", None], True, "this one may be push"),
    (("git", "push", "--force"), ["git", "push", "--force", "origin"], True, "a long flag"),
    (("git", "push", "--force"), ["git", "push", "origin"], False, "without the flag"),
    (("git", "push", "--force*"), ["git", "push", "--force-with-lease"], True, "a pattern in a flag"),
    (("find", "-delete"), ["find", ".", "-name", "x", "-delete"], True, "a flag of one dash and many letters"),
    (("find", "-delete"), ["find", ".", "-depth", "-type", "l"], False, "is not a cluster of them"),
    (("mkfs*",), ["mkfs.ext4", "/dev/sda"], True, "a pattern in the program"),
    (("terraform", "destroy", "*"), ["terraform", "destroy"], True, "any rest, also none"),
]


@pytest.mark.threat("T46")
@pytest.mark.parametrize(("pattern", "words", "found", "why"), DENIED)
def test_denied_list(pattern: tuple[str, ...], words: list[str | None], found: bool, why: str) -> None:
    reason = denied_reason(words, replace(PROFILE, denied=(("unrelated",), pattern)))
    assert (reason is not None) is found, why
    if reason:
        assert reason.tier is Tier.DENIED
        assert " ".join(pattern) in reason.text


# --- laws -------------------------------------------------------------------------------------------------------------

HOME_PATHS = ("", "/p", "/p/a", "/p/.git/hooks/x", "/.ssh/id_rsa", "/notes")
OTHER_PATHS = (
    "/srv/x",
    "/srv/state/db",
    "/usr/bin/ls",
    "/etc",
    "/etc/shadow",
    "/proc/1/environ",
    "/dev/null",
    "/var/tmp/new",
)
paths = st.sampled_from(["/", "/home", *(f"/home/u{path}" for path in HOME_PATHS), *OTHER_PATHS, "relative", ""])
effects_ = st.builds(Effect, st.sampled_from(EffectKind), paths, st.sampled_from(Scope), st.booleans())
assessments = st.builds(
    lambda tiers, effects, plain: assess(tiers, effects, plain_edit=plain),
    st.lists(st.sampled_from(Tier), max_size=4),
    st.lists(effects_, max_size=4),
    st.booleans(),
)
modes = st.sampled_from(Mode)
SEVERITY = {Allow: 0, Ask: 1, Deny: 2}


@pytest.mark.threat("T39")
@given(assessments, modes)
def test_law_unattended_never_asks_and_is_never_milder(assessment: Assessment, mode: Mode) -> None:
    alone, watched = verdict(assessment, mode, unattended=True), verdict(assessment, mode)
    assert not isinstance(alone, Ask)
    assert isinstance(alone, Allow) == isinstance(watched, Allow)


@given(assessments, st.sampled_from(Tier), modes)
def test_law_another_tier_never_lowers_the_verdict(assessment: Assessment, tier: Tier, mode: Mode) -> None:
    more = Reason(tier, "more", RuleRef(RuleKind.USER, "x", 0))
    worse = replace(assessment, reasons=(*assessment.reasons, more)) if assessment.reasons else assessment
    assert SEVERITY[type(verdict(worse, mode))] >= SEVERITY[type(verdict(assessment, mode))]


# From strict to free. `default` and `dont-ask` cannot be compared: one asks where the other allows, and the reverse.
CHAINS = (
    (Mode.PLAN, Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT, Mode.DANGEROUSLY),
    (Mode.PLAN, Mode.DONT_ASK, Mode.DANGEROUSLY),
)


@given(assessments, st.booleans())
def test_law_along_each_chain_of_modes_nothing_gets_stricter(assessment: Assessment, unattended: bool) -> None:
    for chain in CHAINS:
        found = [SEVERITY[type(verdict(assessment, mode, unattended=unattended))] for mode in chain]
        assert found == sorted(found, reverse=True)


@given(assessments)
def test_law_dont_ask_allows_exactly_what_trust_project_allows_without_a_question(assessment: Assessment) -> None:
    trusting, silent = (verdict(assessment, mode) for mode in (Mode.TRUST_PROJECT, Mode.DONT_ASK))
    assert isinstance(trusting, Allow) == isinstance(silent, Allow)
    assert not isinstance(silent, Ask)


@pytest.mark.threat("T02")
@given(assessments, modes)
def test_law_terms_follow_the_worst_tier(assessment: Assessment, mode: Mode) -> None:
    found = verdict(assessment, mode)
    if isinstance(found, Deny):
        return
    given_terms = found.permit.terms if isinstance(found, Allow) else found.terms
    worst = assessment.tiers[0]
    assert worst < Tier.SECRET
    if worst is Tier.READ:
        assert given_terms.rights is Rights.READ_ONLY
    if worst < Tier.READ_OUTSIDE:
        assert (given_terms.read, given_terms.write, given_terms.hosts) == ((), (), ())


@pytest.mark.threat("T37")
@given(assessments, modes)
def test_law_no_terms_ever_show_or_change_a_secret_place(assessment: Assessment, mode: Mode) -> None:
    found = verdict(assessment, mode)
    if isinstance(found, Deny):
        return
    given_terms = found.permit.terms if isinstance(found, Allow) else found.terms
    secrets = Secrets(PROFILE, FACTS.home, FACTS.private)
    for path in (*given_terms.read, *given_terms.write):
        assert path.startswith("/")
        assert not secrets.holds(path)
        assert not secrets.exposed_by(path)
        assert not path.startswith(("/proc", "/dev"))


@pytest.mark.threat("T37")
@given(st.lists(st.sampled_from([Tier.SECRET, Tier.DENIED]), min_size=1), assessments, modes, st.booleans())
def test_law_the_floors_hold(tiers: list[Tier], assessment: Assessment, mode: Mode, unattended: bool) -> None:
    reasons = tuple(Reason(tier, "floor", RuleRef(RuleKind.USER, "x", 0)) for tier in tiers)
    assessment = replace(assessment, reasons=(*assessment.reasons, *reasons))
    assert isinstance(verdict(assessment, mode, unattended=unattended), Deny)


# --- the mint ---------------------------------------------------------------------------------------------------------


def _names(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found | {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def _calls(tree: ast.AST) -> set[str]:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in functions}


@pytest.mark.threat("T29")
def test_only_decide_and_grants_mint_permits() -> None:
    minting, asking, copying = set(), set(), []
    for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = file.read_text()
        if re.search(r"mint|permit|\bAsk\b", text, re.IGNORECASE) is None:
            continue  # whatever it does to them, it would have to name them
        name, tree = file.relative_to(ROOT).as_posix(), ast.parse(text)
        if _names(tree) & {"_MINT", "Mint"} or "Permit" in _calls(tree):
            minting.add(name)
        if "Ask" in _calls(tree):
            asking.add(name)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        for call in calls:  # a copied Permit would carry the mint along
            function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if function.endswith("replace") and "permit" in ast.unparse(call.args[0]).lower().split(".")[-1]:
                copying.append(f"{name}:{call.lineno}")
    assert minting == {"policy/model/verdict.py", "policy/decide.py", "policy/grants/resolve.py"}
    assert asking == {"policy/decide.py", "policy/grants/extra_right.py"}
    assert copying == []


def test_a_profile_is_hashable_so_that_its_patterns_are_compiled_once() -> None:
    assert isinstance(hash(PROFILE), int)
    assert isinstance(PROFILE, Profile)
