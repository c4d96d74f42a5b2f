"""The unit of the resident process under a real manager of systemd, in namespaces of its own."""

import json
import os
import shutil
import subprocess

import pytest

from tests.support.agent_program import AGENT
from tests.support.resident_process import short_place

MANAGER = "/lib/systemd/systemd"
# A manager needs a private /run, a writable control group and a message that systemd has booted the machine.
SCRIPT = r"""
set -eu
mount -t tmpfs none /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
mount -t cgroup2 none /sys/fs/cgroup
mkdir /sys/fs/cgroup/manager && echo 1 > /sys/fs/cgroup/manager/cgroup.procs
setsid "$MANAGER" --user > "$HOME/manager.log" 2>&1 &
for _ in $(seq 600); do systemctl --user is-system-running > /dev/null 2>&1 && break; sleep 0.1; done
main() { systemctl --user show -p MainPID --value ringfence; }
"$AGENT" serve --install
"$AGENT" serve --status --json > status1
"$AGENT" exec 'echo warm'
"$AGENT" serve --status --json > status2
first=$(main)
kill -9 "$first"
for _ in $(seq 600); do [ "$(main)" != "$first" ] && [ "$(main)" != 0 ] && break; sleep 0.1; done
systemctl --user start ringfence
"$AGENT" serve --status --json > status3
"$AGENT" serve --uninstall
"$AGENT" serve --status --json || true  # exit code 1: there is none
"""


def _can_run() -> bool:
    """Return True if this machine has what the manager needs: systemd, root, and version 2 of control groups."""
    needed = os.geteuid() == 0 and os.path.exists(MANAGER) and shutil.which("systemctl") is not None
    if not needed:
        return False
    mounted = "mount -t cgroup2 none /sys/fs/cgroup && mkdir /sys/fs/cgroup/tried && rmdir /sys/fs/cgroup/tried"
    words = ["unshare", "-m", "-C", "sh", "-c", mounted]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_run(), reason="needs root, systemd and version 2 of control groups")
def test_the_unit_runs_is_ready_starts_again_and_ends() -> None:
    with short_place() as place:
        environ = {**place.environ, "XDG_RUNTIME_DIR": "/run/user/0", "MANAGER": MANAGER, "AGENT": AGENT}
        done = subprocess.run(
            ["unshare", "-m", "-p", "-f", "-C", "--mount-proc", "--kill-child", "bash", "-c", SCRIPT],
            cwd=place.work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "warm\n" in done.stdout
        first, second, third = (json.loads((place.work / f"status{n}").read_text()) for n in (1, 2, 3))
        assert (first["served"], second["served"]) == (0, 1), said  # ready as soon as the installation returned
        assert first["pid"] == second["pid"] != third["pid"]
        assert "removed" in done.stdout
        assert json.loads(done.stdout.splitlines()[-1]) == {"running": False}
