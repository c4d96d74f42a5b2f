"""The record of a verdict on a call that the guarded agent executes itself, or that was denied."""

import os
import sys

from policy.evaluation import fingerprint
from policy.grants.grant import GrantHolder
from policy.model.assessment import Assessment
from policy.model.profile import MAIN
from policy.model.verdict import Allow, Deny
from runner.audit.fact_recorder import FactRecorder
from runner.audit.log import open_log
from runner.audit.records import Decision, SessionInfo
from runner.frontends.guard.call import GuardedCall
from runner.frontends.guard.tokens import audit_session
from runner.gate.gate import Gate
from runner.gate.grants.store import GrantStore
from runner.secrets.redactor import Redactor
from runner.state.paths import state_dir
from runner.state.workspace import head_commit


def open_grants(gate: Gate) -> GrantStore:
    """Return the store of the remembered answers that apply in the workspace of `gate`."""
    redact = Redactor(live=True, shapes=True).text
    holder = GrantHolder(gate.facts.workspace, MAIN, "")
    return GrantStore(state_dir(os.environ), holder, lambda notice: None, redact=redact)


def record(call: GuardedCall, gate: Gate, assessment: Assessment, verdict: Allow | Deny, noted: FactRecorder) -> None:
    """Record the verdict on `call`, which no sandbox of this program runs. Raise AuditError."""
    info = SessionInfo(
        mode=gate.mode.value,
        workspace=gate.facts.workspace,
        unattended=not call.asks,
        enforcement=None,
        argv=("agent", *sys.argv[1:]),
        commit=head_commit(gate.facts.workspace),
        sources=gate.settings.sources,
        policy=fingerprint(gate.settings.profile, gate.settings.rules),
        hashes=gate.settings.hashes,
        guarded=call.agent,
        guarded_session=call.session,
    )
    with open_log(gate.settings, os.environ) as audit:
        decision = Decision(call.tool, assessment, verdict, "none", noted=noted, call=call.call)
        audit.began(info, audit_session(call.agent, call.session), decision)
