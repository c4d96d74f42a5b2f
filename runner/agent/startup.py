"""The preparation of a session: options, settings, trust and model, before the session is opened."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from runner.agent.options import Given, least, parse_backend, parse_mode
from runner.config import load
from runner.config.load import flag_settings, with_flags
from runner.engine.run_limits import RunBudget, bounds, priced
from runner.problems import usage
from runner.providers import PROVIDERS, open_provider
from runner.providers.key_options import KeyFlags, key_request
from runner.sessions.selection import SessionSelection, parse_selection

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.config import Settings
    from runner.config.trust.prompt import Asker
    from runner.engine.run_limits import RunLimits
    from runner.providers import OpenModel
    from runner.secrets.secret import Secret


@dataclass(frozen=True, slots=True)
class RunArgs:
    """The options of one agent. None and empty values mean that the option was not used."""

    mode: Mode | None = None
    model: str | None = None
    provider: str | None = None
    json: bool = False
    unattended: bool = False
    cwd: str | None = None
    limits: tuple[str, ...] = ()
    config: str | None = None
    backend: str | None = None
    least: str | None = None
    selection: SessionSelection = field(default_factory=SessionSelection)
    trust_config: str | None = None
    no_instructions: bool = False
    key: KeyFlags = field(default_factory=KeyFlags)
    budget: RunBudget = field(default_factory=RunBudget)
    plain: bool = False
    fallback: str | None = None


def run_args(given: Given) -> RunArgs:
    """Return the options of `agent run`, `agent ci` or plain `agent` as RunArgs. Raise a usage error."""
    latest, unstored = given.switch("continue_"), given.switch("no_session")
    return RunArgs(
        parse_mode(given.text("mode")),
        given.text("model"),
        given.text("provider"),
        given.switch("json"),
        given.switch("unattended"),
        given.text("cwd"),
        given.texts("limit"),
        given.text("config"),
        parse_backend(given.text("backend")),
        least(given.switch("accept_partial"), given.text("require")),
        selection=parse_selection(latest, given.text("resume"), given.text("fork"), unstored),
        trust_config=given.text("trust_config"),
        no_instructions=given.switch("no_instructions"),
        key=KeyFlags(given.text("account"), given.switch("api_key_stdin")),
        fallback=given.text("fallback_model"),
        plain=given.switch("plain"),
        budget=RunBudget(
            given.number("max_turns"),
            given.number("max_tokens"),
            given.text("max_cost"),
            given.text("timeout"),
            given.text("max_output"),
            given.number("max_denials"),
        ),
    )


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The values with which the sessions of one agent are opened.

    Attributes:
        options: The options of the first session.
        settings: The settings of the configuration.
        environ: The environment variables of the program.
        model: The model of the first session.
        opener: A function that opens another model by `provider:model`, or None.
    """

    options: "SessionOptions"
    settings: "Settings"
    environ: Mapping[str, str]
    model: "OpenModel"
    opener: "Callable[[str], OpenModel] | None" = None


def prepare_start(
    args: RunArgs,
    *,
    unattended: bool,
    asks: bool = True,
    asker: "Asker | None" = None,
    model: "OpenModel | None" = None,
) -> SessionStart:
    """Return the values for the first session. Files are read, but no session is opened.

    With `asks`, a question about trust may be put on this terminal or to `asker`. `model`, if not None, is used instead
    of the configured model. Raise Stopped, ConfigError, SetupError, SecretError, SessionError, StateError or
    PlaceError; KeyboardInterrupt if the user leaves.
    """
    options, settings = prepare_options(args, unattended, asks=asks, asker=asker)
    model = model or chosen_model(args, settings, options.cwd)
    options = with_session(args, options, settings, model)
    return SessionStart(options, settings, os.environ, model, opener(args, settings, options.cwd, model))


def with_session(
    args: RunArgs, options: "SessionOptions", settings: "Settings", model: "OpenModel"
) -> "SessionOptions":
    """Return `options` with the session to continue and the price of the model.

    The user may be shown a list to pick the session from, so no session may be open yet.
    """
    from runner.sessions.open import choose_target

    where = choose_target(args.selection, options.cwd, os.environ, model.named, unattended=options.unattended)
    return replace(options, beginning=where, bounds=priced(options.bounds, model, settings))


def prepare_options(
    args: RunArgs,
    unattended: bool,
    *,
    repository: bool = True,
    usual: "RunLimits | None" = None,
    asks: bool = True,
    asker: "Asker | None" = None,
) -> "tuple[SessionOptions, Settings]":
    """Return the options and the settings of a session, from the command line and the configuration.

    Without `repository`, all settings of the repository are ignored, even those that tighten. `usual` are the limits of
    a run that neither options nor settings set. With `asks`, a question about trust may be put on this terminal or to
    `asker`.
    """
    from runner.agent.context_sources import read_context
    from runner.agent.open_session import SessionOptions
    from runner.config.trust.session_check import TrustRequest, apply_trust
    from runner.gate.gate import folder, refuse_folder
    from runner.state.workspace import workspace_at

    cwd = folder(args.cwd)
    config = Path(args.config) if args.config else None
    reload = partial(load, cwd, os.environ, config=config, unattended=unattended, repository=repository)
    settings = reload()
    refuse_folder(str(cwd), os.environ, settings.profile)
    trust = TrustRequest(
        workspace=workspace_at(str(cwd), os.environ),
        attended=not unattended,
        pinned=args.trust_config,
        reads=bool(settings.value("instructions")) and not args.no_instructions,
        asks=asks,
        asker=asker,
        skilled=bool(settings.value("skills")),
        cwd=str(cwd),
    )
    instructions, files = "", None
    if repository:
        settings, instructions, files = apply_trust(trust, settings, os.environ, lambda hashes: reload(trusted=hashes))
    sources = read_context(files, os.environ, skilled=bool(settings.value("skills")))
    settings = replace(settings, notices=(*settings.notices, *sources.notices))
    settings = with_options(settings, args)
    options = SessionOptions(
        cwd=cwd,
        unattended=unattended,
        mode=args.mode,
        limits=args.limits,
        backend=args.backend,
        least=args.least,
        bounds=bounds(args.budget, settings, usual),
        argv=("agent", *sys.argv[1:]),
        instructions=instructions,
        context=sources.context,
    )
    return options, settings


def with_options(settings: "Settings", args: RunArgs) -> "Settings":
    """Return `settings` with the options of the command line as the highest layer. Raise a usage error for a limit."""
    from runner.config.amounts import apply_limits

    flags = flag_settings(
        mode=args.mode,
        model=args.model,
        fallback=args.fallback,
        max_turns=args.budget.turns,
        budget=args.budget.given_options(),
        least=args.least,
        no_instructions=args.no_instructions,
        limits=args.limits,
        total=apply_limits(settings.profile.limits, args.limits),
    )
    return with_flags(settings, flags)


def chosen_model(args: RunArgs, settings: "Settings", cwd: Path, given: "Secret | None" = None) -> "OpenModel":
    """Open the model that options and settings name.

    `given` is the key that was already read from standard input, or None. Raise a usage error, SetupError or
    SecretError.
    """
    spec = args.model or args.provider or settings.model
    if args.model and args.provider and not args.model.startswith(f"{args.provider}:"):
        if args.model.partition(":")[0] in PROVIDERS:
            raise usage(
                f"`{args.model}` is not a model of `{args.provider}`",
                "--provider and --model name two providers",
                "leave out --provider, since --model names the provider",
            )
        spec = f"{args.provider}:{args.model}"
    if not spec:
        raise usage(
            "no model is chosen",
            "neither --model nor --provider was given, and the configuration names none",
            "add for example --model anthropic:claude-sonnet-5-5, or try `agent demo`, which needs no model",
        )
    if ":" not in spec and spec in settings.models:
        spec = f"{spec}:{settings.models[spec]}"
    name = spec.strip().partition(":")[0]
    key = key_request(settings, name, os.environ, cwd, args.key)
    key = key if given is None else replace(key, stdin_key=given)
    api = settings.value("provider", "openai", "api") if name == "openai" else None
    url = settings.base_urls.get(name)
    return open_provider(spec, base_url=url, environ=os.environ, key=key, api=str(api) if api else None)


def opener(args: RunArgs, settings: "Settings", cwd: Path, first: "OpenModel") -> "Callable[[str], OpenModel]":
    """Return a function that opens another model, by `provider:model`, in the session that began with `first`.

    THREAT T21: the options for the key (--api-key-stdin, --account) apply to the provider of the first model only. That
    key is never sent to the server of another provider. Standard input is not read again.
    """

    def another(spec: str) -> "OpenModel":
        same = spec.strip().partition(":")[0] == first.provider.name
        flags = args.key if same and not args.key.from_stdin else KeyFlags()
        stdin_key = first.secrets[0] if same and args.key.from_stdin and first.secrets else None
        return chosen_model(replace(args, model=spec, provider=None, key=flags), settings, cwd, stdin_key)

    return another
