"""Which requests run: opens them, runs rounds, frees what is finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from forerun.control.control import Control
from forerun.drafters.protocol import Drafter, Watcher, layers_of
from forerun.engine.drafting import guesser_of
from forerun.engine.reading import Part, next_parts
from forerun.engine.request import Ask, Request
from forerun.engine.round import run_round
from forerun.errors import NotEnoughMemoryError, OptionError
from forerun.events import Event, Result, Stats
from forerun.targets.checks import PREFILL_ROWS, Watch, read_prompt, read_rest
from forerun.targets.protocol import Target

__all__ = ["Scheduler"]

Running = list[tuple[Request, Drafter | None]]


class Scheduler:
    """Runs requests over one target, up to `max_batch` of them in one pass.

    Args:
        target: The model whose output must be kept.
        drafter_for: Gives the drafter a request names, or None for plain decoding. The same
            spec gives the same drafter, which then follows many texts.
        max_batch: Most requests in one pass.
        control: Chooses what is drafted; by default one that times the target's passes before
            the first text with something to choose.

    Raises:
        OptionError: `max_batch` is below 1.
    """

    def __init__(
        self,
        target: Target,
        drafter_for: Callable[[str], Drafter | None],
        max_batch: int = 64,
        control: Control | None = None,
    ) -> None:
        if max_batch < 1:
            raise OptionError(f"max_batch = {max_batch} runs nothing.", "Give 1 or more.")
        self.target = target
        self.max_batch = max_batch
        self.control = control or Control(target)
        self.stats = Stats()
        self._drafter_for = drafter_for
        self._waiting: deque[Request] = deque()
        self._running: Running = []
        self._unread: list[Request] = []  # whose prompts found no memory in a pass of several
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
    def requests(self) -> list[Request]:
        """All that wait or run."""
        return [*self._waiting, *(request for request, _ in self._running)]

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._waiting and not self._running

    def step(self) -> list[Event]:
        """Admit what fits, run one round of all running requests, and return what happened.

        Whatever is raised here comes from the target or a drafter, and leaves them out of step
        with the texts: the running requests are interrupted, those that wait can still run. A
        request that can't even be opened is the only one to be interrupted. So is one that memory
        is too short for, while others go on; nothing is raised then.
        """
        while self._unread:
            self._read_alone(self._unread.pop())
        events = self._admit()
        if not self._running:
            return events
        try:
            events += self._round()
        except BaseException:
            with ExitStack() as all_of_them:  # though one may fail
                for request, _ in list(self._running):
                    all_of_them.callback(self.cancel, request)
            raise
        return events

    def _round(self) -> list[Event]:
        """Run one round of those whose prompts are read; the others' are read beside them."""
        running = [(request, drafter) for request, drafter in self._running if request.is_read]
        parts = next_parts([request for request, _ in self._running])
        held = [part.request.read for part in parts]
        events = self._write(running, parts)
        self._unread = [
            part.request
            for part, before in zip(parts, held, strict=True)
            if part.request.read == before
        ]
        return events

    def _write(
        self, running: Running, parts: Sequence[Part] = (), *, drafts: bool = True
    ) -> list[Event]:
        """Run a round of some texts, and close those that end; in halves, where memory is short.

        Raises:
            NotEnoughMemoryError: It is too short for the last text that is left.
        """
        requests, drafters = [pair[0] for pair in running], [pair[1] for pair in running]
        before = [len(request.tokens) for request in requests]
        control = self.control
        try:
            events = run_round(self.target, requests, drafters, control, parts, drafts=drafts)
        except NotEnoughMemoryError:
            if before != [len(request.tokens) for request in requests]:
                raise  # it ended behind the pass
            if len(running) > 1:
                half = len(running) // 2
                halves = running[:half], running[half:]
                return [event for few in halves for event in self._write(few, drafts=False)]
            if not running or len(self._running) == 1:
                raise
            requests[0].interrupt("memory")  # what it held is the others' now
            events = []
        return events + [self._close(each) for each in requests if each.finish is not None]

    def run(self, asks: Sequence[Ask]) -> Iterator[Event]:
        """Run requests to their ends; if the caller stops listening, they are interrupted."""
        with ExitStack() as at_end:
            for ask in asks:
                at_end.callback(self.cancel, self.submit(ask))
            while not self.is_idle:
                yield from self.step()

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
            self._open(request)
        return ended

    def _open(self, request: Request) -> None:
        """Give a request what it needs to run; if that fails, it is interrupted and holds none."""
        request.admit()
        with ExitStack() as on_failure:
            on_failure.callback(request.interrupt)
            drafter = self._drafter_for(request.options.drafter)
            if drafter is not None:
                drafter.open(request.name, request.tokens)
                on_failure.callback(drafter.free, request.name)
                request.layers = layers_of(drafter)
            sequence = self._read(request, drafter)
            on_failure.callback(self.target.free, sequence)
            if drafter is not None:
                self.control.open(request.name, request.options.tenant, chooses=request.is_free)
            on_failure.pop_all()
        request.sequence = sequence
        request.guesser = guesser_of(request, drafter)
        self._running.append((request, drafter))

    def _read(self, request: Request, drafter: Drafter | None) -> int:
        """Open the target's sequence, with all of the prompt but the root if it is read alone."""
        prompt = request.prompt[:-1]
        if isinstance(drafter, Watcher) and request.layers:

            def see(start: int, hidden: Mapping[int, NDArray[np.float32]]) -> None:
                drafter.see(request.name, start, hidden)

            request.watch = Watch(request.layers, see)
        if self.target.capabilities.reads_beside:
            sequence = self.target.open(source=request.source)
            request.has_read(0)
            return sequence
        if request.watch is None:
            sequence = self.target.open(prompt, request.source)
        else:
            sequence = self.target.open(source=request.source)
            read_prompt(self.target, sequence, prompt, PREFILL_ROWS, request.watch)
        request.has_read(len(prompt))
        return sequence

    def _read_alone(self, request: Request) -> None:
        """Read the rest of a prompt in passes of its own; if that fails, end it alone."""
        if request.finish is not None:
            return
        rest, sequence = request.prompt[request.read : -1], request.sequence
        assert sequence is not None
        try:
            read_rest(self.target, sequence, rest, PREFILL_ROWS, request.watch)
        except BaseException:
            self.cancel(request)
            raise
        request.has_read(len(rest))

    def _close(self, request: Request) -> Result:
        """Give back all that a request holds."""
        drafter = next(drafter for running, drafter in self._running if running is request)
        self._running = [pair for pair in self._running if pair[0] is not request]
        sequence, request.sequence = request.sequence, None
        self.stats.add(request.stats)
        assert sequence is not None
        with ExitStack() as both:  # though one may fail
            if drafter is not None:
                both.callback(drafter.free, request.name)
                both.callback(self.control.free, request.name)
            both.callback(self.target.free, sequence)
        return request.result()
