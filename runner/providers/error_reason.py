"""Reasons in error answers of servers, and their consequences: the class of Failure and the time to wait.

All of it is untrusted text. The worst effect of a hostile server is a wait, up to the limit of the loop, or a shortened
conversation. SOURCE: platform.claude.com/docs/en/api/errors and /api/rate-limits;
developers.openai.com/api/docs/guides/error-codes; ai.google.dev/gemini-api/docs/troubleshooting; google.rpc.RetryInfo
(googleapis error_details.proto); RFC 9110, 10.2.3.
"""

import contextlib
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from policy.model.frozen import dataclass
from runner.messages import Failure
from runner.text.model_text import parse_object

# fmt: off
OUT_OF_CREDIT = ("insufficient_quota", "billing_error", "billing_not_active", "enforced_spend_limit_reached")
WRONG_KEY     = ("authentication_error", "invalid_api_key", "API_KEY_INVALID", "UNAUTHENTICATED")
BUSY          = ("overloaded_error", "server_is_overloaded", "slow_down", "UNAVAILABLE")
TOO_LONG      = ("context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length")
# fmt: on

# The vendors that have no code of its own for it: Anthropic, Gemini, OpenRouter, vLLM, llama.cpp, Mistral, xAI.
_TOO_LONG = re.compile(
    r"prompt is too long|context (?:length|window|limit|size)|token count .{0,40}exceeds|maximum prompt length",
    re.IGNORECASE,
)
# The same vendors on how much fits: the request and the room for its answer, where they count that.
_WINDOW = re.compile(
    r"(?:context length (?:is|of)|context size \(|tokens? allowed \(|tokens >|\d \+ \d{1,9} >)\s?(\d{3,9})\b",
    re.IGNORECASE,
)
# Anthropic, OpenAI and Gemini on thoughts that came back to them otherwise than they made them, or from elsewhere.
# One that is missing is another thing: there, fewer are no help.
_THOUGHTS = re.compile(r"(?s)(?!.*missing).*(?:signature|thinking`? block|encrypted[_ ]content)", re.IGNORECASE)
# The vendors, vLLM, llama.cpp and OpenRouter on images that they cannot read, that are too large, or too many, or that
# the model does not take at all.
_IMAGES = re.compile(
    r"(?<![a-z])(?:images?|pictures?|vision|multi-?modal|mmproj|media[ _]type|inline_?data)", re.IGNORECASE
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_LONGEST = 10 * 24 * 3600.0  # seconds; more is no wish to wait but nonsense


@dataclass(frozen=True, slots=True)
class ErrorReason:
    """The reason in one error.

    Attributes:
        message: text of the server.
        code: the vendor's word for the error.
        details: further words of the vendor.
        wait: seconds to wait; None if the error names no time.
    """

    message: str = ""
    code: str = ""
    details: tuple[str, ...] = ()
    wait: float | None = None

    def one_of(self, words: tuple[str, ...]) -> bool:
        return self.code in words or any(each in words for each in self.details)

    def status(self, known: Mapping[str, int]) -> int:
        """Return the HTTP status of this error outside a stream, by the vendor's table; 500 for an unknown error."""
        return next((known[word] for word in (self.code, *self.details) if word in known), 500)


def reason_in(body: bytes) -> ErrorReason:
    """Return the reason in an error body of any of the usual shapes."""
    text = body.decode("utf-8", "replace").strip()
    content = parse_object(text.removeprefix("[").removesuffix("]") if text.startswith("[") else text)
    match content:
        case {"error": dict(error)}:
            return reason_of(error)
        case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
            return ErrorReason(message)
        case {} if not content:
            return ErrorReason()
        case None if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
            return ErrorReason("a web page came back, not an API's answer")
        case _:
            return ErrorReason(text)


def reason_of(error: Mapping[str, object]) -> ErrorReason:
    """Return the reason in an error object of OpenAI, Anthropic or Gemini."""
    words = [error.get("code"), error.get("type"), error.get("status")]
    named = [word for word in words if isinstance(word, str) and word]
    message = error.get("message")
    details, wait = _details(error.get("details"))
    return ErrorReason(
        message if isinstance(message, str) else "",
        named[0] if named else str(error.get("code") or ""),
        (*named[1:], *details),
        wait,
    )


def failure_of(status: int, reason: ErrorReason) -> Failure:
    """Return the class of an error with that HTTP status, or with the status that the error has outside a stream."""
    if reason.one_of(OUT_OF_CREDIT) or reason.one_of(WRONG_KEY) or status in (401, 402, 403):
        return Failure.AUTH
    if status == 413 or reason.one_of(TOO_LONG) or (status in (400, 422, 500) and _TOO_LONG.search(reason.message)):
        return Failure.CONTEXT
    if status in (503, 529) or reason.one_of(BUSY):
        return Failure.OVERLOADED
    if status == 429:
        return Failure.RATE_LIMITED
    if status in (408, 409, 425) or status >= 500:
        return Failure.RETRYABLE
    return Failure.FATAL


def window_of(message: str) -> int | None:
    """Return the context window in tokens from an error about too many tokens; None if the error does not contain
    it.
    """
    match = _WINDOW.search(message)
    return int(match[1]) if match else None


def about_thoughts(reason: ErrorReason) -> bool:
    """Return True if the server refuses the signatures of earlier thinking blocks."""
    return _THOUGHTS.match(f"{reason.code} {reason.message}") is not None


def about_images(status: int, failure: Failure, reason: ErrorReason) -> bool:
    """Return True if a server may have refused a request for an image in it: its error says so, or names no reason."""
    if status == 413 or (failure is Failure.FATAL and status in (400, 415, 422)):
        return True
    may = failure in (Failure.FATAL, Failure.CONTEXT, Failure.RETRYABLE)
    return may and _IMAGES.search(f"{reason.code} {reason.message}") is not None


def wait_of(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait that the headers request; None if they request none.

    `now` is in seconds since 1970. `retry-after-ms` is OpenAI's and more exact; `retry-after` contains seconds or a
    date.
    """
    for header, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        text = headers.get(header, "")
        with contextlib.suppress(ValueError):
            return _sane(float(text) / unit)
    try:
        return _sane(max(parsedate_to_datetime(text).timestamp() - now, 0.0)) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def _details(details: object) -> tuple[list[str], float | None]:
    """Return the words in `details`: an object with `error_code` from Anthropic, a list of typed messages from
    Google.
    """
    words: list[str] = []
    wait = None
    for each in details if isinstance(details, list) else [details]:
        match each:
            case {"error_code": str(word)} | {"reason": str(word)}:
                words.append(word)
            case {"@type": str(), "retryDelay": str(delay)}:
                match = _SECONDS.fullmatch(delay)
                wait = _sane(float(match[1])) if match else wait
    return words, wait


def _sane(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None
