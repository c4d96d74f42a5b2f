"""HTTP hooks: one POST of the event, through the dialer of the egress proxy, and the answer as JSON.

This module imports `httpx2`, which is slow to import. Import it only when an HTTP hook runs.
"""

import asyncio
from collections.abc import Mapping

import httpx2

from policy.model.verdict import ProblemError
from runner.config.hookfiles.hook import Hook, HookScope
from runner.mcp.variables import UserVariables, register_values
from runner.text.phrases import os_reason
from runner.web.pinned_http import AnswerBounds, PinnedTransport, RemoteHosts, authority_of, parsed_rules
from sandbox.backend import DIRECT, NetworkOptions

_LARGEST = 1 << 20  # bytes of an answer


class HookUnreachable(Exception):
    """The error for an address that gives no answer. Its text is the reason."""


async def post_event(
    hook: Hook, given: bytes, environ: Mapping[str, str], workspace: str, network: NetworkOptions = DIRECT
) -> bytes:
    """Send `given` to the address of `hook`, and return the body of its answer. Raise HookUnreachable.

    THREAT T206: the name is resolved once and each address is checked: private addresses, and those of this machine,
    are reached only if the user's own configuration names them with `private`. Redirects are not followed.
    """
    private = hook.hosts if hook.scope is HookScope.USER else ()
    try:
        variables = UserVariables(environ, workspace, repository=hook.scope is not HookScope.USER, inserts=True)
        headers = {name: variables.value(text) for name, text in hook.headers}
        register_values(headers.items())
        url = httpx2.URL(hook.url)
        hosts = RemoteHosts(authority_of(url), parsed_rules(private))
        bounds = AnswerBounds(_LARGEST, _LARGEST, idle=hook.timeout, longest=hook.timeout)
        async with (
            asyncio.timeout(hook.timeout),
            httpx2.AsyncClient(
                transport=PinnedTransport(hosts, network, bounds=bounds), follow_redirects=False, trust_env=False
            ) as client,
        ):
            answer = await client.post(url, content=given, headers={"Content-Type": "application/json", **headers})
            body = await answer.aread()
    except TimeoutError:
        raise HookUnreachable(f"it did not answer within {hook.timeout:g} s") from None
    except ProblemError as error:
        raise HookUnreachable(f"{error.problem.what}: {error.problem.why}; {error.problem.fix}") from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, ValueError) as error:
        raise HookUnreachable(str(error)[:500] or "the connection failed") from None
    except OSError as error:
        raise HookUnreachable(os_reason(error)) from None
    if not 200 <= answer.status_code < 300:
        raise HookUnreachable(f"it answered with status {answer.status_code}")
    return body
