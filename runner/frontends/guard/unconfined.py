"""Calls of a shell tool that ran without this program, although a hook rewrote them: found when the call is over.

THREAT T194: an agent may ignore the rewritten command, or another hook may replace it.
"""

from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.frontends.guard.call import GuardAnswer, GuardedCall, HookAnswer
from runner.frontends.guard.tokens import PREFIX_REFUSED, PREFIX_TOOL, GuardToken, guard_folder, token_of, tokens

_FILE = "unconfined.jsonl"
_LONGEST = 2000  # characters of a script in the list
_MOST = 1 << 20  # bytes of the list; the oldest half is dropped then


@dataclass(frozen=True, slots=True)
class UnconfinedCall:
    """A shell call that ran without the sandbox.

    Attributes:
        agent: The name of the agent.
        session: The id of its session.
        call: The id of the call.
        script: The beginning of what ran.
        time: The time at which it was found, as in records.
    """

    agent: str
    session: str
    call: str
    script: str
    time: str


def after(call: GuardedCall, environ: Mapping[str, str]) -> GuardAnswer:
    """Return DENY with a warning if the shell call that is over ran without the sandbox, else NONE."""
    if not call.script:
        return GuardAnswer(HookAnswer.NONE)
    if token_of(call.script) is not None:  # `agent exec` ran: in the sandbox, or not at all
        return GuardAnswer(HookAnswer.NONE)
    made = [any(_belongs(token, call) for _, token in tokens(state, environ)) for state in ("open", "used")]
    if made == [False, True]:  # the agent reports the original command of a call whose rewritten command ran
        return GuardAnswer(HookAnswer.NONE)
    if _handled_by_prefix(call, environ):
        return GuardAnswer(HookAnswer.NONE)
    note(call, environ)
    why = "the agent or another hook did not use the command that ringfence returned"
    shown = call.script if len(call.script) <= _LONGEST else f"{call.script[:_LONGEST]}..."
    return GuardAnswer(
        HookAnswer.DENY,
        f"ringfence: this command ran WITHOUT the sandbox, because {why}. Stop and tell the user: {shown}",
    )


def _handled_by_prefix(call: GuardedCall, environ: Mapping[str, str]) -> bool:
    """Return True if the shell prefix ran this script in the sandbox, or refused it. That counts for one call."""
    import os

    since = max((token.made for _, token in tokens("open", environ) if _belongs(token, call)), default=0.0)
    for path, token in tokens("used", environ):
        same = (token.agent, token.session, token.script) == (call.agent, call.session, call.script)
        if same and token.tool in (PREFIX_TOOL, PREFIX_REFUSED) and token.made >= since:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue  # another call of the same script took it
            return True
    return False


def note(call: GuardedCall, environ: Mapping[str, str]) -> None:
    """Add the call to the list of calls that ran without the sandbox."""
    import json
    import os

    from runner.audit.chain import now
    from runner.secrets.redactor import Redactor

    script = Redactor(live=True, shapes=True).text(call.script[:_LONGEST])
    row = {"agent": call.agent, "session": call.session, "call": call.call, "script": script, "time": now()}
    path = f"{guard_folder(environ)}/{_FILE}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(handle, "a") as file:
        file.write(json.dumps(row) + "\n")


def noted(environ: Mapping[str, str]) -> tuple[UnconfinedCall, ...]:
    """Return the newest calls of the list of calls that ran without the sandbox, oldest first."""
    import json

    from sandbox.inside.regular_file import read_whole

    try:
        data = read_whole(f"{guard_folder(environ)}/{_FILE}", 64 * _MOST, follow=False)
    except FileNotFoundError:
        return ()
    found = []
    for line in data[-_MOST:].decode("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
            found.append(UnconfinedCall(**{name: str(row[name]) for name in UnconfinedCall.__slots__}))
        except (ValueError, KeyError, TypeError):
            continue  # the first line may be cut, and a line may be half written
    return tuple(found)


def _belongs(token: GuardToken, call: GuardedCall) -> bool:
    same = token.agent == call.agent and token.session == call.session
    return same and (token.call == call.call if call.call else token.script == call.script)
