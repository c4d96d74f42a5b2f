"""Checks of `agent policy lint` for the rules of a configuration. Runs no command."""

import os
import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from policy.permission.finding import Severity
from policy.permission.lint import check
from runner.config import Settings, load, shipped
from runner.config.settings import ConfigError
from runner.gate.gate import folder
from runner.problems import Exit
from runner.text.phrases import many
from runner.text.sanitize import visible

_PLACE = re.compile(r"`?(.+?)`?:(\d+):? (.*)\Z", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)` (.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LintFinding:
    """Remark about one line (0: the whole file). `other` is a second place, if it is about two."""

    severity: Severity
    code: str
    file: str
    line: int
    text: str
    fix: str
    other: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        also = f"; see {self.other}" if self.other else ""
        fix = f" ({self.fix})" if self.fix else ""
        return visible(f"{place}: {self.severity.value}[{self.code}]: {self.text}{also}{fix}", lines=False)


def run_lint(file: str | None, *, cwd: str | None, strict: bool, as_json: bool) -> int:
    """Check one file by itself, or the configuration that is in effect."""
    findings, sources = lint_file(Path(file)) if file is not None else lint_here(folder(cwd))
    if as_json:
        from json import dumps

        print(dumps({"sources": list(sources), "findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(finding)
        print(_summary(findings, sources))
    return _exit(findings, strict=strict)


def lint_file(path: Path) -> tuple[list[LintFinding], tuple[str, ...]]:
    """Return the findings of one file over the packaged configuration, and the files that were checked."""
    if not path.exists():
        gone = LintFinding(Severity.ERROR, "unusable", str(path), 0, "there is no such file", "check the path")
        return [gone], (str(path),)
    try:
        settings = shipped(path)
    except ConfigError as error:
        return [_unreadable(error.problem, str(path))], (str(path),)
    return _findings(settings, (str(path),)), (str(path),)


def lint_here(cwd: Path) -> tuple[list[LintFinding], tuple[str, ...]]:
    """Return the findings of the configuration of a session in `cwd`."""
    try:
        settings = load(cwd, os.environ)
    except ConfigError as error:
        found = _unreadable(error.problem, "the configuration")
        return [found], (found.file,)
    own = settings.sources[1:]  # the first is what is shipped
    return _findings(settings, own), own


def _findings(settings: Settings, sources: tuple[str, ...]) -> list[LintFinding]:
    rules = settings.profile.permissions
    found = [
        LintFinding(
            severity=each.severity,
            code=each.code,
            file=each.file,
            line=each.line,
            text=each.text,
            fix=each.fix,
            other=str(each.other) if each.other else "",
        )
        for each in check(rules, settings.rules, date.today(), settings.profile)
    ]
    over = {f"{each.file}:{each.line}: " for each in found if each.code == "expired"}  # told by its finding already
    return found + [_notice(text, sources) for text in settings.notices if not text.startswith(tuple(over))]


def _notice(text: str, sources: tuple[str, ...]) -> LintFinding:
    """Return a finding about a setting that the repository requested and did not get."""
    place = _PLACE.match(text)
    file, line, said = (place[1], int(place[2]), place[3]) if place else (sources[-1] if sources else "", 0, text)
    return LintFinding(Severity.WARNING, "ignored", file, line, said, "")


def _unreadable(problem: Problem, file: str) -> LintFinding:
    """Return a finding about a file that does not load, at the place of the error."""
    place = _PLACE.match(problem.what)
    if place:
        return LintFinding(
            Severity.ERROR, "unusable", place[1], int(place[2]), f"{place[3]}: {problem.why}", problem.fix
        )
    named = _QUOTED.match(problem.what)
    at, what = (named[1], named[2]) if named else (file, problem.what)
    return LintFinding(Severity.ERROR, "unusable", at, 0, f"{what}: {problem.why}", problem.fix)


def _summary(findings: Iterable[LintFinding], sources: tuple[str, ...]) -> str:
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[finding.severity] += 1
    said = [many(count, severity.value) for severity, count in counts.items() if count]
    where = visible(", ".join(sources), lines=False) if sources else "no configuration of yours"
    return f"{where}: {', '.join(said) if said else 'nothing to say'}"


def _exit(findings: Iterable[LintFinding], *, strict: bool) -> int:
    found = {finding.severity for finding in findings}
    if Severity.ERROR in found:
        return Exit.USAGE
    return Exit.FAILED if strict and Severity.WARNING in found else Exit.DONE
