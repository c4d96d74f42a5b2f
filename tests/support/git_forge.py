"""A Git server over HTTPS on loopback."""

import base64
import hashlib
import http.server
import io
import json
import os
import ssl
import subprocess
import tarfile
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

NAME, OTHER, ADDRESS = "good.test", "other.test", "127.0.0.2"


def wheel() -> bytes:
    """A package `ringdemo` for pip."""
    files = {
        "ringdemo.py": "WORD = 'installed'\n",
        "ringdemo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ringdemo\nVersion: 1.0\n",
        "ringdemo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
        for name, text in files.items()
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, "ringdemo-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return made.getvalue()


def tarball() -> bytes:
    """A package `ringdemo` for npm."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (
            ("package/package.json", json.dumps({"name": "ringdemo", "version": "1.0.0", "main": "index.js"})),
            ("package/index.js", "module.exports = 'installed';\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


class Forge(http.server.BaseHTTPRequestHandler):
    """One site with a file, a Git repository, a Python index and an npm registry."""

    protocol_version = "HTTP/1.1"
    repositories: Path
    wheel, tarball = wheel(), tarball()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self.known():
            return
        if path == "/file":
            self.tell(b"through the proxy\n", "text/plain")
        elif path == "/simple/ringdemo/":
            self.tell(b'<a href="/ringdemo-1.0-py3-none-any.whl">ringdemo-1.0-py3-none-any.whl</a>', "text/html")
        elif path.endswith(".whl"):
            self.tell(self.wheel, "application/zip")
        elif path == "/ringdemo":
            dist = {"tarball": f"{self.base}/ringdemo-1.0.0.tgz", "shasum": hashlib.sha1(self.tarball).hexdigest()}
            version = {"name": "ringdemo", "version": "1.0.0", "dist": dist}
            told = {"name": "ringdemo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            self.tell(json.dumps(told).encode(), "application/json")
        elif path.endswith(".tgz"):
            self.tell(self.tarball, "application/gzip")
        elif path.startswith("/git/"):
            self.git(b"")
        elif path == "/away":
            self.send_response(302)
            self.send_header("Location", f"{self.base.replace(NAME, OTHER)}/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.known():
            self.git(body)

    def known(self) -> bool:
        """Return True if the request may be answered. Subclasses with a login return False to refuse it."""
        return True

    def git(self, body: bytes) -> None:
        where = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            **{"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
            **{"GIT_CONFIG_KEY_1": "http.receivepack", "GIT_CONFIG_VALUE_1": "true"},
            "PATH_INFO": where.path.removeprefix("/git"),
            "QUERY_STRING": where.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=True)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(rest))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    def tell(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @property
    def base(self) -> str:
        assert isinstance(self.server, http.server.ThreadingHTTPServer)
        scheme = "https" if isinstance(self.server.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://{NAME}:{self.server.server_port}"

    def log_message(self, *_: object) -> None:
        pass
