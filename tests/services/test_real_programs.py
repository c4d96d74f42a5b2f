"""Tests of servers, debuggers and a browser in the sandbox: the installed programs, with the rights of everyday work."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compat_rows import Everyday, Row, everyday
from tests.support.sandbox_bench import USERS

_MET = 'met() { until eval "$1"; do sleep 0.1; done; }\n'  # the limit of the row ends a wait without end
_POSTGRES = (
    "export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH && initdb -D db -A trust -U me --no-sync >/dev/null &&"
    " pg_ctl -D db -l log -o \"-k $PWD -c listen_addresses=''\" -w -t 400 start >/dev/null &&"
    " psql -h \"$PWD\" -U me -d postgres -tAc 'select 1' && pg_ctl -D db -m immediate stop >/dev/null"
)
_CHROMIUM = (
    "echo '<p>hello</p>' > index.html; python3 -m http.server 8123 >/dev/null 2>&1 &\n"
    "met 'curl -sf localhost:8123 >/dev/null'\n"
    "chromium --headless --disable-gpu --dump-dom http://localhost:8123/ 2>err | grep -o '<p>.*</p>'; grep ^ringfence: err"
)
_NOTICE = "ringfence: Chromium runs without its own sandbox, inside the sandbox of ringfence\n"
_WATCH = (
    "echo 'console.log(1)' > a.js; node --watch a.js >out 2>&1 &\n"
    # The program may run before its file is watched, so the file is written again after 10 seconds.
    "met 'grep -q ^1 out'; n=0\n"
    "met '[ $((n % 100)) != 0 ] || echo \"console.log(2)\" > a.js; n=$((n + 1)); grep -q ^2 out'; echo seen; kill $!"
)
_INSPECT = (
    "node --inspect=127.0.0.1:9229 -e 'setInterval(() => {}, 1000)' 2>/dev/null &\n"
    "met 'curl -sf localhost:9229/json/version >out'; grep -o node.js out | head -1; kill $!"
)
_REDIS = (
    "redis-server --port 7379 --bind 127.0.0.1 --unixsocket $PWD/sock --save '' >log &\n"
    "met 'redis-cli -p 7379 ping >out 2>&1'; redis-cli -s $PWD/sock set a 7; redis-cli -p 7379 get a; kill $!"
)
_NGINX = (
    "echo hello > index.html; cat > conf <<END\n"
    "user $(id -un); daemon off; pid pid; events {}\n"
    "http { access_log off; client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;\n"
    "server { listen 127.0.0.1:7380; root $PWD; } }\nEND\n"
    "nginx -p $PWD -c $PWD/conf -e $PWD/log 2>err &\nmet 'curl -sf localhost:7380 >out'; cat out; kill $!"
)
_JDB = (
    "printf 'class A {\\n public static void main(String[] a) {\\n  System.out.println(7);\\n }\\n}\\n' > A.java; javac -g A.java\n"
    "(echo stop in A.main; echo run; met 'grep -q Breakpoint.hit out'; echo where; met 'grep -q A.java:3 out'; echo cont;"
    " met 'grep -q exited out') | jdb A > out; grep -o 'A.main (A.java:3)' out"
)
_VITE = (
    "echo '<script type=module src=/a.js></script>' > index.html; echo 'console.log(1)' > a.js\n"
    "../../node_modules/.bin/vite --port 5199 >log 2>&1 &\n"
    "met 'curl -sf localhost:5199 | grep -q @vite/client'; curl -sf localhost:5199/a.js | grep -o 'log(1)'\n"
    # The server may answer before it watches the folder, so the file is written again and again.
    'met \'echo "console.log(2)" > a.js; curl -sf localhost:5199/a.js | grep -o "log(2)"\'; kill $!\n'
    "../../node_modules/.bin/vite build >/dev/null && cat dist/assets/*.js | grep -o 'log(2)'"
)
_PLAYWRIGHT = """cat > a.mjs <<'END'
import http from 'node:http'
import { chromium } from 'playwright-core'
const page = '<button onclick="this.textContent = 6 * 7">press</button>'
const server = http.createServer((_, answer) => answer.setHeader('content-type', 'text/html').end(page)).listen(0, '127.0.0.1')
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium' })
const tab = await browser.newPage()
await tab.goto(`http://localhost:${server.address().port}/`)
await tab.click('button')
console.log(await tab.textContent('button'))
await tab.screenshot({ path: 'shot.png' })
await browser.close()
server.close()
END
node a.mjs && head -c 4 shot.png | tail -c 3"""
_MANAGER = "python3 -c 'import multiprocessing as m\nwith m.Manager() as manager:\n    d = manager.dict(a=7)\n    print(d[\"a\"])'"

ROWS = (
    Row("chromium opens a page of a server", _MET + _CHROMIUM, f"<p>hello</p>\n{_NOTICE}", ("chromium", "curl")),
    Row("strace", "strace -o out -e trace=openat cat /dev/null && grep -c dev/null out", "1\n", ("strace",)),
    Row("gdb", "gdb -nx -batch -ex run --args /bin/echo inside 2>&1 | grep -x inside", "inside\n", ("gdb",)),
    Row("node --watch", _MET + _WATCH, "seen\n", ("node",)),
    Row("node --inspect", _MET + _INSPECT, "node.js\n", ("node", "curl")),
    Row("multiprocessing.Manager", _MANAGER, "7\n"),
    Row("redis", _MET + _REDIS, "OK\n7\n", ("redis-server",)),
    Row("nginx", _MET + _NGINX, "hello\n", ("nginx", "curl")),
)
DEBUGGERS = (Row("jdb", _MET + _JDB, "A.main (A.java:3)\n", ("jdb", "javac")),)
WEB = (
    Row("vite serves, notices a change and builds", _MET + _VITE, "log(1)\nlog(2)\nlog(2)\n", ("node", "curl")),
    Row("playwright presses a button", _PLAYWRIGHT, "42\nPNG", ("node", "chromium")),
)
INSTALLED = Path(sys.prefix, "web", "node_modules")  # `make` puts it there


@pytest.fixture(scope="module", params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[Everyday]:
    with everyday(request.param) as made:
        yield made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_real_program_works(place: Everyday, row: Row) -> None:
    result = place.run(row, "T1")
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.parametrize("row", DEBUGGERS, ids=lambda row: row.name)
def test_a_debugger_of_a_toolchain_works(place: Everyday, row: Row) -> None:
    result = place.run(row, "T1")
    if result.missing:
        pytest.skip(f"`{result.missing}` is not installed")
    assert result.ok, result.answer


@pytest.mark.skipif(not INSTALLED.is_dir(), reason="npm could not install Vite and Playwright")
@pytest.mark.parametrize("backend", ["T1", "T2"])
@pytest.mark.parametrize("row", WEB, ids=lambda row: row.name)
def test_web_development_works(place: Everyday, row: Row, backend: str) -> None:
    modules = place.bench.workspace / "node_modules"
    if not modules.exists():
        shutil.copytree(INSTALLED, modules, symlinks=True)
        place.bench.own(modules)
    result = place.run(row, backend)
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.parametrize("backend", ["T2"])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in ("redis", "nginx", "gdb", "strace")], ids=lambda row: row.name
)
def test_a_real_program_works_in_bubblewrap(place: Everyday, row: Row, backend: str) -> None:
    result = place.run(row, backend)
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.threat("T155")
def test_chromium_works_in_bubblewrap(place: Everyday) -> None:
    result = place.run(ROWS[0], "T2")
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.whole_matrix("PostgreSQL refuses to run as root")
@pytest.mark.parametrize("backend", ["T1", "T2"])
def test_postgres_serves_on_a_unix_socket(place: Everyday, backend: str) -> None:
    result = place.run(Row("postgres", _POSTGRES, "1\n"), backend)
    root = place.bench.user == "root"
    assert result.ok is not root, result.answer
    if root:
        assert "cannot be run as root" in result.answer


@pytest.mark.threat("T155")
def test_a_browser_without_its_own_sandbox_shows_no_file_of_the_home(place: Everyday) -> None:
    """One command shows the page if the permit names the file, so the page is missing because of the sandbox.

    What the browser prints in its place differs from version to version: an error page, or nothing.
    """
    canary = place.bench.home / "canary.txt"
    canary.write_text("canary-text")
    place.bench.own(canary)
    script = f"chromium --headless --disable-gpu --dump-dom file://{canary} 2>err | grep -c canary-text; true"
    for out, named in (("1\n", (("read", [str(canary)]),)), ("0\n", ())):
        result = place.run(Row("a page of the home", script, out, ("chromium",), named), "T1")
        assert not result.missing
        assert result.ok, result.answer
