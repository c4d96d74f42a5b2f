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
from runner.problems import option, usage
from runner.providers import open_provider
from runner.providers.catalog import full_name
from runner.providers.key_options import KeyFlags, key_request
from runner.providers.remotes import PROVIDERS
from runner.sessions.selection import SessionSelection, parse_selection
from runner.state.paths import BATCH

if TYPE_CHECKING:
    from runner.agent.model_choice import ChooseRow
    from runner.agent.open_session import SessionOptions
    from runner.bundles.bundle import Bundle
    from runner.bundles.pinned import InstalledBundles
    from runner.config import Settings
    from runner.config.agentfiles.definitions.definition import AgentDefinition
    from runner.config.inventory import Inventory
    from runner.config.trust.prompt import Asker
    from runner.engine.output_schema import OutputSchema
    from runner.engine.run_limits import RunLimits
    from runner.hooks.configured import ConfiguredHooks
    from runner.mcp.server_config import ServerConfig
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
    tools: tuple[str, ...] = ()  # patterns of the tools of the model, as `ToolSelection.only`
    no_tools: tuple[str, ...] = ()  # as `ToolSelection.without`
    prompt: str | None = None  # the first prompt of a conversation
    urls: tuple[str, ...] = ()  # addresses of pages for the first prompt
    output_schema: str | None = None  # a JSON Schema or its file; empty: that of the configuration; None: no schema


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
        tools=_names(given.texts("tools")),
        no_tools=_names(given.texts("no_tools")),
        urls=given.texts("url"),
        budget=RunBudget(
            given.number("max_turns"),
            given.number("max_tokens"),
            given.text("max_cost"),
            given.text("timeout"),
            given.text("max_output"),
            given.number("max_denials"),
        ),
    )


def _names(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in comma-separated lists."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The values with which the sessions of one agent are opened.

    Attributes:
        options: The options of the first session.
        settings: The settings of the configuration.
        environ: The environment variables of the program.
        model: The model of the first session.
        opener: A function that opens another model by `provider:model`, or None.
        named: True if the user named the model for this run, so that no resumed session uses its own model.
    """

    options: "SessionOptions"
    settings: "Settings"
    environ: Mapping[str, str]
    model: "OpenModel"
    opener: "Callable[[str], OpenModel] | None" = None
    named: bool = True


def prepare_start(
    args: RunArgs,
    *,
    unattended: bool,
    asks: bool = True,
    asker: "Asker | None" = None,
    choose: "ChooseRow | None" = None,
    model: "OpenModel | None" = None,
    notes: bool = False,
    usual: "RunLimits | None" = None,
    guarded: bool = False,
    job: str = "",
) -> SessionStart:
    """Return the values for the first session. Files are read, but no session is opened.

    With `asks`, a question about trust may be put on this terminal or to `asker`. `choose` lets the user choose a model
    if none is named. `model`, if not None, is used instead of every other model. With `notes`, the session has the
    skills of the program and uses the notes of the user, unless the settings switch them off; if `agent batch` started
    this process, the session uses no notes. `usual` and `guarded` are as in `prepare_options`. `job` is the id of
    the scheduled job that the session is a run of. Raise Stopped, ConfigError, SetupError, SecretError, SessionError,
    StateError or PlaceError; KeyboardInterrupt if the user leaves; CommandChosen if the user chooses a command instead.
    """
    options, settings = prepare_options(
        args, unattended, usual=usual, asks=asks, asker=asker, packaged=notes, guarded=guarded
    )
    options = replace(options, job=job, notes=notes and bool(settings.value("memory")) and BATCH not in os.environ)
    given, named = model, model is not None or bool(args.model or args.provider)

    def open_model(own: str) -> "OpenModel":
        return given or chosen_model(args, settings, options.cwd, own=own, choose=choose)

    options, opened = with_session(args, options, settings, open_model)
    another = opener(args, settings, options.cwd, opened)
    return SessionStart(options, settings, os.environ, opened, another, named)


def with_session(
    args: RunArgs, options: "SessionOptions", settings: "Settings", open_model: "Callable[[str], OpenModel]"
) -> "tuple[SessionOptions, OpenModel]":
    """Return `options` with the session to continue and the price of the model, and the model.

    `open_model` opens the model; its argument is the model of the session to continue, or empty. The user may be shown
    a list to pick the session from, so no session may be open yet.
    """
    from runner.sessions.open import choose_target

    opened: list[OpenModel] = []

    def name_of(own: str) -> str:
        opened.append(open_model(own))
        return opened[0].named

    where = choose_target(args.selection, options.cwd, os.environ, name_of, unattended=options.unattended)
    try:
        model = opened[0] if opened else open_model("")
        return replace(options, beginning=where, bounds=priced(options.bounds, model, settings)), model
    except BaseException:
        if where is not None:
            where.close()
        raise


def prepare_options(
    args: RunArgs,
    unattended: bool,
    *,
    repository: bool = True,
    usual: "RunLimits | None" = None,
    asks: bool = True,
    asker: "Asker | None" = None,
    packaged: bool = False,
    guarded: bool = False,
) -> "tuple[SessionOptions, Settings]":
    """Return the options and the settings of a session, from the command line and the configuration.

    Without `repository`, all settings of the repository are ignored, even those that tighten. `usual` are the limits of
    a run that neither options nor settings set. With `asks`, a question about trust may be put on this terminal or to
    `asker`. With `packaged`, the session has the skills of the program. With `guarded`, `guard` is the default of the
    setting `flow`.
    """
    from runner.agent.context_sources import read_context
    from runner.agent.open_session import SessionOptions
    from runner.config.live_profile import ConfigurationSource
    from runner.config.load import files as configuration_files
    from runner.config.trust.session_check import TrustRequest, apply_trust
    from runner.config.trust.store import NAME as TRUST_FILE
    from runner.gate.gate import folder, refuse_folder
    from runner.state.paths import state_dir
    from runner.state.workspace import workspace_at

    cwd = folder(args.cwd)
    config = Path(args.config) if args.config else None
    reload = partial(load, cwd, os.environ, config=config, unattended=unattended, repository=repository)
    layers = configuration_files(cwd, os.environ, config=config)
    paths = [path for layer, path in layers if repository or not layer.came_along]
    source = ConfigurationSource.of(
        (*paths, state_dir(os.environ) / TRUST_FILE),
        lambda: reload(trusted=trust.trusted_now(os.environ) if repository else {}),
    )
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
    bundles = _bundles(unattended)
    brought, bundle_notices = (bundles.bundles, bundles.notices) if bundles is not None else ((), ())
    servers, server_notices = _tool_servers(settings, trust.workspace, files, brought)
    agents, agent_notices = _sub_agents(settings, files, brought)
    hooks, hook_notices = _configured_hooks(settings, trust.workspace, files, brought)
    sources = read_context(
        files, os.environ, skilled=bool(settings.value("skills")), packaged=packaged, bundles=brought
    )
    notices = (*bundle_notices, *server_notices, *agent_notices, *hook_notices, *sources.notices)
    settings = replace(settings, notices=(*settings.notices, *notices))
    settings = with_options(settings, args)
    options = SessionOptions(
        output=_output_schema(args, settings, cwd),
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
        source=source,
        servers=servers,
        agents=agents,
        hooks=hooks,
        bundles=bundles.folders if bundles is not None else (),
        web=True,
        guarded=guarded or BATCH in os.environ,
    )
    return options, settings


def _output_schema(args: RunArgs, settings: "Settings", cwd: Path) -> "OutputSchema | None":
    """Return the JSON Schema of the answer, or None. Raise a usage error."""
    if args.output_schema is None:
        return None
    given = args.output_schema or str(settings.value("output_schema") or "")
    if not given:
        return None
    from runner.engine.output_schema import read_output_schema  # few runs have one

    return read_output_schema(given, Path.cwd() if args.output_schema else cwd)


def _bundles(unattended: bool) -> "InstalledBundles | None":
    """Return the bundles of the user, or None if there are none. A run without a user uses no bundle."""
    if unattended:
        return None
    from runner.state.paths import state_dir

    if not os.path.lexists(state_dir(os.environ) / "bundles.json"):
        return None
    from runner.bundles.pinned import installed  # most users have no bundle

    return installed(os.environ)


def _tool_servers(
    settings: "Settings", workspace: str, files: "Inventory | None", bundles: "tuple[Bundle, ...]"
) -> "tuple[tuple[ServerConfig, ...], tuple[str, ...]]":
    """Return the configured tool servers, and notices about those that cannot be used."""
    from runner.config.inventory import EntryKind

    bundled = any(each.servers for each in bundles)
    if not bundled and not settings.named("mcp") and (files is None or not files.hashes(EntryKind.SERVERS)):
        return (), ()
    from runner.mcp.configured import find_servers  # most configurations name no server
    from runner.state.paths import home

    found = find_servers(settings, workspace, os.environ, os.path.realpath(home(os.environ)), files, bundles)
    return found.servers, (*found.notices, *map(str, found.faults))


def _sub_agents(
    settings: "Settings", files: "Inventory | None", bundles: "tuple[Bundle, ...]"
) -> "tuple[tuple[AgentDefinition, ...], tuple[str, ...]]":
    """Return the kinds of sub-agents, and notices about files that define none."""
    if not settings.value("agents"):
        return (), ()
    from runner.config.agentfiles.definitions.find import find_agents

    found = find_agents(files, os.environ, tuple(agent for each in bundles for agent in each.agents))
    return found.definitions, found.notices


def _configured_hooks(
    settings: "Settings", workspace: str, files: "Inventory | None", bundles: "tuple[Bundle, ...]"
) -> "tuple[ConfiguredHooks | None, tuple[str, ...]]":
    """Return the configured hooks, or None if there are none, and notices about those that cannot be used."""
    from runner.config.inventory import EntryKind
    from runner.state.paths import home

    own = os.path.realpath(home(os.environ))
    mine = any(os.path.isdir(os.path.join(own, each)) for each in (".claude", ".codex", ".gemini"))
    theirs = files is not None and (files.hashes(EntryKind.HOOK) or files.hashes(EntryKind.SERVERS))
    if not (settings.entries("hook") or mine or theirs or any(each.hooks for each in bundles)):
        return None, ()
    from runner.hooks.configured import find_hooks  # most configurations name no hook

    found = find_hooks(settings, workspace, own, files, bundles)
    return (found if found.hooks else None), (*found.notices, *map(str, found.faults))


def with_options(settings: "Settings", args: RunArgs) -> "Settings":
    """Return `settings` with the options of the command line as the highest layer. Raise a usage error for a limit."""
    from runner.config.amounts import apply_limits

    flags = flag_settings(
        mode=args.mode,
        model=full_name(args.model) if args.model else None,
        fallback=full_name(args.fallback) if args.fallback else None,
        max_turns=args.budget.turns,
        budget=args.budget.given_options(),
        least=args.least,
        no_instructions=args.no_instructions,
        tools=args.tools,
        no_tools=(*settings.names("tools", "except"), *args.no_tools) if args.no_tools else (),
        limits=args.limits,
        total=apply_limits(settings.profile.limits, args.limits),
    )
    return with_flags(settings, flags)


def chosen_model(
    args: RunArgs,
    settings: "Settings",
    cwd: Path,
    given: "Secret | None" = None,
    *,
    own: str = "",
    choose: "ChooseRow | None" = None,
) -> "OpenModel":
    """Open the model that the options name; else `own`, the model of the session to continue; else that of the
    settings; else that of the only usable provider, or the one that the user chooses with `choose`.

    `given` is the key that was already read from standard input, or None. Raise a usage error, SetupError, SecretError,
    or what `choose_model` raises.
    """
    from runner.agent.model_choice import choose_model, pick_model

    own = own if own.partition(":")[0] in PROVIDERS else ""  # a program may use its own provider
    spec, why = full_name(args.model or "") or args.provider or "", ""
    if not spec:
        _check_key_owner(args.key, own, settings.model or "")
        spec = own or settings.model or ""
    if args.model and args.provider and not args.model.startswith(f"{args.provider}:"):
        if args.model.partition(":")[0] in PROVIDERS:
            raise usage(
                f"`{args.model}` is not a model of `{args.provider}`",
                "--provider and --model name two providers",
                "leave out --provider, since --model names the provider",
            )
        spec = f"{args.provider}:{args.model}"
    if not spec:
        spec, why = choose_model(settings, os.environ, choose)
    if ":" not in spec and spec in settings.models:
        spec = f"{spec}:{settings.models[spec]}"
    name = spec.strip().partition(":")[0]
    key = key_request(settings, name, os.environ, cwd, args.key)
    key = key if given is None else replace(key, stdin_key=given)
    api = settings.value("provider", "openai", "api") if name == "openai" else None
    url = settings.base_urls.get(name)
    pick = partial(pick_model, choose) if choose is not None else None
    opened = open_provider(spec, base_url=url, environ=os.environ, key=key, api=str(api) if api else None, pick=pick)
    if own and spec == own:
        check_server(opened)
    return replace(opened, why=why)


def check_server(opened: "OpenModel") -> None:
    """Raise a usage error if the model of an earlier session would now be asked for at the vendor, which is not known
    to have it.

    THREAT T21: the session may have used a server of the user, whose address is not set any more. Its conversation is
    not sent elsewhere without a word.
    """
    from runner.providers.catalog import facts_of

    if opened.vendors and facts_of(opened.named).window is None:
        why = (
            f"`{opened.provider.name}` is not known to have it, and the server of the session may have been another one"
        )
        fix = f"set the address of that server again, or write {option('--model', opened.named)}"
        raise usage(f"the model `{opened.named}` of the session cannot be used", why, fix)


def _check_key_owner(key: KeyFlags, own: str, configured: str) -> None:
    """Raise a usage error if a key or account was given, but options and settings leave open to which provider it
    belongs.

    THREAT T21: such a key is never sent to a provider that was chosen because of another key, nor to that of an earlier
    session if the settings name another provider.
    """
    if not key.from_stdin and key.account is None:
        return
    providers = {spec.partition(":")[0] for spec in (own, configured) if spec}
    if len(providers) != 1:
        option = "--api-key-stdin" if key.from_stdin else "--account"
        why = (
            f"{option} is for one provider, and none is named"
            if not providers
            else (f"{option} is for one provider; the session used `{own}`, the configuration names `{configured}`")
        )
        raise usage("no model is chosen", why, "add --model, such as --model anthropic:claude-sonnet-5-5")


def opener(args: RunArgs, settings: "Settings", cwd: Path, first: "OpenModel") -> "Callable[[str], OpenModel]":
    """Return a function that opens another model, by `provider:model`, in the session that began with `first`.

    THREAT T21: the options for the key (--api-key-stdin, --account) apply to the provider of the first model only. That
    key is never sent to the server of another provider. Standard input is not read again.
    """

    def another(spec: str) -> "OpenModel":
        spec = full_name(spec.strip())
        same = spec.partition(":")[0] == first.provider.name
        flags = args.key if same and not args.key.from_stdin else KeyFlags()
        stdin_key = first.secrets[0] if same and args.key.from_stdin and first.secrets else None
        return chosen_model(replace(args, model=spec, provider=None, key=flags), settings, cwd, stdin_key)

    return another
