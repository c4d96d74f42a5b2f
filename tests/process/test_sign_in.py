"""Tests of the sign-in to remote tool servers, and of the tokens of a session, against hostile issuers on loopback."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from policy.model.profile import Layer
from policy.model.verdict import ProblemError
from runner.mcp.callback_server import CallbackServer, callback_server
from runner.mcp.server_config import ServerConfig
from runner.mcp.tokens import TokenSet, TokenStore, server_key
from runner.secrets.keyring_store import KeyringFailed
from runner.secrets.secret import Secret
from tests.support.http_script import answer, scripted_server
from tests.support.tool_issuer import Issuer, jwt

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from runner.mcp.http import Challenge
from runner.mcp.machine_sign_in import MachineAuth, MachineCredentials, machine_credentials
from runner.mcp.sign_in import ClientIdentity, Connecting, StoredAuth, foreign_audience, revoke, sign_in

PRIVATE = "https://10.0.0.1"


async def get(url: str) -> str:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    said = (await reader.read()).decode()
    writer.close()
    return said


async def signed(
    issuer: Issuer, *, returns=None, patience: float = 600.0, client: ClientIdentity | None = None, **more
):
    """Sign in with a browser that returns `returns(query, issuer)`, and return the tokens and the address it was shown."""
    shown: list[str] = []

    async def browser(address: str, callback: CallbackServer) -> None:
        shown.append(address)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["redirect_uri"] == callback.address
        back = {"code": "code-canary-1", "state": asked["state"], "iss": f"{issuer.url}/as"}
        back = returns(back) if returns else back
        said = await get(f"{callback.address}?{urlencode(back, doseq=True)}")
        assert "code-canary" not in said

    async with scripted_server(issuer.script) as server:
        issuer.url = server.url
        config = ServerConfig(
            "demo", Layer.USER, url=f"{server.url}/mcp", transport="http", hosts=(f"127.0.0.1:{server.port} private",)
        )
        tokens = await sign_in(config, browser, patience=patience, client=client, **more)
        return tokens, shown, server.seen


def test_a_sign_in() -> None:
    issuer = Issuer()
    tokens, shown, seen = asyncio.run(signed(issuer, scopes="more"))
    assert (tokens.access, tokens.refresh) == (Secret("access-canary-1"), Secret("refresh-canary-1"))
    assert (tokens.issuer, tokens.server, tokens.resource) == (
        f"{issuer.url}/as",
        f"{issuer.url}/mcp",
        f"{issuer.url}/mcp",
    )
    asked = {name: values[0] for name, values in parse_qs(urlsplit(shown[0]).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == issuer.tokens[0]["resource"] == f"{issuer.url}/mcp"
    assert asked["redirect_uri"] == issuer.tokens[0]["redirect_uri"]
    assert asked["scope"] == "read more"
    assert issuer.tokens[0]["code_verifier"]
    [registered] = [each.json() for each in seen if each.path == "/register"]
    assert registered["redirect_uris"] == [asked["redirect_uri"]]
    assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"


@pytest.mark.parametrize(("identity", "metadata", "expected"), [
    (ClientIdentity("https://tool.example/client.json"), {"client_id_metadata_document_supported": True}, "https://tool.example/client.json"),
    (ClientIdentity("https://tool.example/client.json"), {}, "made-by-the-issuer"),
    (ClientIdentity("my-registration", Secret("registered-canary")), {}, "my-registration"),
], ids=["a metadata document", "an issuer without such documents", "a registration of the user"])  # fmt: skip
def test_the_identity_of_the_program(identity: ClientIdentity, metadata: dict, expected: str) -> None:
    tokens, shown, seen = asyncio.run(signed(Issuer(metadata=metadata), client=identity))
    assert tokens.client_id == parse_qs(urlsplit(shown[0]).query)["client_id"][0] == expected
    assert (tokens.client_secret is not None) == (identity.secret is not None)
    assert any(each.path == "/register" for each in seen) == (expected == "made-by-the-issuer")


HOSTILE = (
    # (what the server or issuer says, what the browser returns, expected, whether the browser opens, why)
    ({"resource": "https://bank.example/mcp"}, None, "does not match expected", False, "metadata of another resource"),
    ({"metadata": {"issuer": "https://bank.example"}}, None, "issuer mismatch", False, "metadata of another issuer"),
    ({"metadata": {"code_challenge_methods_supported": ["plain"]}}, None, "PKCE with S256", False, "PKCE without S256"),
    ({"metadata": {"code_challenge_methods_supported": None}}, None, "PKCE with S256", False, "no PKCE"),
    ({"server": PRIVATE}, None, "a private network", False, "an issuer in a private network"),
    ({"server": "https://169.254.169.254"}, None, "metadata service", False, "an issuer at a metadata service"),
    ({"about": "https://192.168.1.1/x"}, None, "a private network", False, "metadata in a private network"),
    ({"metadata": {"registration_endpoint": f"{PRIVATE}/register"}}, None, "a private network", False, "a registration in a private network"),
    ({"metadata": {"authorization_endpoint": "http://bank.example/a"}}, None, "is not encrypted", False, "an address for the browser without encryption"),
    ({"metadata": {"authorization_endpoint": "file:///bin/sh"}}, None, "no valid metadata", False, "an address for the browser of a file"),
    ({"metadata": {"token_endpoint": f"{PRIVATE}/token"}}, None, "a private network", True, "a token address in a private network"),
    ({"token_answer": lambda each: answer(307, Location="https://127.0.0.1/token")}, None, "Token exchange failed (307)", True, "a redirect of the token address"),
    ({"token_answer": lambda each: answer(200, b"{" + b" " * (2 << 20))}, None, "sends too much", True, "a token of 2 MB"),
    ({"token_answer": lambda each: answer(200, {"access_token": "x", "token_type": "mac"})}, None, "Invalid token response", True, "another kind of token"),
    ({"tokens": {"access_token": jwt("https://bank.example/api")}}, None, "a token for https://bank.example/api", True, "a token for another audience"),
    ({"tokens": {"access_token": "a b"}}, None, "characters that no token has", True, "a token with a blank"),
    ({}, lambda back: {**back, "iss": "https://bank.example"}, "iss mismatch", True, "an answer of another issuer"),
    ({}, lambda back: {k: v for k, v in back.items() if k != "iss"}, "missing iss", True, "an answer without the issuer"),
    ({}, lambda back: {"error": "access_denied", "state": back["state"]}, "access_denied", True, "a refusal"),
    ({}, lambda back: {**back, "code": ""}, "no code", True, "no code"),
    ({}, lambda back: {**back, "state": "x"}, "the browser did not return", True, "another state"),
    ({}, lambda back: {**back, "code": ["code-canary-1", "code-canary-2"]}, "the browser did not return", True, "two codes"),
)  # fmt: skip


@pytest.mark.threat("T191")
@pytest.mark.parametrize(("wrong", "returns", "expected", "opens", "why"), HOSTILE, ids=[row[-1] for row in HOSTILE])
def test_a_sign_in_is_refused(wrong, returns, expected, opens, why) -> None:
    opened: list[bool] = []

    def noted(back: dict) -> dict:
        opened.append(True)
        return returns(back) if returns else back

    patience = 0.5 if "did not return" in expected else 600.0
    with pytest.raises(ProblemError) as caught:
        asyncio.run(signed(Issuer(**wrong), returns=noted, patience=patience))
    assert expected in str(caught.value), why
    assert bool(opened) == opens


@pytest.mark.threat("T191")
@pytest.mark.parametrize(("audience", "refused"), [
    ("https://mcp.example/tools", False),
    ("https://mcp.example", False),
    (["https://bank.example", "https://mcp.example/"], False),
    ("3f2a0c1e-client", False),
    ("https://mcp.example/other", True),
    ("https://mcp.example.bank.example/tools", True),
    ("http://mcp.example/tools", True),
    (["https://bank.example", 7], True),
], ids=str)  # fmt: skip
def test_the_audience_of_a_token(audience: object, refused: bool) -> None:
    assert bool(foreign_audience(jwt(audience), "https://mcp.example/tools")) == refused


class Keyring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], Secret] = {}

    def read(self, provider: str, account: str) -> Secret | None:
        return self.items.get((provider, account))

    def write(self, provider: str, account: str, secret: Secret) -> None:
        self.items[provider, account] = secret

    def remove(self, provider: str, account: str) -> bool:
        return self.items.pop((provider, account), None) is not None


class LockedKeyring(Keyring):
    """A keyring that refuses every request."""

    def read(self, provider: str, account: str) -> Secret | None:
        raise KeyringFailed("it is locked", "unlock it")


def tokens_for(server: str, issuer: str, **more) -> TokenSet:
    made = {
        "token_endpoint": f"{issuer}/token",
        "resource": server,
        "client_id": "id",
        "access": Secret("access-canary-old"),
    }
    return TokenSet(server=server_key(server), issuer=issuer, **{**made, **more})


@pytest.mark.threat("T191")
def test_tokens_are_for_one_server_and_one_issuer(tmp_path: Path) -> None:
    environ, keyring = {"HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path / "state")}, Keyring()
    store = TokenStore(environ, keyring)
    first = tokens_for("https://mcp.example/a", "https://one.example", refresh=Secret("refresh-canary-old"))
    store.write(first)
    assert store.read("https://MCP.example:443/a#x") == first
    assert store.read("https://mcp.example/b") is None
    assert store.read("https://mcp.example:8443/a") is None
    text = "".join(path.read_text() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert "https://one.example" in text
    assert "canary" not in text
    keyed = tokens_for("https://mcp.example/a?key=query-canary", "https://one.example")
    store.write(keyed)
    assert store.read("https://mcp.example/a?key=query-canary") == keyed
    assert store.read("https://mcp.example/a?key=other") is None
    assert "canary" not in (tmp_path / "state" / "sign_ins.json").read_text()
    assert store.remove("https://mcp.example/a?key=query-canary")
    with pytest.raises(KeyringFailed, match="too long"):
        store.write(tokens_for("https://mcp.example/a", "https://one.example", scope="s" * 9000))
    second = tokens_for("https://mcp.example/a", "https://two.example")
    store.write(second)
    assert store.read("https://mcp.example/a") == second
    assert all("refresh" not in kind for kind, _ in keyring.items), "the tokens of the earlier issuer are removed"
    # Another program moves the registration of one pair to the account of another pair.
    store.write(tokens_for("https://evil.example/", "https://one.example"))
    [mine] = [account for kind, account in keyring.items if keyring.items[kind, account] == second.access][:1]
    [other] = {account for _, account in keyring.items} - {mine}
    keyring.items["mcp-client", other] = keyring.items["mcp-client", mine]
    assert store.read("https://evil.example/") is None
    assert store.remove("https://evil.example/")
    assert not store.remove("https://evil.example/")
    assert store.remove_all() == ("https://mcp.example/a",)
    assert [kind for kind, account in keyring.items if account != other] == []


def test_a_session_renews_its_token_and_says_how_to_sign_in(tmp_path: Path) -> None:
    async def run() -> None:
        issuer = Issuer(tokens={"access_token": "access-canary-new", "refresh_token": None, "expires_in": "3600"})
        async with scripted_server(issuer.script) as server:
            issuer.url = server.url
            rule = (f"127.0.0.1:{server.port} private",)
            config = ServerConfig("demo", Layer.USER, url=f"{server.url}/mcp", transport="http", hosts=rule)
            store = TokenStore({"RINGFENCE_STATE_DIR": str(tmp_path / "state")}, Keyring())
            headless = StoredAuth(config, store)
            assert await headless.token() is None
            with pytest.raises(ProblemError, match="agent mcp login demo"):
                await headless.renewed(None, Challenge(401))
            store.write(
                tokens_for(
                    config.url,
                    server.url,
                    refresh=Secret("refresh-canary-old"),
                    client_secret=Secret("client-canary-old"),
                    method="client_secret_post",
                    expires=1.0,
                )
            )
            auth = StoredAuth(config, store)
            assert await auth.token() == Secret("access-canary-new"), "it had expired"
            [asked] = issuer.tokens
            assert asked == {
                "grant_type": "refresh_token",
                "refresh_token": "refresh-canary-old",
                "resource": config.url,
                "client_id": "id",
                "client_secret": "client-canary-old",
            }
            assert store.read(config.url).refresh == Secret("refresh-canary-old"), "an issuer may keep the old one"
            with pytest.raises(ProblemError, match="agent mcp login demo --scope write"):
                await auth.renewed(Secret("access-canary-new"), Challenge(403, "", "write"))
            issuer.wrong = {"token_answer": lambda each: answer(400, {"error": "invalid_grant"})}
            with pytest.raises(ProblemError, match="agent mcp login demo"):
                await auth.renewed(Secret("access-canary-new"), Challenge(401))
            issuer.wrong = {"tokens": {"access_token": jwt("https://bank.example")}}
            with pytest.raises(ProblemError, match=r"a token for https://bank\.example"):
                await auth.renewed(Secret("access-canary-new"), Challenge(401))
            locked = StoredAuth(config, TokenStore({"RINGFENCE_STATE_DIR": str(tmp_path / "state")}, LockedKeyring()))
            assert await locked.token() is None
            with pytest.raises(ProblemError, match="the keyring: it is locked"):
                await locked.renewed(None, Challenge(401))

    asyncio.run(run())


@pytest.mark.threat("T191")
def test_credentials_of_a_machine_go_to_their_issuer_only() -> None:
    async def run() -> None:
        issuer = Issuer()
        async with scripted_server(issuer.script) as server:
            issuer.url = server.url
            rule = (f"127.0.0.1:{server.port} private",)
            config = ServerConfig("demo", Layer.USER, url=f"{server.url}/mcp", transport="http", hosts=rule)

            def auth(issued_by: str) -> MachineAuth:
                known = MachineCredentials(issued_by, "id", Secret("machine-canary"))
                return MachineAuth(config, known, Connecting())

            mine = auth(f"{server.url}/as")
            assert await mine.token() is None
            assert await mine.renewed(None, Challenge(401)) == await mine.token() == Secret("access-canary-1")
            assert [each["grant_type"] for each in issuer.tokens] == ["client_credentials"]
            issuer.tokens.clear()
            with pytest.raises(ProblemError, match="issuer mismatch"):
                await auth("https://company.example").renewed(None, Challenge(401))
            issuer.wrong = {"tokens": {"access_token": jwt("https://bank.example")}}
            with pytest.raises(ProblemError, match="a token for"):
                await auth(f"{server.url}/as").renewed(None, Challenge(401))
            assert len(issuer.tokens) == 1
            assert not any(b"machine-canary" in each.body for each in server.seen)

    asyncio.run(run())


def test_a_token_that_another_session_renewed_is_used(tmp_path: Path) -> None:
    async def run() -> None:
        config = ServerConfig("demo", Layer.USER, url="https://mcp.example/", transport="http")
        store = TokenStore({"RINGFENCE_STATE_DIR": str(tmp_path / "state")}, Keyring())
        store.write(tokens_for(config.url, "https://issuer.example", refresh=Secret("refresh-canary-old")))
        auth = StoredAuth(config, store)
        old = await auth.token()
        store.write(tokens_for(config.url, "https://issuer.example", access=Secret("access-canary-other")))
        assert await auth.renewed(old, Challenge(401)) == Secret("access-canary-other")

    asyncio.run(run())


REQUESTS = (
    (b"POST /callback HTTP/1.1\r\n\r\n", "405", "another method"),
    (b"GET /callback?code=c&state=wrong HTTP/1.1\r\n\r\n", "404", "another state"),
    (b"GET /other?code=c&state=right HTTP/1.1\r\n\r\n", "404", "another path"),
    (b"GET /callback?code=c&state=right&state=right HTTP/1.1\r\n\r\n", "404", "two states"),
    (b"GET /callback HTTP/1.1\r\n\r\n", "404", "no state"),
    (b"nonsense\r\n\r\n", "405", "no request"),
    (b"GET /" + b"x" * 20000 + b"\r\n\r\n", "", "a long request"),
    (b"GET /callback?code=c&state=right HTTP/1.1\r\n\r\n", "200", "the answer"),
    (b"GET /callback?code=d&state=right HTTP/1.1\r\n\r\n", "410", "a second answer"),
)


@pytest.mark.threat("T191")
def test_the_callback_server_takes_one_answer() -> None:
    async def run() -> None:
        async with callback_server(fixed_path=True) as callback:
            port = urlsplit(callback.address).port
            callback.expect("right")
            for sent, expected, why in REQUESTS:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                said = (await reader.read()).decode()
                writer.close()
                assert [*said.split(" "), "", ""][1] == expected, why
            assert (await callback.answer(20.0)).code == "c"

    asyncio.run(run())


@pytest.mark.threat("T191")
def test_a_fixed_port_is_used_or_the_sign_in_ends() -> None:
    async def run() -> None:
        async with callback_server(fixed_path=True) as first:
            port = urlsplit(first.address).port
            with pytest.raises(ProblemError, match=f"port {port} of `callback_port`"):
                async with callback_server(fixed_path=True, port=port):
                    raise AssertionError("two servers at one port")
        for port in range(20_000, 20_100):  # below the ports that the system hands out
            with contextlib.suppress(ProblemError):
                async with callback_server(fixed_path=True, port=port) as again:
                    assert again.address == f"http://127.0.0.1:{port}/callback"
                    return
        raise AssertionError("none of a hundred ports is free")

    asyncio.run(run())


REVOCATIONS = [
    ({}, {}, "", "both tokens"),
    ({}, {"revocation_endpoint": ""}, "names no address", "an issuer without revocation"),
    ({}, {"revocation_endpoint": PRIVATE}, "10.0.0.1", "a private address"),
    ({}, {"revocation_endpoint": "http://a.example/"}, "a.example", "an address without TLS"),
    ({"revoked": answer(503)}, {}, "status 503", "an issuer that refuses"),
]


@pytest.mark.threat("T191")
@pytest.mark.parametrize(("wrong", "changed", "told", "why"), REVOCATIONS, ids=[row[-1] for row in REVOCATIONS])
def test_an_issuer_revokes_tokens(wrong: dict, changed: dict, told: str, why: str) -> None:
    issuer = Issuer(**wrong)

    async def run() -> str:
        async with scripted_server(issuer.script) as server:
            issuer.url = server.url
            hosts = (f"127.0.0.1:{server.port} private",)
            config = ServerConfig("demo", Layer.USER, url=f"{server.url}/mcp", transport="http", hosts=hosts)

            async def browser(address: str, callback: CallbackServer) -> None:
                state = parse_qs(urlsplit(address).query)["state"][0]
                back = urlencode({"code": "c", "state": state, "iss": f"{issuer.url}/as"})
                await get(f"{callback.address}?{back}")

            tokens = replace(await sign_in(config, browser, patience=600.0), **changed)
            return await revoke(tokens, config, Connecting())

    said = asyncio.run(run())
    assert told in said, why
    assert bool(said) is bool(told)
    sent = [(each["token"], each["token_type_hint"], each["client_id"]) for each in issuer.revoked]
    both = [(f"{kind}-canary-1", f"{kind}_token", "made-by-the-issuer") for kind in ("refresh", "access")]
    assert sent == ([] if changed else both[:1] if wrong else both)


@pytest.mark.parametrize(("given", "expected"), [
    ({}, None),
    ({"CLIENT_ID": "id", "CLIENT_SECRET": "s"}, "_ISSUER"),
    ({"CLIENT_ID": "id", "ISSUER": "https://i.example"}, "CLIENT_SECRET or PRIVATE_KEY"),
    ({"CLIENT_ID": "id", "ISSUER": "https://i.example", "CLIENT_SECRET": "s", "PRIVATE_KEY": "k"}, "exactly one"),
    ({"CLIENT_ID": "id", "ISSUER": "https://i.example", "CLIENT_SECRET": "s", "ID_TOKEN": "t"}, "ID_ENDPOINT"),
], ids=["nothing", "no issuer", "no secret", "two secrets", "no address of the identity provider"])  # fmt: skip
def test_the_credentials_of_a_machine(given: dict[str, str], expected: str | None) -> None:
    environ = {f"RINGFENCE_MCP_MY_SERVER_{name}": value for name, value in given.items()}
    if expected is None:
        assert machine_credentials("my-server", environ) is None
        return
    with pytest.raises(ProblemError, match=expected):
        machine_credentials("my-server", environ)
