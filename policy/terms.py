"""The exact rights that an assessed action needs: turns effects into Terms, or into the floor that forbids them."""

from collections.abc import Iterable
from functools import lru_cache
from math import isfinite

from policy.describe.phrases import near, plain
from policy.model.action import (
    ConvertDocument,
    RunArgv,
    RunHook,
    RunScript,
    SignGit,
    StartLanguageServer,
    StartServer,
    ToolAction,
)
from policy.model.assessment import Assessment, Effect, EffectKind, Scope
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass, replace
from policy.model.glob import glob
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, inside
from policy.model.tier import Tier
from policy.model.verdict import READ_ONLY_TMP, UNNAMED, Limits, Rights, Terms

LONGEST_TIMEOUT = 600.0  # seconds: the most that an action may ask for itself
# The most that one conversion of a document may use. Its output is JSON with images, each of at most 5 MiB as base64.
CONVERSION = Limits(wall=60.0, cpu=40, memory=1 << 30, file=16 << 20, open_files=128, output=48 << 20, disk=32 << 20)
HOOK_OUTPUT = 1 << 20  # bytes that a hook may print; a longer output is a failure of the hook
_USUAL_WALL = Limits().wall

# The sandbox provides its own /proc and /dev; those of the machine are never passed in.
_OWN = ("/proc", "/dev")
_YOURSELF = "run it in your own shell if it is intended; the agent cannot get access to that path"
_KERNEL = ("/proc", "/dev", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "stdout", "stderr")
_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_LOOKING = (EffectKind.READS, EffectKind.CONNECTS)


Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """The reason that no terms can grant an action, in any mode and with any approval. `why` and `fix` are texts for
    the user.
    """

    tier: Tier
    why: str
    fix: str


def terms_for(
    assessment: Assessment, facts: Facts, profile: Profile, environment: Environment, limits: Limits
) -> Terms | Floor:
    """Return the smallest rights that cover the effects, or the Floor that forbids the action. A question names these
    rights, and an approval grants them.

    INVARIANT: an assessment with tier read alone gets no writable path, no host and no path outside the workspace; one
    below read-outside gets no path outside and no host, whatever its effects state. Only rights that a person typed are
    added, and the own folder of a language server.
    """
    worst = assessment.tiers[0]
    secrets = Secrets(profile, facts.home, facts.private)
    if floor := workspace_floor(facts.workspace, secrets):
        return floor
    if isinstance(assessment.action, SignGit):  # no program runs with these rights; the runner signs
        return Terms(rights=Rights.READ_ONLY, workspace=facts.workspace, home=facts.home, limits=limits)
    if isinstance(assessment.action, StartServer):
        return _server_terms(assessment.action, assessment, facts, profile, environment, limits)
    if isinstance(assessment.action, RunHook):
        return _hook_terms(assessment.action, assessment, facts, profile, environment, limits)
    if isinstance(assessment.action, StartLanguageServer):
        return _language_server_terms(assessment.action, assessment, facts, profile, environment, limits)
    read: set[str] = set()
    write: set[str] = set()
    effects = assessment.effects if worst >= Tier.READ_OUTSIDE else assessment.typed
    for effect in effects:
        found = _outside(effect, facts, secrets)
        if isinstance(found, Floor):
            return found
        (write if effect.kind in _CHANGES else read).update(found)
    rights = _rights(assessment, worst)
    hosts = _hosts(assessment, effects)
    works = rights is Rights.WORKSPACE_WRITE
    locked, hidden, shown = with_path_denials(facts, profile)
    if works:
        over = (*facts.caching, *facts.fetching) if hosts else facts.caching
    else:
        over = _looking_environment(assessment, facts, hosts)
    env = _with_registries(_merged(environment, over), assessment, facts, hosts)
    names: tuple[str, ...] = ()
    if profile.credentials and not isinstance(assessment.action, ToolAction):  # no page is fetched with a credential
        env, names, readable = _with_credentials(env, hosts, profile)
        if names and _reads_only(assessment, facts):
            from policy.model.credential import FOR_READING

            names = tuple(f"{name}{FOR_READING}" for name in names)
        read.update(readable)
    return Terms(
        rights=rights,
        workspace=facts.workspace,
        home=facts.home,
        system=_readable(facts.system, secrets),
        read=tuple(sorted(path for path in read if not any(inside(path, root) for root in write))),
        write=tuple(sorted(write)),
        hidden=hidden,
        shown=shown,
        locked=locked,
        hosts=hosts,
        env=env,
        cache=facts.cache if works else "",
        unix=profile.unix_sockets and works,
        limits=_limits(assessment, limits),
        credentials=names,
        repository=facts.repository if works else (),
    )


def _server_terms(
    action: StartServer,
    assessment: Assessment,
    facts: Facts,
    profile: Profile,
    environment: Environment,
    limits: Limits,
) -> Terms | Floor:
    """Return the rights of a tool server: its own folder, and what its configuration names. It sees the workspace only
    if a right names it.

    INVARIANT: only typed rights count. What the command line of the server mentions adds nothing.
    """
    secrets = Secrets(profile, facts.home, facts.private)
    read, write = set[str](), set[str]()
    works = False
    for effect in assessment.typed:
        if effect.kind not in (*_CHANGES, EffectKind.READS):
            continue
        found = _outside(effect, facts, secrets)
        if isinstance(found, Floor):
            return found
        changes = effect.kind in _CHANGES
        if effect.scope is Scope.WORKSPACE and changes and effect.target != facts.workspace:
            why = f"a server changes the whole workspace or nothing of it, not {near(effect.target, facts)} alone"
            fix = 'name the whole workspace (`write = ["."]`), or a folder outside of it'
            return Floor(Tier.DENIED, why, fix)
        works = works or (changes and effect.scope is Scope.WORKSPACE)
        places = found if effect.scope is Scope.OUTSIDE else (effect.target,) if effect.scope is Scope.WORKSPACE else ()
        (write if changes else read).update(places)
    locked, hidden, shown = with_path_denials(facts, profile)
    hosts = tuple(sorted({each.target for each in assessment.typed if each.kind is EffectKind.CONNECTS}))
    env, names, readable = environment, tuple[str, ...](), tuple[str, ...]()
    if profile.credentials:
        env, names, readable = _with_credentials(environment, hosts, profile)
    write.discard(facts.workspace)
    read.update(readable)
    if action.url:  # no sandbox: the runner itself connects, to these hosts alone
        return Terms(Rights.READ_ONLY, facts.workspace, facts.home, hosts=hosts, limits=limits, credentials=names)
    workspace = facts.workspace if works else action.folder
    if works:
        write.add(action.folder)
    return Terms(
        rights=Rights.WORKSPACE_WRITE,
        workspace=workspace,
        home=facts.home,
        system=_readable(facts.system, secrets),
        read=tuple(sorted(path for path in read if not any(inside(path, root) for root in (workspace, *write)))),
        write=tuple(sorted(write)),
        hidden=hidden,
        shown=shown,
        locked=locked,
        hosts=hosts,
        env=env,
        unix=profile.unix_sockets,
        limits=limits,
        credentials=names,
        repository=facts.repository if works else (),
    )


def _hook_terms(
    action: RunHook,
    assessment: Assessment,
    facts: Facts,
    profile: Profile,
    environment: Environment,
    limits: Limits,
) -> Terms | Floor:
    """Return the rights of a hook: it reads the workspace and the system, and gets what its configuration names.

    INVARIANT: only typed rights count. A hook that is not `wider` changes nothing and has no network.
    """
    secrets = Secrets(profile, facts.home, facts.private)
    read, write = set[str](), set[str]()
    works = False
    for effect in assessment.typed:
        changes = effect.kind in _CHANGES
        if effect.kind is not EffectKind.READS and not (changes and action.wider):
            continue
        found = _outside(effect, facts, secrets)
        if isinstance(found, Floor):
            return found
        if changes and effect.scope is Scope.WORKSPACE:
            if effect.target != facts.workspace:
                why = f"a hook changes the whole workspace or nothing of it, not {near(effect.target, facts)} alone"
                fix = 'name the whole workspace (`write = ["."]`), or a folder outside of it'
                return Floor(Tier.DENIED, why, fix)
            works = True
            continue
        (write if changes else read).update(found)
    hosts: tuple[str, ...] = ()
    if action.wider or action.url:
        hosts = tuple(sorted({each.target for each in assessment.typed if each.kind is EffectKind.CONNECTS}))
    limits = _limits(assessment, replace(limits, output=min(limits.output, HOOK_OUTPUT)))
    if not action.argv:  # no sandbox: the runner itself sends the request
        return Terms(Rights.READ_ONLY, facts.workspace, facts.home, hosts=hosts, limits=limits)
    if profile.credentials:
        environment = _with_credentials(environment, (), profile)[0]  # a hook uses no credential
    locked, hidden, shown = with_path_denials(facts, profile)
    over = facts.caching if works else (*(() if hosts else facts.reading), ("TMPDIR", READ_ONLY_TMP))
    return Terms(
        rights=Rights.WORKSPACE_WRITE if works else Rights.READ_ONLY,
        workspace=facts.workspace,
        home=facts.home,
        system=_readable(facts.system, secrets),
        read=tuple(sorted(path for path in read if not any(inside(path, root) for root in write))),
        write=tuple(sorted(write)),
        hidden=hidden,
        shown=shown,
        locked=locked,
        hosts=hosts,
        env=_merged(environment, over),
        cache=facts.cache if works else "",
        unix=profile.unix_sockets and works,
        limits=limits,
    )


def _language_server_terms(
    action: StartLanguageServer,
    assessment: Assessment,
    facts: Facts,
    profile: Profile,
    environment: Environment,
    limits: Limits,
) -> Terms | Floor:
    """Return the rights of a language server: it reads the workspace, the system and its own installation, and changes
    its own folder alone.

    INVARIANT: nothing of the workspace is writable, no host is open, and no credential is used.
    """
    secrets = Secrets(profile, facts.home, facts.private)
    read: set[str] = set()
    for effect in assessment.typed:
        if effect.kind is EffectKind.READS:
            found = _outside(effect, facts, secrets)
            if isinstance(found, Floor):
                return found
            read.update(found)
    if profile.credentials:
        environment = _with_credentials(environment, (), profile)[0]
    locked, hidden, shown = with_path_denials(facts, profile)
    return Terms(
        rights=Rights.READ_ONLY,
        workspace=facts.workspace,
        home=facts.home,
        system=_readable(facts.system, secrets),
        read=tuple(sorted(read)),
        write=(action.folder,) if action.folder else (),
        hidden=hidden,
        shown=shown,
        locked=locked,
        env=_merged(environment, (*facts.reading, ("TMPDIR", READ_ONLY_TMP))),
        limits=limits,
    )


def conversion_terms(terms: Terms, action: ConvertDocument) -> Terms:
    """Return the rights of the conversion of a document that an action with `terms` read: the files of the converter
    and of the system libraries, no workspace, no network, and small limits.

    Raises ValueError if a path of the converter would show the user's home, the workspace or the whole system.
    """
    for path in action.program:
        if not path.startswith("/") or any(inside(folder, path) for folder in (terms.home, terms.workspace)):
            raise ValueError(f"`{path}` is no path of a program alone")
    limits = Limits(
        wall=min(terms.limits.wall, CONVERSION.wall),
        cpu=min(terms.limits.cpu, CONVERSION.cpu),
        pids=terms.limits.pids,  # T3 counts all processes of the user
        memory=min(terms.limits.memory, CONVERSION.memory),
        file=min(terms.limits.file, CONVERSION.file),
        open_files=min(terms.limits.open_files, CONVERSION.open_files),
        output=CONVERSION.output,
        disk=min(terms.limits.disk, CONVERSION.disk) if terms.limits.disk else CONVERSION.disk,
    )
    return Terms(
        Rights.ISOLATED,
        terms.workspace,
        terms.home,
        system=tuple(path for path in action.system if any(inside(path, root) for root in terms.system)),
        read=action.program,
        env=(("HOME", READ_ONLY_TMP), ("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin"), ("TMPDIR", READ_ONLY_TMP)),
        limits=limits,
    )


@lru_cache(maxsize=8)
def _readable(system: tuple[str, ...], secrets: Secrets) -> tuple[str, ...]:
    """Return the readable roots without secret ones. The caller that gathered the roots has already left those out;
    this is the second check.
    """
    return tuple(root for root in system if not secrets.exposed_by(root) and not secrets.holds_folder(root))


def _with_registries(
    environment: Environment, assessment: Assessment, facts: Facts, hosts: tuple[str, ...]
) -> Environment:
    """Return `environment` with the package registries of the user's own settings added if the terms open those
    registries.

    The files with these settings do not exist inside the sandbox.
    """
    connections = (effect for effect in assessment.effects if effect.kind is EffectKind.CONNECTS)
    if not hosts or not any(effect.scope is Scope.OUTSIDE for effect in connections):
        return environment
    return _merged(facts.telling(hosts), environment)  # variables that are already set take precedence


def _reads_only(assessment: Assessment, facts: Facts) -> bool:
    """Return True if every command of the action that connects, or is dangerous, belongs to a family of reading
    commands. Other commands of the action then get the credential for reading as well, because one action has one set
    of rights.
    """
    from policy.model.command_pattern import belongs  # only if there are credentials

    remote = (Tier.NETWORK, Tier.DANGEROUS)
    connecting = [each for each in assessment.steps if any(one.kind is EffectKind.CONNECTS for one in each.effects)
                  or any(reason.tier in remote for reason in each.reasons)]  # fmt: skip
    return bool(connecting) and all(each.family and belongs(each, each.family, facts) for each in connecting)


def _with_credentials(
    environment: Environment, hosts: tuple[str, ...], profile: Profile
) -> tuple[Environment, tuple[str, ...], tuple[str, ...]]:
    """Return the environment of a command with the credentials it may use, the names of these credentials, and the
    paths that it must be able to read for them.

    INVARIANT: a variable that holds the secret of a credential is passed to no command, whatever else names it.
    """
    from policy.model.credential import add_credential_settings, select_credentials  # only if there are credentials

    secret = {credential.source[1] for credential in profile.credentials if credential.source[0] == "env"}
    remaining = {name: value for name, value in environment if name not in secret}
    credentials = select_credentials(profile.credentials, hosts) if hosts else ()
    variables = add_credential_settings(credentials, remaining, profile.bundle)
    readable = (profile.bundle,) if profile.bundle and any(credential.intercept for credential in credentials) else ()
    return tuple(sorted(variables.items())), tuple(credential.name for credential in credentials), readable


def _looking_environment(assessment: Assessment, facts: Facts, hosts: tuple[str, ...]) -> Environment:
    # A command that fetches needs Git's settings for fetching, which `reading` overrides.
    over = () if hosts and Tier.NETWORK in assessment.tiers else facts.reading
    action = assessment.action
    words = (action.script,) if isinstance(action, RunScript) else getattr(action, "argv", ())
    # A script that names TMPDIR means the session's /tmp, to which earlier commands may have written.
    return over if any("TMPDIR" in word for word in words) else (*over, ("TMPDIR", READ_ONLY_TMP))


@lru_cache(maxsize=8)
def _merged(environment: Environment, over: Environment) -> Environment:
    return tuple(sorted((dict(environment) | dict(over)).items()))


def _rights(assessment: Assessment, worst: Tier) -> Rights:
    if worst is Tier.READ:
        return Rights.READ_ONLY if all(map(_needs_no_workspace, assessment.typed)) else Rights.WORKSPACE_WRITE
    if isinstance(assessment.action, ToolAction):
        return Rights.READ_ONLY  # no sandbox runs it
    # Without effects, nothing shows that fewer rights are sufficient.
    looks = bool(assessment.effects) and worst < Tier.MCP_EXTERNAL and all(map(_needs_no_workspace, assessment.effects))
    return Rights.READ_ONLY if looks else Rights.WORKSPACE_WRITE


def _needs_no_workspace(effect: Effect) -> bool:
    """Return True if `effect` needs no writable workspace: it reads, connects, or changes a path elsewhere that the
    Terms name.
    """
    return effect.kind in _LOOKING or (effect.kind in _CHANGES and effect.scope in (Scope.OUTSIDE, Scope.SYSTEM))


def _outside(effect: Effect, facts: Facts, secrets: Secrets) -> tuple[str, ...] | Floor:
    """Return the paths that `effect` needs beyond the workspace and the readable system, among them locked paths of the
    workspace; or the Floor that forbids them.
    """
    changes = effect.kind in _CHANGES
    if not changes and (effect.kind is not EffectKind.READS or effect.scope in (Scope.WORKSPACE, Scope.SYSTEM)):
        return ()
    if effect.scope in (Scope.NONE, Scope.SCRATCH) or not effect.target.startswith("/"):
        return ()
    if effect.scope is Scope.WORKSPACE:
        # Reached only for tier `read-outside` or worse, or for typed rights: a locked path is opened by its exact name.
        # A locked path that does not exist yet needs no opening, because its folder is writable.
        opened = _existing(effect, facts) if effect.exact else ()
        return tuple(path for path in opened if secrets.locked_in(path, facts.workspace))
    if any(inside(effect.target, root) for root in (_KERNEL if changes else _OWN)):
        # Every sandbox provides these devices and the scratch folder itself.
        name = effect.target.removeprefix("/dev/")
        if not changes or name in _DEVICES or inside(name, "shm"):
            return ()
        why = f"{effect.kind.value} {near(effect.target, facts)}, which belongs to the kernel of this machine"
        return Floor(Tier.DENIED, f"{why}; no mode allows that", _YOURSELF)
    path = effect.target
    if secrets.holds(path):
        store = "a private key, a credential store or this program's own state"
        return Floor(Tier.SECRET, f"{near(path, facts)} is {store}; no mode allows that", _YOURSELF)
    if not changes and facts.look(path).kind is Kind.MISSING:
        return ()  # nothing to show: the command sees what is true, that it does not exist
    for needed in _existing(effect, facts) if changes else (path,):
        if secrets.exposed_by(needed):
            folder = "your home folder" if needed == facts.home else near(needed, facts)
            return _exposing_floor(folder, near(path, facts), needed != path, changes)
    return _existing(effect, facts) if changes else (path,)


def with_path_denials(facts: Facts, profile: Profile) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the locked, hidden and shown patterns: the lists of the profile, and the paths that the users' rules deny
    to any code.
    """
    always = (*profile.locked, *profile.personal)
    if not profile.permissions:
        return always, profile.secret_names, profile.public_names
    from policy.permission.paths import path_denials  # only if there are rules

    locked, hidden = path_denials(profile.permissions, facts)
    shown = tuple(name for name in profile.public_names if not any(glob(name, each) for each in hidden))
    return (*always, *locked), (*profile.secret_names, *hidden), shown


def _existing(effect: Effect, facts: Facts) -> tuple[str, ...]:
    """Return the paths that the kernel checks for a change: creating or removing a name writes to the folder that
    contains it.
    """
    path = effect.target
    if effect.kind is EffectKind.DELETES and effect.exact:
        path = _parent(path)
    while path != "/" and facts.look(path).kind is Kind.MISSING:
        path = _parent(path)
    return (path,)


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"


def _hosts(assessment: Assessment, effects: Iterable[Effect]) -> tuple[str, ...]:
    """Return the hosts that are known or that a rule names, without those that are contacted by packets no proxy
    forwards.

    If no host is known before the action runs, the result is UNNAMED: no host is open, and the proxy reports which host
    was requested.
    """
    found = [effect for effect in effects if effect.kind is EffectKind.CONNECTS and effect.exact]
    named = (assessment.opened.get(effect) or (effect.target,) for effect in found)
    known = tuple(sorted({host for hosts in named for host in hosts if host}))
    return known or ((UNNAMED,) if found else ())


def _limits(assessment: Assessment, limits: Limits) -> Limits:
    """Return `limits` with the action's own timeout, which is at most ten minutes and never above a timeout that a user
    lowered.
    """
    action = assessment.action
    asked = action.timeout if isinstance(action, RunScript | RunArgv) else None
    if asked is None or not isfinite(asked) or asked <= 0:
        return limits
    most = min(LONGEST_TIMEOUT, limits.wall) if limits.wall < _USUAL_WALL else LONGEST_TIMEOUT
    wall = min(float(asked), most)
    return limits if wall == limits.wall else replace(limits, wall=wall)


@lru_cache(maxsize=8)
def workspace_floor(workspace: str, secrets: Secrets) -> Floor | None:
    """Return the Floor that forbids every action in `workspace` (an absolute real path), or None if the folder can be
    used.
    """
    kernel = any(inside(workspace, root) for root in _KERNEL)
    if not kernel and not secrets.exposed_by(workspace) and not secrets.holds_folder(workspace):
        return None
    why = "belongs to the kernel" if kernel else "is or contains a home folder, keys, or this program's own state"
    return Floor(
        Tier.DENIED if kernel else Tier.SECRET,
        f"the working folder `{plain(workspace)}` {why}, and the whole folder would be visible inside the sandbox",
        "go to a project folder first (`cd FOLDER`), or name one with `--cwd FOLDER`",
    )


def _exposing_floor(folder: str, path: str, inside_it: bool, changes: bool) -> Floor:
    secrets = "keys, credentials or this program's own state; no mode allows that"
    if changes and inside_it:
        why = f"creating or deleting {path} needs write access to all of {folder}, which contains {secrets}"
        fix = f"change {path} yourself in your own shell, or let the agent use a path inside the project"
    else:
        why = f"{'changing' if changes else 'reading'} all of {folder} would include {secrets}"
        fix = f"name the one file or folder inside {folder} that is needed"
    return Floor(Tier.SECRET, why, fix)
