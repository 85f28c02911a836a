"""The production warps against the slow twin, setting by setting, along texts and forks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from forerun.audit.twin import law_after
from forerun.audit.worlds import SETTINGS
from forerun.config import Generation
from forerun.core.noise import Noise
from forerun.core.warp import Warp, law
from forerun.errors import ForerunError
from forerun.native import fast_warp

__all__ = ["warp_problems"]

_VOCAB = 6
_PROMPT = (4, 1)
_STOPS = (5,)
_MORE: dict[str, dict[str, object]] = {
    "all filters": {"temperature": 0.7, "top_k": 4, "top_p": 0.9, "min_p": 0.05},
    "hot, top-p": {"temperature": 3.0, "top_p": 0.6},
    "cool, top-p": {"temperature": 0.3, "top_p": 0.9},
    "top-k 3": {"temperature": 1.0, "top_k": 3},
    "reward": {"temperature": 1.0, "presence_penalty": -0.5, "repetition_penalty": 0.8},
    "allowed": {"temperature": 1.0, "allowed_tokens": (0, 2, 3), "logit_bias": {3: -1.0}},
    "greedy, frequency": {"temperature": 0.0, "frequency_penalty": 1.0},
}
WARP_TOLERANCE = 1e-12


def warp_problems() -> list[str]:
    """Return where the production warp gives another law than the twin."""
    return list(itertools.chain(_law_problems(), _fork_problems()))


def _law_problems() -> Iterator[str]:
    outputs = ((), (0,), (0, 0), (2, 0, 2, 5), (1, 3, 1, 1))
    for (name, setting), least in itertools.product((SETTINGS | _MORE).items(), (0, 2)):
        options = Generation.make(**setting, min_tokens=least)
        warp, fast = (make(options, _VOCAB, _STOPS, least) for make in (Warp, fast_warp))
        for seed, output in itertools.product(range(4), outputs):
            noise = Noise(seed).gumbel(len(output), _VOCAB)
            # Every other time in steps of a half, so that there are ties.
            logits = (np.round(2 * noise) / 2 if seed % 2 else noise).astype(np.float32)
            wanted = law_after(list(map(float, logits)), _PROMPT, output, options, _STOPS)
            state = warp.start(_PROMPT)
            for token in output:
                state = state.advance(token)
            try:
                p = law(warp.scores(logits, state))
            except ForerunError as error:
                yield f"{name} fails after {output}: {error}"
                continue
            if fast.law(logits, state).tobytes() != p.tobytes():
                yield f"{name}, after {output}: the compiled law is another"
            difference = float(np.abs(p - wanted).max())
            if not difference <= WARP_TOLERANCE:
                yield f"{name}, after {output}: a probability is off by {difference:.3g}"


def _fork_problems() -> Iterator[str]:
    """A state that went on elsewhere must still be what it was."""
    options = Generation.make(**SETTINGS["penalties"])
    state = Warp(options, _VOCAB).start(_PROMPT)
    seen = dict(state.counts)
    state.advance(0).advance(3)
    if dict(state.counts) != seen:
        yield f"counts of a text change from {seen} to {state.counts} when a fork of it goes on"
