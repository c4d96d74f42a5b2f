"""A task list as a value: its tasks, and the changes that an agent or the user may make.

Every change returns a new list, so that a change that is refused leaves the old one.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from policy.model.frozen import dataclass, replace
from policy.model.profile import MAIN
from policy.model.verdict import Problem, ProblemError
from runner.text.sanitize import one_line

MOST_TASKS = 10_000  # of one list, with the deleted ones
MOST_BLOCKERS = 50  # of one task
LONGEST_SUBJECT = 200  # characters
LONGEST_DESCRIPTION = 4_000  # characters
USER = "user"


class TaskState(StrEnum):
    """The state of a task."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    DELETED = "deleted"


_CLOSED = (TaskState.COMPLETED, TaskState.DELETED)


class TaskError(ProblemError):
    """An error for a change of the task list that is refused."""


@dataclass(frozen=True, slots=True)
class TaskHolder:
    """An agent that can hold a claim, or the user.

    Attributes:
        agent: the name of the agent, or `user`.
        run: the ID of the run of the session. Agents of two processes may have the same name.
    """

    agent: str
    run: str

    @property
    def is_user(self) -> bool:
        """Return True for the user, who may change every task."""
        return self.agent == USER


@dataclass(frozen=True, slots=True)
class SessionTask:
    """One task.

    Attributes:
        id: its name in the list, such as `t3`.
        subject: what is to be done, on one line.
        description: more about it, or empty.
        state: its state.
        author: who created it.
        owner: the agent that works on it; None unless the task is in progress.
        blocked_by: the IDs of the tasks that must be closed before this one can be claimed.
        note: why the program changed its state, or empty.
    """

    id: str
    subject: str
    description: str
    state: TaskState
    author: TaskHolder
    owner: TaskHolder | None = None
    blocked_by: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class TaskEdit:
    """The wanted changes of one task. Empty fields change nothing; dependencies are added."""

    subject: str = ""
    description: str = ""
    state: TaskState | None = None
    blocked_by: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskList:
    """The tasks of one session by their IDs, in the order of their creation."""

    tasks: Mapping[str, SessionTask]

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of completed tasks, and of all that are not deleted."""
        states = [task.state for task in self.tasks.values()]
        return states.count(TaskState.COMPLETED), len(states) - states.count(TaskState.DELETED)

    def get(self, id: str) -> SessionTask:
        """Return a task that is not deleted. Raise TaskError."""
        task = self.tasks.get(id)
        if task is None or task.state is TaskState.DELETED:
            raise _refused(f"there is no task `{one_line(id, 20)}`", "the list has none with this ID", "list the tasks")
        return task

    def open_blockers(self, task: SessionTask) -> tuple[str, ...]:
        """Return the IDs of the tasks that must still be closed before `task` can be claimed."""
        return tuple(id for id in task.blocked_by if self.tasks[id].state not in _CLOSED)

    def create(self, edit: TaskEdit, by: TaskHolder) -> "tuple[TaskList, tuple[SessionTask, ...]]":
        """Return the list with a new task, and the tasks that changed. Raise TaskError."""
        subject = one_line(edit.subject.strip(), LONGEST_SUBJECT)
        if not subject:
            raise _refused("the task was not created", "it has no subject", "say in one line what is to be done")
        if len(self.tasks) >= MOST_TASKS:
            raise _refused("the task was not created", f"the list has {MOST_TASKS} tasks, the most", "use fewer tasks")
        id = f"t{len(self.tasks) + 1}"
        made = SessionTask(id, subject, edit.description[:LONGEST_DESCRIPTION], TaskState.PENDING, by)
        grown = TaskList({**self.tasks, id: made})
        rest = replace(edit, subject="", description="")
        after, changed = grown.update(id, rest, by)
        return after, changed or (made,)

    def update(self, id: str, edit: TaskEdit, by: TaskHolder) -> "tuple[TaskList, tuple[SessionTask, ...]]":
        """Return the list with a changed task, and the tasks that changed. Raise TaskError.

        THREAT T229: a claim has one owner. The caller holds the lock of the list.
        THREAT T230: only its author, the agent `main` and the user may change the text of a task.
        """
        task = self.get(id)
        self._may_change(task, by)
        if edit.subject or edit.description:
            if not (by.is_user or by.agent == MAIN or by == task.author):
                raise _refused(f"`{id}` was not changed", f"{task.author.agent} wrote it", "create a task of your own")
            subject = one_line(edit.subject.strip(), LONGEST_SUBJECT) or task.subject
            task = replace(
                task, subject=subject, description=edit.description[:LONGEST_DESCRIPTION] or task.description
            )
        after = TaskList({**self.tasks, id: task})
        for blocker, blocked in (*((each, id) for each in edit.blocked_by), *((id, each) for each in edit.blocks)):
            after = after._with_dependency(blocker, blocked, by)
        if edit.state is not None:
            moved = after._moved(after.tasks[id], edit.state, by)
            after = TaskList({**after.tasks, id: moved})
        touched = dict.fromkeys((id, *edit.blocks))
        changed = tuple(after.tasks[each] for each in touched if after.tasks[each] != self.tasks.get(each))
        return (after if changed else self), changed

    def released(self, ended: TaskHolder) -> "tuple[TaskList, tuple[SessionTask, ...]]":
        """Return the list without the claims of an agent that has ended, and the tasks that changed."""
        return self._without(task for task in self.tasks.values() if task.owner == ended)

    def adopted(self, run: str) -> "tuple[TaskList, tuple[SessionTask, ...]]":
        """Return the list for a run that continues the session alone, and the tasks that are pending again.

        The agent `main` keeps its claims. The other agents of the earlier runs have ended.
        """
        earlier = [task for task in self.tasks.values() if task.owner is not None and task.owner.run != run]
        own = {task.id: replace(task, owner=TaskHolder(MAIN, run)) for task in earlier if _agent(task) == MAIN}
        base = TaskList({**self.tasks, **own}) if own else self
        return base._without(task for task in earlier if task.id not in own)

    def rows(self, most: int, *, closed: bool = False) -> tuple[str, ...]:
        """Return at most `most` tasks as one line each, those in progress first, and a line about the others."""
        order = [TaskState.IN_PROGRESS, TaskState.PENDING, *([TaskState.COMPLETED] if closed else [])]
        shown = [task for state in order for task in self.tasks.values() if task.state is state]
        done, total = self.counts
        more = [f"{len(shown) - most} more"] if len(shown) > most else []
        return (f"{done}/{total} tasks are completed", *(self.row(task) for task in shown[:most]), *more)

    def row(self, task: SessionTask) -> str:
        """Return a task as one line."""
        owner = f" by {_agent(task)}" if task.owner is not None else ""
        blockers = self.open_blockers(task) if task.state is TaskState.PENDING else ()
        waits = f", waits for {', '.join(blockers)}" if blockers else ""
        note = f" ({task.note})" if task.note else ""
        return f"{task.id} {task.state.value.replace('_', ' ')}{owner}{waits}: {task.subject}{note}"

    # Checks

    def _may_change(self, task: SessionTask, by: TaskHolder) -> None:
        owner = task.owner
        if owner is None or by.is_user or owner == by or (by.agent == MAIN and owner.run == by.run):
            return
        raise _refused(f"`{task.id}` was not changed", f"{owner.agent} works on it", "work on another task")

    def _moved(self, task: SessionTask, state: TaskState, by: TaskHolder) -> SessionTask:
        what = f"`{task.id}` was not changed"
        mine = by.is_user or by.agent == MAIN or task.owner == by
        if state in _CLOSED and not mine and not (state is TaskState.DELETED and task.author == by):
            raise _refused(what, "you have not claimed it", "set it to `in_progress` first")
        if state in (TaskState.IN_PROGRESS, TaskState.COMPLETED) and (waits := self.open_blockers(task)):
            raise _refused(what, f"it waits for {', '.join(waits)}", "work on these first")
        if state is TaskState.IN_PROGRESS:
            if task.owner is not None and task.owner != by:
                why = f"{task.owner.agent} works on it"
                raise _refused(f"`{task.id}` was not claimed", why, "work on another task")
            if by.is_user:
                raise _refused(what, "an agent claims a task, and not the user", "tell the agent to work on it")
            return replace(task, state=state, owner=by, note="")
        return replace(task, state=state, owner=None, note="")

    def _with_dependency(self, blocker: str, blocked: str, by: TaskHolder) -> "TaskList":
        before, after = self.get(blocker), self.get(blocked)
        self._may_change(after, by)
        if blocker in after.blocked_by:
            return self
        what = f"`{after.id}` was not made to wait for `{before.id}`"
        if len(after.blocked_by) >= MOST_BLOCKERS:
            raise _refused(what, f"it waits for {MOST_BLOCKERS} tasks, the most", "join some of these")
        waiting, seen = [before.id], {before.id}
        while waiting:
            for each in self.tasks[waiting.pop()].blocked_by:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        if after.id in seen:
            raise _refused(what, "each of them would wait for the other", "leave one dependency out")
        return TaskList({**self.tasks, after.id: replace(after, blocked_by=(*after.blocked_by, before.id))})

    def _without(self, claimed: Iterable[SessionTask]) -> "tuple[TaskList, tuple[SessionTask, ...]]":
        freed = [
            replace(task, state=TaskState.PENDING, owner=None, note=f"{_agent(task)} ended before it was done")
            for task in claimed
        ]
        return (TaskList({**self.tasks, **{task.id: task for task in freed}}) if freed else self), tuple(freed)


EMPTY = TaskList({})


def list_of(body: Mapping[str, object], version: int) -> TaskList:
    """Return the list of a JSON object. Raise ValueError for an invalid one."""
    rows = body.get("tasks")
    if set(body) != {"tasks"} or not isinstance(rows, list) or len(rows) > MOST_TASKS:
        raise ValueError("it is not a list of tasks")
    tasks = [_task(row, place + 1) for place, row in enumerate(rows)]
    found = TaskList({task.id: task for task in tasks})
    if any(each not in found.tasks for task in tasks for each in task.blocked_by):
        raise ValueError("a task waits for one that is not in the list")
    return found


def body_of(tasks: TaskList) -> dict[str, object]:
    """Return the JSON object of a list."""
    return {"tasks": [_body(task) for task in tasks.tasks.values()]}


def _body(task: SessionTask) -> list[object]:
    owner = [task.owner.agent, task.owner.run] if task.owner is not None else None
    author = [task.author.agent, task.author.run]
    return [
        task.id, task.state.value, task.subject, task.description, author, owner, list(task.blocked_by), task.note
    ]  # fmt: skip


def _task(row: object, number: int) -> SessionTask:
    if not isinstance(row, list) or len(row) != 8:
        raise ValueError("a task has other fields")
    id, state, subject, description, author, owner, blocked_by, note = row
    if {type(id), type(state), type(subject), type(description), type(note)} != {str} or id != f"t{number}":
        raise ValueError("a task has a field of another type")
    if (known := _STATES.get(state)) is None:
        raise ValueError("there is no such state of a task")
    if len(subject) > LONGEST_SUBJECT or len(description) > LONGEST_DESCRIPTION:
        raise ValueError("the text of a task is too long")
    blockers = _strings(blocked_by, MOST_BLOCKERS) if blocked_by != [] else ()
    held = _holder(_strings(owner, 2)) if owner is not None else None
    if (held is None) == (known is TaskState.IN_PROGRESS):
        raise ValueError("a task in progress has one owner, and no other task has one")
    return SessionTask(id, subject, description, known, _holder(_strings(author, 2)), held, blockers, note)


_STATES = {state.value: state for state in TaskState}


@lru_cache(maxsize=1024)
def _holder(names: tuple[str, ...]) -> TaskHolder:
    if len(names) != 2:
        raise ValueError("a holder of a task has other fields")
    return TaskHolder(*names)


def _strings(row: object, most: int) -> tuple[str, ...]:
    if not isinstance(row, list) or len(row) > most or not all(isinstance(each, str) for each in row):
        raise ValueError("a list of names is invalid")
    return tuple(row)


def _agent(task: SessionTask) -> str:
    return task.owner.agent if task.owner is not None else ""


def _refused(what: str, why: str, fix: str) -> TaskError:
    return TaskError(Problem(what, why, fix))


def words_of(tasks: Sequence[SessionTask]) -> str:
    """Return the IDs and states of changed tasks as one line."""
    return ", ".join(f"{task.id} is {task.state.value.replace('_', ' ')}" for task in tasks)
