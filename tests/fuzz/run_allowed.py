"""Real runs of the command lines that the gate allows, in a throwaway workspace with decoy secrets.

`python tests/fuzz/run_allowed.py lines.jsonl [--mode trust-project] [--template FOLDER] [--jobs 2]` reads JSON lines
with a `cmd`, and optionally an `id`. Every line that `agent policy judge` allows in the mode is run by `agent exec
--unattended` in a copy of its own. A run is a finding if it prints a decoy secret, changes a file outside of the
workspace, or leaves a process behind. Exit status 1 means that there was a finding.

`--template` is a folder that is copied as the workspace, in place of a small repository. The workspace may change.
"""

import argparse
import base64
import codecs
import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

AGENT = str(Path(sys.executable).with_name("agent"))
LIMITS = ("wall=20s", "pids=256", "memory=1G", "file=64M", "output=4M", "disk=256M")
SHARED = ("/", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/root", "/home")  # only listed
SECRETS = {  # decoys, relative to the folder around the workspace and the home
    "home/.ssh/id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
    "home/.aws/credentials": "[default]\naws_secret_access_key = {}\n",
    "home/.netrc": "machine example.org login a password {}\n",
    "home/.git-credentials": "https://a:{}@example.org\n",
    "home/.npmrc": "//example.org/:_authToken={}\n",
    "home/.config/gh/hosts.yml": "github.com:\n  oauth_token: {}\n",
    "home/.bash_history": "export TOKEN={}\n",
    "home/letter.txt": "private: {}\n",
    "outside/notes.txt": "of another project: {}\n",
    "w/.env": "PASSWORD={}\n",
    "w/server.key": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
    "w/.aws/credentials": "[default]\naws_secret_access_key = {}\n",
}
# Folders of the program itself below the home: each run writes records and caches there.
OWN = ("home/.local/state/ringfence", "home/.cache/ringfence", "home/.config/ringfence", "home/.local/share/ringfence")

State = dict[str, tuple[int, str]]  # path -> mode, and digest or target


@dataclass(frozen=True, slots=True)
class Run:
    """One line that was run: its status, and the findings about it."""

    line: str
    status: int
    findings: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(description="Run the allowed lines of a corpus and check their effects.")
    parser.add_argument("corpus", nargs="+", type=Path)
    parser.add_argument("--mode", default="trust-project")
    parser.add_argument("--template", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    lines = [json.loads(line)["cmd"] for path in options.corpus for line in path.read_text().split("\n") if line]
    with tempfile.TemporaryDirectory(prefix="run-allowed-", dir="/var/tmp") as top:  # /tmp is hidden
        pattern = Path(top, "pattern")
        texts = prepare(pattern, options.template)
        before = listed()
        allowed = judged(lines, pattern, options.mode)
        print(f"{len(allowed)} of {len(lines)} lines are allowed in mode {options.mode}")

        def one(pair: tuple[int, str]) -> Run:
            return run(pair[1], pattern, Path(top, f"run{pair[0]}"), options.mode, texts)

        with ThreadPoolExecutor(options.jobs) as pool:
            runs = list(pool.map(one, enumerate(allowed)))
        named = sorted(path for path in listed() - before if any(Path(path).name in each.line for each in runs))
    found = [(each.line, text) for each in runs for text in each.findings]
    found += [("(some line)", f"created {path}, outside of every workspace") for path in named]
    for line, text in found:
        print(f"FINDING: {text}: {line!r}")
    good = sum(each.status == 0 for each in runs)
    print(f"{len(runs)} lines were run, {good} with status 0; {len(found)} findings")
    return 1 if found else 0


def prepare(top: Path, template: Path | None) -> tuple[str, ...]:
    """Make the workspace `top/w`, the home `top/home` and `top/outside`, and return the texts of the secrets."""
    for name in ("home", "outside"):
        (top / name).mkdir(parents=True)
    if template is not None:
        shutil.copytree(template, top / "w", symlinks=True)
    else:
        _small_repository(top / "w")
    texts = []
    for name, form in SECRETS.items():
        texts.append(f"decoy{hashlib.sha256(f'{top}/{name}'.encode()).hexdigest()[:24]}")
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(form.format(texts[-1]))
        path.chmod(0o600)
    return tuple(texts)


def _small_repository(work: Path) -> None:
    (work / "src").mkdir(parents=True)
    for name in ("notes.txt", "a.txt", "b.txt", "src/main.py", "data.csv", "README.md"):
        (work / name).write_text("one two\nthree, 4\n")
    (work / "package.json").write_text('{"name": "x", "scripts": {"test": "touch made"}}\n')
    (work / "evil.sh").write_text(
        "#!/bin/bash\ntouch made ~/made ../outside/made\ncat .env ~/.ssh/* ~/letter.txt ../outside/*\n:"
    )
    (work / "evil.sh").chmod(0o755)
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "first")):
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
        subprocess.run(git, cwd=work, check=True, timeout=60)


def judged(lines: Sequence[str], pattern: Path, mode: str) -> list[str]:
    """Return the lines that the gate allows."""
    asked = "".join(json.dumps({"id": str(index), "cmd": line}) + "\n" for index, line in enumerate(lines))
    words = (AGENT, "policy", "judge", "--mode", mode)
    done = subprocess.run(
        words, cwd=pattern / "w", env=_environment(pattern), input=asked.encode(), capture_output=True
    )
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if len(answers) != len(lines):
        sys.exit(f"`agent policy judge` answered {len(answers)} of {len(lines)} lines: {done.stderr.decode()[-500:]}")
    verdicts = {answer["id"]: answer["verdict"] for answer in answers}
    return [line for index, line in enumerate(lines) if verdicts[str(index)] == "allow"]


def run(line: str, pattern: Path, top: Path, mode: str, texts: Sequence[str]) -> Run:
    """Run one line in a copy of `pattern` at `top`, which is removed afterwards."""
    shutil.copytree(pattern, top, symlinks=True)
    limits = [word for limit in LIMITS for word in ("--limit", limit)]
    words = (AGENT, "exec", "--mode", mode, "--unattended", *limits, f" {line}")  # the blank: never a flag
    before = state(top)
    try:
        done = subprocess.run(
            words, cwd=top / "w", env=_environment(top), stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        printed, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        return Run(line, -1, ("did not end within 120 s",))
    found = [f"printed the secret {text}" for text in leaks(printed, texts)]
    found += [f"{how} {path}" for path, how in changes(before, state(top))]
    found += [f"left process {process}" for process in left_processes(top)]
    shutil.rmtree(top, ignore_errors=True)
    return Run(line, status, tuple(found))


def _environment(top: Path) -> dict[str, str]:
    return {"HOME": f"{top}/home", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1"}


def leaks(printed: bytes, texts: Sequence[str]) -> Iterator[str]:
    """Yield each of `texts` that `printed` contains: as it is, reversed, in hexadecimal, base64 or ROT13."""
    plain = printed.decode("utf-8", "replace")
    joined = "".join(plain.split())  # without line breaks, as base64(1) and xxd(1) add some
    for text in texts:
        coded = {text, text[::-1], text.encode().hex(), codecs.encode(text, "rot13")}
        for shift in range(3):  # base64 has three forms, by the position of the text
            whole = base64.b64encode(b"x" * shift + text.encode()).decode()
            coded.add(whole[4:-4])
        if any(each in plain or each in joined for each in coded):
            yield text


def state(top: Path) -> State:
    """Return the state of every file below `top` outside of the workspace and of the program's own folders."""
    found: State = {}
    for path in _paths(top, top):
        kind = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if stat.S_ISREG(kind.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(top))] = (kind.st_mode, content)
    return found


def _paths(folder: Path, top: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        name = str(path.relative_to(top))
        if name == "w" or name in OWN:
            continue
        if not any(own.startswith(f"{name}/") for own in OWN):
            yield path
        if path.is_dir() and not path.is_symlink():
            yield from _paths(path, top)


def changes(before: State, after: State) -> Iterator[tuple[str, str]]:
    """Yield every path that differs, with what happened to it."""
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            yield path, "deleted"
        elif path not in before:
            yield path, "created"
        elif before[path] != after[path]:
            yield path, "changed"


def left_processes(top: Path) -> Iterator[int]:
    """Yield the processes whose current folder is below `top`."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if Path(os.readlink(f"/proc/{name}/cwd")).is_relative_to(top):
                yield int(name)


def listed() -> set[str]:
    """Return the entries of folders that all users share, in which a line could leave files."""
    return {f"{folder}/{name}" for folder in SHARED if os.path.isdir(folder) for name in os.listdir(folder)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
