"""The content of a workspace that a job trusts: the files that configure or instruct the agent."""

from collections.abc import Mapping

from runner.config.trust.session_check import look_at
from runner.config.trust.store import TrustStore, has_answers
from runner.jobs.job import JobTrust
from runner.state.paths import state_dir


def current_trust(cwd: str, workspace: str, environ: Mapping[str, str]) -> JobTrust:
    """Return the hash of the files in the workspace that configure or instruct the agent, as of now, and whether the
    user trusts exactly this content. Raise Stopped if the workspace cannot be read.
    """
    inventory = look_at(workspace, cwd, environ)
    state = state_dir(environ)
    answers = TrustStore(state).of(workspace)[0] if has_answers(state) else ()
    answer = next((each for each in answers if each.sha256 == inventory.sha256), None)
    return JobTrust(inventory.sha256, bool(inventory.entries) and answer is not None and answer.yes)
