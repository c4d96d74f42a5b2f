"""A machine with its own network, whose only servers are model servers: the API of Anthropic at its own name, by TLS,
and one as Ollama serves it on its usual port. Run as a program inside of new network and mount namespaces.
"""

import ctypes
import functools
import json
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWER = "Hello from the model"


class _Anthropic(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"input_tokens": 5, "output_tokens": 1}
        message = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": body["model"],
            "usage": usage,
        }
        text = f"{ANSWER} {body['model']}"
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@functools.cache
def _certificate() -> dict[str, bytes]:
    """Return the files of a new certificate and its key, by their names."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "2", "-subj", "/CN=api.anthropic.com", "-addext", "subjectAltName=DNS:api.anthropic.com"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*words, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def machine(base: Path, servers: str) -> list[str]:
    """Return the words that run a command on such a machine with these servers: `none`, `anthropic`, `ollama`, or both
    of them, by a comma. The command has to follow. `base` is a new folder for its files.
    """
    (base / "hosts").write_text("127.0.0.1 localhost api.anthropic.com\n")
    for name, content in _certificate().items():
        (base / name).write_bytes(content)
    program = f"ip link set lo up && mount --bind {base}/hosts /etc/hosts && "
    if servers != "none":
        program += f"exec 3< <({sys.executable} -m tests.support.model_machine {base} {servers}) && read -u 3 ready && "
    program += 'cd - >/dev/null && exec "$@"'
    root = Path(__file__).resolve().parents[2]
    return ["unshare", "-r", "-n", "-m", "bash", "-c", f"cd {root} && {program}", "machine"]


def main() -> None:
    """Serve until the command on the machine ends, and print a line when all servers listen.

    SOURCE: prctl(2), PR_SET_PDEATHSIG. The parent is the shell that becomes the command.
    """
    from tests.support.model_server import ModelServer

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    base, servers = Path(sys.argv[1]), sys.argv[2].split(",")
    if "anthropic" in servers:
        https = ThreadingHTTPServer(("127.0.0.1", 443), _Anthropic)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(base / "cert.pem", base / "key.pem")
        https.socket = context.wrap_socket(https.socket, server_side=True)
        threading.Thread(target=https.serve_forever, daemon=True).start()
    if "ollama" in servers:

        def answer(number: int, headers: str, body: bytes) -> dict[str, object]:
            return {"content": f"{ANSWER} {json.loads(body)['model']}"}

        models = ("qwen3:8b", "nomic-embed-text:latest")
        threading.Thread(target=ModelServer(answer, models=models, port=11434).serve_forever, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
