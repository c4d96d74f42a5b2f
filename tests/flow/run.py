"""`make flow`: run the suites and write tests/flow/results/ and the tables of docs/security/injection.md.

Without arguments every suite runs in a process of its own, because two of them bring a package of the same name.
AgentDyn needs its folder or Git directory in RINGFENCE_AGENTDYN, and the recorded sessions need the Git directory of
their repository in RINGFENCE_SESSIONS. Without it the suite is skipped, and its tables stay as they are.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SUITES = ("agentdojo", "codeipi", "agentdyn", "sessions")
FOLDERS = {"agentdyn": "RINGFENCE_AGENTDYN", "sessions": "RINGFENCE_SESSIONS"}
_LONGEST = 60  # characters of what a call named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="only these suites; default: all")
    parser.add_argument("--every", type=int, default=1, help="take every N-th run only, and write no result")
    parser.add_argument("--report", action="store_true", help="run nothing: write the tables from the results")
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    if told.report:
        _report()
    elif len(told.suite) == 1:
        _run(told.suite[0], told.every)
    else:
        every = ["--every", str(told.every)]
        failed = [
            suite
            for suite in told.suite or SUITES
            if subprocess.run([sys.executable, "-m", "tests.flow.run", suite, *every], check=False).returncode
        ]
        if failed:
            sys.exit(f"failed: {', '.join(failed)}")
        if told.every == 1:
            _report()


def _run(suite: str, every: int) -> None:
    folder = os.environ.get(FOLDERS.get(suite, ""), "")
    if suite in FOLDERS and not folder:
        print(f"{suite}: skipped, because {FOLDERS[suite]} names no folder; its results stay those of an earlier run")
        return
    from tests.flow.fast_yaml import use_fast_yaml

    use_fast_yaml()
    head, rows = {"agentdojo": agentdojo, "codeipi": codeipi, "agentdyn": agentdyn, "sessions": recorded}[suite](
        Path(folder), every
    )
    if every == 1:
        RESULTS.mkdir(exist_ok=True)
        with (RESULTS / f"{suite}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows])
    from tests.flow.report import summary

    print(summary(suite, [dict(zip(head, map(str, row), strict=True)) for row in rows]))


def _report() -> None:
    from tests.flow.report import write_page

    write_page({suite: read(suite) for suite in SUITES})


def read(suite: str) -> list[dict[str, str]]:
    """Return the stored rows of a suite; empty if it never ran."""
    path = RESULTS / f"{suite}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


Rows = tuple[Sequence[str], list[Sequence[Any]]]
_STOPPED = ("questions", "rule", "tool", "what")


def _stopped(calls: Iterable[tuple[str, Any]]) -> tuple[int, str, str, str]:
    """Return the number of stopped calls, their rules, and the last of them with what it named."""
    found = list(calls)
    rules = " ".join(dict.fromkeys(rule for _, answer in found for rule in answer.rule.split()))
    what = found[-1][1].words if found else ""
    return len(found), rules, found[-1][0] if found else "", what[:_LONGEST].replace("\n", " ")


def agentdojo(folder: Path, every: int) -> Rows:
    """Return the rows of AgentDojo: each run without a gate, and through the policy."""
    from tests.flow.agentdojo_suite import runs
    from tests.flow.gate import EveryChangeAsks, ToolFacts, Ungated
    from tests.flow.policy_gate import Machine, PolicyGate, tier_for

    machine = Machine(HERE / "servers" / "agentdojo.toml")

    class Tiers(dict[str, ToolFacts]):
        def __init__(self, server: str) -> None:
            self._server = machine.servers[server]

        def __getitem__(self, tool: str) -> ToolFacts:
            return ToolFacts(tier_for(self._server, tool))

    ungated = list(runs(lambda suite, prompt: Ungated(), every=every))
    strict = list(runs(lambda suite, prompt: EveryChangeAsks(Tiers(suite)), every=every))
    gated = list(runs(lambda suite, prompt: PolicyGate(machine, suite, prompt), every=every))
    plain = Machine(HERE / "servers" / "agentdojo.toml", bare=True)
    untold = list(runs(lambda suite, prompt: PolicyGate(plain, suite, prompt), every=every))
    head = (
        "suite",
        "user task",
        "injection",
        "without a gate",
        "every change asks",
        "without tiers",
        "policy",
        *_STOPPED,
    )
    rows = []
    for bare, asked, less, run in zip(ungated, strict, untold, gated, strict=True):
        stopped = [(each.tool, each.answer) for each in run.stopped]
        own = stopped[len(stopped) - run.of_injection :] if run.injection_task else stopped
        rows.append((run.suite, run.user_task, run.injection_task, int(bare.reached), f"{int(asked.reached)}/{len(asked.stopped)}",
                     f"{int(less.reached)}/{len(less.stopped)}",
                     int(run.reached), *_stopped(own)))  # fmt: skip
    return head, rows


def codeipi(folder: Path, every: int) -> Rows:
    """Return the rows of CodeIPI."""
    from tests.flow.codeipi_suite import rows

    head = ("sample", "kind", "way", "reached", "note", "questions", "rule", "what")
    made = []
    for row in rows(every):
        rules = " ".join(dict.fromkeys(rule for rule, _ in row.stopped))
        if not (rules or row.reached or row.kind == "benign"):
            rules = "sandbox"  # the code ran, and found nothing of its kind
        what = row.stopped[-1][1][:_LONGEST].replace("\n", " ") if row.stopped else ""
        made.append((row.sample, row.kind, row.way, int(row.reached), row.note, len(row.stopped), rules, what))
        print(".", end="", flush=True)
    print()
    return head, made


def agentdyn(folder: Path, every: int) -> Rows:
    """Return the rows of AgentDyn. `folder` is its folder, or a Git directory of it."""
    from tests.flow.agentdyn_suite import MODELS, recordings, repeats
    from tests.flow.gate import Ungated
    from tests.flow.policy_gate import Machine, PolicyGate

    with tempfile.TemporaryDirectory(prefix="agentdyn-", dir="/var/tmp") as extracted:
        if not (folder / "src" / "agentdojo").is_dir():
            wanted = ["src", *(f"runs/{model}" for model in MODELS)]
            git = ["git", f"--git-dir={folder}", "archive", "HEAD", *wanted]
            with subprocess.Popen(git, stdout=subprocess.PIPE) as archive:
                subprocess.run(["tar", "-x", "-C", extracted], stdin=archive.stdout, check=True)
            folder = Path(extracted)
        chosen = recordings(folder, every)
        machine = Machine(HERE / "servers" / "agentdyn.toml")
        ungated = list(repeats(folder, chosen, lambda suite, prompt: Ungated()))
        gated = list(repeats(folder, chosen, lambda suite, prompt: PolicyGate(machine, suite, prompt)))
    head = ("model", "suite", "user task", "injection", "recorded", "without a gate", "policy", *_STOPPED)
    rows = []
    for bare, run in zip(ungated, gated, strict=True):
        made = run.recording
        stopped = _stopped((tool, answer) for tool, _, answer in run.stopped)
        rows.append((made.model, made.suite, made.user_task, made.injection_task, int(made.reached), int(bare.reached),
                     int(run.reached), *stopped))  # fmt: skip
    return head, rows


def recorded(folder: Path, every: int) -> Rows:
    """Return the rows of the recorded sessions. `folder` is the Git directory of their repository."""
    from tests.flow.sessions_suite import SESSIONS, sessions

    head = ("session", "calls", "untrusted sources", "asked without the rules", "added questions", "what")
    rows = []
    for each in sessions(folder, SESSIONS // every):
        what = "; ".join(asked.call[:_LONGEST] for asked in each.added)
        rows.append((each.name, each.calls, len(each.sources), each.asked_anyway, len(each.added), what))
    return head, rows


if __name__ == "__main__":
    main()
