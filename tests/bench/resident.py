"""The costs of commands with the resident process and without it, as ratios to a bare interpreter in interleaved rounds.

`codex sandbox` is a row if `make peers` has installed Codex. Nothing here fails a build.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BIN = Path(sys.executable).parent
AGENT = str(BIN / "agent")
CODEX = BIN.parent / "peers" / "node_modules" / ".bin" / "codex"
ROUNDS = int(os.environ.get("ROUNDS", "25"))
REST = 0.3  # seconds before each command: after a warm one the resident process prepares its next workers
CALL = {
    "session_id": "s1", "permission_mode": "default", "hook_event_name": "PreToolUse", "tool_name": "Bash",
    "tool_input": {"command": "git status"}, "tool_use_id": "c1",
}  # fmt: skip


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


def times(rounds: int, folder: str, *works: tuple[tuple[str, ...], dict[str, str], bytes]) -> list[float]:
    """Return the median milliseconds of each command line, interleaved so that noise hits all of them alike."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for (argv, environ, given), found in zip(works, spent, strict=True):
            time.sleep(REST)
            started = time.perf_counter()
            subprocess.run(argv, cwd=folder, env=environ, input=given, capture_output=True, check=False)
            found.append((time.perf_counter() - started) * 1000)
    return [statistics.median(each) for each in spent]


def proportional(pid: int) -> float:
    """Return the proportional size of a process in MB: pages that are shared count in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def resident_size(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spent(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    base = tempfile.mkdtemp(prefix="rf-", dir="/tmp")
    work = f"{base}/work"
    os.makedirs(f"{base}/home")
    subprocess.run(["git", "init", "-q", work], check=True)
    warm = {"HOME": f"{base}/home", "PATH": "/usr/local/bin:/usr/bin:/bin", "RINGFENCE_STATE_DIR": f"{base}/state"}
    cold = {**warm, "RINGFENCE_STATE_DIR": f"{base}/cold"}
    call = json.dumps({**CALL, "cwd": work}).encode()
    subprocess.run([AGENT, "serve", "--start"], env=warm, cwd=work, check=True, capture_output=True)
    try:
        pid = json.loads(subprocess.run([AGENT, "serve", "--status", "--json"], env=warm, capture_output=True).stdout)[
            "pid"
        ]
        measure(work, warm, cold, call, int(pid))
    finally:
        subprocess.run([AGENT, "serve", "--stop"], env=warm, capture_output=True, check=True)
        shutil.rmtree(base)


def measure(work: str, warm: dict[str, str], cold: dict[str, str], call: bytes, pid: int) -> None:
    bare = ((sys.executable, "-c", "pass"), warm, b"")
    run, why = (AGENT, "exec", "--", "/bin/true"), (AGENT, "why", "git status")
    hook = (AGENT, "guard", "hook", "claude", "--warm")
    lines = [bare, (run, warm, b""), (run, cold, b""), (why, warm, b""), (why, cold, b""), (hook, warm, call)]
    if CODEX.exists():
        lines.append(((str(CODEX), "sandbox", "--", "/bin/true"), warm, b""))
    found = times(ROUNDS, work, *lines)
    one = found[0]
    print(f"the resident process (python -c pass: {one:.1f} ms)")
    row("agent exec -- /bin/true, warm", f"{found[1] / one:.1f}x", "<= 3x")
    if CODEX.exists():
        row("  the same, to `codex sandbox -- /bin/true`", f"{found[1] / found[6]:.2f}x", "<= 0.5x")
    row("agent exec -- /bin/true, cold", f"{found[2] / one:.1f}x", "<= 9x")
    row("agent why 'git status', warm", f"{found[3] / one:.1f}x", "<= 2.5x")
    row("agent why 'git status', cold", f"{found[4] / one:.1f}x", "none")
    row("a hook of agent guard, warm", f"{found[5] / one:.1f}x", "<= 3x")
    before, folders = resident_size(pid), len(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(1000):
        subprocess.run(run, env=warm, cwd=work, capture_output=True, check=True)
    after = resident_size(pid)
    row("1,000 warm commands: more memory", f"{after - before:.1f} MB", "< 1 MB")
    row("1,000 warm commands: more descriptors", str(len(os.listdir(f"/proc/{pid}/fd")) - folders), "0")

    def answered(number: int) -> bool:
        done = subprocess.run([AGENT, "exec", f"echo {number}"], env=warm, cwd=work, capture_output=True)
        return done.stdout == b"%d\n" % number

    with ThreadPoolExecutor(200) as pool:
        row("200 callers at once: answered", str(sum(pool.map(answered, range(200)))), "200")
    time.sleep(2)
    row("idle: its memory (resident size)", f"{resident_size(pid):.0f} MB", "< 70 MB")
    each = [pid, *children(pid), *(inner for child in children(pid) for inner in children(child))]
    row("idle: with its workers and their helpers (proportional)", f"{sum(map(proportional, each)):.0f} MB", "none")
    used = spent(pid)
    time.sleep(30)
    row("idle: its processor time", f"{(spent(pid) - used) / 30 * 100:.2f} %", "< 0.1 %")


if __name__ == "__main__":
    main()
