"""`agent why`: the explanation of the gate's verdict on one action. Nothing is run, and nothing is recorded."""

import os
from typing import TYPE_CHECKING

from runner.gate.gate import Gate, GateArgs, has_remembered_answers, open_gate

if TYPE_CHECKING:
    from policy.model.assessment import Assessment
    from policy.model.verdict import Verdict


def run_why(args: GateArgs) -> int:
    """Print the explanation of the verdict, and return DONE even for a denial."""
    from policy.describe.summary import summarize
    from policy.model.profile import Source
    from runner.gate.explain import explain, render
    from runner.problems import Exit
    from runner.secrets.redactor import masked
    from runner.stderr import coloured, say_notice
    from runner.text.sanitize import visible

    gate, action = open_gate(args, os.environ)
    if gate.settings.values.get(("serve", "start")):
        from runner.resident.control import start_if_wanted  # only if the user configured it

        start_if_wanted(os.environ)
    for notice in gate.settings.notices:
        say_notice(visible(notice, lines=False))
    assessment, verdict = gate.evaluate(action, unattended=args.unattended)
    if has_remembered_answers():  # nothing is asked, consumed or stored
        from runner.frontends.exec.grants import recall

        found = recall(gate, assessment, verdict, Source.MODEL, unattended=args.unattended).found
        assessment, verdict = found.assessment, found.verdict
    explanation = explain(
        assessment,
        verdict,
        gate.facts.workspace,
        gate.rulings_by_mode(assessment),
        line=summarize(assessment, gate.facts),
        rule=_tried(gate, assessment, verdict),
    )
    if args.json:
        from runner.text.json_line import json_line

        print(masked(json_line(explanation.as_json())))
    else:
        import sys

        from policy.describe.phrases import near
        from runner.state.paths import config_file

        config = near(str(config_file(os.environ)), gate.facts)
        print(masked(render(explanation, colour=coloured(sys.stdout), config=config)))
    return Exit.DONE


def _tried(gate: "Gate", assessment: "Assessment", verdict: "Verdict") -> str | None:
    """Return a rule that would allow the action even if no user can answer.

    Return None if the action is allowed already, or if no such rule is known.
    """
    from policy.decide import open_reasons
    from policy.model.verdict import Allow
    from runner.gate.suggest import read_rules, suggested

    if isinstance(verdict, Allow):
        return None
    text = suggested(assessment, open_reasons(assessment, gate.mode), gate.facts)
    if text is None:
        return None
    _, again = gate.context(unattended=True).evaluate(assessment.action, read_rules(text))
    return text if isinstance(again, Allow) else None
