"""Which requests run: opens them, runs rounds, frees what is finished."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from forerun.drafters.protocol import Drafter
from forerun.engine.request import Ask, Request
from forerun.engine.round import run_round
from forerun.events import Event, Result, Stats
from forerun.targets.protocol import Target

__all__ = ["Scheduler"]


class Scheduler:
    """Runs requests over one target, up to `max_batch` of them in one pass.

    Args:
        target: The model whose output must be kept.
        drafter_for: Gives the drafter a request names, or None for plain decoding. The same
            spec gives the same drafter, which then follows many texts.
        max_batch: Most requests in one pass.
    """

    def __init__(
        self,
        target: Target,
        drafter_for: Callable[[str], Drafter | None],
        max_batch: int = 64,
    ) -> None:
        self.target = target
        self.max_batch = max_batch
        self.stats = Stats()
        self._drafter_for = drafter_for
        self._waiting: deque[Request] = deque()
        self._running: list[tuple[Request, Drafter | None]] = []
        self._named = 0

    def submit(self, ask: Ask) -> Request:
        """Queue a request; what it asks is checked here.

        Raises:
            UsageError: Prompt, options, drafter and target do not go together.
        """
        request = Request(self._named, ask, self.target)
        self._drafter_for(ask.options.drafter)  # a bad name is refused now, not in mid-text
        self._named += 1
        self._waiting.append(request)
        return request

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._waiting and not self._running

    def step(self) -> list[Event]:
        """Admit what fits, run one round of all running requests, and return what happened."""
        events = self._admit()
        if self._running:
            requests = [request for request, _ in self._running]
            drafters = [drafter for _, drafter in self._running]
            events += run_round(self.target, requests, drafters)
        for request in [r for r, _ in self._running if r.finish is not None]:
            events.append(self._close(request))
        return events

    def run(self, asks: Sequence[Ask]) -> Iterator[Event]:
        """Run requests to their ends; if the caller stops listening, they are interrupted."""
        requests = [self.submit(ask) for ask in asks]
        try:
            while not self.is_idle:
                yield from self.step()
        finally:
            for request in requests:
                self.cancel(request)

    def cancel(self, request: Request) -> None:
        """End a request where it is; its text so far stays. Nothing happens to a finished one."""
        request.interrupt()
        if request in self._waiting:
            self._waiting.remove(request)
        if any(request is running for running, _ in self._running):
            self._close(request)

    def _admit(self) -> list[Event]:
        """Open waiting requests while there is room; those with nothing to write end at once."""
        ended: list[Event] = []
        while self._waiting and len(self._running) < self.max_batch:
            request = self._waiting.popleft()
            if request.finish is not None:
                ended.append(request.result())
                continue
            begun = time.perf_counter()
            drafter = self._drafter_for(request.options.drafter)
            request.sequence = self.target.open(request.prompt[:-1])
            if drafter is not None:
                drafter.open(request.name, request.tokens)
            request.stats.prompt_seconds = time.perf_counter() - begun
            self._running.append((request, drafter))
        return ended

    def _close(self, request: Request) -> Result:
        """Give back all that a request holds."""
        drafter = next(drafter for running, drafter in self._running if running is request)
        self._running = [pair for pair in self._running if pair[0] is not request]
        assert request.sequence is not None
        self.target.free(request.sequence)
        request.sequence = None
        if drafter is not None:
            drafter.free(request.name)
        self.stats.add(request.stats)
        return request.result()
