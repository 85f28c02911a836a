"""What a pass costs: `forerun bench pass`, from opening the sides to the report."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, closing

from forerun.api import LanguageModel
from forerun.bench.end import NEVER, End
from forerun.bench.machine import Gauge, LoadMeter, describe, load_average
from forerun.bench.measure import Plan, measure
from forerun.bench.options import Timing
from forerun.bench.peers import PeerKit, open_peer, peer_names
from forerun.bench.report import Load, PassReport
from forerun.bench.sides import ForerunSide, Side
from forerun.errors import OptionError
from forerun.targets.native import NativeTarget

__all__ = ["bench_pass", "check_context"]

_SEED = 1


def bench_pass(
    lm: LanguageModel,
    options: Timing,
    *,
    end: End = NEVER,
    progress: Callable[[str, float], None] = lambda part, share: None,
) -> PassReport:
    """Time passes, a prompt and plain decoding, ours beside the peers'.

    Args:
        lm: The model, on the native target.
        options: What to time.
        end: Once it has come, the report is of what was measured so far.
        progress: Told what is being timed, and the share that is done.

    Raises:
        OptionError: An unknown peer, more tokens than the model's context, or another target.
        StartError: A peer is not installed, or can't open the file.
    """
    target = lm.target
    if not isinstance(target, NativeTarget):
        raise OptionError("bench times the native target.", "Choose target 'native'.")
    names = peer_names(options.peers)
    check_context(options, target.context_length)
    plan = _plan(options, target.vocab_size)
    context = plan.tokens[: options.context]
    kit = PeerKit(str(lm.model.path), target.threads, context, _reach(options), options.prefill)
    with ExitStack() as opened:
        with end.impatient():  # a long context is read
            ours = ForerunSide(lm, context)
        sides: list[Side] = [opened.enter_context(closing(ours))]
        sides += [opened.enter_context(open_peer(name, kit)) for name in names]
        gauge = Gauge(target.threads)
        before, meter = load_average(), LoadMeter()
        samples = measure(sides, plan, at_repeat=gauge.read, end=end, progress=progress)
        gauge.read()
        load = Load(before, load_average(), meter.others(), meter.stolen())
        details = {side.name: side.describe() for side in sides}
    return PassReport(
        model=lm.model.name,
        options=options,
        plan=plan,
        samples=samples,
        details=details,
        machine=describe(target.threads),
        bytes_per_pass=_bytes_per_pass(target, options.context),
        readings=gauge.readings,
        load=load,
    )


def check_context(options: Timing, limit: int) -> None:
    """Check that all that is asked for fits into a model's context of `limit` tokens.

    Raises:
        OptionError: It does not.
    """
    behind = _reach(options) + 1
    if options.context + behind > limit:
        what = f"context = {options.context}, {behind} tokens behind it: the model reads {limit}."
        most = limit - behind
        way_out = f"Choose a context up to {most}." if most > 0 else "Choose fewer rows and tokens."
        raise OptionError(what, way_out)
    if options.prefill > limit:
        what = f"prefill = {options.prefill}: the model reads {limit}."
        raise OptionError(what, f"Choose up to {limit}, or 0.")


def _reach(options: Timing) -> int:
    """How far passes and decoding go behind the context."""
    return max(*options.rows, options.decode)


def _plan(options: Timing, vocab_size: int) -> Plan:
    longest = max(options.context, options.prefill, *options.rows)
    draw = random.Random(_SEED)
    tokens = [draw.randrange(vocab_size) for _ in range(longest)]
    rows = tuple(dict.fromkeys(options.rows))
    return Plan(rows, options.prefill, options.decode, options.repeats, tokens, _SEED)


def _bytes_per_pass(target: NativeTarget, context: int) -> int:
    """What a pass of one row must read: all weights, and the context's keys and values."""
    return target.weight_bytes + target.row_bytes + context * target.kv_bytes_per_token
