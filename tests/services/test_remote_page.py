"""The page of remote access in Chromium, with a real server and a real hosted session."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.hosted_session import HostedProcess, workspace
from tests.support.layers import overlays_work
from tests.support.own_network import own_address
from tests.support.remote_server import RemoteProcess, remote_process
from tests.support.report_browser import LONGEST, in_browser
from tests.support.resident_process import until

pytestmark = in_browser

EVIL = r"""<script>document.title='PWNED'</script><img src=x onerror=alert(1)><a href=javascript:alert(1)>x</a>
<iframe src=//127.0.0.1:9></iframe><style>body{display:none}</style> \u202Ereversed \u001b[31mred \u200Bzero"""
TURNS = f'''
[[turn]]
text = """{EVIL}"""
calls = [{{ name = "bash", arguments = {{ command = "echo '<b id=pwned>x</b>' > out.txt; chmod 700 out.txt" }} }}]
[[turn]]
text = "Now one that is dangerous."
calls = [{{ name = "bash", arguments = {{ command = "git push --force origin main" }} }}]
[[turn]]
text = "The end."
'''


class Seen:
    """A page of an own browser profile, with everything that it must not do."""

    def __init__(self, browser: Browser, server: RemoteProcess, *, phone: bool = True, dark: bool = False) -> None:
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 850}
        self.context: BrowserContext = browser.new_context(
            viewport=size, is_mobile=phone, has_touch=phone, ignore_https_errors=True,
            color_scheme="dark" if dark else "light",
        )  # fmt: skip
        self.page: Page = self.context.new_page()
        self.bad: list[str] = []
        self.page.set_default_timeout(LONGEST)
        self.page.on("request", lambda it: None if it.url.startswith(server.origin + "/") else self.bad.append(it.url))
        self.page.on("console", lambda it: None if "401" in it.text else self.bad.append(f"{it.type}: {it.text}"))
        self.page.on("pageerror", lambda it: self.bad.append(str(it)))
        self.page.on("dialog", lambda it: (self.bad.append(it.message), it.dismiss()))
        self.page.on("popup", lambda it: self.bad.append(it.url))
        self.server = server

    def sign_in(self, secret: str) -> None:
        self.page.goto(self.server.origin + "/")
        self.page.fill("#token", secret)
        self.page.click("#sign-in-form button")
        expect(self.page.locator("#link")).to_have_text("connected", timeout=LONGEST)

    def open(self, session: HostedProcess) -> None:
        self.page.click(f"[data-session='{session.id}']")
        expect(self.page.locator("#view-session")).to_be_visible()

    def question(self) -> None:
        """Wait for a question, and for the time in which it takes no answer."""
        self.page.wait_for_selector(".question.ready")

    def narrow(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteProcess]:
    with remote_process(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture
def hosted(server: RemoteProcess, request: pytest.FixtureRequest) -> Iterator[HostedProcess]:
    folder = workspace(server.harness.base, f"w{abs(hash(request.node.name)) % 10**8}")
    session = HostedProcess(server.harness, TURNS, folder=folder)
    yield session
    session.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.name)) % 10**8}"


@pytest.mark.threat("T284")
def test_a_phone_answers_a_card(browser: Browser, server: RemoteProcess, hosted: HostedProcess, name: str) -> None:
    seen = Seen(browser, server)
    seen.sign_in(server.token(name, "prompt"))
    page = seen.page
    assert page.locator("#token").input_value() == ""
    seen.open(hosted)
    page.fill("#prompt", "Write the file")
    page.tap("#send")
    seen.question()
    card = page.locator(".question")
    expect(card.locator("h2")).to_contain_text("out.txt")
    expect(card.locator("[aria-label=Command]")).to_have_text("echo '<b id=pwned>x</b>' > out.txt; chmod 700 out.txt")
    assert card.locator(".badge").first.inner_text() == "write"
    expect(page).to_have_title("(1) ringfence")  # the list of sessions follows the question
    assert seen.narrow()
    box = card.get_by_role("button", name="Yes, once").bounding_box()
    assert box is not None
    assert box["height"] >= 44, "large enough for a finger"
    card.get_by_role("button", name="Yes, once").tap()
    expect(page.locator("#transcript")).to_contain_text(f"answered yes by web: token {name} from 127.0.0.1")
    # the second one is dangerous: one tap is not enough
    page.wait_for_selector(".question.careful.ready")
    card.get_by_role("button", name="Yes, once").tap()
    expect(card.get_by_role("button", name="Tap again to approve")).to_be_visible()
    card.get_by_role("button", name="No, with a reason").tap()
    card.locator("textarea").fill("Do not push.")
    card.get_by_role("button", name="Send the refusal").tap()
    expect(page.locator(".end")).to_have_count(1)
    expect(page.locator("#transcript")).to_contain_text("with the reason: Do not push.")
    assert (hosted.folder / "out.txt").read_text() == "<b id=pwned>x</b>\n"
    # the model's text is text
    assert page.evaluate(
        "[document.images.length, document.scripts.length, document.querySelectorAll('iframe, #pwned, #transcript a, #transcript style').length]"
    ) == [0, 1, 0]
    shown = page.locator("#transcript").inner_text()
    assert "<script>document.title='PWNED'</script><img src=x onerror=alert(1)>" in shown
    assert "<U+202E>reversed ␛[31mred <U+200B>zero" in shown
    # the record, in the page and in the log
    page.tap("#back")
    page.tap("#tab-record")
    expect(page.locator("#decisions")).to_contain_text(f"answered yes by web: token {name} from 127.0.0.1")
    page.check("#only-denied")
    expect(page.locator("#decisions .badge.good", has_text="allowed")).to_have_count(0)
    expect(page.locator("#decisions")).to_contain_text("git push --force origin main")
    assert seen.narrow()
    recorded = [each for each in server.harness.audit("--session", hosted.id) if each.get("answer")]
    assert {each["answer"]["client"] for each in recorded} == {f"web: token {name} from 127.0.0.1"}  # type: ignore[index]  # JSON
    assert [each["answer"] for each in server.log() if each["event"] == "sent answer"][-2:] == ["yes", "no"]
    assert seen.bad == [], "no violation of the policy, no error, no dialog, no request to another place"
    seen.context.close()


@pytest.mark.threat("T283")
def test_a_scope_shows_and_allows_only_its_own(
    browser: Browser, server: RemoteProcess, hosted: HostedProcess, name: str
) -> None:
    prompting = server.opened(server.token(f"{name}p", "prompt"))
    prompting.say(type="watch", session=hosted.id)
    prompting.event("replayed")
    viewer, answerer = Seen(browser, server, phone=False, dark=True), Seen(browser, server, phone=False)
    viewer.sign_in(server.token(f"{name}v", "view"))
    answerer.sign_in(server.token(f"{name}a", "answer"))
    for seen in (viewer, answerer):
        seen.open(hosted)
        expect(seen.page.locator("#composer")).to_be_hidden()
    prompting.say(type="line", session=hosted.id, line={"type": "prompt", "text": "go"})
    asked = prompting.event("question_asked")
    viewer.question()
    answerer.question()
    assert viewer.page.locator(".question button").count() == 0
    for scope, refused in (("view", ("answer", "prompt", "interrupt")), ("answer", ("prompt", "steer", "interrupt"))):
        client = server.opened(server.token(f"{name}{scope}", scope))
        client.say(type="watch", session=hosted.id)
        client.event("replayed")
        for kind in (*refused, "shell", "mode", "command", "quit", "take_back", "model"):
            fields = {"answer": {"id": asked["id"], "answer": "yes"}, "prompt": {"text": "x"}, "steer": {"text": "x"}}
            client.say(type="line", session=hosted.id, line={"type": kind, **fields.get(kind, {})})
            assert client.until("refused")["about"] == "line"
        client.close()
    until(lambda: hosted.facts().get("questions") == [asked["id"]], "the question in the description")
    prompting.say(type="leave")
    prompting.say(type="watch", session=hosted.id)
    assert prompting.event("question_asked")["id"] == asked["id"], "nothing was answered, and nothing was interrupted"
    # an answer with another command would be a prompt
    prompting.say(
        type="line", session=hosted.id, line={"type": "answer", "id": asked["id"], "answer": "edit", "command": "id"}
    )
    assert prompting.until("refused")["about"] == "line"
    answerer.page.get_by_role("button", name="Stop the turn").click()
    expect(viewer.page.locator(".question")).to_have_count(0)
    assert viewer.bad == answerer.bad == []
    for seen in (viewer, answerer):
        seen.context.close()
    prompting.close()


@pytest.mark.threat("T283")
def test_a_token_of_a_folder_sees_no_other_session(
    browser: Browser, server: RemoteProcess, hosted: HostedProcess, name: str
) -> None:
    other = workspace(server.harness.base, f"{hosted.folder.name}x")
    second = HostedProcess(server.harness, TURNS, folder=other)
    seen = Seen(browser, server)
    seen.sign_in(server.token(name, "prompt", folder=other))
    expect(seen.page.locator(".session")).to_have_count(1)
    expect(seen.page.locator(".session")).to_contain_text(str(other))
    client = server.opened(server.token(f"{name}c", "prompt", folder=other))
    client.say(type="watch", session=hosted.id)
    assert "no such session" in client.until("refused")["problem"]["why"]
    client.say(type="record")
    assert client.until("record")["decisions"] == []
    client.close()
    seen.context.close()
    second.close()


@pytest.mark.threat("T285")
def test_a_link_signs_in_and_leaves_no_trace(browser: Browser, server: RemoteProcess, name: str) -> None:
    server.token(name, "answer")
    code = server.store.add_link(name, time.time()).reveal()
    seen = Seen(browser, server)
    requests: list[str] = []
    seen.page.on("request", lambda it: requests.append(f"{it.url} {it.headers.get('referer', '')}"))
    seen.page.goto(f"{server.origin}/#{code}")
    expect(seen.page.locator("#who")).to_have_text(f"{name} · answer")
    assert seen.page.url == f"{server.origin}/"
    assert not any(code in each for each in requests), "in no address and no referrer"
    assert seen.page.evaluate("document.cookie") == "", "no script reads the cookie"
    assert seen.page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert code not in json.dumps(server.log())
    seen.page.goto(f"{server.origin}/#{code}")  # a second time it is worth nothing, but the sign-in lasts
    seen.page.reload()
    expect(seen.page.locator("#who")).to_have_text(f"{name} · answer")
    expect(seen.page.locator("#link")).to_have_text("connected")  # a browser complains if it is closed before
    seen.page.click("#sign-out")
    expect(seen.page.locator("#sign-in-form")).to_be_visible()
    seen.page.reload()
    expect(seen.page.locator("#sign-in-form")).to_be_visible()
    assert seen.bad == []
    seen.context.close()


@pytest.mark.threat("T283")
def test_removing_a_token_closes_its_page(browser: Browser, server: RemoteProcess, name: str) -> None:
    seen = Seen(browser, server)
    seen.sign_in(server.token(name))
    server.store.remove(name)
    expect(seen.page.locator("#sign-in-form")).to_be_visible(timeout=LONGEST)
    expect(seen.page.locator("#sign-in-error")).to_have_text("The token was removed or has expired.")
    seen.context.close()


@contextlib.contextmanager
def foreign_page(script: str) -> Iterator[str]:
    """A page of another origin on this machine, which any web page could be."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<!doctype html><title>evil</title><body><script>{script}</script>".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{site.server_address[1]}/"
        site.shutdown()
        thread.join()


ATTACK = """
const target = "TARGET", found = {};
const socket = new Promise((done) => {
  const it = new WebSocket(target.replace("https", "wss") + "/socket");
  it.onopen = () => done("open"); it.onerror = () => done("refused");
});
const read = async (path, options) => { try { const a = await fetch(target + path, options); return a.type === "opaque" ? "opaque" : await a.text(); } catch { return "refused"; } };
const frame = new Promise((done) => {
  const it = document.createElement("iframe"); it.src = target + "/"; document.body.append(it);
  it.onload = () => { try { done(it.contentDocument && it.contentDocument.body.innerText || "empty"); } catch { done("refused"); } };
});
const script = new Promise((done) => {
  const it = document.createElement("script"); it.src = target + "/app.js"; document.body.append(it);
  it.onload = () => done("ran"); it.onerror = () => done("refused");
});
(async () => {
  found.socket = await socket;
  found.me = await read("/me", { credentials: "include" });
  found.opaque = await read("/me", { credentials: "include", mode: "no-cors" });
  found.signOut = await read("/sign-out", { credentials: "include", headers: { "X-Ringfence": "1" } });
  found.post = await read("/sign-out", { credentials: "include", method: "POST", mode: "no-cors" });
  found.script = await script;
  found.frame = await frame;
  document.title = JSON.stringify(found);
})();
"""


@pytest.mark.threat("T282")
def test_a_page_of_another_origin_can_neither_connect_nor_read(
    browser: Browser, server: RemoteProcess, name: str
) -> None:
    seen = Seen(browser, server)
    seen.sign_in(server.token(name, "prompt"))
    opened = sum(each["event"] == "opened" for each in server.log())
    with foreign_page(ATTACK.replace("TARGET", server.origin)) as address:
        # The attacker is on the same host, so that the cookie is of the same site: only the origin differs.
        page = seen.context.new_page()
        page.goto(address)
        page.wait_for_function("document.title.startsWith('{')", timeout=LONGEST)
        found = json.loads(page.title())
    assert found["socket"] == "refused"
    assert found["me"] == found["signOut"] == "refused"
    assert found["opaque"] in ("refused", "opaque")
    assert found["post"] in ("refused", "opaque")
    assert found["script"] == "refused"
    assert found["frame"] in ("refused", "empty")
    assert sum(each["event"] == "opened" for each in server.log()) == opened, "no page was opened by the attacker"
    seen.page.reload()
    expect(seen.page.locator("#who")).to_have_text(f"{name} · prompt"), "and nobody was signed out"
    seen.context.close()


@pytest.mark.threat("T286")
def test_the_page_reconnects_and_shows_the_conversation_again(browser: Browser, tmp_path: Path, name: str) -> None:
    address = own_address()  # where no other program takes the port while no server has it
    with remote_process(tmp_path, "--listen", f"{address}:0") as first:
        folder = workspace(tmp_path, "w")
        session = HostedProcess(first.harness, '[[turn]]\ntext = "An answer that stays."\n', folder=folder)
        seen = Seen(browser, first)
        seen.sign_in(first.token(name, "prompt"))
        seen.open(session)
        seen.page.fill("#prompt", "Say something")
        seen.page.click("#send")
        expect(seen.page.locator(".end")).to_have_count(1)
        first.process.kill()
        first.process.wait()
        expect(seen.page.locator("#link")).to_have_text("reconnecting", timeout=LONGEST)
        assert session.process.poll() is None, "the session does not depend on the web server"
        again = RemoteProcess(first.harness, "--listen", f"{address}:{first.port}")
        try:
            expect(seen.page.locator("#link")).to_have_text("connected", timeout=LONGEST)
            expect(seen.page.locator("#transcript")).to_contain_text("An answer that stays.")
            expect(seen.page.locator(".end")).to_have_count(1)
        finally:
            again.close()
        seen.context.close()
        session.close()


def test_without_tls_a_browser_signs_in_on_loopback(browser: Browser, tmp_path: Path, name: str) -> None:
    with remote_process(tmp_path, "--no-tls") as server:
        assert server.origin.startswith("http://127.0.0.1:")
        seen = Seen(browser, server)
        seen.sign_in(server.token(name, "answer"))
        expect(seen.page.locator("#who")).to_have_text(f"{name} · answer")
        assert seen.bad == []
        seen.context.close()


def test_the_page_is_used_by_keyboard_and_says_what_it_shows(
    browser: Browser, server: RemoteProcess, hosted: HostedProcess, name: str
) -> None:
    seen = Seen(browser, server, phone=False)
    seen.page.goto(server.origin + "/")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.locator("#token").focus()
    seen.page.keyboard.type(server.token(name, "prompt"))
    seen.page.keyboard.press("Enter")
    seen.page.locator(f"[data-session='{hosted.id}']").focus()
    seen.page.keyboard.press("Enter")
    expect(seen.page.locator("#composer")).to_be_visible()
    seen.page.locator("#prompt").focus()
    seen.page.keyboard.type("Write the file")
    seen.page.keyboard.press("Control+Enter")
    seen.question()
    expect(seen.page.locator("#alert")).to_contain_text("Question: ")  # for a screen reader
    unnamed = """[...document.querySelectorAll("button, input, textarea, select")].filter((each) => each.checkVisibility()
        && !(each.getAttribute("aria-label") || each.innerText || (each.labels && each.labels.length)))
        .map((each) => each.outerHTML)"""
    assert seen.page.evaluate(unnamed) == []
    seen.page.get_by_role("button", name="No", exact=True).focus()
    seen.page.keyboard.press("Enter")
    expect(seen.page.locator("#transcript")).to_contain_text(f"answered no by web: token {name} from 127.0.0.1")
    assert seen.bad == []
    seen.context.close()


def test_a_new_list_takes_no_click_away(
    browser: Browser, server: RemoteProcess, hosted: HostedProcess, name: str
) -> None:
    """The server sends the list anew after each change, also between the press and the release of a button."""
    seen = Seen(browser, server, phone=False)
    seen.sign_in(server.token(name, "view"))
    row = seen.page.locator(f"[data-session='{hosted.id}']")
    row.hover()
    seen.page.mouse.down()
    seen.page.evaluate(
        "take({ type: 'sessions', sessions: state.sessions.map((each) => ({ ...each, clients: ['another'] })) })"
    )
    seen.page.mouse.up()
    expect(seen.page.locator("#view-session")).to_be_visible()
    seen.page.click("#back")
    seen.page.evaluate(
        "take({ type: 'sessions', sessions: state.sessions.map((each) => ({ ...each, title: 'new' })) })"
    )
    expect(row).to_contain_text("new")
    seen.context.close()


@pytest.mark.threat("T284")
def test_secrets_are_masked_on_the_page(browser: Browser, server: RemoteProcess, name: str) -> None:
    key = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
    turns = f"""
[[turn]]
text = "The key is {key}."
calls = [{{ name = "bash", arguments = {{ command = "echo {key} > key.txt" }} }}]
[[turn]]
text = "Done."
"""
    folder = workspace(server.harness.base, f"{name}k")
    session = HostedProcess(server.harness, turns, folder=folder, environ={"OPENAI_API_KEY": key})
    frames: list[str] = []
    seen = Seen(browser, server)
    seen.page.on("websocket", lambda it: it.on("framereceived", lambda data: frames.append(str(data))))
    seen.sign_in(server.token(name, "answer"))
    seen.open(session)
    client = server.opened(server.token(f"{name}p", "prompt"))
    client.say(type="watch", session=session.id)
    client.event("replayed")
    client.say(type="line", session=session.id, line={"type": "prompt", "text": f"Store {key} please"})
    seen.page.wait_for_selector(".question.ready, .end")
    expect(seen.page.locator("#title")).to_contain_text("Store")
    seen.page.click("#back")
    seen.page.click("#tab-record")
    expect(seen.page.locator("#decisions, #no-decisions").first).to_be_attached()
    assert any("[secret]" in each for each in frames)
    assert not any(key in each for each in frames), "in no message to the page"
    assert key not in (server.folder / "remote.log").read_text()
    client.close()
    seen.context.close()
    session.close()


TRIED = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "echo said; echo '<b id=pwned>x</b>' > one; echo 2 > two" } }]
[[turn]]
calls = [{ name = "bash", arguments = { command = "echo 3 > three" } }]
[[turn]]
text = "The end."
"""


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_a_phone_tries_a_command_and_keeps_a_part(browser: Browser, server: RemoteProcess, name: str) -> None:
    hosted = HostedProcess(server.harness, TRIED, folder=workspace(server.harness.base, f"w{name}"))
    seen = Seen(browser, server)
    try:
        seen.sign_in(server.token(name, "prompt"))
        page = seen.page
        seen.open(hosted)
        page.fill("#prompt", "Write the files")
        page.tap("#send")
        seen.question()
        card = page.locator(".question")
        card.get_by_role("button", name="Try it").tap()
        expect(card.locator("h2")).to_contain_text("Tried without network: exit code 0, 2 changes wait")
        seen.question()
        expect(card.locator("[aria-label=Output]")).to_have_text("said")
        expect(card.locator("[aria-label=Difference]")).to_contain_text("+<b id=pwned>x</b>")
        assert list(hosted.folder.glob("[ot]*")) == []
        assert seen.narrow()
        card.get_by_role("button", name="Keep the marked ones").tap()
        card.get_by_label("write two").check()
        card.get_by_role("button", name="Keep the marked ones").tap()
        expect(card.locator("[aria-label=Command]")).to_have_text("echo 3 > three")
        seen.question()
        assert [path.name for path in hosted.folder.glob("[ot]*")] == ["two"]
        card.get_by_role("button", name="Try it").tap()
        expect(card.locator("h2")).to_contain_text("1 change waits")
        seen.question()
        card.get_by_role("button", name="Discard").tap()
        expect(page.locator(".end")).to_have_count(1)
        assert [path.name for path in hosted.folder.glob("[ot]*")] == ["two"]
        recorded = [each for each in server.harness.audit("--session", hosted.id) if each.get("answer")]
        assert {each["answer"]["client"] for each in recorded} == {f"web: token {name} from 127.0.0.1"}  # type: ignore[index]  # JSON
        assert [each["answer"]["yes"] for each in reversed(recorded)] == [True, True, True, False]  # type: ignore[index]  # JSON
        assert page.evaluate("document.querySelectorAll('#pwned').length") == 0
        assert seen.bad == []
        seen.context.close()
    finally:
        hosted.close()
