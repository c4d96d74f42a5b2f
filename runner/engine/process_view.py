"""The processes of a session and their ports as rows: of `/processes` and `/ports`, and of the commands of `agent`."""

import contextlib
from typing import TYPE_CHECKING, Self

from policy.model.frozen import dataclass
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.engine.port_forwards import Forward
    from runner.engine.processes import SessionProcess

_LONGEST = 300  # characters of a command in a row


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process.

    Attributes:
        id: The name of the process in its session.
        command: The command as the user would type it.
        running: True while the process runs.
        seconds: The time since the start, or the time that the process ran.
        status: The exit status, or None while it runs.
        ended_by: The reason for the end, or None if it runs or has ended by itself.
        ports: The TCP ports on which something in the network of the process listens.
        rights: The rights: `read-only` or `workspace-write`.
        terminal: True if it runs in a terminal.
        agent: The name of the agent that started it.
    """

    id: str
    command: str
    running: bool
    seconds: float
    status: int | None
    ended_by: str | None
    ports: tuple[int, ...]
    rights: str
    terminal: bool
    agent: str

    def as_json(self) -> dict[str, object]:
        """Return the row as an object for JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {"ports": list(self.ports)}

    @classmethod
    def of(cls, fields: "Mapping[str, object]") -> Self:
        """Return the row of an object that `as_json` made."""
        ports = fields["ports"]
        values = {**fields, "ports": tuple(ports) if isinstance(ports, list) else ()}
        return cls(**values)  # type: ignore[arg-type]  # the fields of `as_json`


@dataclass(frozen=True, slots=True)
class PortRow:
    """One listening port.

    Attributes:
        port: The number of the port.
        processes: The names of the running processes in whose network something listens on it.
        forwarded: The ports of this machine, on 127.0.0.1, that lead to it.
    """

    port: int
    processes: tuple[str, ...]
    forwarded: tuple[int, ...]

    def as_json(self) -> dict[str, object]:
        """Return the row as an object for JSON."""
        return {"port": self.port, "processes": list(self.processes), "forwarded": list(self.forwarded)}


def listening(process: "SessionProcess") -> tuple[int, ...]:
    """Return the ports of a process; none if it has ended."""
    if not process.alive:
        return ()
    with contextlib.suppress(OSError):  # it is just ending
        return process.process.ports()
    return ()


def process_rows(processes: "Sequence[SessionProcess]") -> tuple[ProcessRow, ...]:
    """Return a row for each process."""
    return tuple(
        ProcessRow(
            each.id,
            each.words,
            each.alive,
            round(each.seconds, 3),
            each.outcome.status if each.outcome is not None else None,
            each.outcome.ended_by if each.outcome is not None else None,
            listening(each),
            each.permit.terms.rights.value,
            each.screen is not None,
            each.agent,
        )
        for each in processes
    )


def port_rows(processes: "Sequence[SessionProcess]", forwards: "Sequence[Forward]") -> tuple[PortRow, ...]:
    """Return a row for each port, in order. Processes with the same rights share a network, and so their ports."""
    found: dict[int, list[str]] = {}
    for each in processes:
        for port in listening(each):
            found.setdefault(port, []).append(each.id)
    return tuple(
        PortRow(port, tuple(found[port]), tuple(each.host_port for each in forwards if each.port == port))
        for port in sorted(found)
    )


def process_words(row: ProcessRow) -> str:
    """Return one line about a process."""
    if row.running:
        state = f"running {duration(row.seconds)}"
    else:
        how = f"status {row.status}" if row.ended_by is None else row.ended_by
        state = f"ended ({how}) after {duration(row.seconds)}"
    ports = f"  port{'s' * (len(row.ports) > 1)} {', '.join(map(str, row.ports))}" if row.ports else ""
    return f"{row.id:<4} {state}{ports}  {one_line(row.command, _LONGEST)}"


def port_words(row: PortRow) -> str:
    """Return one line about a port."""
    where = "".join(f"  forwarded: 127.0.0.1:{each}" for each in row.forwarded)
    return f"{row.port:<6} {', '.join(row.processes)}{where}"


def duration(seconds: float) -> str:
    """Return a time in words, exact to a second."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def output_lines(process: "SessionProcess", most: int) -> list[str]:
    """Return the last `most` lines of the output, or the screen of the terminal with the lines that scrolled off it."""
    if process.screen is not None:
        lines = [*process.screen.history(), *process.screen.lines()]
    else:
        lines = process.log.since(0).text.splitlines()
    return lines[-most:]
