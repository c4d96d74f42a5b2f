"""Sub-agents: agents that the model of a session starts, each with at most the rights of the agent that started it.

A sub-agent runs the same loop as its parent, with a context that is derived from the parent's. May import `loop` and
the folders below it. Start reading at `session_agents.py`, which the engine reaches through
`runner/engine/agent_access.py`.
"""
