"""`agent auth`: store the API keys of providers in the system's keyring, and show which key is used."""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policy.model.verdict import Problem
from runner.agent.options import not_known
from runner.cli.gate import CONFIG, CWD, JSON, argument, completing, option_before, switch, valued
from runner.config import Settings, load
from runner.config.settings import SettingNotice
from runner.problems import Exit, Stopped, usage
from runner.providers.key_options import KeyFlags, key_request, piped_key, typed_key
from runner.providers.remotes import PROVIDERS, Remote, reached
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.secrets.accounts import Accounts
    from runner.secrets.keyring_store import KeyringFailed
    from runner.secrets.resolve import KeySearch

auth_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")


@completing
def _providers() -> Iterable[str]:
    from runner.secrets.resolve import VARIABLES

    return VARIABLES


PROVIDER = Annotated[
    str,
    argument(
        "PROVIDER", "anthropic, openai, gemini, openrouter, or a `keyring` of a [[credential]].", complete=_providers
    ),
]
MAYBE = Annotated[str | None, argument("PROVIDER", "Only this provider.", complete=_providers)]
ACCOUNT = Annotated[str | None, valued("--account", "NAME", "The account, such as `work`.")]


@auth_app.callback()
def auth(context: typer.Context, json: JSON = False) -> int:
    """Store the API keys of providers in the keyring of the system, and show which key is used.

    The first source that has a key is used: `--api-key-stdin` of a run, the environment variable of the provider, a
    helper command of your configuration, the keyring.

    **Examples**

        agent auth login anthropic
        agent auth status
        agent auth logout anthropic
    """
    if context.invoked_subcommand is None:
        return status(json=json)
    if json:
        raise option_before(f"auth {context.invoked_subcommand}")
    return Exit.DONE


@auth_app.command("login")
def login(
    provider: PROVIDER,
    account: ACCOUNT = None,
    again: Annotated[bool, switch("--replace", help="Replace the stored key.")] = False,
) -> int:
    """Store an API key in the keyring: typed at the terminal, which does not show it, or piped in.

    The command reads the key back to check that it was stored.

    **Examples**

        agent auth login anthropic
        agent auth login anthropic --account work
        pass show openai | agent auth login openai --replace
    """
    from runner.secrets.accounts import AccountFile
    from runner.secrets.keyring_store import DEFAULT, KeyringFailed, KeyringStore
    from runner.secrets.resolve import ways

    _check(provider, account)
    name, store, listed = account or DEFAULT, KeyringStore(), AccountFile(os.environ)
    by_hand = os.isatty(0)
    try:
        kept_in = store.name()
        listed.read()  # fail before a key is stored that no command would find
        if store.holds(provider, name) and not again:
            _ask_to_replace(provider, name, by_hand)
        key = typed_key(provider) if by_hand else piped_key(whole=True)
        store.write(provider, name, key)
    except KeyringFailed as error:
        raise _keyring_failed("the key cannot be stored", error, ways(provider, keyring=False)) from None
    notices = listed.add(provider, name)
    print(f"the key is stored: {provider}, account `{name}`, in the {kept_in}")
    _print_notes((*notices, *_key_variable(provider), *_choice(listed.read().value.of(provider), provider, name)))
    return Exit.DONE


@auth_app.command("status")
def status(
    provider: MAYBE = None,
    account: ACCOUNT = None,
    cwd: CWD = None,
    config: CONFIG = None,
    json: JSON = False,
) -> int:
    """Show the source of each provider's key, and why the other sources are not used. Never shows a key.

    The helper command is run, and the keyring is read, only if no earlier source has a key. Exit 1: there is no key.
    Injected credentials (`[[credential]]`) are listed, but not read.

    **Examples**

        agent auth status
        agent auth status anthropic --account work
        agent auth status --json | jq '{provider, source}'
    """
    from runner.config.trust.widening import condense_notices
    from runner.gate.gate import folder
    from runner.secrets.accounts import AccountFile
    from runner.secrets.broker.secret_source import as_json, listed
    from runner.secrets.keyring_store import KeyringStore
    from runner.secrets.resolve import KEYED, VARIABLES, look

    if provider is not None or account is not None:
        _check(provider or "", account)
    here = folder(cwd)
    settings = load(here, os.environ, config=Path(config) if config else None, unattended=True)
    held = AccountFile(os.environ).read()
    store, searches = KeyringStore(), []  # one store for all, so that a keyring that hangs is awaited only once
    given = {name for name, variable in VARIABLES.items() if os.environ.get(variable, "").strip()}
    for name in (provider,) if provider else tuple(sorted({*KEYED, *given, *held.value.by_provider})):
        said = key_request(settings, name, os.environ, here, KeyFlags(account))
        searches.append(look(replace(said, local=_is_local(name, settings)), store))
    about = [each for each in settings.notices if isinstance(each, SettingNotice)]
    about = [each for each in about if each.ignored and each.ignored.path[:1] == ("auth",)]
    _print_notes((*held.notices, *condense_notices(replace(settings, notices=tuple(about)))))
    lent = () if provider else settings.profile.credentials
    if json:
        for line in (*(_as_json(each, held.value.of(each.provider)) for each in searches), *map(as_json, lent)):
            print(json_line(line))
    else:
        for each in searches:
            _show(each, held.value.of(each.provider))
        for row in lent:
            print(visible("\n".join(listed(row))))
    return Exit.DONE if any(each.found or each.local for each in searches) else Exit.FAILED


@auth_app.command("use")
def use(provider: PROVIDER, account: Annotated[str, argument("ACCOUNT", "The name of the account.")]) -> int:
    """Set the default account of a provider.

    It is used if no account is named by --account, or by `account` in `[auth.PROVIDER]` of your configuration.

    **Examples**

        agent auth use anthropic work
    """
    from runner.secrets.accounts import AccountFile
    from runner.secrets.keyring_store import KeyringFailed, KeyringStore

    _check(provider, account)
    listed = AccountFile(os.environ)
    try:
        if not KeyringStore().holds(provider, account):
            raise _no_account(provider, account, listed.read().value.of(provider))
    except KeyringFailed as error:
        raise _keyring_failed("the account cannot be read from the keyring", error) from None
    _print_notes(listed.choose(provider, account))
    print(f"{provider}: account `{account}` is now the default")
    return Exit.DONE


@auth_app.command("logout")
def logout(
    provider: MAYBE = None,
    account: ACCOUNT = None,
    everything: Annotated[bool, switch("--all", help="All accounts; without PROVIDER, of all providers.")] = False,
) -> int:
    """Remove a key from the keyring.

    With several accounts, --account or --all is required.

    **Examples**

        agent auth logout anthropic
        agent auth logout anthropic --account work
        agent auth logout --all
    """
    from runner.secrets.accounts import AccountFile
    from runner.secrets.keyring_store import DEFAULT, KeyringFailed, KeyringStore
    from runner.secrets.resolve import VARIABLES

    if everything and account is not None:
        raise usage("--all and --account exclude each other", "--all means every account", "omit one of them")
    if provider is None and not everything:
        raise usage("no provider is named", "several may have a key", "name a PROVIDER, or add --all")
    if provider is not None or account is not None:
        _check(provider or "", account)
    listed, store = AccountFile(os.environ), KeyringStore()
    held = listed.read()
    _print_notes(held.notices)
    removed = []
    for each in (provider,) if provider else tuple(sorted({*VARIABLES, *held.value.by_provider})):
        known = held.value.of(each)
        every = tuple(dict.fromkeys((*known.names, DEFAULT)))
        for name in every if everything else (account or _only(each, known),):
            try:
                was_there = store.remove(each, name)
            except KeyringFailed as error:
                what = f"the key of `{each}`, account `{name}`, was not removed"
                raise _keyring_failed(what, error) from None
            _print_notes(listed.remove(each, name))
            if was_there:
                removed.append(name)
                print(f"the key is removed: {each}, account `{name}`")
            elif name in known.names:
                print(f"{each}, account `{name}`: the key was not in the keyring any more")
            elif not everything:
                raise _no_account(each, name, known)
        _print_notes(_key_variable(each))
    if not removed and everything:
        print("the keyring contains no key of ringfence")
    return Exit.DONE


def _is_local(provider: str, settings: "Settings") -> bool:
    """Return True if the provider's server is this machine."""

    remote = PROVIDERS.get(provider)
    return isinstance(remote, Remote) and reached(remote, settings.base_urls.get(provider), os.environ).loopback


def _check(provider: str, account: str | None) -> None:
    """Raise a usage error for a provider or account under which no command would look for a key."""
    from runner.secrets.accounts import is_account
    from runner.secrets.resolve import VARIABLES

    if provider not in VARIABLES and provider not in (lent := _injected_names()):
        known = (*VARIABLES, *lent)
        why = f"keys are used for {', '.join(f'`{name}`' for name in known)}, and each `keyring` of a `[[credential]]`"
        raise not_known(f"no key of `{provider}` is used", why, provider, known, "use one of these names")
    if account is not None and not is_account(account):
        why = "a name has letters, digits and `._@+-`, begins with a letter or digit, and is 64 characters long at most"
        raise usage("the name of the account cannot be used", why, "choose another name")


def _injected_names() -> tuple[str, ...]:
    """Return the keyring names of injected credentials: `keyring` of each `[[credential]]`."""
    from runner.gate.gate import folder
    from runner.secrets.accounts import is_provider

    rows = load(folder(None), os.environ, unattended=True).entries("credential")
    names = (str(row.values["keyring"]) for row in rows if "keyring" in row.values)
    return tuple(dict.fromkeys(name for name in names if is_provider(name)))


def _ask_to_replace(provider: str, account: str, by_hand: bool) -> None:
    there = f"{provider}, account `{account}`, has a key already"
    if not by_hand:
        why = "no user can be asked whether to replace it"
        raise usage(there, why, "add --replace, or name another --account")
    print(f"{there}. Replace it? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        problem = Problem("nothing was stored", "you kept the stored key", "name another --account")
        raise Stopped(problem, Exit.FAILED)


def _keyring_failed(what: str, error: "KeyringFailed", other: str = "") -> Stopped:
    """Return the error for a keyring that failed. `other` is a fix that needs no keyring."""
    fix = "; or ".join(each for each in (error.fix, other) if each)
    return Stopped(Problem(what, f"the keyring: {error.why}", fix), Exit.FAILED)


def _no_account(provider: str, account: str, known: "Accounts") -> Stopped:
    others = ", ".join(f"`{name}`" for name in known.names if name != account)
    why = f"the accounts are {others}" if others else "the keyring contains no key for it"
    fix = "use one of these names" if others else f"store one with `agent auth login {provider}`"
    return Stopped(Problem(f"`{provider}` has no account `{account}`", why, fix), Exit.FAILED)


def _only(provider: str, known: "Accounts") -> str:
    from runner.secrets.keyring_store import DEFAULT

    if len(known.names) > 1:
        names = ", ".join(f"`{name}`" for name in known.names)
        raise usage(
            f"`{provider}` has several accounts", f"they are {names}", "choose one with --account, or add --all"
        )
    return known.names[0] if known.names else DEFAULT


def _key_variable(provider: str) -> tuple[str, ...]:
    """Return a notice if the provider's variable is set, which takes precedence over the keyring."""
    from runner.secrets.resolve import VARIABLES

    variable = VARIABLES.get(provider)
    there = variable is not None and os.environ.get(variable, "").strip()
    return (f"`{variable}` is set, and is used before the keyring",) if there else ()


def _choice(known: "Accounts", provider: str, account: str) -> tuple[str, ...]:
    if known.chosen == account:
        return ()
    return (f"account `{known.chosen}` is still the default; `agent auth use {provider} {account}` changes that",)


def _print_notes(notices: Iterable[str]) -> None:

    for notice in notices:
        say(f"note: {visible(notice)}")


def _show(search: "KeySearch", known: "Accounts") -> None:
    none = "no key; a server on this machine often needs none" if search.local else "no key"
    source = f"the key comes from {search.found.source}" if search.found else none
    print(visible(f"{search.provider}: {source}", lines=False))
    for each in search.tried:
        why = "" if each.why == each.state else f": {each.why}"
        print(visible(f"  {each.state:<9}  {each.name}{why}"))
    if known.names:
        names = (f"{name} (chosen)" if name == known.chosen else name for name in known.names)
        print(visible(f"  accounts   {', '.join(names)}", lines=False))


def _as_json(search: "KeySearch", known: "Accounts") -> dict[str, object]:
    used = next((each for each in search.tried if search.found and each.state == "used"), None)
    return {
        "provider": search.provider,
        "source": used.source if used else None,
        "local": search.local,
        "tried": [
            {"source": each.source, "state": each.state, "name": each.name, "why": each.why} for each in search.tried
        ],
        "accounts": list(known.names),
        "chosen": known.chosen,
    }
