"""The model of a session for which none was named: that of the only usable provider, or the one that the user
chooses.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from runner.problems import CommandChosen, Stopped, option, unless_program, usage
from runner.providers.usable import UsableProvider, usable_providers
from runner.secrets.resolve import KEYED, VARIABLES

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.providers.listing import FoundServer

_KEYRING = deadline(1.5)  # seconds for a keyring to answer
_WIDTH = 200  # characters of a row on a plain terminal


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One row of a list to choose from. `value` is returned for the chosen row."""

    value: str
    label: str
    detail: str = ""


# Shows a list with a title, and returns the value of the chosen row; None if the user chose none.
ChooseRow = Callable[[str, Sequence[ModelRow]], str | None]


def choose_model(settings: "Settings", environ: Mapping[str, str], choose: ChooseRow | None) -> tuple[str, str]:
    """Return the model to use (`provider:model`, or a provider whose server is to be asked), and why it is used.

    `choose` asks the user; without it, more than one usable provider, or none, is a usage error, as no choice is. Raise
    CommandChosen if the user chooses a command.
    """
    usable = usable_providers(settings, environ)
    if len(usable) == 1:
        return usable[0].spec, f"the default: {usable[0].why}"
    if choose is None:
        raise no_model(usable)
    if usable:
        rows = [ModelRow(each.spec, each.spec, each.why) for each in usable]
        return _chosen(choose("which model? `model` in your configuration sets it for good", rows), usable), ""
    return _begin(choose)


def no_model(usable: Sequence[UsableProvider]) -> Stopped:
    """Return the error for a session without a model, where no user can be asked."""
    if usable:
        why = "several providers can be used: " + "; ".join(f"{each.name} ({each.why})" for each in usable)
        fix = f'add {option("--model", usable[0].spec)}, or write `model = "{usable[0].spec}"` in your configuration'
        return usage("no model is chosen", why, fix)
    variables = " or ".join((", ".join(f"`{VARIABLES[name]}`" for name in KEYED[:-1]), f"`{VARIABLES[KEYED[-1]]}`"))
    local = option("--model", "ollama:qwen3:8b")
    return usage(
        "no model is chosen",
        "no model is named, and no provider has a key",
        f"set {variables}, or name a local model, such as `{local}`{unless_program('; `agent demo` needs no model')}",
    )


def _begin(choose: ChooseRow) -> tuple[str, str]:
    """Offer the ways to a first model: a key, a model server on this machine, the demo."""
    from runner.providers.listing import found_servers

    with ThreadPoolExecutor(2) as pool:  # the keyring and the servers answer at the same time
        stores, servers = pool.submit(_has_keyring), pool.submit(found_servers)
        rows = _first_rows(stores.result(), servers.result())
    answer = _chosen(choose("no model is set up yet", rows))
    match answer:
        case "login":
            title = "the key of which provider? It is stored in the keyring"
            name = _chosen(choose(title, [ModelRow(each, each, VARIABLES[each]) for each in KEYED]))
            raise CommandChosen(("auth", "login", name))
        case "demo":
            raise CommandChosen(("demo",))
        case "key":
            raise no_model(())
        case _:
            models = next(each.models for each in servers.result() if each.provider == answer)
            return f"{answer}:{pick_model(choose, answer, f'`{answer}`', models)}", ""


def _first_rows(keyring: bool, servers: "Sequence[FoundServer]") -> list[ModelRow]:
    """Return at most four rows: the key, up to two servers, the demo."""
    key = ModelRow("login", "log in", "store the key of a provider in the keyring")
    if not keyring:
        key = ModelRow("key", "set a key", f"export {VARIABLES['anthropic']}=... and start `agent` again")
    found = [ModelRow(each.provider, each.provider, _about(each)) for each in servers[:2]]
    return [*found, key, ModelRow("demo", "demo", "watch a scripted model, without a key")]


def _about(server: "FoundServer") -> str:
    shown = ", ".join(server.models[:3])
    return f"on this machine: {shown}{', ...' if len(server.models) > 3 else ''}"


def pick_model(choose: ChooseRow, provider: str, server: str, models: Sequence[str]) -> str:
    """Return the only one of `models`, or the one that the user chooses. `server` is its name for the user."""
    if len(models) == 1:
        return models[0]
    answer = choose(f"which model of {server}?", [ModelRow(model, model) for model in models])
    if answer is None:
        why = f"{server} offers {len(models)}, and the list was closed"
        raise usage("no model was selected", why, f"add {option('--model', f'{provider}:NAME')}")
    return answer


def _chosen(answer: str | None, usable: Sequence[UsableProvider] = ()) -> str:
    """Return the answer, or raise the error of a session without a model if the user chose no row."""
    if answer is None:
        raise no_model(usable)
    return answer


def _has_keyring() -> bool:
    """Return True if this machine has a keyring that answers soon."""
    from runner.secrets.keyring_store import KeyringFailed, KeyringStore

    try:
        return bool(KeyringStore(patience=_KEYRING).name())
    except KeyringFailed:
        return False


def ask_on_terminal(title: str, rows: Sequence[ModelRow]) -> str | None:
    """Let the user choose a row at a plain terminal, by its number or its label. A `ChooseRow`."""
    from runner.config.trust.prompt import typed_line
    from runner.stderr import say
    from runner.text.sanitize import one_line

    for number, row in enumerate(rows, 1):
        say(f"{number:>3}  {one_line(f'{row.label}  {row.detail}'.rstrip(), _WIDTH)}")
    while True:
        try:
            answer = typed_line(f"{title} (a number; Enter: none) ").strip()
        except EOFError:
            say("")
            return None
        if not answer:
            return None
        if answer.isascii() and answer.isdigit() and 1 <= int(answer[:9]) <= len(rows):
            return rows[int(answer) - 1].value
        if named := [row.value for row in rows if answer == row.label]:
            return named[0]
        say(f"`{one_line(answer, 40)}` is not a number or a name from this list")
