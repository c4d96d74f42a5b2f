"""A registry with one npm package that the user's upstream proxy serves, and a project that names it."""

import contextlib
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

HOST = "packages.example.org"
TOOL = "#!/usr/bin/env node\nconsole.log('fetched ' + 'and run');\n"


def package() -> bytes:
    """Return a package `ringtool` for npm with a program of this name."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        manifest = {"name": "ringtool", "version": "1.0.0", "bin": {"ringtool": "tool.js"}}
        for name, text in (("package/package.json", json.dumps(manifest)), ("package/tool.js", TOOL)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    """An upstream proxy that answers for every host as a registry with one package."""

    protocol_version = "HTTP/1.1"
    archive = package()
    asked: list[str]

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()  # the next request on this connection is the one inside the tunnel

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = self.archive
        if not self.path.endswith(".tgz"):
            dist = {"tarball": f"http://{HOST}/ringtool/-/ringtool-1.0.0.tgz", "shasum": hashlib.sha1(body).hexdigest()}
            version = {"name": "ringtool", "version": "1.0.0", "bin": {"ringtool": "tool.js"}, "dist": dist}
            told = {"name": "ringtool", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def registry_for(work: Path, config: Path) -> Iterator[list[str]]:
    """Serve the registry to a project in `work` of a user whose settings are in the folder `config`; yield the list of
    the requests that reach it.
    """
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Registry,), {"asked": asked}))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    settings = f'version = 1\n[sandbox.network]\nupstream_proxy = "http://127.0.0.1:{server.server_port}"\n'
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(settings)
    (work / "package.json").write_text('{"name": "project", "version": "1.0.0"}\n')
    (work / ".npmrc").write_text(f"registry=http://{HOST}/\nyes=true\nupdate-notifier=false\n")
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
