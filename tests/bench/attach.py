"""Benchmark of hosted sessions: the time until a session with 10,000 events is on the screen of a new client.

    python tests/bench/attach.py [AGENT]

One JSON object on standard output, in seconds: the median of `agent attach` at a terminal (until the conversation is
drawn, and until the input line accepts keys), of the same events read by a bare client, and of `python -c pass`.
"""

import json
import os
import pty
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENT = sys.argv[1] if len(sys.argv) > 1 else str(Path(sys.executable).with_name("agent"))
EVENTS = 10_000
RUNS = 7


def main() -> None:
    with tempfile.TemporaryDirectory() as top:
        base = Path(top)
        (base / "w" / ".git").mkdir(parents=True)
        words = " ".join(f"word{number}" for number in range(EVENTS // 2))
        (base / "model.json").write_text(json.dumps({"turn": [{"text": words}]}))
        environ = {
            "HOME": str(base),
            "PATH": os.environ["PATH"],
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        host = subprocess.Popen(
            [AGENT, "serve", "session", "--model", f"scripted:{base}/model.json"],
            cwd=base / "w",
            env=environ,
            stdin=subprocess.DEVNULL,
        )
        try:
            path = listening(base / "state" / "resident" / "sessions")
            fill(path)
            print(json.dumps(measured(path, base, environ)))
        finally:
            host.send_signal(signal.SIGTERM)
            host.wait()


def listening(folder: Path) -> Path:
    """Return the path of the socket, when there is one."""
    end = time.monotonic() + 60
    while not (found := [each.with_suffix("") for each in folder.glob("*.json")] if folder.is_dir() else []):
        if time.monotonic() > end:
            raise SystemExit("the session did not start")
        time.sleep(0.05)
    return found[0]


def fill(path: Path) -> None:
    """Let the session emit EVENTS events: half of them pieces of an answer, half of them changes of the mode."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        lines = client.makefile("rb")
        client.sendall(
            b'{"type":"attach","who":"bench","scope":"prompt","replay":0}\n{"type":"prompt","text":"begin"}\n'
        )
        count = 0
        while b'"type":"run_ended"' not in lines.readline():
            count += 1
        for number in range(EVENTS - count):
            mode = ("plan", "default")[number % 2]
            client.sendall(b'{"type":"mode","mode":"%s"}\n' % mode.encode())
            lines.readline()


def measured(path: Path, base: Path, environ: dict[str, str]) -> dict[str, object]:
    drawn, ready, bare, python = [], [], [], []
    for _ in range(RUNS):
        first, second = attached(path, base, environ)
        drawn.append(first)
        ready.append(second)
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        python.append(time.monotonic() - began)
        began = time.monotonic()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b'{"type":"attach","who":"bench","scope":"view","replay":"all"}\n')
            lines = client.makefile("rb")
            while b'"type":"replayed"' not in lines.readline():
                pass
        bare.append(time.monotonic() - began)
    names = ("attach_drawn", "attach_ready", "bare_client_all_events", "python_pass")
    seconds = {
        name: round(statistics.median(each), 4) for name, each in zip(names, (drawn, ready, bare, python), strict=True)
    }
    return {"events": EVENTS, **seconds}


def attached(path: Path, base: Path, environ: dict[str, str]) -> tuple[float, float]:
    """Return the seconds until the conversation is drawn, and until the input line is there."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(base / "w")
        os.execve(AGENT, [AGENT, "attach", path.name], environ)
    drawn = until(terminal, b"attached to")
    ready = until(terminal, b"\x1b[?2004h")
    os.kill(pid, signal.SIGTERM)
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass  # the end of the terminal (EIO)
    os.close(terminal)
    os.waitpid(pid, 0)
    return drawn - began, ready - began


def until(terminal: int, text: bytes) -> float:
    """Return the moment at which the terminal has shown `text`."""
    seen, end = b"", time.monotonic() + 30
    while text not in seen:
        if time.monotonic() > end or not select.select([terminal], [], [], 30)[0]:
            raise SystemExit(f"waited in vain; saw {seen[-2000:]!r}")
        seen += os.read(terminal, 1 << 16)
    return time.monotonic()


if __name__ == "__main__":
    main()
