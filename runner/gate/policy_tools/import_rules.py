"""Import for `agent policy import`: permissions of another agent as `[[rule]]`s, and a list of what was not
imported.
"""

import os
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from runner.gate.policy_tools.importers.result import Import, as_json, as_toml, examples_toml, rule_lines
from runner.problems import Exit, usage
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.phrases import many, os_reason
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.config import Settings


class AgentProduct(StrEnum):
    """Product that a file belongs to."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"


NAMES: Mapping[AgentProduct, str] = {
    AgentProduct.CLAUDE: "Claude Code",
    AgentProduct.CODEX: "Codex",
    AgentProduct.GEMINI: "Gemini CLI",
}
_LARGEST = 4 << 20  # bytes of a file of rules


def run_import(name: str, kind: AgentProduct | None, *, as_json_only: bool, out: str | None, tests: str | None) -> int:
    """Read one file, print or write the rules, and say on stderr what was left out.

    With `as_json_only`, print everything as JSON and write no file.
    """
    if as_json_only and (out is not None or tests is not None):
        option = "--out" if out is not None else "--tests"
        why = "--json prints the rules, the examples and what was left out as JSON, and writes no file"
        raise usage(f"--json cannot be combined with {option}", why, f"leave --json or {option} out")
    text = _text(name)
    source = "standard input" if name == "-" else name
    kind = kind or guess(text, source)
    from runner.config import shipped

    found = sound(reader(kind)(text, source), shipped())
    if as_json_only:
        print(json_line(as_json(found, kind.value)))
        return Exit.DONE
    rules = as_toml(found, NAMES[kind])
    if out is None:
        sys.stdout.write(rules)
    else:
        _write(out, rules)
    if tests is not None:
        if not found.examples:
            raise usage("there are no examples to write", f"`{source}` contains none", "leave --tests out")
        _write(tests, examples_toml(found))
    say(report(found, out, tests))
    return Exit.DONE


def sound(found: Import, settings: "Settings") -> Import:
    """Keep only rules that can be loaded and take effect. The others are listed with the error."""
    from policy.model.profile import Layer
    from policy.permission.dead_rules import faults
    from policy.permission.file import MOST, read_permissions
    from policy.toml.schema import TomlError

    rules, found.rules = found.rules, []
    for rule in rules:
        text = "\n".join(rule_lines(rule, found.source))
        try:
            parsed = read_permissions(text, found.source, Layer.NAMED)
            texts = (fault.text for one in parsed for fault in faults(one, settings.rules, settings.profile))
            fault = next(texts, "")
        except TomlError as error:
            fault = error.problem.why
        if fault:
            found.leave(rule.origin, fault)
        else:
            found.rules.append(rule)
    if len(found.rules) > MOST:
        found.remarks[f"a file can contain at most {MOST} rules: select some of these, or merge them"] = None
    return found


def reader(kind: AgentProduct) -> Callable[[str, str], Import]:
    """Return the function that reads files of this kind."""
    from runner.gate.policy_tools.importers.claude import read_claude
    from runner.gate.policy_tools.importers.codex import read_codex
    from runner.gate.policy_tools.importers.gemini import read_gemini

    readers = {AgentProduct.CLAUDE: read_claude, AgentProduct.CODEX: read_codex, AgentProduct.GEMINI: read_gemini}
    return readers[kind]


def guess(text: str, source: str) -> AgentProduct:
    """Return the kind of a file according to its content."""
    import re

    if text.lstrip().startswith("{"):
        return AgentProduct.CLAUDE
    if re.search(r"^\s*(prefix_rule|host_executable|network_rule)\s*\(", text, re.MULTILINE):
        return AgentProduct.CODEX
    if re.search(r"^\s*\[\[\s*rule\s*\]\]", text, re.MULTILINE):
        if re.search(r"^\s*verdict\s*=", text, re.MULTILINE):
            fix = "check it with `agent policy lint`"
            raise usage(f"{source} needs no import", "it already contains rules of ringfence", fix)
        return AgentProduct.GEMINI
    why = "it is not recognized as a file of Claude Code, Codex or Gemini CLI"
    raise usage(f"{source} cannot be imported", why, "name its product: --from claude, codex or gemini")


def report(found: Import, out: str | None, tests: str | None) -> str:
    """Return a text about what was imported and what was not."""
    lines = [f"left out, {each.origin}\n  why: {each.why}" for each in found.left]
    lines += [f"changed, {rule.origin}\n  how: {rule.note}" for rule in found.rules if rule.note]
    lines += [f"note: {remark}" for remark in found.remarks]
    where = f", into `{out}`" if out else ""
    lines.append(f"{many(len(found.rules), 'rule')} carried over{where}, {len(found.left)} left out")
    if found.examples:
        how = f", into `{tests}`" if tests else "; --tests FILE writes them for `agent policy test`"
        lines.append(many(len(found.examples), "example") + how)
    return visible("\n".join(lines))


def _text(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        why = os_reason(error)
        raise usage(f"`{name}` cannot be read", why, "check the path; `-` is standard input") from None
    if len(data) > _LARGEST:
        raise usage(f"`{name}` cannot be used", "it is longer than 4 MiB", "import its parts one by one")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise usage(f"`{name}` cannot be used", f"line {line} is not UTF-8 text", "save it as UTF-8") from None


def _write(name: str, text: str) -> None:
    """Write a new file. An existing file is never replaced."""
    try:
        with open(name, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        why, fix = "it exists already", "choose another name, or remove it first"
        raise usage(f"`{name}` cannot be written", why, fix) from None
    except (OSError, ValueError) as error:
        why = os_reason(error)
        raise usage(f"`{os.fspath(Path(name))}` cannot be written", why, "check the path") from None
