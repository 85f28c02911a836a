"""Runs the production loop to the end of its texts, and never longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.audit.wavering import WaveringCosts
from forerun.control.control import Control
from forerun.drafters.protocol import Drafter
from forerun.engine.request import Ask, Request
from forerun.engine.scheduler import Scheduler
from forerun.errors import EngineError
from forerun.targets.protocol import Target

__all__ = ["write"]

_BATCH = 64  # texts in a pass: enough to mix them, few enough to see progress


def write(
    target: Target,
    asks: Sequence[Ask],
    drafter_for: Callable[[str], Drafter | None],
    prepare: Callable[[Request], None] | None = None,
    tick: Callable[[float], None] | None = None,
) -> list[Request]:
    """Write all texts in shared passes and return their finished requests.

    Args:
        target: The model.
        asks: What to write.
        drafter_for: As for the scheduler.
        prepare: Called with each request before it starts, to put known chance into it.
        tick: Called after each round with the share of tokens that are written.

    Raises:
        EngineError: The texts go on after every one of them should have ended.
    """
    scheduler = Scheduler(target, drafter_for, _BATCH, Control(target, lambda _: WaveringCosts()))
    requests = [scheduler.submit(ask) for ask in asks]
    for request in () if prepare is None else requests:
        prepare(request)  # type: ignore[misc]
    lengths = [(request, request.options.max_tokens) for request in requests]
    whole = sum(most for _, most in lengths)
    # Every round gives each running text a token, or reads some of its prompt: a broken loop may
    # not run for ever.
    for _ in range(sum(len(ask.prompt) + ask.options.max_tokens + 1 for ask in asks)):
        if scheduler.is_idle:
            return requests
        scheduler.step()
        if tick is not None:
            written = sum(len(r.output) if r.finish is None else most for r, most in lengths)
            tick(written / whole)
    raise EngineError(f"{len(asks)} texts did not end where max_tokens ends them.")
