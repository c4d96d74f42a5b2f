"""`agent why`: everything the gate would say about one action. Runs nothing, records nothing."""

import os

from runner.gate_args import GateArgs


def run_why(args: GateArgs) -> int:
    """Print the explanation; the exit code is 0 whatever the verdict, since the question was answered."""
    from runner.explain import explain, render
    from runner.gate import open_gate
    from runner.problems import Exit, coloured

    gate, action = open_gate(args, os.environ)
    assessment = gate.assess(action)
    verdict = gate.judge(assessment, unattended=args.unattended)
    explanation = explain(assessment, verdict, gate.facts.workspace, gate.elsewhere(assessment))
    if args.json:
        import json

        print(json.dumps(explanation.as_json()))
    else:
        import sys

        print(render(explanation, colour=coloured(sys.stdout)))
    return Exit.DONE
