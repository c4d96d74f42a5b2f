"""The command about the task list of the session: /tasks."""

from functools import partial

from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.state.json_file import StateError
from runner.tasks.session_tasks import SessionTasks
from runner.tasks.task_list import TaskEdit, TaskError, TaskState, words_of
from runner.text.sanitize import visible

_USE = "write /tasks, /tasks ID, /tasks add TEXT, /tasks done ID, /tasks free ID, or /tasks remove ID"
_SHOWN = 200  # tasks
_STATES = {"done": TaskState.COMPLETED, "free": TaskState.PENDING, "remove": TaskState.DELETED}


def _session_tasks(host: CommandHost) -> SessionTasks:
    tasks = host.conversation.ctx.tasks
    if tasks is None:
        raise Mistake("this session has no task list")
    return tasks


async def _tasks(words: str, host: CommandHost) -> None:
    """List the tasks, show one, or add, finish, free or remove one."""
    tasks = _session_tasks(host)
    verb, _, rest = words.partition(" ")
    rest = rest.strip()
    try:
        if not words:
            rows = tasks.read().rows(_SHOWN, closed=True)
            none = "the list is empty; /tasks add TEXT adds a task, and the model may add tasks from then on"
            say(host, *(visible(row, lines=False) for row in rows) if len(rows) > 1 else (none,))
        elif verb == "add" and rest:
            changed = tasks.change(lambda found, user: found.create(TaskEdit(rest), user))
            say(host, words_of(changed))
        elif verb in _STATES and rest:
            changed = tasks.change(lambda found, user: found.update(rest, TaskEdit(state=_STATES[verb]), user))
            say(host, words_of(changed) or "nothing changed")
        elif not rest and verb not in ("add", *_STATES):
            found = tasks.read()
            task = found.get(words)
            say(host, *visible(f"{found.row(task)}\nwritten by {task.author.agent}\n{task.description}").split("\n"))
        else:
            raise Mistake(_USE)
    except (TaskError, StateError) as error:
        raise Mistake(f"{error.problem.what}: {error.problem.why}; {_USE}") from None


def _words(host: CommandHost) -> list[str]:
    return ["add", *_STATES]


# fmt: off
COMMANDS = (
    partial(SlashCommand, group="Agents")(
        "tasks", "[ID|add TEXT|done ID|free ID|remove ID]", "list the tasks of the session, or change one",
        _tasks, words=_words),
)
# fmt: on
