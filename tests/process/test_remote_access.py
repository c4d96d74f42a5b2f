"""Remote access: who reaches the server, what its answers permit a browser, and what it survives."""

import contextlib
import json
import os
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from runner.frontends.remote.attempts import FREE
from runner.frontends.remote.viewer import LONGEST_MESSAGE
from tests.support.remote_server import OpenSocket, RemoteProcess, remote_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteProcess]:
    with remote_process(tmp_path_factory.mktemp("remote")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RemoteProcess]:
    with remote_process(tmp_path) as running:
        yield running


# fmt: off
REQUESTS = [
    # path, headers besides the right host, status, why
    ("/",         {},                                                                       200, "the page needs no token"),
    ("/?token=x", {},                                                                       200, "a query has no meaning"),
    ("/",         {"Host": "evil.example:{port}"},                                          421, "a name that was made to resolve here"),
    ("/",         {"Host": "127.0.0.1.evil.example:{port}"},                                421, "a name that begins like the address"),
    ("/",         {"Host": "127.0.0.1:1"},                                                  421, "another port"),
    ("/",         {"Host": "127.0.0.2:{port}"},                                             421, "another address of this machine"),
    ("/",         {"Host": "localhost:{port}"},                                             200, "a name of loopback"),
    ("/",         {"Host": "localhost:{port}\r\nHost: evil.example"},                       421, "two hosts"),
    ("/",         {"Origin": "https://evil.example"},                                       403, "a page of another origin"),
    ("/",         {"Origin": "null"},                                                       403, "a page in a sandboxed frame"),
    ("/",         {"Origin": "https://127.0.0.1:{port}.evil.example"},                      403, "an origin that begins like ours"),
    ("/",         {"Origin": "http://127.0.0.1:{port}"},                                    403, "the same host without TLS"),
    ("/",         {"Origin": "https://127.0.0.1:{port}"},                                   200, "the page itself"),
    ("/app.js",   {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},            403, "a script element of another site"),
    ("/app.js",   {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},             403, "a page on another port of the same host"),
    ("/",         {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200, "a link of another site"),
    ("/",         {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},   403, "a frame of another site"),
    ("/me",       {},                                                                       401, "no token"),
    ("/me",       {"Authorization": "Bearer rft_wrong"},                                    401, "a wrong token"),
    ("/me",       {"Authorization": "Basic cmZ0X3g6"},                                      401, "another scheme"),
    ("/me",       {"Cookie": "__Host-ringfence=rfs_wrong"},                                 401, "a wrong cookie"),
    ("/socket",   {},                                                                       401, "no token"),
    ("/sign-in",  {"Authorization": "Bearer {good}"},                                       403, "a request that another origin could send"),
    ("/sign-out", {},                                                                       403, "a request that another origin could send"),
    ("/../app.js", {},                                                                      404, "no files but those of the page"),
    ("/app.py",   {},                                                                       404, "no files but those of the page"),
]
# fmt: on


@pytest.mark.threat("T282")
@pytest.mark.threat("T283")
@pytest.mark.parametrize(
    ("path", "headers", "status", "why"), REQUESTS, ids=[f"{row[3]}: {row[0]}" for row in REQUESTS]
)
def test_requests(server: RemoteProcess, path: str, headers: dict[str, str], status: int, why: str) -> None:
    good = server.token(f"good-{len(server.store.tokens())}") if "{good}" in str(headers) else ""
    filled = {name: value.format(port=server.port, good=good) for name, value in headers.items()}
    assert server.get(path, filled).status == status, why


@pytest.mark.threat("T282")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_no_other_method_is_answered(server: RemoteProcess, method: str) -> None:
    for path in ("/", "/sign-in", "/socket"):
        reply = server.get(path, method=method)
        assert reply.status not in (101, 200, 204)
        assert not reply.header("access-control-allow-origin"), "no permission for another origin, whatever it asks"


@pytest.mark.threat("T282")
@pytest.mark.threat("T285")
@pytest.mark.parametrize("path", ["/", "/app.js", "/me", "/none"])
def test_headers(server: RemoteProcess, path: str) -> None:
    reply = server.get(path)
    policy = dict(part.strip().partition(" ")[::2] for part in reply.header("content-security-policy").split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert policy["connect-src"] == f"'self' wss://{server.host}"
    for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
        assert policy[name] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert reply.header("cache-control") == "no-store"
    assert reply.header("referrer-policy") == "no-referrer"
    assert reply.header("x-content-type-options") == "nosniff"
    assert reply.header("x-frame-options") == "DENY"
    assert reply.header("cross-origin-resource-policy") == "same-origin"
    assert not reply.header("server"), "the version of a library is nobody's business"


def test_the_page_has_no_script_or_style_of_its_own(server: RemoteProcess) -> None:
    page = server.get("/").body.decode()
    assert page.count("<script") == 1
    assert "style=" not in page
    assert "<style" not in page
    assert "http" not in page, "no address of another host"
    script = server.get("/app.js").body.decode()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "https://"):
        assert word not in script


def _end_of(page: OpenSocket) -> int:
    """The code with which the server closes a WebSocket."""
    try:
        while True:
            page.recv(60)
    except ConnectionClosed as ended:
        return ended.rcvd.code if ended.rcvd is not None else 0


# ---- tokens


@pytest.mark.threat("T283")
def test_sign_in_by_token(own_server: RemoteProcess) -> None:
    secret = own_server.token("phone", "answer")
    reply = own_server.sign_in(secret)
    assert reply.status == 204
    flags = [part.strip() for part in reply.header("set-cookie").split(";")]
    assert flags[0].startswith("__Host-ringfence=rfs_")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(flags)
    me = own_server.get("/me", {"Cookie": reply.cookie})
    assert json.loads(me.body)["scope"] == "answer"
    stored = (own_server.folder / "remote.json").read_text()
    assert secret not in stored
    assert reply.cookie.partition("=")[2] not in stored
    assert secret not in (own_server.folder / "remote.log").read_text() + "".join(own_server.said)
    for name in ("remote.json", "remote.log", "remote-certificate.pem", "remote-status.json"):
        assert stat.S_IMODE((own_server.folder / name).stat().st_mode) == 0o600
    assert own_server.get("/sign-out", {"Cookie": reply.cookie, "X-Ringfence": "1"}).status == 204
    assert own_server.get("/me", {"Cookie": reply.cookie}).status == 401


@pytest.mark.threat("T283")
def test_a_link_works_once(own_server: RemoteProcess) -> None:
    own_server.token("phone", "answer")
    code = own_server.store.add_link("phone", time.time()).reveal()
    expired = own_server.store.add_link("phone", time.time() - 601).reveal()
    assert own_server.get("/me", {"Authorization": f"Bearer {code}"}).status == 401, "a code is for signing in alone"
    assert own_server.sign_in(expired).status == 401
    assert own_server.sign_in(code).status == 204
    assert own_server.sign_in(code).status == 401


@pytest.mark.threat("T283")
def test_an_expired_token_is_refused(own_server: RemoteProcess) -> None:
    secret = own_server.token("old", until=time.time() - 1)
    assert own_server.sign_in(secret).status == 401
    with pytest.raises(InvalidStatus):
        own_server.opened(secret)


@pytest.mark.threat("T283")
def test_wrong_tokens_make_an_address_wait(own_server: RemoteProcess) -> None:
    secret = own_server.token("good")
    cookie = own_server.sign_in(secret).cookie
    assert [own_server.sign_in("rft_" + "x" * 43).status for _ in range(FREE)] == [401] * FREE
    refused = own_server.sign_in(secret)
    assert refused.status == 429, "a right token has to wait as well, so that the answer tells nothing"
    assert int(refused.header("retry-after")) > 0
    assert own_server.get("/me", {"Cookie": cookie}).status == 200, "who is signed in already notices nothing"


@pytest.mark.threat("T283")
@pytest.mark.parametrize("way", ["token", "cookie", "sign-out"])
def test_an_open_page_is_closed_when_its_right_ends(own_server: RemoteProcess, way: str) -> None:
    secret = own_server.token("phone")
    if way == "token":
        page = own_server.page({"Authorization": f"Bearer {secret}"}, origin=None)
    else:
        cookie = own_server.sign_in(secret).cookie
        page = own_server.page({"Cookie": cookie})
    assert json.loads(page.recv(60))["type"] == "hello"
    if way == "sign-out":
        assert own_server.get("/sign-out", {"Cookie": cookie, "X-Ringfence": "1"}).status == 204
    else:
        own_server.store.remove("phone")
    assert _end_of(page) == 4401
    if way != "sign-out":
        assert own_server.sign_in(secret).status == 401


@pytest.mark.threat("T283")
def test_a_new_token_of_the_same_name_revives_no_sign_in(own_server: RemoteProcess) -> None:
    cookie = own_server.sign_in(own_server.token("phone")).cookie
    own_server.store.remove("phone")
    own_server.token("phone", "prompt")
    assert own_server.get("/me", {"Cookie": cookie}).status == 401


@pytest.mark.threat("T283")
def test_a_damaged_list_of_tokens_lets_nobody_in(own_server: RemoteProcess) -> None:
    secret = own_server.token("phone")
    page = own_server.opened(secret)
    page.until("hello")
    (own_server.folder / "remote.json").write_text('{"version": 1, "tokens": "all"}')
    with pytest.raises(ConnectionClosed):
        page.until("never")
    assert own_server.sign_in(secret).status == 401
    os.chmod(own_server.folder / "remote.json", 0o666) if (own_server.folder / "remote.json").exists() else None
    assert own_server.sign_in(secret).status in (401, 503)


# ---- the WebSocket

ORIGINS = [
    "https://evil.example",
    "null",
    "http://127.0.0.1:{port}",
    "https://127.0.0.1",
    "https://localhost:{port}.evil.example",
]


@pytest.mark.threat("T282")
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_of_another_origin_opens_no_socket(server: RemoteProcess, origin: str) -> None:
    name = f"origin-{ORIGINS.index(origin)}"
    secret = server.token(name)
    cookie = server.store.sign_in(next(each for each in server.store.tokens() if each.name == name), time.time())[0]
    for headers in ({"Cookie": f"__Host-ringfence={cookie}"}, {"Authorization": f"Bearer {secret}"}):
        with pytest.raises(InvalidStatus) as refused:
            server.page(headers, origin=origin.format(port=server.port))
        assert refused.value.response.status_code == 403


@pytest.mark.threat("T282")
def test_a_cookie_without_an_origin_opens_no_socket(own_server: RemoteProcess) -> None:
    cookie = own_server.sign_in(own_server.token("phone")).cookie
    with pytest.raises(InvalidStatus) as refused:
        own_server.page({"Cookie": cookie}, origin=None)
    assert refused.value.response.status_code == 403
    with own_server.page({"Cookie": cookie}) as page:
        assert json.loads(page.recv(60))["scope"] == "view"


@pytest.mark.threat("T286")
def test_a_message_that_is_too_long_ends_its_connection_alone(server: RemoteProcess) -> None:
    secret = server.token("long", "prompt")
    first, second = server.opened(secret), server.opened(secret)
    with contextlib.suppress(ConnectionClosed):
        first.say(type="record", session="x" * (LONGEST_MESSAGE + 1))
    assert _end_of(first.connection) in (1009, 0), "0: the server had closed while the message was being sent"
    assert not any(message["type"] == "record" for message in first.got)
    second.say(type="record")
    assert second.until("record")["decisions"] == []
    second.close()


# fmt: off
MESSAGES = [
    "", "{", "[]", "null", "7", '{"type": 1}', '{"type": "list"}', '{"type": "record", "limit": 0}',
    '{"type": "record", "limit": true}', '{"type": "record", "denied": "yes"}', '{"type": "watch"}',
    '{"type": "watch", "session": "../../socket"}', '{"type": "watch", "session": "0123456789abcdef"}',
    '{"type": "line", "session": "0123456789abcdef", "line": {"type": "prompt", "text": "x"}}',
    '{"type": "watch", "type": "record"}', "[" * 50_000,
]
# fmt: on


@pytest.mark.threat("T286")
def test_nonsense_is_refused_and_changes_nothing(server: RemoteProcess) -> None:
    page = server.opened(server.token("nonsense", "prompt"))
    for message in MESSAGES:
        page.connection.send(message)
        assert page.until("refused")["problem"]["why"]
    page.connection.send(b"\x00\xff")
    page.until("refused")
    page.say(type="record")
    page.until("record")
    page.close()


@pytest.mark.threat("T286")
def test_open_pages_are_limited(own_server: RemoteProcess) -> None:
    secret = own_server.token("many")
    pages = [own_server.opened(secret) for _ in range(8)]
    for page in pages:
        page.until("hello")
    with pytest.raises(InvalidStatus) as refused:
        own_server.opened(secret)
    assert refused.value.response.status_code == 503
    own_server.opened(own_server.token("other")).close()
    for page in pages:
        page.close()


@pytest.mark.threat("T286")
def test_silent_connections_keep_nobody_else_out(own_server: RemoteProcess) -> None:
    page = own_server.opened(own_server.token("phone"))
    page.until("hello")
    silent = [socket.create_connection(("127.0.0.1", own_server.port), 30) for _ in range(300)]
    with socket.create_connection(("127.0.0.1", own_server.port), 30, ("127.0.0.2", 0)) as plain:
        context = own_server.tls()
        assert context is not None
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as other:
            other.sendall(f"GET / HTTP/1.1\r\nHost: {own_server.host}\r\n\r\n".encode())
            assert other.recv(15) == b"HTTP/1.1 200 OK"
    open_files = len(os.listdir(f"/proc/{own_server.process.pid}/fd"))
    assert open_files < 200, "most of them were closed at once"
    page.say(type="record")
    page.until("record")
    for each in silent:
        each.close()
    page.close()
    assert "internal error" not in "".join(own_server.said)


@pytest.mark.threat("T286")
def test_long_requests_are_refused(server: RemoteProcess) -> None:
    assert server.get("/" + "x" * 20_000).status != 200
    assert server.get("/", {f"X-{number}": "x" * 4000 for number in range(400)}).status != 200
    assert server.get("/").status == 200


# ---- TLS


@pytest.mark.threat("T285")
def test_old_tls_and_plain_http_are_refused(server: RemoteProcess) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), 30) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain)
    with socket.create_connection(("127.0.0.1", server.port), 30) as plain:
        plain.sendall(f"GET / HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert b"200" not in plain.recv(1000)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusting = server.tls()
        assert trusting is not None
        trusting.minimum_version = trusting.maximum_version = version
        with socket.create_connection(("127.0.0.1", server.port), 30) as plain:
            assert trusting.wrap_socket(plain, server_hostname="localhost").version() is not None


@pytest.mark.threat("T285")
def test_the_certificate_is_kept_and_renewed(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509

    from runner.frontends.remote.certificate import kept_certificate

    now = datetime.now(UTC)
    first = kept_certificate(tmp_path, {"localhost", "127.0.0.1"}, now)
    assert kept_certificate(tmp_path, {"127.0.0.1"}, now).fingerprint == first.fingerprint
    assert kept_certificate(tmp_path, {"127.0.0.1"}, now + timedelta(days=360)).fingerprint == first.fingerprint
    file = tmp_path / "remote-certificate.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = x509.load_pem_x509_certificate(file.read_bytes().partition(b"-----END PRIVATE KEY-----\n")[2])
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca, (
        "it can sign no other certificate"
    )
    later = kept_certificate(tmp_path, {"127.0.0.1"}, now + timedelta(days=370))
    assert later.fingerprint != first.fingerprint, "renewed before its end"
    file.chmod(0o644)
    assert kept_certificate(tmp_path, {"127.0.0.1"}, now).fingerprint != later.fingerprint, (
        "others may have read the key"
    )
    file.write_text("damaged")
    assert kept_certificate(tmp_path, {"127.0.0.1"}, now).fingerprint
    assert kept_certificate(tmp_path, {"box.example"}, now).names == {"box.example"}, "another name needs another one"


# ---- the process


@pytest.mark.threat("T286")
def test_the_end_of_the_lifeline_ends_the_process(tmp_path: Path) -> None:
    with remote_process(tmp_path) as server:
        page = server.opened(server.token("phone"))
        page.until("hello")
        os.close(server.lifeline)
        server.lifeline = os.open("/dev/null", os.O_RDONLY)
        assert server.process.wait() == 130
        with pytest.raises(ConnectionClosed):
            page.until("never")
        assert not (server.folder / "remote-status.json").exists()


# fmt: off
MISTAKES = [
    (("--listen", "0.0.0.0"),                                            "is not an address with a port"),
    (("--listen", "example.com:8443"),                                   "the host is not an IP address"),
    (("--listen", "::1:8443"),                                           "IPv6 is written in brackets"),
    (("--listen", "127.0.0.1:70000"),                                    "a port is a number up to 65535"),
    (("--listen", "192.0.2.7:8443", "--no-tls"),                         "--no-tls is possible only on a loopback address"),
    (("--listen", "127.0.0.1:0", "--tls-cert", "x.pem"),                 "a certificate needs its key"),
    (("--listen", "127.0.0.1:0", "--tls-cert", "x.pem", "--tls-key", "y.pem"), "no such file"),
    (("--listen", "192.0.2.7:0"),                                        "`--listen 192.0.2.7:0` cannot be used"),
    (("--listen", "127.0.0.1:0", "--name", "evil example"),              "is not a host name"),
    (("--port", "1"),                                                    "there is no option `--port`"),
]
# fmt: on


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[row[1] for row in MISTAKES])
def test_mistakes_are_told(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    from tests.support.cli_harness import CliHarness

    (tmp_path / "work").mkdir()
    done = CliHarness(tmp_path).agent("serve", "web", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_port_in_use_is_told(server: RemoteProcess) -> None:
    done = server.harness.agent("serve", "web", "--listen", f"127.0.0.1:{server.port}", "--check")
    assert done.returncode == 2
    assert "address already in use" in done.stderr
