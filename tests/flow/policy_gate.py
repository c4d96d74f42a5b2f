"""The real policy as a gate: a tool server configured by a user's file, judged with the rules about information flow."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from policy.evaluation import EvaluationContext
from policy.flow.trusted_text import TrustedText
from policy.model.action import CallServerTool
from policy.model.frozen import replace
from policy.model.tier import Mode
from policy.model.tool_arguments import canonical
from policy.model.verdict import Allow, Ask
from runner.config import load
from runner.facts.gather import gather
from runner.flow.session_flow import ResultLabels, SessionFlow
from runner.mcp.configured import find_servers
from runner.mcp.server_config import ServerConfig
from runner.mcp.server_tool import tier_for
from tests.flow.gate import Allowed, Answer, Denied, Question

MODE = Mode.TRUST_PROJECT
OWNER = "emma.johnson@bluesparrowtech.com"  # the owner of the accounts in both benchmarks
_ALLOW_ALL = '\n[[rule]]\nverdict = "allow"\ntool = ["mcp__*"]\nwhy = "the user allowed all tools of these servers"\n'


class Machine:
    """A machine whose user configured the tool servers of one file, and allowed all their tools for good. With `bare`, the
    user has written nothing about the tools: no tiers, no trusted and no private results.

    Attributes:
        servers: The settings of each server by its name.
        labels: What the settings say about the results.
        context: The context of all evaluations.
    """

    def __init__(self, servers: Path, *, bare: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flow-", dir="/var/tmp")
        top = Path(os.path.realpath(self._folder.name))
        work, config = top / "work", top / "config.toml"
        work.mkdir()
        (top / "home").mkdir()
        config.write_text(servers.read_text() + _ALLOW_ALL)
        environ = {"HOME": str(top / "home"), "PATH": "/usr/bin:/bin"}
        settings = load(work, environ, config=config)
        found = find_servers(settings, str(work), environ, str(top / "home"))
        if found.faults:
            raise ValueError(f"{servers}: {found.faults}")
        given = found.servers
        if bare:
            given = tuple(replace(each, tiers=(), results=(), private=False) for each in given)
        self.servers: Mapping[str, ServerConfig] = {each.name: each for each in given}
        self.labels = ResultLabels(
            tools={each.name: each.results for each in given},
            private_servers=frozenset(each.name for each in given if each.private),
        )
        facts = gather(str(work), environ, settings.profile)
        self.context = EvaluationContext(facts, settings.rules, settings.profile, MODE, ())


class PolicyGate:
    """One session with one tool server, judged by the policy. Nobody can answer a question."""

    def __init__(self, machine: Machine, server: str, prompt: str) -> None:
        self._machine, self._server = machine, machine.servers[server]
        self._flow = SessionFlow(None, guarded=True, trusted=TrustedText(own=frozenset([OWNER])), labels=machine.labels)
        self._flow.hear(prompt)

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Return the verdict of the policy on one call, with the rule that decided."""
        context = replace(self._machine.context, flow=self._flow.state(MODE))
        assessment, verdict = context.evaluate(self._action(tool, arguments))
        if isinstance(verdict, Allow):
            return Allowed()
        findings = context.flow_findings(assessment)
        rules = sorted({str(each.rule) for each in findings}) or [str(verdict.reason.rule)]
        words = "; ".join(each.what for each in findings if each.what) or verdict.reason.text
        return (Question if isinstance(verdict, Ask) else Denied)(" ".join(rules), words)

    def result(self, tool: str, text: str, planted: str = "") -> None:
        """Note the result with the label that the user's file gives to results of the tool."""
        action = self._action(tool, {})
        trusted = self._machine.labels.of_tool(self._server.name, tool).word == "trusted"
        self._flow.saw(action, text if trusted else f"{text}\n{planted}")

    def _action(self, tool: str, arguments: Mapping[str, object]) -> CallServerTool:
        config = self._server
        return CallServerTool(config.name, tool, canonical(arguments), (), tier_for(config, tool))
