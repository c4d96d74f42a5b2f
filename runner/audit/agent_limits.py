"""The limits of sub-agents in records: written with a decision, and read again to repeat it."""

from collections.abc import Mapping

from policy.model.agent_limit import AgentLimit
from policy.model.tier import Mode


def limit_body(limit: AgentLimit) -> dict[str, object]:
    """Return the limit of an agent with exactly the fields that it sets; `agent_limit` reads it again."""
    mode = limit.mode.value if limit.mode is not None else None
    values: dict[str, object] = {
        "agent": limit.agent, "mode": mode, "read_only": limit.read_only,
        "hosts": list(limit.hosts) if limit.hosts is not None else None,
        "denied": list(limit.denied), "asked": list(limit.asked), "source": limit.source,
    }  # fmt: skip
    body: dict[str, object] = {name: value for name, value in values.items() if value not in (None, False, "", [])}
    return {**body, "hosts": []} if limit.hosts == () else body


def agent_limit(body: Mapping[str, object]) -> AgentLimit:
    """Return the limit of a record. Raise ValueError if the record has another form."""

    def texts(name: str) -> tuple[str, ...]:
        found = body.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"its limit has an invalid `{name}`")
        return tuple(found)

    mode = body.get("mode")
    return AgentLimit(
        str(body.get("agent", "")),
        Mode(str(mode)) if mode is not None else None,
        body.get("read_only") is True,
        texts("hosts") if "hosts" in body else None,
        texts("denied"),
        texts("asked"),
        str(body.get("source", "")),
    )
