"""Remote access: addresses, hosts, scopes, wrong tokens, shown values and the log."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from policy.model.verdict import ProblemError
from runner.frontends.remote.access_log import AccessLog
from runner.frontends.remote.attempts import FIRST_WAIT, FREE, LONGEST_WAIT, WrongTokens
from runner.frontends.remote.listen_address import checked_name, is_own_host, parse_address
from runner.frontends.remote.qr_code import qr_modules, terminal_code
from runner.frontends.remote.scope import NotAllowed, TokenScope, permitted_line
from runner.frontends.remote.shown import LONGEST_TEXT, MOST_ITEMS, shown, shown_event
from runner.frontends.remote.status import RemoteStatus
from runner.frontends.remote.tokens import MOST_TOKENS, RemoteTokens

# fmt: off
ADDRESSES = [
    # text, meaning or "" for a usage error
    ("8443",                   "127.0.0.1:8443"),
    ("127.0.0.1:8443",         "127.0.0.1:8443"),
    ("localhost:0",            "127.0.0.1:0"),
    ("0.0.0.0:443",            "0.0.0.0:443"),
    ("[::1]:8443",             "[::1]:8443"),
    ("[2001:db8::1]:8443",     "[2001:db8::1]:8443"),
    ("::1:8443",               ""),
    (":8443",                  ""),
    ("[127.0.0.1]:8443",       ""),
    ("[fe80::1%eth0]:8443",    ""),
    ("example.com:8443",       ""),
    ("0x7f.1:8443",            ""),
    ("127.1:8443",             ""),
    ("127.0.0.1:",             ""),
    ("127.0.0.1:65536",        ""),
    ("127.0.0.1:٨",            ""),
    ("127.0.0.1:-1",           ""),
    ("127.0.0.1:8443/x",       ""),
    ("",                       ""),
]
HOSTS = [
    # header, address and port of arrival, accepted
    ("192.168.1.5:8443",       ("192.168.1.5", 8443), True),
    ("192.168.1.5",            ("192.168.1.5", 443),  True),
    ("192.168.1.5",            ("192.168.1.5", 8443), False),
    ("192.168.1.6:8443",       ("192.168.1.5", 8443), False),
    ("[::1]:8443",             ("::1", 8443),         True),
    ("[0:0:0:0:0:0:0:1]:8443", ("::1", 8443),         True),
    ("[::1]",                  ("::1", 443),          True),
    ("box:8443",               ("192.168.1.5", 8443), True),
    ("BOX:8443",               ("192.168.1.5", 8443), True),
    ("box.evil.example:8443",  ("192.168.1.5", 8443), False),
    ("evil.example:8443",      ("192.168.1.5", 8443), False),
    ("box:8443@evil.example",  ("192.168.1.5", 8443), False),
    ("box:8443 evil",          ("192.168.1.5", 8443), False),
    ("3232235781:8443",        ("192.168.1.5", 8443), False),
    ("192.168.1.5.:8443",      ("192.168.1.5", 8443), False),
    ("192.168.001.005:8443",   ("192.168.1.5", 8443), False),
    ("",                       ("192.168.1.5", 8443), False),
    (":8443",                  ("192.168.1.5", 8443), False),
]
# fmt: on


@pytest.mark.parametrize(("text", "meaning"), ADDRESSES)
def test_addresses(text: str, meaning: str) -> None:
    if meaning:
        assert str(parse_address(text)) == meaning
        assert bool(parse_address(text).warning) is not meaning.startswith(("127.", "[::1]"))
    else:
        with pytest.raises(ProblemError):
            parse_address(text)


@pytest.mark.threat("T282")
@pytest.mark.parametrize(("header", "local", "accepted"), HOSTS)
def test_hosts(header: str, local: tuple[str, int], accepted: bool) -> None:
    assert is_own_host(header, local, frozenset({"box"}), 443) is accepted


@pytest.mark.parametrize("name", ["", "a b", "a..b", "-a", "a/b", "a:1", "127.0.0.1", "é.example", "a" * 300])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ProblemError):
        checked_name(name)


# fmt: off
LINES = [
    # line, the smallest scope that may send it; None for no scope
    ({"type": "answer", "id": "q1", "answer": "yes"},                         TokenScope.ANSWER),
    ({"type": "answer", "id": "q1", "answer": "no", "feedback": "why"},       TokenScope.ANSWER),
    ({"type": "answer", "id": "p1", "answer": "yes", "values": {"a": 1}},     TokenScope.ANSWER),
    ({"type": "answer", "id": "q1", "answer": "edit", "command": "rm -rf /"}, None),
    ({"type": "answer", "id": "q1", "answer": "edit"},                        None),
    ({"type": "answer", "id": "q1", "answer": "no", "feedback": "x" * 2001},  None),
    ({"type": "answer", "id": 1, "answer": "yes"},                            None),
    ({"type": "answer", "answer": "yes"},                                     None),
    ({"type": "prompt", "text": "go"},                                        TokenScope.PROMPT),
    ({"type": "prompt", "text": "go", "images": []},                          None),
    ({"type": "steer", "text": "go"},                                         TokenScope.PROMPT),
    ({"type": "interrupt"},                                                   TokenScope.PROMPT),
    ({"type": "mode", "mode": "dangerously"},                                 None),
    ({"type": "model", "model": "x:y"},                                       None),
    ({"type": "shell", "command": "id"},                                      None),
    ({"type": "command", "text": "/mode dangerously"},                        None),
    ({"type": "quit"},                                                        None),
    ({"type": "detach_others"},                                               None),
    ({"type": "attach", "who": "terminal", "scope": "prompt"},                None),
    (["prompt"],                                                              None),
    ("prompt",                                                                None),
]
# fmt: on


@pytest.mark.threat("T283")
@pytest.mark.parametrize(("line", "least"), LINES, ids=str)
def test_scopes(line: object, least: TokenScope | None) -> None:
    for place, scope in enumerate(TokenScope):
        if least is not None and place >= list(TokenScope).index(least):
            assert permitted_line(scope, line) == line
        else:
            with pytest.raises(NotAllowed):
                permitted_line(scope, line)


@pytest.mark.threat("T283")
def test_waits_after_wrong_tokens() -> None:
    wrong = WrongTokens()
    for _ in range(FREE - 1):
        wrong.add("192.0.2.1", 0)
    assert wrong.wait("192.0.2.1", 0) == 0
    wrong.add("192.0.2.1", 0)
    assert wrong.wait("192.0.2.1", 0) == FIRST_WAIT
    assert wrong.wait("192.0.2.2", 0) == 0, "another address"
    wrong.add("192.0.2.1", 40)
    assert wrong.wait("192.0.2.1", 40) == 2 * FIRST_WAIT
    for _ in range(30):
        wrong.add("192.0.2.1", 50)
    assert wrong.wait("192.0.2.1", 50) == LONGEST_WAIT
    wrong.add("192.0.2.1", 50 + 3601)
    assert wrong.wait("192.0.2.1", 50 + 3601) == 0, "forgotten after an hour"
    for number in range(FREE):
        wrong.add(f"2001:db8::{number}", 0)
    assert wrong.wait("2001:db8::ffff", 0) == FIRST_WAIT, "one IPv6 network of 64 bits is one address"
    for number in range(5000):
        wrong.add(f"10.{number >> 8}.{number & 255}.1", 0)
    assert len(wrong._counts) <= 1024


@pytest.mark.threat("T284")
def test_shown_values() -> None:
    event = {"type": "text", "text": "a\u202eb\x1b[31m\u200b", "more": {"k\x07": ["\u2066x", 1, None, True, 1.5]}}
    assert shown_event(event) == {
        "type": "text",
        "text": "a<U+202E>b␛[31m<U+200B>",
        "more": {"k␇": ["<U+2066>x", 1, None, True, 1.5]},
    }
    assert shown("e\u0301\u0301\u0301\u0301", prose=False) != "e\u0301\u0301\u0301\u0301"
    long = "x" * (LONGEST_TEXT + 7)
    assert str(shown(long)).endswith("… 7 more characters")
    assert len(list(shown(list(range(MOST_ITEMS + 3))))) == MOST_ITEMS + 1  # type: ignore[call-overload]  # a list
    deep: object = "end"
    for _ in range(100):
        deep = [deep]
    assert "…" in json.dumps(shown(deep), ensure_ascii=False)


@pytest.mark.threat("T284")
@pytest.mark.parametrize("kind", ["question_asked", "pick_wanted", "input_wanted"])
def test_a_question_is_never_cut(kind: str) -> None:
    card = {"command": "true;" * LONGEST_TEXT + "rm -rf x", "paths": [str(each) for each in range(MOST_ITEMS * 3)]}
    assert shown_event({"type": kind, "card": card}) == {"type": kind, "card": card}


@pytest.mark.threat("T286")
def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, largest=2000)
    for number in range(100):
        log.write("sent answer", address="192.0.2.1\n", token="phone", answer="x" * 1000, number=number)
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["remote.log", "remote.log.1"]
    assert all((tmp_path / name).stat().st_size <= 2000 for name in files)
    last = json.loads((tmp_path / "remote.log").read_text().splitlines()[-1])
    assert last["number"] == 99
    assert last["address"] == "192.0.2.1"
    assert len(last["answer"]) == 200


@pytest.mark.threat("T283")
def test_tokens(tmp_path: Path) -> None:
    store, other = RemoteTokens(tmp_path), RemoteTokens(tmp_path)
    secret = store.add("phone", TokenScope.ANSWER, 100.0, until=200.0, folder="/w").reveal()
    token = other.of_token(secret, 150.0)
    assert token is not None
    assert (token.name, token.scope) == ("phone", TokenScope.ANSWER)
    assert token.shows("/w")
    assert token.shows("/w/x")
    assert not token.shows("/wx")
    assert other.of_token(secret, 200.0) is None, "expired"
    for wrong in ("", secret[:-1], f"{secret}x", secret.swapcase(), "rft_", f"rft_{'x' * 5000}", "\udcff"):
        assert other.of_token(wrong, 150.0) is None
    cookie, until = store.sign_in(token, 150.0)
    assert until == 200.0, "a sign-in ends with its token"
    assert other.of_sign_in(cookie, 199.0) == token
    assert other.of_sign_in(cookie, 200.0) is None
    assert other.of_token(cookie, 150.0) is None, "a cookie is no token"
    assert other.of_sign_in(secret, 150.0) is None, "a token is no cookie"
    with pytest.raises(ProblemError):
        other.add("phone", TokenScope.VIEW, 150.0, until=None, folder=None)
    with pytest.raises(ProblemError):
        other.add("Phone!", TokenScope.VIEW, 150.0, until=None, folder=None)
    with pytest.raises(ProblemError):
        other.add_link("phone", 250.0)
    other.remove("phone")
    assert store.of_token(secret, 150.0) is None
    assert store.of_sign_in(cookie, 150.0) is None
    assert not store.still_valid(token, 150.0)
    with pytest.raises(ProblemError):
        store.remove("phone")
    for number in range(MOST_TOKENS):
        store.add(f"t{number}", TokenScope.VIEW, 1.0, until=None, folder=None)
    with pytest.raises(ProblemError):
        store.add("last", TokenScope.VIEW, 1.0, until=None, folder=None)
    assert secret not in (tmp_path / "remote.json").read_text()


# fmt: off
CODES = [
    # length of the text, version, beginning of the hash of the modules, which equal those of the library qrcode 8
    ( 10,  1, "0469f94aae37b6ef"), ( 30,  2, "8e1a963d47981e11"), ( 50,  3, "541a3f90dff7f361"),
    ( 75,  4, "218fbc04d2dee57e"), (100,  5, "0b12862bc1c39f7c"), (130,  6, "bcefa9ec10f53478"),
    (150,  7, "972466fd934ca4a6"), (190,  8, "731cf72e79f87a94"), (225,  9, "d1f6918cc8d168e9"),
    (270, 10, "0271b5b1d145f0d0"),
]
# fmt: on


@pytest.mark.parametrize(("length", "version", "digest"), CODES)
def test_qr_codes(length: int, version: int, digest: str) -> None:
    modules = qr_modules(("https://192.168.1.5:8443/#rfl_" * 10)[:length])
    assert modules is not None
    assert len(modules) == 17 + 4 * version
    rows = "\n".join("".join("01"[dark] for dark in row) for row in modules)
    assert sha256(rows.encode()).hexdigest()[:16] == digest


def test_a_code_in_a_terminal() -> None:
    shown = terminal_code("https://127.0.0.1:8443/")
    assert shown is not None
    lines = [line.removeprefix("\x1b[38;5;16;48;5;231m").removesuffix("\x1b[0m") for line in shown.split("\n")]
    assert {len(line) for line in lines} == {25 + 8}
    assert set("".join(lines)) == set(" ▀▄█")
    assert terminal_code("x" * 300) is None


def test_the_status_of_a_killed_server_is_none(tmp_path: Path) -> None:
    RemoteStatus(os.getpid(), "https://127.0.0.1:8443/", "AB").write(tmp_path)
    assert RemoteStatus.of(tmp_path) is None, "another process has the number of the server"
    (tmp_path / "remote-status.json").write_text('{"pid": "../1", "url": 1}')
    assert RemoteStatus.of(tmp_path) is None
