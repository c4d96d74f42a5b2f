"""Plain `agent` at a terminal: one line, one turn, and the talk goes on. Ctrl-C stops a turn; Ctrl-D leaves."""

import asyncio
import signal
import time
from dataclasses import replace

from policy.tier import Mode
from runner.approval import ReadLine
from runner.events import Notice, Prompted
from runner.grant_words import lines
from runner.loop import Ending, run
from runner.messages import Message
from runner.problems import Exit
from runner.sessions.begin import Beginning
from runner.sessions.recall import recall
from runner.state_file import StateError
from runner.world import World

HELP = """\
Type what you want done; the model works on it here, and every action passes the gate.
  /mode         which mode this is
  /mode NAME    change it: {modes}
  /rewind [N]   bring files back as before the last action, or the last N (/undo)
  /grants       what was remembered; /grants revoke ID takes it back
  /help         this text
  /quit         leave (so does Ctrl-D)
  Ctrl-C        stops the turn and whatever it runs; a second one leaves"""


async def converse(world: World, read_line: ReadLine, beginning: Beginning | None = None) -> int:
    """Talk until the user leaves; answers the exit code. Denials along the way were seen, so they are no failure.

    `beginning` is the session that is gone on with.
    """
    emit = world.emit
    # What was typed is on the screen already.
    world = replace(world, emit=lambda event: None if isinstance(event, Prompted) else emit(event))
    world.emit(world.opening())
    history = recall(beginning, world)
    world.emit(Notice("type /help for help, /quit to leave"))
    interrupted = False
    while True:
        try:
            line = (await read_line("\n> ")).strip()
        except EOFError:
            return Exit.DONE
        except KeyboardInterrupt:
            if interrupted:
                return Exit.INTERRUPTED
            interrupted = True
            world.emit(Notice("Ctrl-C again, or Ctrl-D, leaves"))
            continue
        interrupted = False
        if line in ("/quit", "/exit"):
            return Exit.DONE
        if line.startswith("/"):
            world = _command(line, world)
        elif line:
            news = world.undo.news() if world.undo is not None else ""
            ending = await _turn(f"{news}{line}", world, history)
            interrupted = ending.exit is Exit.INTERRUPTED


async def _turn(prompt: str, world: World, history: list[Message]) -> Ending:
    """One turn, which Ctrl-C ends without ending the talk."""
    turn = asyncio.ensure_future(run(prompt, world, history))
    loop = asyncio.get_running_loop()

    def stop(*_: object) -> None:
        if not turn.cancelling():  # once: a second cancel would cut short the killing of what the first one stops
            loop.call_soon_threadsafe(turn.cancel)

    # A plain handler and not the loop's: prompt_toolkit takes the loop's away when it asks a question.
    before = signal.signal(signal.SIGINT, stop)
    try:
        return await turn
    finally:
        signal.signal(signal.SIGINT, before)


def _rewind(count: str, world: World) -> None:
    """Bring files back; the model is told with the next prompt."""
    if world.undo is None:
        world.emit(Notice("nothing is kept in this session"))
    elif not count.isascii() or not count.isdigit() or not int(count[:9]) >= 1:
        world.emit(Notice(f"`{count}` is no number of actions; write /rewind, or /rewind 3"))
    else:
        world.emit(Notice("\n".join(world.undo.rewind(int(count[:9])))))


def _grants(words: list[str], world: World) -> None:
    """Show the answers that hold in this session, or take one back."""
    match words:
        case []:
            now = time.time()
            found = [line for grant in world.grants.live() for line in lines(grant, now, world.grants.key.workspace)]
            world.emit(Notice("\n".join(["remembered:", *found]) if found else "nothing was remembered"))
        case ["revoke", name]:
            try:
                grant = world.grants.revoke(name)
            except StateError as error:
                world.emit(Notice(f"{error.problem.what}: {error.problem.why}"))
            else:
                world.emit(Notice(f"revoked {name}" if grant is not None else f"there is no grant `{name}`"))
        case _:
            world.emit(Notice("write /grants, or /grants revoke ID"))


def _command(line: str, world: World) -> World:
    """Do a `/command`; answers the world to go on with."""
    name, _, rest = line.partition(" ")
    names = [mode.value for mode in Mode]
    modes = ", ".join(names)
    match name, rest.strip():
        case "/help", _:
            world.emit(Notice(HELP.format(modes=f"{', '.join(names[:4])},\n                {', '.join(names[4:])}")))
        case (("/rewind" | "/undo"), count):
            _rewind(count or "1", world)
        case "/grants", words:
            _grants(words.split(), world)
        case "/mode", "":
            world.emit(Notice(f"the mode is {world.mode.value}"))
        case "/mode", wanted if wanted in names:
            world.journal.mode(Mode(wanted))
            world.emit(Notice(f"the mode is now {wanted}"))
            return replace(world, mode=Mode(wanted))
        case "/mode", wanted:
            world.emit(Notice(f"there is no mode `{wanted}`; the modes are {modes}"))
        case _:
            world.emit(Notice(f"there is no command `{name}`; /help lists them"))
    return world
