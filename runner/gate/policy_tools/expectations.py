"""Runner of `agent policy test`: compares tables of expected verdicts with the policy. Runs no command."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from policy.model.assessment import Assessment, Effect
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Deny, Verdict
from runner.config import Settings, load, shipped
from runner.gate.gate import Gate, GateArgs, folder, open_gate, ruling
from runner.gate.policy_tools.reference_machine import EXAMPLE_FILES, WORKSPACE, model_facts
from runner.gate.policy_tools.tables import Expectation, Table, parse_table, wanted_word
from runner.gate.wording import cell_words
from runner.problems import Exit, usage
from runner.text.json_line import json_line
from runner.text.phrases import many, os_reason
from runner.text.sanitize import visible

_PATIENCE = 1.0  # seconds after which the progress is shown at a terminal


@dataclass(frozen=True, slots=True)
class VerdictDifference:
    """Expectation that did not hold in `mode`. `wanted` and `got` are in words."""

    test: Expectation
    mode: Mode
    wanted: tuple[str, ...]
    got: tuple[str, ...]
    assessment: Assessment
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Bench:
    """Environment for expectations: the settings, and the reference machine or a real folder."""

    settings: Settings
    mode: Mode | None
    here: Gate | None = None

    def gate(self, table: Table) -> Gate:
        """Return a gate for one table, with the table's files and mode."""
        mode = self.mode or table.mode or Mode.DEFAULT
        settings = _with_rules(self.settings, table)
        if self.here is not None:
            facts = replace(self.here.facts, today=table.today) if table.today else self.here.facts
            return replace(self.here, settings=settings, mode=mode, facts=facts)
        today = table.today or (date.today() if any(rule.until for rule in settings.profile.permissions) else None)
        facts = model_facts(settings.profile, table.files, today, table.base)
        return Gate(settings, facts, (), settings.profile.limits, mode, WORKSPACE)


def run_tests(files: list[str], *, mode: Mode | None, config: str | None, cwd: str | None, json: bool) -> int:
    """Judge all tables and print the differences.

    The user's tables are judged by the user's configuration; without `files`, the packaged tables are judged by the
    packaged policy. `config` names a file that takes precedence over both.
    """
    path = Path(config) if config else None
    if cwd is not None:
        gate, _ = open_gate(GateArgs(script="", argv=None, cwd=cwd, config=config), os.environ)
        bench = Bench(gate.settings, mode, gate)
    else:
        bench = Bench(load(folder(None), os.environ, config=path) if files else shipped(path), mode)
    tables = [_table(name) for name in files] if files else list(shipped_tables())
    count = sum(len(test.expected) or 1 for table in tables for test in table.tests)
    differences, done, began = [], 0, time.monotonic()
    for table in tables:
        gate = bench.gate(table)
        for test in table.tests:
            for difference in judge_one(gate, test):
                differences.append(difference)
                if not json:
                    _clear()
                    print(difference_text(difference))
            done += len(test.expected) or 1
            if done % 50 == 0 and sys.stderr.isatty() and time.monotonic() - began > _PATIENCE:
                sys.stderr.write(f"\r{done} of {count}")
                sys.stderr.flush()
    _clear()
    rows = sum(len(table.tests) for table in tables)
    if json:
        _as_json(differences, rows, count, tables)
    else:
        wrong = len(differences)
        what = f"{many(rows, 'test')} ({count} verdicts) in {many(len(tables), 'file')}"
        print(f"{what}: {'all as expected' if not wrong else f'{wrong} differ' if wrong > 1 else '1 differs'}")
    return Exit.FAILED if differences else Exit.DONE


def judge_one(gate: Gate, test: Expectation) -> Iterator[VerdictDifference]:
    """Return the differences of one expectation, one for each mode in which it does not hold."""
    context = gate.context(test.proposer, unattended=test.unattended)
    assessment = context.classify(test.action(gate.facts, gate.cwd))
    tier = assessment.tiers[0]
    effects = {effect_words(effect, gate.facts) for effect in assessment.effects}
    wanted, got = [], []
    if test.tier is not None and tier is not test.tier:
        wanted.append(f"tier {test.tier.label}")
        got.append(f"tier {tier.label}")
    missing = [effect for effect in test.effects if effect not in effects]
    if missing:
        wanted += [f"effect `{effect}`" for effect in missing]
        got.append(f"effects {', '.join(f'`{effect}`' for effect in sorted(effects)) or 'none'}")
    for mode, expected in test.expected or ((None, None),):
        used = mode or gate.mode
        verdict = context.decide(assessment, mode=used)
        came = ruling(verdict)
        more = [wanted_word(expected)] if expected is not None and came not in expected else []
        if more or wanted:
            came_words = [came.name.lower()] if more else []
            yield VerdictDifference(test, used, (*more, *wanted), (*came_words, *got), assessment, verdict)


def effect_words(effect: Effect, facts: Facts) -> str:
    """Return an effect as tables write it: `writes out.txt`. Paths below the workspace are relative."""
    target = "the workspace" if effect.target == facts.workspace else effect.target.removeprefix(facts.workspace + "/")
    return f"{effect.kind.value} {target}"


def shipped_tables() -> Iterator[Table]:
    """Return the packaged tables, and the examples of the command rules as one table for each file."""
    import policy
    from policy.rules.rulebook import parse_examples

    top = Path(os.path.dirname(str(policy.__file__)))
    for path in sorted((top / "tables").glob("*.toml")):
        yield parse_table(path.read_text("utf-8"), f"policy/tables/{path.name}")
    for path in sorted((top / "commands").glob("*.toml")):
        source = f"policy/commands/{path.name}"
        examples = parse_examples(path.read_text("utf-8"), path.name)
        tests = [
            Expectation(
                source, row.ref.line, "", (), row.run, "bash", "", tier=row.tier, effects=row.effects, why=row.why
            )
            for row in examples
        ]
        yield Table(source, tuple(tests), base=EXAMPLE_FILES)


def difference_text(difference: VerdictDifference) -> str:
    """Return one difference for people: place, expected and actual verdict, and the reasons with the words they refer
    to.
    """
    from runner.gate.explain import caret_lines

    test = difference.test
    named = f" ({test.id})" if test.id else ""
    alone = ", without a user" if test.unattended else ""
    lines = [
        f"{test.source}:{test.line}{named}: in mode {difference.mode.value}{alone}: "
        f"expected {', '.join(difference.wanted)}, got {', '.join(difference.got)}",
        "  $ " + test.shown.replace("\n", "\n    "),
        *(
            f"  {line}"
            for reason in (*difference.assessment.asked, *difference.assessment.reasons)
            for line in caret_lines(difference.assessment.action, reason)
        ),
        f"    cell: {cell_words(difference.verdict.cell)}",
    ]
    if isinstance(difference.verdict, Deny) and difference.verdict.cell.ruling is not Ruling.DENY:
        problem = difference.verdict.problem
        lines.append(f"    {problem.what}: {problem.why}")
    if test.why:
        lines.append(f"    the table says: {test.why}")
    return visible("\n".join(lines)) + "\n"


def _with_rules(settings: Settings, table: Table) -> Settings:
    """Return the configuration with the table's own `[[rule]]`s over it."""
    if not table.rules:
        return settings
    from policy.model.profile import Layer
    from policy.permission.file import read_permissions
    from policy.toml.schema import TomlError

    try:
        own = read_permissions(table.rules, table.source, Layer.NAMED)
    except TomlError as error:
        raise usage(error.problem.what, error.problem.why, error.problem.fix) from None
    profile = replace(settings.profile, permissions=(*settings.profile.permissions, *own))
    return replace(settings, profile=profile)


def _table(name: str) -> Table:
    if name == "-":
        try:
            return parse_table(sys.stdin.buffer.read().decode("utf-8"), "standard input")
        except UnicodeDecodeError:
            raise usage("standard input cannot be used", "it is not UTF-8 text", "send the table as UTF-8") from None
    try:
        text = Path(name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise usage(f"`{name}` cannot be used", f"line {line} is not UTF-8 text", "save it as UTF-8") from None
    except (OSError, ValueError) as error:
        why = os_reason(error)
        raise usage(f"`{name}` cannot be read", why, "check the path; `-` is standard input") from None
    return parse_table(text, name)


def _as_json(differences: Iterable[VerdictDifference], rows: int, count: int, tables: list[Table]) -> None:
    from runner.gate.explain import reason_json

    failed = [
        {
            "file": each.test.source,
            "line": each.test.line,
            "id": each.test.id,
            "test": each.test.shown,
            "mode": each.mode.value,
            "unattended": each.test.unattended,
            "expected": list(each.wanted),
            "got": list(each.got),
            "verdict": ruling(each.verdict).name.lower(),
            "tiers": [tier.label for tier in each.assessment.tiers],
            "reasons": [reason_json(reason) for reason in (*each.assessment.asked, *each.assessment.reasons)],
            "why": each.test.why,
        }
        for each in differences
    ]
    print(
        json_line(
            {"tests": rows, "verdicts": count, "files": [table.source for table in tables], "differences": failed}
        )
    )


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
