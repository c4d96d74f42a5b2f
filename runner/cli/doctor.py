"""`agent doctor` and `agent demo`: check this machine, and show the product at work."""

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from runner.agent.options import least
from runner.audit.log import log_place as audit_place
from runner.cli.gate import ACCEPT, JSON, REQUIRE, switch
from runner.config import load
from runner.stderr import coloured
from runner.text.json_line import json_line
from sandbox.backend import Level

if TYPE_CHECKING:
    from runner.doctor.report import CheckResult


def doctor(json: JSON = False, accept_partial: ACCEPT = False, require: REQUIRE = None) -> int:
    """Check this machine: the kernel, every sandbox (with a test of its isolation), programs, folders, the keyring,
    the model and the sources of keys. Never shows a key.

    Exit 4 if no sandbox meets the minimum; then no command can run. Each line that is not ok has a fix.

    **Examples**

        agent doctor
        agent doctor --require full                  for a script: exit 4 unless a sandbox enforces everything
        agent doctor --json | jq '.findings[] | select(.state != "ok")'
    """
    from runner.doctor.models import models
    from runner.doctor.report import CheckState, examine, record, render, verdict
    from runner.gate.gate import folder

    settings = load(folder(None), os.environ, unattended=True)
    said = least(accept_partial, require)
    minimum = Level(said.upper()) if said else settings.sandbox_minimum
    findings = examine(settings.container, tuple(row.name for row in settings.profile.credentials), settings.network)
    keyring = any(finding.name == "keyring" and finding.state is CheckState.OK for finding in findings)
    findings += models(settings, os.environ, keyring=keyring)
    if isinstance(place := audit_place(settings, os.environ), str):
        findings += (record(place),)
    from runner.audit.chain import AuditError
    from runner.doctor.report import of_problem
    from runner.hooks.checks import hook_checks
    from runner.state.json_file import StateError

    try:
        findings += hook_checks(settings, os.environ)
    except (AuditError, StateError) as error:
        findings += (of_problem("hook", CheckState.WEAK, error.problem),)
    findings += _bundles()
    if json:
        print(
            json_line({"exit": int(verdict(findings, minimum)), "findings": [asdict(finding) for finding in findings]})
        )
    else:
        print(render(findings, minimum, colour=coloured(sys.stdout)))
    return verdict(findings, minimum)


def _bundles() -> "tuple[CheckResult, ...]":
    """Return one row for each bundle, weak if it is not used."""
    from runner.bundles.pinned import any_bundles, installed
    from runner.doctor.report import CheckResult, CheckState, of_problem
    from runner.state.json_file import StateError
    from runner.text.sanitize import visible

    try:
        if not any_bundles(os.environ):
            return ()
        found = installed(os.environ)
    except StateError as error:
        return (of_problem("bundle", CheckState.WEAK, error.problem),)
    rows = [CheckResult("bundle", CheckState.OK, f"{each.name}: as accepted") for each in found.bundles]
    told = (visible(each, lines=False) for each in found.notices)
    return (*rows, *(CheckResult("bundle", CheckState.WEAK, each, "see `agent bundle`") for each in told))


def demo(
    keep: Annotated[bool, switch("--keep", help="Keep the files of the demo.")] = False,
) -> int:
    """Show ringfence at work: a scripted model works on a small repository and tries forbidden actions.

    The demo needs no key and no network, and does not change your files.

    **Examples**

        agent demo
        agent demo --keep
    """
    from runner.cli.demo import run_demo

    return run_demo(keep=keep)
