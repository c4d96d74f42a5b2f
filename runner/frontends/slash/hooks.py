"""The command about the hooks of the session: /hooks."""

from functools import partial

from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_LONGEST = 120  # characters of the command of a hook in a row


async def _hooks(words: str, host: CommandHost) -> None:
    """List the hooks of the session, and how often each ran."""
    if words.strip():
        raise Mistake("write /hooks without anything after it")
    if host.conversation.ctx.hooks is None:
        say(host, "this session has no hooks; docs/guide/hooks.md shows how to write one")
        return
    from runner.hooks.listing import event_words
    from runner.hooks.session_hooks import SessionHooks

    hooks = host.conversation.ctx.hooks
    assert isinstance(hooks, SessionHooks)
    for row in hooks.rows():
        ran = f"ran {many(row.runs, 'time')}" if row.runs else "did not run yet"
        failed = f", {row.failures} without an answer" if row.failures else ""
        line = f"{event_words(row.hook)}  {ran}{failed}  {row.hook.place}  {one_line(row.hook.words, _LONGEST)}"
        say(host, visible(line, lines=False))


_command = partial(SlashCommand, group="Processes")

# fmt: off
COMMANDS = (
    _command("hooks", "", "list the hooks, and how often each ran", _hooks),
)
# fmt: on
