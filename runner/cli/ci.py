"""`agent ci`: a model at work in a pipeline, with nobody to ask."""

from dataclasses import replace
from pathlib import Path

from runner.agent.options import Given
from runner.agent.run_options import run_args
from runner.cli.gate import takes_options
from runner.cli.run import PROMPT
from runner.sessions.selection import SessionSelection


@takes_options("ci")
def ci(given: Given, prompt: PROMPT = None) -> int:
    """Let a model work in a pipeline, on a prompt that nobody checked.

    Nobody is asked, the mode is dont-ask, what the repository configures or says to agents is ignored, no command has
    a network or a variable of the job, and what the run may use up is bounded: 50 turns, 2,000,000 tokens, 5 of the
    price's currency where a price is known, 30 minutes, 50 MB of output, 20 denials. The sandbox must hold in full.

    The last line of stdout is one JSON object. Every file is written however the run ends.

    **Examples**

        agent ci --prompt-file task.md --model anthropic:claude-sonnet-5-5
        agent ci "why does the build fail?" --summary "$GITHUB_STEP_SUMMARY"
        agent ci --prompt-file task.md --review --patch /tmp/change.patch --max-cost 1.50
        git log -p -1 | agent ci --json --mode plan --max-turns 10
    """
    from runner.frontends.ci.start import Files, start_ci

    args = replace(run_args(given), unattended=True, selection=SessionSelection(unkept=True))
    prompt_file = given.text("prompt_file")
    files = Files(
        given.text("events"),
        given.text("summary"),
        given.text("sarif"),
        given.text("patch"),
        given.text("seal"),
        given.text("result"),
        given.switch("files_in_workspace"),
    )
    return start_ci(
        args,
        files,
        prompt,
        Path(prompt_file) if prompt_file is not None else None,
        review=given.switch("review"),
        ignored=given.switch("patch_ignored"),
    )
