"""Suggested rules as text and as JSON."""

from runner.audit.reports.suggest import Suggestion, SuggestionReport
from runner.gate.explain import shown
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_LISTED = 12  # records listed in one line
_BESIDES = 8  # listed further actions of one rule
_SAID = {
    "yes": "a user approved it {}",
    "no": "a user refused it {}",
    "nobody": "no user could be asked, {}",
    "denied": "denied without a question, {}",
}
_SOURCES = {"log": "of this log", "near": "similar to it"}


def report_text(report: SuggestionReport, *, config: str, colour: bool, width: int) -> str:
    """Return the suggestions as text that is safe to print on a terminal. `config` is the user's configuration file."""
    bold, dim, end = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if colour else ("", "", "")
    settled = {number for each in report.suggestions for number in (*each.records, *each.others)}
    newest = "newest " if report.more else ""
    lines = [
        f"{many(len(report.suggestions), 'rule')} would have decided {len(settled)} of the {newest}"
        f"{report.looked} questions and denials; nothing was changed"
    ]
    for number, each in enumerate(report.suggestions, 1):
        lines += ["", f"{bold}{number}. {visible(one_line(each.rule.subject(), max(width - 5, 40)))}{end}"]
        lines += [f"   {line}" for line in _evidence(each)]
        lines += _suggestion(each, report, width)
        if each.wider is not None:
            lines += [f"   {dim}or a wider rule:{end}", *_suggestion(each.wider, report, width)]
        where = f"put the rule into {config}; it is used in every folder"
        if each.rule.verdict == "allow" and len(each.workspaces) == 1 and each.workspaces[0]:
            local = f"{each.workspaces[0]}/.ringfence/config.local.toml"
            where = f"put it into {config} for every folder, or into {local} for that one (then `agent trust`)"
        lines += [f"   {line.strip()}" for line in shown([where])]
    if report.left:
        lines += ["", f"{bold}no rule is suggested for{end}"]
        for left in report.left:
            about = f" ({visible(left.about, lines=False)})" if left.about else ""
            lines.append(f"  {_records(left.records)}: {left.why}{about}")
    return "\n".join(lines)


def report_json(report: SuggestionReport, *, config: str) -> dict[str, object]:
    """Return the suggestions as a JSON object. `config` is the user's configuration file."""
    return {
        "looked": report.looked,
        "more": report.more,
        "suggestions": [{**_object(each), "config": config} for each in report.suggestions],
        "left": [{"why": each.why, "about": each.about, "records": list(each.records)} for each in report.left],
    }


def _object(each: Suggestion) -> dict[str, object]:
    return {
        "verdict": each.rule.verdict,
        "rule": each.rule.text(),
        "records": list(each.records),
        "with_others": list(each.others),
        "answers": dict(each.answers),
        "workspaces": list(each.workspaces),
        "besides": [{"from": one.source, "action": one.action, "record": one.record or None} for one in each.besides],
        "refused": list(each.refused),
        "notes": list(each.notes),
        "wider": _object(each.wider) if each.wider is not None else None,
    }


def _evidence(each: Suggestion) -> list[str]:
    times = {1: "once", 2: "twice"}
    lines = ["; ".join(_SAID[name].format(times.get(count, f"{count} times")) for name, count in each.answers)]
    if each.records:
        lines.append(f"decides {_records(each.records)}")
    if each.others:
        lines.append(f"decides together with other rules of this list: {_records(each.others)}")
    if each.rule.verdict == "allow" and "yes" not in dict(each.answers):
        lines.append("no user ever approved it: check it as if you were asked now")
    return lines


def _suggestion(each: Suggestion, report: SuggestionReport, width: int) -> list[str]:
    lines = [f"     {line.strip()}" for line in shown(each.rule.text().split("\n"))]
    lines += [f"   note: {visible(note, lines=False)}" for note in each.notes]
    if each.rule.verdict == "deny":
        return lines
    examples = [one for one in each.besides if one.source == "examples"]
    others = [one for one in each.besides if one.source != "examples"]
    none = "" if examples else f", and none of {report.examples} examples"
    lines.append("   would also allow:" if others else f"   allows nothing else of this log{none}")
    for one in others[:_BESIDES]:
        record = f" ({one.record})" if one.record else ""
        lines.append(f"     {one_line(one.action, max(width - 48, 30))}{record}, {_SOURCES[one.source]}")
    if len(others) > _BESIDES:
        lines.append(f"     and {len(others) - _BESIDES} more (--json)")
    if examples:  # commands that nobody ran here: they show how wide the rule is
        first = one_line(examples[0].action, max(width - 48, 30))
        lines.append(f"   of {report.examples} examples of the shipped rules, allows {len(examples)}, such as: {first}")
    if each.refused:
        lines.append(f"   but not {' or '.join(f'`{one_line(line, 60)}`' for line in each.refused)}")
    return lines


def _records(numbers: tuple[int, ...]) -> str:
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return f"record{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers[:_LISTED]))}{more}"
