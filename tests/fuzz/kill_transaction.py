"""Kill a process at random while it applies random changes, and look at what is left.

    python tests/fuzz/kill_transaction.py --rounds 500 --seed 1

After each round the next action must find the tree before the command or after it, nothing between, and undo must
restore it.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runner.changes.transaction import apply
from tests.laws.test_undo_laws import kept, unlike
from tests.support.layers import TransactionWorkspace

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/x", "f", "f/g", "f/g/h", "k", "k/l")
DEEDS = (
    "echo {2} > {0}", "echo {2} >> {0}", "rm -rf {0}", "mkdir -p {0}", "mv -T {0} {1}", "ln -sfn {1} {0}",
    "chmod 700 {0}", "cp -T {0} {1}", "rm -rf {0}; mkdir -p {0}; echo {2} > {0}/n",
)  # fmt: skip


def program(choice: random.Random, length: int) -> str:
    deeds = (
        choice.choice(DEEDS).format(choice.choice(NAMES), choice.choice(NAMES), choice.random()) for _ in range(length)
    )
    return "; ".join(f"({deed}) 2>/dev/null || true" for deed in deeds)


def play(base: Path, choice: random.Random) -> bool:
    """Play one round. Return True if the process was killed. Raise AssertionError if anything is lost."""
    world = TransactionWorkspace(base)
    world.sh(f"mkdir -p d/e f/g k; touch a b d/a d/e/x f/g/h; {program(choice, 10)}")
    before, script = kept(world), program(choice, 12)
    at, count = choice.randint(1, 40), 0

    def reached() -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        run = apply.run
        apply.run = lambda folder, steps, _=None: run(folder, steps, reached)  # type: ignore[assignment]
        try:
            world.transact(script)
        finally:
            os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    other = TransactionWorkspace(base)
    other.write("later", "1")
    now = {path: entry for path, entry in kept(other).items() if path != "later"}
    if unlike(now, before):
        other.undo(2, force=True)
        assert unlike(kept(other), before) == set(), script
        (base / "again").mkdir()
        again = TransactionWorkspace(base / "again")
        shutil.rmtree(again.w)
        shutil.copytree(other.w, again.w, symlinks=True)
        again.sh(script)
        assert unlike(kept(again), now) == set(), script
    assert other.traces() == []
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    wish = parser.parse_args()
    print(f"seed {wish.seed}")
    choice, killed = random.Random(wish.seed), 0
    for number in range(wish.rounds):
        base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="k"))
        try:
            killed += play(base, choice)
        except AssertionError:
            print(f"round {number}")
            raise
        finally:
            shutil.rmtree(base, ignore_errors=True)
    print(f"{wish.rounds} rounds, {killed} killed, nothing lost")


if __name__ == "__main__":
    main()
