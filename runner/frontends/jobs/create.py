"""The creation of a job from the options of `agent jobs add`, with the content of the workspace that it trusts."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from runner.agent.startup import RunArgs
from runner.config import load
from runner.config.trust.session_check import look_at
from runner.engine.run_limits import RunBudget
from runner.gate.gate import folder, refuse_folder
from runner.jobs.job import LONGEST_PROMPT, Job, JobBudget, checked_mode, checked_name
from runner.jobs.schedule import Schedule
from runner.jobs.workspace_trust import current_trust
from runner.problems import usage
from runner.providers.catalog import full_name, price_of
from runner.providers.key_options import KeyFlags
from runner.providers.remotes import PROVIDERS
from runner.state.workspace import workspace_at


@dataclass(frozen=True, slots=True)
class JobArgs:
    """The options of `agent jobs add`."""

    schedule: Schedule
    prompt: str
    name: str = ""
    cwd: str | None = None
    mode: Mode | None = None
    model: str = ""
    account: str = ""
    budget: RunBudget = RunBudget()
    tools: tuple[str, ...] = ()
    no_tools: tuple[str, ...] = ()
    catch_up: bool = False


def new_job(args: JobArgs, environ: Mapping[str, str]) -> Job:
    """Return the job of the options, without an id. Raise a usage error for values that no run could use."""
    from runner.config import shipped

    cwd = str(folder(args.cwd))
    workspace = workspace_at(cwd, environ)
    refuse_folder(cwd, environ, shipped().profile)
    if not args.prompt.strip():
        raise usage("the prompt is empty", "there is no task", 'write agent jobs add --every 1h "what to do"')
    if len(args.prompt) > LONGEST_PROMPT:
        why = f"a prompt of a job has at most {LONGEST_PROMPT >> 10} Ki characters"
        raise usage("the prompt is too long", why, "let the model read a file")
    budget = args.budget.checked()
    budget.given_options()  # raises for an amount that cannot be read
    model = _model_name(args.model)
    if budget.cost is not None:
        _check_price(model, Path(cwd), environ)
    return Job(
        id="",
        name=checked_name(args.name) if args.name else "",
        schedule=args.schedule,
        prompt=args.prompt,
        cwd=cwd,
        workspace=workspace,
        mode=checked_mode(args.mode or Mode.DONT_ASK),
        trust=current_trust(cwd, workspace, environ),
        created=int(time.time()),
        model=model,
        account=args.account,
        tools=args.tools,
        no_tools=args.no_tools,
        budget=JobBudget(
            budget.turns,
            budget.tokens,
            None if budget.cost is None else str(budget.cost),
            None if budget.timeout is None else str(budget.timeout),
            None if budget.output is None else str(budget.output),
            budget.denials,
        ),
        catch_up=args.catch_up,
    )


def _model_name(text: str) -> str:
    """Return the model as `provider:model`, with the absolute path of a script. Raise a usage error."""
    if not text:
        return ""
    name = full_name(text)
    provider, _, model = name.partition(":")
    if provider == "scripted":
        return f"scripted:{os.path.abspath(model)}"
    if provider not in PROVIDERS:
        why = f"the providers are {', '.join(PROVIDERS)}"
        raise usage(f"`{text[:80]}` is not a model", why, "write it as in --model anthropic:claude-sonnet-5-5")
    return name


def _check_price(model: str, cwd: Path, environ: Mapping[str, str]) -> None:
    """Raise a usage error if the model, or that of the settings, has no known price: no run could keep the limit.

    A model whose name is not known before the run is checked at the run alone.
    """
    settings = load(cwd, environ, unattended=True, repository=False)
    name = model or settings.model or ""
    provider, _, own = name.partition(":")
    if not own or price_of(name, settings, vendor=provider not in settings.base_urls) is not None:
        return
    why = f"no price is known for `{name}`, so that no run could keep the limit"
    fix = f'add [price."{name}"] to your configuration, or use --max-tokens'
    raise usage("--max-cost cannot be used", why, fix)


def has_entries(job: Job, environ: Mapping[str, str]) -> bool:
    """Return True if the workspace of `job` has files that configure or instruct the agent."""
    return bool(look_at(job.workspace, job.cwd, environ).entries)


def run_args_of(job: Job) -> RunArgs:
    """Return the options of one run of `job`."""
    limits = job.budget
    return RunArgs(
        mode=job.mode,
        model=job.model or None,
        unattended=True,
        cwd=job.cwd,
        trust_config=job.trust.sha256 if job.trust.used else None,
        key=KeyFlags(job.account or None, False),
        budget=RunBudget(limits.turns, limits.tokens, limits.cost, limits.timeout, limits.output, limits.denials),
        tools=job.tools,
        no_tools=job.no_tools,
    )
