"""How long to wait before a provider that failed is asked again. No clock and no chance of its own: both are handed in.

A wait is a random part of a bound that doubles ("full jitter"), so that many who failed together do not come back
together. SOURCE: aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter.
"""

from policy.model.frozen import dataclass
from runner.messages import WAITING_HELPS, Failure


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`first` is the bound of the first wait, which doubles up to `most`; all in seconds.

    `tries`: how often a reply is asked for again for each kind of failure, while nothing of it was shown. `resumes`:
    how often one is gone on with for each reason (broken off, too long for the window, cut at its most tokens).
    `longest`: what a server may ask us to wait.
    """

    first: float = 0.5
    most: float = 30.0
    tries: int = 7  # the last one waits up to `most`
    resumes: int = 3
    longest: float = 600.0

    def bound(self, attempt: int) -> float:
        """The most that is waited before try number `attempt`, counted from 1."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 60))

    def wait(
        self, failure: Failure, attempt: int, retry_after: float | None, luck: float, *, left: float | None = None
    ) -> float | None:
        """Seconds before try number `attempt` (from 1); None: waiting does not help, or not soon enough.

        `luck` is from 0 up to 1. `left`: seconds within which an answer is of use, when they are fewer or more than
        `longest`. A server that says when to come back is not asked sooner.
        """
        if failure not in WAITING_HELPS:
            return None
        own = luck * self.bound(attempt)
        longest = self.longest if left is None else left
        if retry_after is None or not retry_after > 0:  # also what is no number
            return own if own <= longest else None
        return min(retry_after + own, longest) if retry_after <= longest else None
