"""Checks of the configured model and of each provider's key. No part of a key is shown.

Neither the keyring nor a helper command is used, since both could open a dialog; `agent auth status` uses them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.doctor.report import CheckResult, CheckState, of_problem, ok
from runner.problems import Stopped
from runner.providers import PROVIDERS, Remote, reached
from runner.providers.endpoint import SetupError
from runner.secrets.accounts import AccountFile
from runner.secrets.resolve import VARIABLES
from runner.secrets.secret import store_command

if TYPE_CHECKING:
    from runner.config import Settings


def models(settings: "Settings", environ: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """Return the result about the model, then one for each provider."""
    keys = [_key(name, settings, environ) for name in VARIABLES]
    return (_model(settings, {finding.name for finding in keys if finding.state is CheckState.OK}), *keys)


def _key(name: str, settings: "Settings", environ: Mapping[str, str]) -> CheckResult:
    said, variable = settings.named("auth").get(name, {}), VARIABLES[name]
    remote, url = PROVIDERS[name], settings.base_urls.get(name)
    try:
        local = isinstance(remote, Remote) and reached(remote, url, environ).loopback
        accounts = AccountFile(environ).read().value.of(name).names
    except (SetupError, Stopped) as error:
        return of_problem(name, CheckState.WEAK, error.problem)
    if environ.get(variable, "").strip():
        return ok(name, f"a key in `{variable}`")
    if local:
        return ok(name, "a server on this machine, which often needs no key")
    if "helper" in said:
        return ok(name, "a helper command prints the key")
    if accounts:
        return ok(name, f"a key in the keyring, by account: {', '.join(accounts)}")
    return CheckResult(name, CheckState.ABSENT, f"no key: store one with `{store_command(name)}`, or set `{variable}`")


def _model(settings: "Settings", ready: set[str]) -> CheckResult:
    spec = settings.model or ""
    if not spec:
        fix = f'use --model, or write `model =  "{sorted(ready)[0]}:..."` in your configuration' if ready else ""
        return CheckResult("model", CheckState.ABSENT, "no model is configured", fix)
    name, _, model = spec.partition(":")
    remote = PROVIDERS.get(name)
    if not model:
        model = settings.models.get(name) or (remote.model if isinstance(remote, Remote) else "")
    told = f"{name}:{model}"
    if fallback := settings.value("fallback_model"):
        told += f"; {fallback} where it stays busy"
    if name in ready or not isinstance(remote, Remote):
        return ok("model", told)
    return CheckResult("model", CheckState.WEAK, f"{told}, for which there is no key", store_command(name))
