"""Tests of the values of `agent acp`: messages, answers, prompts and Markdown. The library of the protocol is an extra."""

import pytest

pytest.importorskip("acp")

from dataclasses import replace

from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from policy.grants.grant import GrantHolder, GrantScope
from policy.model.action import ReadFile, RunScript
from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Mode, Tier
from policy.model.verdict import Problem
from runner import events
from runner.approval.approver import Halt, No, Question, Yes
from runner.approval.card import card
from runner.approval.remembered import offer
from runner.frontends.acp.markdown import InertMarkdown, code, fenced, inert
from runner.frontends.acp.materials import IDE, read_blocks
from runner.frontends.acp.questions import EditorReply, answer_of, options_of, reply_of
from runner.frontends.acp.transport import NoMessage, message_of
from runner.frontends.acp.updates import SessionUpdates, dumped
from runner.gate.grants.store import GrantStore
from runner.problems import Stopped
from tests.support.cards import HERE
from tests.support.grant_questions import evaluation_context, question


def question_about(script: str) -> Question:
    """Return the question about a command, with the answers that the gate would remember."""
    at = evaluation_context()
    ask = question(script, at)
    offered = offer(
        at, ask, (GrantScope.SESSION, GrantScope.PROJECT), GrantStore(None, GrantHolder(HERE, "main", "s"), str)
    )
    return Question("1.1", ask, offered, card(ask, offered, around=at.facts))


@pytest.fixture(scope="module")
def asked() -> Question:
    return question_about("make")


@pytest.fixture(scope="module")
def dangerous() -> Question:
    return question_about("rm -rf .git")


# ---- messages

# fmt: off
LINES: list[tuple[bytes, str]] = [
    (b"hello",                                                          "not JSON"),
    (b"\xff\xfe",                                                       "not JSON"),
    (b"[" * 100_000,                                                    "not JSON"),
    (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]',               "not an object"),
    (b'"initialize"',                                                   "not an object"),
    (b'{"id":1,"method":["initialize"]}',                               "`method` is not a text"),
    (b'{"id":1,"method":1}',                                            "`method` is not a text"),
    (b'{"id":[1],"method":"initialize"}',                               "`id` is neither"),
    (b'{"id":true,"method":"initialize"}',                              "`id` is neither"),
    (b'{"id":1.5,"method":"initialize"}',                               "`id` is neither"),
    (b'{"id":null,"method":"initialize"}',                              "`id` is neither"),
    (b'{"id":1,"method":"initialize","params":[1]}',                    "`params` is not an object"),
    (b'{"id":1,"method":"initialize","params":"x"}',                    "`params` is not an object"),
    (b'{"id":1,"method":"initialize","id":2}',                          "a name twice"),
    (b'{"id":1,"result":{"outcome":{"outcome":"cancelled","outcome":"selected"}}}', "a name twice"),
    (b'{"id":1,"method":"session/prompt","params":{"a":NaN}}',          "not JSON"),
    (b'{"id":1,"method":"' + b"a" * (17 << 20) + b'"}',                 "longer than 16 MiB"),
]
# fmt: on


@pytest.mark.threat("T287")
@pytest.mark.parametrize(("line", "why"), LINES, ids=[row[1] for row in LINES])
def test_a_line_that_is_no_message_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(NoMessage) as found:
        message_of(line)
    assert why in str(found.value)


# fmt: off
ANSWERS: list[tuple[bytes, object, str]] = [
    (b'{"id":1,"result":{"a":1}}',                       {"result": {"a": 1}},       "an answer"),
    (b'{"id":1,"result":null}',                          {"result": None},           "an empty answer"),
    (b'{"id":"1","result":{}}',                          None,                       "an id that no request has"),
    (b'{"id":true,"result":{}}',                         None,                       "true is no number"),
    (b'{"id":1.0,"result":{}}',                          None,                       "1.0 is no whole number"),
    (b'{"id":[1],"result":{}}',                          None,                       "a list"),
    (b'{"result":{}}',                                   None,                       "no id"),
    (b'{}',                                              None,                       "nothing"),
    (b'{"id":1}',                                        "no valid form",            "neither a result nor an error"),
    (b'{"id":1,"error":"x"}',                            "no valid form",            "an error that is a text"),
    (b'{"id":1,"error":{"code":"x","message":["y"]}}',   "no valid form",            "an error of other types"),
    (b'{"id":1,"error":{"code":-1,"message":"y"},"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}',
                                                         "y",                        "a result beside an error"),
]
# fmt: on


@pytest.mark.threat("T287")
@pytest.mark.parametrize(("line", "expected", "why"), ANSWERS, ids=[row[2] for row in ANSWERS])
def test_an_answer_has_a_result_or_is_an_error(line: bytes, expected: object, why: str) -> None:
    found = message_of(line)
    if expected is None:
        assert found is None
    elif isinstance(expected, str):
        assert found is not None
        assert "result" not in found
        assert expected in found["error"]["message"]
    else:
        assert found == {"jsonrpc": "2.0", "id": 1, **expected}


@given(st.binary(max_size=80))
def test_no_bytes_are_anything_but_a_message_or_refused(line: bytes) -> None:
    try:
        found = message_of(line)
    except NoMessage:
        return
    assert found is None or isinstance(found, dict)


# ---- answers to questions

OFFERED = ("yes", "s", "no", "stop")
NONSENSE: list[tuple[object, str]] = [
    (None, "no result"),
    ("yes", "a text"),
    (True, "true"),
    ([], "a list"),
    ({}, "no outcome"),
    ({"outcome": None}, "an empty outcome"),
    ({"outcome": "selected", "optionId": "yes"}, "the fields one level too high"),
    ({"outcome": ["selected", "yes"]}, "a list as outcome"),
    ({"outcome": {"outcome": "selected"}}, "no option"),
    ({"outcome": {"outcome": "selected", "optionId": None}}, "an empty option"),
    ({"outcome": {"outcome": "selected", "optionId": ""}}, "an option without a name"),
    ({"outcome": {"outcome": "selected", "optionId": ["yes"]}}, "a list as option"),
    ({"outcome": {"outcome": "selected", "optionId": {"yes": True}}}, "an object as option"),
    ({"outcome": {"outcome": "selected", "optionId": "p"}}, "an option that was not offered"),
    ({"outcome": {"outcome": "selected", "optionId": "YES"}}, "another case"),
    ({"outcome": {"outcome": "selected", "optionId": "yes "}}, "a blank more"),
    ({"outcome": {"outcome": "selected", "optionId": "s 3650d user"}}, "an option with a lifetime"),
    ({"outcome": {"outcome": "selected", "optionId": "allow_always"}}, "a kind in place of an option"),
    ({"outcome": {"outcome": "selected", "option_id": "yes"}}, "another name of the field"),
    ({"outcome": {"outcome": "allowed", "optionId": "yes"}}, "another outcome"),
    ({"outcome": {"optionId": "yes"}}, "an option without an outcome"),
    ({"result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}, "a result in the result"),
]


@pytest.mark.threat("T288")
@pytest.mark.parametrize(("result", "why"), NONSENSE, ids=[row[1] for row in NONSENSE])
def test_an_answer_that_selects_no_offered_option_is_a_no(result: object, why: str, asked: Question) -> None:
    reply = reply_of(result, OFFERED)
    assert not reply.option
    assert isinstance(answer_of(asked, reply), No)


@pytest.mark.threat("T288")
def test_an_answer_that_selects_an_offered_option_counts(asked: Question) -> None:
    def said(option: str, **more: object) -> EditorReply:
        return reply_of({"outcome": {"outcome": "selected", "optionId": option}, **more}, OFFERED)

    assert answer_of(asked, said("yes")) == Yes()
    assert answer_of(asked, said("no")) == No()
    assert answer_of(asked, said("no", _meta={"feedback": "use make"})) == No("use make")
    assert answer_of(asked, said("yes", _meta={"feedback": "and mode dangerously"})) == Yes()
    assert isinstance(answer_of(asked, said("stop")), Halt)
    assert isinstance(answer_of(asked, reply_of({"outcome": {"outcome": "cancelled"}}, OFFERED)), Halt)


@pytest.mark.threat("T288")
def test_the_option_of_all_edits_counts_only_for_an_edit(asked: Question) -> None:
    assert isinstance(answer_of(asked, EditorReply("a")), No)
    edit = replace(asked, card=replace(asked.card, edits=True))
    assert answer_of(edit, EditorReply("a")) == Yes(mode=Mode.ACCEPT_EDITS)
    assert "a" in [each.option_id for each in options_of(edit)]
    assert "a" not in [each.option_id for each in options_of(asked)]


@pytest.mark.threat("T288")
def test_no_option_remembers_where_the_gate_offers_nothing(asked: Question, dangerous: Question) -> None:
    kinds = {each.option_id: each.kind for each in options_of(asked)}
    assert kinds["s"] == kinds["p"] == "allow_always"
    assert kinds["d"] == "reject_always"
    named = {each.option_id: each.name for each in options_of(asked)}
    assert "in this session" in named["s"]
    assert "in this project for 30 days" in named["p"]
    assert [(each.option_id, each.kind) for each in options_of(dangerous) if "allow" in each.kind] == [
        ("yes", "allow_once")
    ]
    for key in ("s", "p", "S", "P", "a"):
        assert isinstance(answer_of(dangerous, EditorReply(key)), No)


# ---- prompts


def words(text: str, **more: object) -> schema.TextContentBlock:
    return schema.TextContentBlock(type="text", text=text, **more)


def link(uri: str, name: str = "n") -> schema.ResourceContentBlock:
    return schema.ResourceContentBlock(type="resource_link", uri=uri, name=name)


def embedded(uri: str, text: str) -> schema.EmbeddedResourceContentBlock:
    return schema.EmbeddedResourceContentBlock(
        type="resource", resource=schema.TextResourceContents(uri=uri, text=text)
    )


# fmt: off
URIS: list[tuple[str, str, tuple[int, int] | None, str]] = [
    ("file:///w/a.py",                 "/w/a.py",       None,     "a file"),
    ("file:///w/a%20b.py",             "/w/a b.py",     None,     "an escaped blank"),
    ("file:///w/../etc/passwd",        "/etc/passwd",   None,     "dots are resolved"),
    ("file:///w/a.py#L3",              "/w/a.py",       (3, 3),   "one line"),
    ("file:///w/a.py#L3:7",            "/w/a.py",       (3, 7),   "lines, as Zed writes them"),
    ("file:///w/a.py#L3-L7",           "/w/a.py",       (3, 7),   "lines, as others write them"),
    ("file:///w/a.py?symbol=f#L3:7",   "/w/a.py",       (3, 7),   "a symbol"),
    ("file:///w/a.py#L7:3",            "/w/a.py",       None,     "lines backwards"),
    ("file:///w/a.py#L0",              "/w/a.py",       None,     "line 0"),
    ("/w/a.py",                        "/w/a.py",       None,     "a path without a scheme"),
    ("file://host/w/a.py",             "",              None,     "a file of another host"),
    ("//host/w/a.py",                  "",              None,     "another host without a scheme"),
    ("https://example.org/a.py",       "",              None,     "a page"),
    ("file:///w/a%00.py",              "",              None,     "a null character"),
    ("zed:///agent/thread/1",          "",              None,     "an address of the editor"),
    ("http://[",                       "",              None,     "no address"),
]
# fmt: on


@pytest.mark.parametrize(("uri", "path", "lines", "why"), URIS, ids=[row[3] for row in URIS])
def test_the_address_of_an_attachment(uri: str, path: str, lines: tuple[int, int] | None, why: str) -> None:
    (found,) = read_blocks([words("x"), embedded(uri, "text")]).attachments
    assert (found.path, found.lines) == (path, lines)


@pytest.mark.threat("T289")
def test_only_text_blocks_are_words_of_the_user() -> None:
    hidden = schema.Annotations(audience=["assistant"])
    prompt = read_blocks(
        [
            words("look at"),
            embedded("file:///w/send-it-to.evil.example", "evil one"),
            words(", and at "),
            link("https://evil.example/x", "evil two"),
            words("evil three", annotations=hidden),
        ],
        {
            IDE: {
                "openFile": "file:///w/evil-four",
                "selection": {"uri": "file:///w/five", "startLine": 1, "endLine": 2},
            }
        },
    )
    assert prompt.words == "look at [attached 1], and at [attached 2] [attached 3] [attached 4] [attached 5]"
    assert [each.what for each in prompt.attachments] == ["file", "link", "text", "open file", "selection"]
    assert prompt.attachments[4].lines == (1, 2)


REFUSED: list[tuple[list[object], object, str]] = [
    ([], None, "it is empty"),
    ([words("  ")], None, "it is empty"),
    ([words("x" * ((1 << 20) + 1))], None, "longer than"),
    ([words("x"), *[link("file:///w/a")] * 51], None, "more than 50 attachments"),
    ([words("x"), schema.AudioContentBlock(type="audio", data="", mime_type="audio/wav")], None, "a recording"),
    ([words("x"), schema.ImageContentBlock(type="image", data="AAAA", mime_type="image/png")], None, "damaged"),
    ([words("x"), schema.ImageContentBlock(type="image", data="?", mime_type="image/png")], None, "not base64"),
    ([words("x")], {IDE: "x"}, "another form"),
    ([words("x")], {IDE: {"openFile": 1}}, "another form"),
    ([words("x")], {IDE: {"openFile": "https://a/b"}}, "another form"),
    ([words("x")], {IDE: {"prompt": "do it"}}, "another form"),
    ([words("x")], {IDE: {"selection": {"uri": "file:///a", "startLine": True, "endLine": 2}}}, "another form"),
    ([words("x")], {IDE: {"selection": {"uri": "file:///a", "startLine": 1, "endLine": 2, "text": 1}}}, "another form"),
]


@pytest.mark.parametrize(("blocks", "meta", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_prompt_that_cannot_be_sent_says_why(blocks: list[object], meta: object, why: str) -> None:
    with pytest.raises(Stopped) as found:
        read_blocks(blocks, meta)
    assert why in str(found.value.problem)


# ---- Markdown

# fmt: off
MARKDOWN: list[tuple[str, str, str]] = [
    ("plain *text* [link](https://a)",          "plain *text* [link](https://a)",           "links are not loaded"),
    ("![x](https://e/?k)",                      "!\\[x](https://e/?k)",                     "an image"),
    ("![x][ref]\n\n[ref]: https://e",           "!\\[x][ref]\n\n[ref]: https://e",          "an image by reference"),
    ("<img src='https://e'>",                   "&lt;img src='https://e'>",                  "an image in HTML"),
    ("<IMG src=x><Iframe src=y>",               "&lt;IMG src=x>&lt;Iframe src=y>",            "capitals"),
    ("List<String> a <b> x <https://a> 1 < 2",  "List<String> a <b> x <https://a> 1 < 2",   "other tags"),
    ("<div style='background:url(//e)'>",       "&lt;div style='background:url(//e)'>",      "a tag with a style"),
    ("<p\nbackground=x><br/>",                  "&lt;p\nbackground=x>&lt;br/>",               "attributes on another line"),
    ("```\n![x](y)\n```\n![x](y)",              "```\n![x](y)\n```\n!\\[x](y)",             "a block of code, and after it"),
    ("````\n```\n![x](y)\n````\n![x](y)",       "````\n```\n![x](y)\n````\n!\\[x](y)",      "a longer fence"),
    ("```\n~~~\n![x](y)",                       "```\n~~~\n![x](y)",                        "another fence does not end it"),
    ("~~~ a`b\n![x](y)\n~~~\n![x](y)",          "~~~ a`b\n![x](y)\n~~~\n!\\[x](y)",         "tildes"),
    ("``` a`b\n![x](y)",                        "``` a`b\n!\\[x](y)",                       "no fence: a backtick behind it"),
    ("- a\n  ```\n![x](y)",                     "- a\n  ```\n!\\[x](y)",                    "a fence in a list ends with the list"),
    ("> ```\n![x](y)",                          "> ```\n!\\[x](y)",                         "a fence in a quotation"),
    ("<pre>\n```\n</pre>\n![x](y)",             "<pre>\n```\n</pre>\n!\\[x](y)",            "no fence in HTML"),
    ("- <!--\n```\n-->\n![x](y)",               "- <!--\n```\n-->\n!\\[x](y)",              "no fence in a comment"),
    ("a\r```\r\n![x](y)",                       "a\r```\n!\\[x](y)",                        "a carriage return"),
    ("```\na\r```\r\n![x](y)",                  "```\na\r```\n!\\[x](y)",                   "a carriage return in code"),
    ("```\r\n![x](y)\r\n```",                   "```\n![x](y)\n```",                         "lines of another system"),
    ("` ![x](y)",                               "` !\\[x](y)",                              "an open backtick is no code"),
    ("    ![x](y)",                             "    !\\[x](y)",                            "indented code is not certain"),
]
# fmt: on


@pytest.mark.threat("T290")
@pytest.mark.parametrize(("text", "expected", "why"), MARKDOWN, ids=[row[2] for row in MARKDOWN])
def test_text_of_a_model_loads_nothing(text: str, expected: str, why: str) -> None:
    assert inert(text) == expected


@pytest.mark.threat("T290")
@given(
    st.lists(
        st.sampled_from(["!", "[", "<", "img", "a-1", "/", "`", "```", "~~~", "\n", " ", "x", "\r", ">", "- ", "<!--"])
    )
)
def test_the_pieces_of_a_text_make_no_difference(pieces: list[str]) -> None:
    stream = InertMarkdown()
    assert "".join(map(stream.feed, pieces)) + stream.end() == inert("".join(pieces))


@given(st.text(alphabet="`ab![](<> ", min_size=1))
def test_a_line_of_code_is_code_to_a_reader_of_markdown(text: str) -> None:
    from markdown_it import MarkdownIt

    (block,) = [each for each in MarkdownIt("commonmark").parse(f"x {code(text)}") if each.type == "inline"]
    assert block.children is not None
    assert [each.type for each in block.children] == ["text", "code_inline"]
    assert block.children[1].content.strip() == text.strip()


PIECES = [
    "![a](b)",
    "<img src=x>",
    "<p style=x>",
    "```",
    "````",
    "~~~",
    "`",
    "\n",
    "\n\n",
    " ",
    "x",
    "- ",
    "> ",
    "1. ",
    "<pre>",
    "<!--",
    "-->",
    "\t",
    "    ",
    "\r",
    "\r\n",
]


@pytest.mark.threat("T290")
@given(st.lists(st.sampled_from(PIECES)))
def test_another_reader_of_markdown_finds_nothing_that_loads(pieces: list[str]) -> None:
    from markdown_it import MarkdownIt

    shown = MarkdownIt("commonmark").render(inert("".join(pieces)))
    assert "<img" not in shown
    assert "<p style" not in shown


@given(st.text(alphabet="`~ab\n"))
def test_no_text_ends_its_block_of_code(text: str) -> None:
    block = fenced(text)
    fence = block.partition("\n")[0]
    assert block.count(fence) == 2


# ---- events


def told(*happened: events.Event) -> list[dict[str, object]]:
    """Return the updates for events of one run."""
    sent: list[schema.BaseModel] = []
    updates = SessionUpdates(sent.append, str)
    updates.workspace = "/w"
    updates.begin_run()
    for event in happened:
        updates.tell(event)
    updates.end_run()
    return [dumped(each) for each in sent]


def test_events_of_the_model_are_messages_of_their_own() -> None:
    found = told(
        events.ModelThinking("hm"),
        events.ModelText("one "),
        events.ModelText("!"),
        events.ModelText("[x](y)"),
        events.ModelText("not shown", agent="general-1", parent="main"),
        events.ToolProposed("1.1", "read", ReadFile("/w/a.py", 3)),
        events.ModelText("two"),
    )
    assert [(each["sessionUpdate"], each.get("messageId")) for each in found] == [
        ("agent_thought_chunk", "m1"), ("agent_message_chunk", "m2"), ("agent_message_chunk", "m2"),
        ("tool_call", None), ("agent_message_chunk", "m3"),
    ]  # fmt: skip
    assert [each["content"]["text"] for each in found if "content" in each] == ["hm", "one ", "!\\[x](y)", "two"]
    assert found[3]["locations"] == [{"path": "/w/a.py", "line": 3}]


def test_a_call_of_a_sub_agent_has_an_id_and_a_title_of_its_own() -> None:
    first, second = told(
        events.ToolProposed("1.1", "bash", RunScript("ls", "/w")),
        events.ToolProposed("1.1", "bash", RunScript("![x](y) `ls`", "/w"), agent="general-1", parent="main"),
    )
    assert (first["toolCallId"], first["title"], first["kind"]) == ("r1.1.1", "`$ ls`", "execute")
    assert (second["toolCallId"], second["title"]) == ("r1.general-1.1.1", "[general-1] `` $ ![x](y) `ls` ``")


def test_calls_that_do_not_run_have_failed() -> None:
    problem = Problem("no", "because", "")
    found = told(
        events.ToolProposed("1.1", "bash", None),
        events.MalformedCall("1.1", "bash", problem),
        events.ToolProposed("1.2", "bash", RunScript("ls", "/w")),
        events.Denied("1.2", "ls", Tier.READ, RuleRef(RuleKind.BUILTIN, "x"), problem),
        events.Denied("1.9", "a call that was not shown", Tier.READ, RuleRef(RuleKind.BUILTIN, "x"), problem),
    )
    assert [(each["toolCallId"], each["status"]) for each in found] == [
        ("r1.1.1", "pending"), ("r1.1.1", "failed"), ("r1.1.2", "pending"), ("r1.1.2", "failed"),
    ]  # fmt: skip


def test_the_fill_level_is_told_if_the_window_is_known() -> None:
    found = told(events.ContextUsed(10, 100, True, 0.5), events.ContextUsed(10, None, True, None))
    assert found == [{"sessionUpdate": "usage_update", "used": 10, "size": 100}]
