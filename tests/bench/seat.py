"""Benchmark of the terminal: the first key, keys while 100 tokens a second stream, idle processor time, memory.

    python tests/bench/seat.py [AGENT]

One JSON object on standard output: seconds, a share of one core, and megabytes.
"""

import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

AGENT = sys.argv[1] if len(sys.argv) > 1 else str(Path(sys.executable).with_name("agent"))
SECONDS = 8  # of streaming


class Seat:
    """`agent` on a terminal of its own, looked at by what it writes."""

    def __init__(self, base: Path, *words: str, **extra: str) -> None:
        environ = {
            "HOME": str(base),
            "PATH": os.environ["PATH"],
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **extra,
        }
        self.began = time.monotonic()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(base / "w")
            os.execve(AGENT, [AGENT, *words], environ)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = b""

    def type(self, data: bytes) -> None:
        os.write(self._terminal, data)

    def until(self, wanted: Callable[[bytes], bool], most: float = 60) -> float:
        """The moment at which what it wrote since the last wait is what is `wanted`."""
        end = time.monotonic() + most
        seen = b""
        while not wanted(seen):
            if time.monotonic() > end:
                raise SystemExit(f"waited in vain; saw {self.seen[-3000:]!r}")
            if select.select([self._terminal], [], [], 0.01)[0]:
                piece = os.read(self._terminal, 1 << 16)
                seen += piece
                self.seen = (self.seen + piece)[-100_000:]
        return time.monotonic()

    def drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                try:
                    self.seen = (self.seen + os.read(self._terminal, 1 << 16))[-100_000:]
                except OSError:  # it has ended
                    return

    def cpu(self) -> float:
        """Seconds of processor time of the whole program so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Megabytes that it holds now."""
        rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) / 1024 for row in rows if row.startswith("VmRSS"))

    def close(self) -> None:
        os.kill(self.pid, signal.SIGHUP)
        self.drain(0.5)
        os.close(self._terminal)
        os.waitpid(self.pid, 0)


class Server(ThreadingHTTPServer):
    """Speaks like a model's server: `rate` tokens a second for `seconds`, or at once where `rate` is 0."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate, self.seconds = rate, seconds
        super().__init__(("127.0.0.1", 0), Handler)
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        count = int(self.server.rate * self.server.seconds) or 40
        began = time.monotonic()
        for number in range(count):
            word = "\n\n" if number % 60 == 59 else f"word{number % 10} "
            self._send({"choices": [{"index": 0, "delta": {"content": word}}]})
            if self.server.rate:
                time.sleep(max(began + (number + 1) / self.server.rate - time.monotonic(), 0))
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, body: dict[str, object]) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # who listened has left
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def first_key(base: Path, words: tuple[str, ...]) -> float:
    """From the start of `agent` to the letter on the screen that was typed 100 ms after."""
    seat = Seat(base, *words)
    time.sleep(0.1)
    seat.type(b"~")
    shown = seat.until(lambda seen: b"~" in seen) - seat.began
    seat.drain(2)
    seat.close()
    return shown


def typing(base: Path, url: str) -> list[float]:
    """From each key to its letter on the screen, while the model speaks."""
    seat = Seat(base, "--model", "openai:some-model", OPENAI_BASE_URL=url, OPENAI_API_KEY="none-is-needed")
    seat.until(lambda seen: b"sandbox " in seen)
    seat.drain(1)
    seat.type(b"go\r")
    seat.until(lambda seen: b"word9" in seen)
    waits = []
    for number in range(60):
        letter = b"~^|`"[number % 4 : number % 4 + 1]
        began = time.monotonic()
        seat.type(letter)
        waits.append(seat.until(lambda seen, letter=letter: letter in seen) - began)  # type: ignore[misc]  # bound now
        seat.drain(0.093)
    seat.close()
    return waits


def idle(base: Path, words: tuple[str, ...]) -> float:
    seat = Seat(base, *words)
    seat.until(lambda seen: b"sandbox " in seen)
    seat.drain(3)
    before = seat.cpu()
    seat.drain(5)
    used = (seat.cpu() - before) / 5
    seat.close()
    return used


def turns(base: Path, url: str, count: int) -> tuple[float, float]:
    """Megabytes after the first turn and after `count` of them."""
    seat = Seat(base, "--model", "openai:some-model", OPENAI_BASE_URL=url, OPENAI_API_KEY="none-is-needed")
    seat.until(lambda seen: b"sandbox " in seen)
    first = 0.0
    for number in range(count):
        seat.type(b"go\r")
        seat.until(lambda seen: b"(1 request" in seen)
        if number == 0:
            first = seat.memory()
    last = seat.memory()
    seat.close()
    return first, last


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "w").mkdir()
        script = base / "script.json"
        script.write_text(json.dumps({"turn": [{"text": "hello"}]}))
        words = ("--model", f"scripted:{script}")
        wanted = os.environ.get("ONLY", "first,typing,idle,turns").split(",")
        found: dict[str, float] = {}
        if "first" in wanted:
            shown = [first_key(base, words) for _ in range(7)]
            found["first_key"] = statistics.median(shown)
            found["first_key_most"] = max(shown)
        if "typing" in wanted:
            waits = typing(base, Server(100, SECONDS).url)
            found["key"], found["key_most"] = statistics.median(waits), max(waits)
            found["key_95"] = sorted(waits)[len(waits) * 95 // 100]
        if "idle" in wanted:
            found["idle_cpu"] = idle(base, words)
        if "turns" in wanted:
            count = int(os.environ.get("TURNS", "1000"))
            found["memory_first"], found["memory"] = turns(base, Server(0, 1).url, count)
            found["turns"] = count
        print(json.dumps({name: round(value, 4) for name, value in found.items()}))


if __name__ == "__main__":
    main()
