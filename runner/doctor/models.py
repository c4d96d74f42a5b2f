"""Checks of the model that a session uses and of each provider's key. No part of a key is shown.

Neither the keyring nor a helper command is used, since both could open a dialog; `agent auth status` uses them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runner.doctor.report import CheckResult, CheckState, of_problem, ok
from runner.problems import Stopped
from runner.providers.endpoint import SetupError
from runner.providers.remotes import PROVIDERS, Remote, reached
from runner.providers.usable import key_place, usable_providers
from runner.secrets.accounts import AccountFile
from runner.secrets.resolve import KEYED, VARIABLES, first_step
from runner.state.json_file import StateError
from runner.state.paths import PlaceError

if TYPE_CHECKING:
    from runner.config import Settings


def models(settings: "Settings", environ: Mapping[str, str], *, keyring: bool) -> tuple[CheckResult, ...]:
    """Return the result about the model, then one for each provider that needs a key or is configured.

    `keyring` is True if this machine has a keyring that can store a key.
    """
    providers = [name for name in VARIABLES if name in PROVIDERS]
    others = [name for name in providers if name in settings.base_urls or environ.get(VARIABLES[name], "").strip()]
    keys = [_key(name, settings, environ, keyring) for name in dict.fromkeys((*KEYED, *others))]
    ready = {finding.name for finding in keys if finding.state is CheckState.OK}
    return (_model(settings, environ, ready, keyring), *keys)


def _key(name: str, settings: "Settings", environ: Mapping[str, str], keyring: bool) -> CheckResult:
    remote, url = PROVIDERS[name], settings.base_urls.get(name)
    try:
        local = isinstance(remote, Remote) and reached(remote, url, environ).loopback
        place = key_place(name, settings, environ, AccountFile(environ).read().value)
    except (SetupError, Stopped, StateError, PlaceError) as error:
        return of_problem(name, CheckState.WEAK, error.problem)
    if place and not (local and not environ.get(VARIABLES[name], "").strip()):
        return ok(name, f"a key {place}")
    if local:
        return ok(name, "a server on this machine, which often needs no key")
    return CheckResult(name, CheckState.ABSENT, f"no key: {first_step(name, keyring=keyring)}")


def _model(settings: "Settings", environ: Mapping[str, str], ready: set[str], keyring: bool) -> CheckResult:
    spec = settings.model or ""
    if not spec:
        return _default(settings, environ)
    name, _, model = spec.partition(":")
    remote = PROVIDERS.get(name)
    if not model:
        model = settings.models.get(name) or (remote.model if isinstance(remote, Remote) else "")
    told = f"{name}:{model}"
    if fallback := settings.value("fallback_model"):
        told += f"; {fallback} where it stays busy"
    local = isinstance(remote, Remote) and name not in KEYED
    if name in ready or local or not isinstance(remote, Remote):
        return ok("model", told)
    fix = first_step(name, keyring=keyring)
    return CheckResult("model", CheckState.WEAK, f"{told}, for which there is no key", fix)


def _default(settings: "Settings", environ: Mapping[str, str]) -> CheckResult:
    """Return the result about the model of a session for which none is named: the choice of `agent` itself."""
    usable = usable_providers(settings, environ)
    if len(usable) == 1:
        model = usable[0].spec if usable[0].model else f"the model of {usable[0].name}, or your choice of several"
        return ok("model", f"{model}, the default: {usable[0].why}")
    if usable:
        names = ", ".join(each.name for each in usable)
        fix = f'use --model, or write `model = "{usable[0].spec}"` in your configuration'
        return CheckResult(
            "model", CheckState.ABSENT, f"no model is configured, and several providers can be used: {names}", fix
        )
    fix = "set the key of a provider, or use --model ollama:NAME; at a terminal, `agent` offers what there is"
    return CheckResult("model", CheckState.ABSENT, "no model is configured, and no provider has a key", fix)
