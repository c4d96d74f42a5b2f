"""A page that the user attaches to a prompt by its address (`-u URL`).

THREAT T242: the user typed the address, so its host is allowed for this one request and for nothing else. Denials and
floors hold, only public addresses are reached, and the text stays that of a stranger.
"""

from policy.model.action import FetchAddress
from policy.model.host_words import endpoint
from policy.model.page_address import page_address
from policy.model.verdict import Problem
from policy.permission.flag_rights import FlagRights
from runner.engine.execute import execute_call
from runner.engine.judge import announce, evaluate_action
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall, Planned
from runner.messages import ToolCall, joined_text
from runner.text.sanitize import marked
from tools.web import WebFetchTool


async def attached_page(url: str, key: str, ctx: RunContext) -> str | Problem:
    """Return the marked text of the page at `url` for a prompt, or the Problem of a page that cannot be attached.

    The text has at most 50 KiB; with `web_fetch` and an offset the model reads on. `key` names the request in events.
    """
    address = page_address(url)
    what = "the page cannot be attached"
    if isinstance(address, Problem):
        return Problem(what, address.why, address.fix)
    if ctx.web is None:
        why, fix = "this session does not use the web", "install the extra: `pip install 'ringfence[web]'`"
        return Problem(what, why, fix)
    action = FetchAddress(address)
    call = ModelCall(key, ToolCall(key, action.tool, {"url": address}), own=True)
    typed = FlagRights(hosts=(endpoint(address) or "",))
    evaluation = evaluate_action(action, ctx, typed=typed)
    judgement = Judgement(Planned(call, WebFetchTool(), action), evaluation, ctx.live.named, typed=typed)
    announced = announce(call, judgement, ctx)
    assert not isinstance(announced, CallResult)  # the action is planned
    report = await execute_call(announced, ctx, lambda report: None)
    text = joined_text(report.result.content)
    if report.result.is_error:
        why = report.denied.problem.why if report.denied is not None else text
        return Problem(what, why, "check the address, or leave the page out")
    if ctx.flow is not None:  # the user typed the address and not the text
        ctx.flow.note_untrusted(f"the page {address}", text)
    return marked("attached_content", text, url=address)
