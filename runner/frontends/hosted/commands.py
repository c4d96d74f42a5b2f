"""The commands about hosted sessions beside `agent attach`: list, log, stop and detach."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Mapping

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.frontends.hosted.address import HostedError, HostedSession, NotHosted, find_hosted, hosted_sessions
from runner.frontends.hosted.connection import HostedConnection, event_of, own_name
from runner.problems import Exit, usage
from runner.text.phrases import many
from runner.text.sanitize import one_line

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from runner.agent.options import Given

_ORDERLY = 20.0  # seconds until a session that was asked to end has ended
_HURRIED = deadline(5.0)  # seconds after SIGTERM
_KILLED = deadline(5.0)  # seconds after SIGKILL


def session_row(each: HostedSession, now: float) -> str:
    """Return one line about a session."""
    state = {"question": "waiting for an answer"}.get(each.state, each.state)
    clients = many(len(each.clients), "client")
    title = f"  {one_line(each.title, 60)}" if each.title else ""
    folder = one_line(each.folder, 80)
    model = one_line(each.model, 60)
    return f"{each.id[:8]}  {state}  {_age(now - each.started)}  {each.mode}  {model}  {clients}  {folder}{title}"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def stop_session(each: HostedSession, environ: Mapping[str, str]) -> str:
    """End a session with its commands, and return how it ended. Raise HostedError.

    The session is asked first, then its process gets SIGTERM, then SIGKILL, which the helpers of its sandbox do not
    survive.
    """
    try:
        connection = HostedConnection(each.id, environ, who=own_name(), scope="prompt", replay=0)
        process = connection.process
    except HostedError:
        connection, process = None, each.pid
    # SAFETY: pidfd_open(2): a signal never reaches a later process with the same number.
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return "ended"
    try:
        if connection is not None:
            try:
                connection.send({"type": "quit"})
                if _ended(handle, _ORDERLY):
                    return "ended"
            except OSError:
                pass  # the connection is lost, and the signals below remain
        elif not _is_host(process):
            why = f"nothing listens at its socket, and process {process} is another program"
            raise HostedError(Problem(f"the session {each.id[:8]} was not ended", why, "see `agent ps`"))
        for number, patience, said in (
            (signal.SIGTERM, _HURRIED, "ended by SIGTERM"),
            (signal.SIGKILL, _KILLED, "killed"),
        ):
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return "ended"
            if _ended(handle, patience):
                return said
    finally:
        os.close(handle)
        if connection is not None:
            connection.close()
    why = f"process {process} did not end after SIGKILL"
    raise HostedError(Problem(f"the session {each.id[:8]} was not ended", why, "see the state of that process"))


def _ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _is_host(process: int) -> bool:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return b"\0serve\0session\0" in file.read()
    except OSError:
        return False


def detach_clients(each: HostedSession, environ: Mapping[str, str]) -> int:
    """Drop all clients of a session, and return their number. Raise HostedError."""
    connection = HostedConnection(each.id, environ, who=own_name(), scope="prompt", replay=0)
    clients = connection.head.get("clients")
    connection.send({"type": "detach_others"})
    connection.send({"type": "detach"})
    for _ in connection.lines():
        pass  # until the session has closed the connection, after it dropped the others
    connection.close()
    return len(clients) if isinstance(clients, list) else 0


def print_log(id: str, environ: Mapping[str, str], *, follow: bool, json: bool) -> int:
    """Print what has happened in a session; with `follow`, go on until the session ends. Raise Stopped."""
    try:
        each = find_hosted(environ, id)
    except NotHosted:
        if follow or json:
            raise
        return _print_stored(id, environ)
    connection = HostedConnection(each.id, environ, who=f"log, {own_name()}", scope="view", replay="all")
    from runner.frontends.hosted.decoded import Undecodable, event_of_json
    from runner.frontends.launch import transcript

    draw = transcript(recalls=True)
    for line in connection.lines():
        event = event_of(line)
        if event["type"] == "replayed":
            if not follow and not event.get("questions"):
                break
            continue
        if json:
            print(line.decode("ascii"), flush=True)
        else:
            if event["type"] == "question_asked":
                print(f"a question waits: {one_line(str(event.get('question')), 300)}", flush=True)
            with contextlib.suppress(Undecodable):  # about the clients, which are no part of the conversation
                draw(event_of_json(event))
        if not follow and event["type"] in ("question_asked", "pick_wanted", "input_wanted"):
            break
    connection.close()
    return Exit.DONE


def _print_stored(id: str, environ: Mapping[str, str]) -> int:
    from runner.sessions.export import as_text, reading
    from runner.state.paths import state_dir

    with reading(state_dir(environ), id) as session:
        for line in as_text(session):
            print(line)
    return Exit.DONE


def attach(id: str | None, given: "Given", environ: Mapping[str, str]) -> int:
    """Attach to the session `id`, which is resumed if it does not run; without `id`, to the only one of this workspace,
    or to a new one. Raise Stopped or HostedError.
    """
    json = given.switch("json")
    if not json and not (os.isatty(0) and os.isatty(1)):
        why = "standard input or output is no terminal"
        fix = "read it by `agent logs ID`, or use JSON lines: `agent attach --json ID`"
        raise usage("the session cannot be shown here", why, fix)
    found = _session_for(id, given, environ)
    if json:
        from runner.frontends.hosted.bridge import bridge

        return bridge(found, environ)
    from runner.frontends.hosted.attach import attach_at_terminal

    return attach_at_terminal(found, environ)


def _session_for(id: str | None, given: "Given", environ: Mapping[str, str]) -> str:
    """Return the ID of the running session to attach to; start it if necessary."""
    others = any(given.text(name) is not None for name in ("resume", "fork")) or given.switch("continue_")
    if id is not None:
        if others:
            raise usage("two sessions are named", "an ID and an option both name one", "leave one of them out")
        try:
            return find_hosted(environ, id).id
        except NotHosted as missing:
            return _resumed(id, given, environ, missing)
    from runner.gate.gate import folder

    cwd = str(folder(given.text("cwd")))
    if not others and not _begins(given):
        from runner.state.workspace import workspace_at

        workspace = workspace_at(cwd, environ)
        here = [each for each in hosted_sessions(environ) if each.workspace == workspace]
        if len(here) == 1:
            return here[0].id
        if here:
            names = ", ".join(each.id[:8] for each in here[:8])
            fix = "name one: `agent attach ID`; see `agent ps`"
            raise usage("no session is named", f"several run in this workspace: {names}", fix)
    from runner.frontends.hosted.argv import host_words
    from runner.frontends.hosted.start import start_session

    return start_session(host_words(given, cwd), environ, cwd)


def _begins(given: "Given") -> bool:
    """Return True if an option describes a new session."""
    from runner.agent.options import options_of

    ignored = ("json", "cwd")
    return any(
        given.switch(each.key) or given.text(each.key) is not None or given.texts(each.key)
        for each in options_of("attach").values()
        if each.key not in ignored
    )


def _resumed(id: str, given: "Given", environ: Mapping[str, str], missing: NotHosted) -> str:
    """Resume a stored session as a hosted one, in its folder. Raise Stopped."""
    from runner.frontends.hosted.argv import host_words
    from runner.frontends.hosted.start import start_session
    from runner.sessions.store import SessionError, SessionStore, choose
    from runner.sessions.summary import summarize_session
    from runner.state.paths import state_dir

    try:
        store, whole = choose(SessionStore.all(state_dir(environ)), id)
    except SessionError:
        raise missing from None
    workspace = summarize_session(store, whole).workspace
    cwd = given.text("cwd") or workspace
    if not os.path.isdir(cwd):
        why = f"its folder `{cwd}` does not exist any more"
        raise usage(f"the session {whole[:8]} cannot be resumed", why, "restore the folder, or copy it: `agent --fork`")
    words = [*host_words(given, cwd), f"--resume={whole}"]
    try:
        return start_session(words, environ, cwd)
    except Exception:
        for _ in range(20):  # another terminal may be resuming it at this moment
            try:
                return find_hosted(environ, whole).id
            except NotHosted:
                time.sleep(0.05)
        raise


def run_detached(given: "Given", prompt: str, environ: Mapping[str, str]) -> int:
    """Start a hosted session with a prompt, and print its ID. Raise Stopped."""
    from runner.frontends.hosted.argv import host_words
    from runner.frontends.hosted.start import start_session
    from runner.gate.gate import folder

    cwd = str(folder(given.text("cwd")))
    id = start_session(host_words(given, cwd), environ, cwd)
    connection = HostedConnection(id, environ, who=own_name(), scope="prompt", replay=0)
    connection.send({"type": "prompt", "text": prompt})
    connection.send({"type": "detach"})
    for _ in connection.lines():
        pass  # until the session has taken the prompt
    connection.close()
    print(id)
    if sys.stderr.isatty():
        print(f"agent attach {id[:8]} shows it, agent stop {id[:8]} ends it", file=sys.stderr)
    return Exit.DONE
