"""Checks of `agent policy lint` for the rules of a configuration. Runs no command."""

import os
from collections import Counter
from dataclasses import asdict
from datetime import date
from pathlib import Path

from policy.model.frozen import dataclass
from policy.permission.dead_rules import Severity
from policy.permission.lint import check
from runner.config import Settings, load, shipped
from runner.config.settings import ConfigError, SettingNotice
from runner.gate.gate import folder
from runner.problems import Exit
from runner.text.json_line import json_line
from runner.text.phrases import many
from runner.text.sanitize import visible


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
    file = str(Path(file)) if file is not None else None
    sources: tuple[str, ...] = (file,) if file is not None else ()
    try:
        if file is not None and not Path(file).exists():
            findings = [LintFinding(Severity.ERROR, "unusable", file, 0, "there is no such file", "check the path")]
        elif file is not None:
            findings = _findings(shipped(Path(file)), sources)
        else:
            settings = load(folder(cwd), os.environ)
            sources = settings.sources[1:]  # the first is what is shipped
            findings = _findings(settings, sources)
    except ConfigError as error:
        text, place = f"{error.what}: {error.problem.why}", error.source or file or "the configuration"
        findings = [LintFinding(Severity.ERROR, "unusable", place, error.line, text, error.problem.fix)]
        sources = sources or (place,)
    if as_json:
        print(json_line({"sources": list(sources), "findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            print(finding)
        counts = Counter(finding.severity for finding in findings)
        words = [many(counts[severity], severity.value) for severity in Severity if counts[severity]]
        where = visible(", ".join(sources), lines=False) if sources else "no configuration of the user"
        print(f"{where}: {', '.join(words) or 'no findings'}")
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        return Exit.USAGE
    return Exit.FAILED if strict and Severity.WARNING in severities else Exit.DONE


def _findings(settings: Settings, sources: tuple[str, ...]) -> list[LintFinding]:
    rules = settings.profile.permissions
    findings = []
    for each in check(rules, settings.rules, date.today(), settings.profile):
        place, other = each.ref, str(each.other) if each.other else ""
        findings.append(LintFinding(each.severity, each.code, place.id, place.line, each.text, each.fix, other))
    expired = {(each.file, each.line) for each in findings if each.code == "expired"}
    for notice in settings.notices:  # settings that the repository requested and did not get
        file, line, text = sources[-1] if sources else "", 0, notice
        if isinstance(notice, SettingNotice):
            file, line, text = notice.source, notice.line, notice.what
        if not isinstance(notice, SettingNotice) or (file, line) not in expired:
            findings.append(LintFinding(Severity.WARNING, "ignored", file, line, text, ""))
    return findings
