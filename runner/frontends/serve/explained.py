"""The tool `why` of `agent mcp serve`: the verdict on a command as text and as structured data. Nothing is run."""

from dataclasses import replace

from policy.describe.summary import summarize
from policy.model.action import RunScript
from policy.model.tier import Mode
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext
from runner.gate.explain import Explanation, explain, reason_json, render
from runner.gate.gate import ruling
from runner.gate.wording import cell_words, terms_words
from runner.text.sanitize import visible
from tools.arguments import SCRIPT_CAP

NAME = "why"
DESCRIPTION = (
    "Judge a bash script without running it: the verdict (allow, ask or deny), what the script would do, each reason, "
    "and the exact rights that it would run with. Use it before a command that may be refused, or to learn what would "
    "be allowed."
)
INPUT: dict[str, object] = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "Text of the bash script."}},
    "required": ["command"],
    "additionalProperties": False,
}
_TEXTS = {"type": "array", "items": {"type": "string"}}
OUTPUT: dict[str, object] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["allow", "ask", "deny"]},
        "line": {"type": "string", "description": "What the script does, in one line."},
        "tiers": {**_TEXTS, "description": "The kinds of risk, the highest first."},
        "cell": {"type": "string", "description": "The cell of the permission matrix that decided."},
        "reasons": {"type": "array", "items": {"type": "object"}},
        "terms": {"type": "object", "description": "The exact rights in words; empty if no approval gives any."},
        "question": {"type": "string"},
        "problem": {"type": "object"},
        "ways": {**_TEXTS, "description": "What would allow the script."},
    },
    "required": ["verdict", "line", "tiers", "cell", "reasons", "terms", "ways"],
}


def explained(command: str, ctx: RunContext) -> tuple[str, dict[str, object]]:
    """Return the explanation of the verdict on `command` as text, and as an object of the schema OUTPUT."""
    action = RunScript(command[:SCRIPT_CAP], ctx.cwd)
    evaluation = evaluate_action(action, ctx)
    context = evaluation.recalled.context
    asking = replace(context, unattended=False)
    modes = tuple((mode, ruling(asking.decide(evaluation.assessment, mode=mode))) for mode in Mode)
    line = summarize(evaluation.assessment, context.facts)
    found = explain(evaluation.assessment, evaluation.verdict, context.facts.workspace, modes, line=line)
    text = ctx.redactor.text(render(found))
    masked = ctx.redactor.mask(_structured(found))
    return text, masked


def _structured(found: Explanation) -> dict[str, object]:
    values: dict[str, object] = {
        "verdict": found.verdict.name.lower(),
        "line": visible(found.line, lines=False),
        "tiers": [tier.label for tier in found.tiers],
        "cell": cell_words(found.cell),
        "reasons": [reason_json(reason) for reason in dict.fromkeys((found.because, *found.reasons))],
        "terms": dict(terms_words(found.terms, found.action)) if found.terms is not None else {},
        "ways": list(found.ways),
    }
    if found.question:
        values["question"] = found.question
    if (problem := found.problem) is not None:
        values["problem"] = {"what": problem.what, "why": problem.why, "fix": problem.fix}
    return values
