"""The actions of `agent hooks list`, `test` and `import` after their arguments were parsed."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from policy.model.frozen import dataclass
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.audit.log import AuditLog, log_exists, log_place
from runner.config import Settings, load
from runner.config.edit import write
from runner.config.hookfiles.hook import EVENTS, HookFault, HookFile, HookForm, HookScope
from runner.config.hookfiles.read_hooks import HOOK_CLIENTS, HOOK_FILES, personal_files, read_hooks
from runner.config.inventory import EntryKind
from runner.config.load import WHOSE, settings_bytes
from runner.config.read_layer import as_text, read_all
from runner.config.settings import ConfigLayer
from runner.config.trust.cached import remembered
from runner.config.trust.session_check import look_at
from runner.engine.hook_access import EventAnswer, HookDecision, HookReply
from runner.events import Event, Notice
from runner.gate.gate import folder
from runner.hooks.configured import ConfiguredHooks, find_hooks, hooks_here
from runner.hooks.listing import event_words, hook_counts, hook_entries, hook_json, rights_words
from runner.hooks.names import own_name
from runner.hooks.session_hooks import SessionHooks
from runner.problems import Exit, usage
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from runner.secrets.redactor import masked
from runner.state import paths as places
from runner.state.workspace import workspace_at
from runner.stderr import say, say_notice
from runner.text.json_line import json_line
from runner.text.phrases import many, nearest
from runner.text.sanitize import one_line, visible
from sandbox.inside.regular_file import read_whole

_ABOUT_CALLS = ("PreToolUse", "PostToolUse", "PermissionRequest")
_MOST = 1 << 20  # bytes of a file to import
_WIDE = 120  # characters of a command in a list


@dataclass(frozen=True, slots=True)
class HookTrial:
    """The arguments of `agent hooks test`, as typed."""

    event: str
    tool: str
    input: str
    json: bool
    config: str | None
    cwd: str | None


def _settings(where: Path, config: str | None) -> Settings:
    named = Path(config) if config else None
    return load(where, os.environ, config=named, unattended=True, trusted=remembered(str(where), os.environ))


def _line(text: str) -> str:
    return visible(masked(text), lines=False)


def run_list(*, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the hooks and return the exit code."""
    where = folder(cwd)
    settings = _settings(where, config)
    found = hooks_here(str(where), settings, os.environ)
    workspace, home = workspace_at(str(where), os.environ), os.path.realpath(places.home(os.environ))
    place = log_place(settings, os.environ)
    log = AuditLog.open_to_read(place) if log_exists(place) else None
    try:
        counts = hook_counts(log)
    finally:
        if log is not None:
            log.close()
    untrusted = _untrusted(where, found)
    for state, hooks in (("on", found.hooks), ("untrusted", untrusted.hooks)):
        for hook in hooks:
            if as_json:
                print(json_line(hook_json(hook, state, counts, workspace, home)))
                continue
            ran, failed = counts.runs[hook.event, hook.place], counts.failures[hook.event, hook.place]
            said = f"ran {many(ran, 'time')}" if ran else "never ran"
            said += f", {failed} without an answer" if failed else ""
            shown = state if state == "on" else "not trusted, see `agent trust`"
            print(_line(f"{event_words(hook)}  {shown}  {hook.place}  {said}"))
            print(_line(f"  {one_line(hook.words, _WIDE)}"))
            print(_line(f"  {rights_words(hook, workspace, home)}"))
    for fault in (*found.faults, *untrusted.faults):
        print(json_line(_fault_json(fault)) if as_json else _line(f"{fault.event or 'a hook'}  fault  {fault}"))
    if not as_json:
        for notice in found.notices:
            say_notice(notice)
        if not (found.any or untrusted.any):
            print("there are no hooks; docs/guide/hooks.md shows how to write one")
    return Exit.DONE


def _untrusted(where: Path, found: ConfiguredHooks) -> ConfiguredHooks:
    """Return the hooks of the repository that would be there if the user trusted it."""
    workspace = workspace_at(str(where), os.environ)
    inventory = look_at(workspace, str(where), os.environ)
    trusted = inventory.hashes(EntryKind.CONFIGURATION)
    if not inventory.entries:
        return ConfiguredHooks()
    settings = load(where, os.environ, unattended=True, trusted=trusted)
    every = find_hooks(settings, workspace, os.path.realpath(places.home(os.environ)), inventory)
    known = {(hook.event, hook.place) for hook in found.hooks}
    return ConfiguredHooks(
        tuple(
            each for each in every.hooks if each.scope is HookScope.REPOSITORY and (each.event, each.place) not in known
        ),
        tuple(each for each in every.faults if each not in found.faults),
    )


def _fault_json(fault: HookFault) -> dict[str, object]:
    return {
        "event": fault.event,
        "matcher": None,
        "state": "fault",
        "kind": None,
        "form": None,
        "scope": None,
        "place": fault.place,
        "runs_what": None,
        "rights": None,
        "on_failure": None,
        "runs": 0,
        "failures": 0,
        "fault": fault.why,
    }


def run_trial(args: HookTrial) -> int:
    """Run the hooks of one event with a sample input, print the answers, and return the exit code."""
    if args.event not in EVENTS:
        fix = nearest(args.event, EVENTS) or f"the events are {', '.join(EVENTS)}"
        raise usage(f"there is no event `{visible(args.event, lines=False)}`", "hooks cannot be asked about it", fix)
    try:
        given = json.loads(args.input)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise usage("`--input` cannot be used", "it is not a JSON object", 'write it like \'{"command": "ls"}\'')
    where = folder(args.cwd)
    settings = _settings(where, args.config)
    found = hooks_here(str(where), settings, os.environ)
    found = replace(found, hooks=tuple(each for each in found.hooks if each.event == args.event))
    if not found.hooks:
        raise usage(
            f"no hook answers {args.event} here",
            "neither your configuration nor a trusted file of the repository has one",
            "`agent hooks list` shows the hooks",
        )
    reply, notices = asyncio.run(_tried(args, given, where, settings, found))
    for notice in notices:
        say_notice(notice)
    if args.json:
        print(json_line({"event": args.event, "decision": reply.decision.name.lower(),
                         "answers": [_answer_json(each) for each in reply.answers]}))  # fmt: skip
    else:
        for each in reply.answers:
            state = "failed, which counts as" if each.failed else "answers"
            print(_line(f"{each.place}  {state} {each.decision.name.lower()}"))
            rows = (("reason", each.reason), ("adds", each.context), ("input", _input_text(each)))
            for label, said in rows:
                if said:
                    print(_line(f"  {label}: {one_line(said, 2000)}"))
        if not reply.answers:
            print(f"no hook of {args.event} matches this input")
    if reply.decision is HookDecision.DENY:
        return Exit.DENIED
    return Exit.FAILED if any(each.failed for each in reply.answers) else Exit.DONE


def _input_text(answer: EventAnswer) -> str:
    return json.dumps(answer.input, ensure_ascii=False) if answer.input is not None else ""


def _answer_json(answer: EventAnswer) -> dict[str, object]:
    return {
        "place": answer.place,
        "decision": answer.decision.name.lower(),
        "reason": answer.reason,
        "input": answer.input,
        "context": answer.context,
        "failed": answer.failed,
        "record": answer.record,
    }


async def _tried(
    args: HookTrial, given: Mapping[str, object], where: Path, settings: Settings, found: ConfiguredHooks
) -> tuple[HookReply, list[str]]:
    """Open a session without a model, and ask the hooks."""
    notices: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    options = SessionOptions(where, True, argv=("agent", *sys.argv[1:]), hooks=found)
    model = OpenModel(ScriptedProvider(()), "none")
    async with open_session(options, settings, os.environ, model=model, approver=Unattended(emit), emit=emit) as ctx:
        assert isinstance(ctx.hooks, SessionHooks)  # the options have hooks
        if args.event in _ABOUT_CALLS:
            tool = own_name(args.tool)
            result = {"text": "", "is_error": False} if args.event == "PostToolUse" else None
            reply = await ctx.hooks.ask_about_call(args.event, tool, given, "test", result=result)
        else:
            reply = await ctx.hooks.ask(args.event, "", given)
    return reply, notices


def run_import(source: str | None, *, dry_run: bool, as_json: bool, cwd: str | None) -> int:
    """Print the entries of an import, write them unless `dry_run`, and return the exit code."""
    where = folder(cwd)
    home = os.path.realpath(places.home(os.environ))
    if source is None or source in HOOK_CLIENTS:
        files = personal_files(home, HOOK_CLIENTS if source is None else (source,))
    else:
        files = (_named_file(os.path.join(where, source), source),)
    hooks = [each for file in files for each in file.hooks]
    path = places.config_dir(os.environ) / "config.toml"
    data = settings_bytes(path, WHOSE[ConfigLayer.USER])
    before = "" if data is None else as_text(data, path)
    entries = list(hook_entries(hooks))
    new = [entry for entry in entries if entry.partition("\n")[2] not in before]
    for hook, entry in zip(hooks, entries, strict=True):
        if as_json:
            print(json_line({"event": hook.event, "source": hook.place, "imported": entry in new, "entry": entry}))
        else:
            print(masked(entry))
    for file in files:
        for notice in (*map(str, file.faults), *file.left):
            say_notice(notice)
    if not hooks and not as_json:
        print("no other program has a hook" if source is None else f"{visible(source, lines=False)} has no hook")
    if dry_run or not new:
        return Exit.DONE
    text = "\n".join((before.rstrip("\n"), *new)).lstrip("\n")
    _, faults = read_all(text, str(path), most=1)
    if faults:
        raise faults[0]
    if os.isatty(0) and os.isatty(2) and not _agreed(f"write {many(len(new), 'hook')} to {path}? [y/N] "):
        say("agent: nothing was changed")
        return Exit.DONE
    write(path, text, own=True)
    say(f"agent: {many(len(new), 'hook')} written to {visible(str(path), lines=False)}")
    return Exit.DONE


def _named_file(path: str, shown: str) -> HookFile:
    try:
        data = read_whole(path, _MOST, follow=True)
    except (OSError, ValueError) as error:
        raise usage(f"`{visible(shown, lines=False)}` cannot be read", str(error), "check the path") from None
    tail = "/".join(path.split("/")[-2:])
    form = HOOK_FILES.get(tail, HookForm.CLAUDE)
    return read_hooks(data, shown, form, HookScope.USER)


def _agreed(question: str) -> bool:
    from runner.config.trust.prompt import typed_line

    try:
        return typed_line(visible(question, lines=False)).strip().lower() in ("y", "yes")
    except EOFError:
        return False
