"""Forerun's own sides: plain decoding, `auto`, or drafters at a fixed length.

A side's name says what it is:

    plain                  drafter none
    auto                   what `forerun generate` does by default
    suffix                 one drafter; suffix+bigram is both, the first that has a guess
    suffix:5, suffix:5x2   with a fixed draft length, and width
    auto:warm              with what its drafters learned from all that it wrote before
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from forerun.api import LanguageModel
from forerun.bench.race.protocol import Acceptance, Job, Written
from forerun.config import Generation, Speculation
from forerun.core.tree import ROOT
from forerun.drafters.table import drafter_names
from forerun.errors import OptionError
from forerun.events import Drafted, RoundEvent, TokenEvent

__all__ = ["OurSide", "SideSpec", "acceptance_of", "our_spec", "swept"]

WARM = "warm"


class SideSpec(NamedTuple):
    """What one of our sides is.

    Attributes:
        name: As it was asked for.
        speculation: Its drafter, length and width.
        is_warm: Whether it keeps what was learned.
    """

    name: str
    speculation: Speculation
    is_warm: bool


def our_spec(name: str) -> SideSpec:
    """Read the name of a side.

    Raises:
        OptionError: It names no drafter, or no length.
    """
    drafters, *rest = name.split(":")
    asked: dict[str, Any] = {"drafter": drafters.replace("+", ",")}
    if drafters == "plain":
        asked["drafter"] = "none"
    is_warm = rest[-1:] == [WARM]
    rest = rest[:-1] if is_warm else rest
    shape = re.fullmatch(r"([0-9]{1,4})(?:x([0-9]{1,3}))?", rest[0]) if len(rest) == 1 else None
    if rest and shape is None:
        what = f"Side {name[:80]!r}: {':'.join(rest)[:80]!r} is no draft length."
        raise OptionError(what, "Write suffix:5, suffix:5x2 or suffix:5:warm.")
    if shape is not None:
        asked["draft_length"] = int(shape[1])
        asked["draft_width"] = int(shape[2] or 1)
    if drafters in ("plain", "none") and (is_warm or rest):
        raise OptionError(f"Side {name[:80]!r}: plain decoding drafts nothing.", "Write plain.")
    drafter_names(asked["drafter"])
    return SideSpec(name, Speculation(**asked), is_warm)


def swept(drafters: Iterable[str], lengths: Iterable[int]) -> list[str]:
    """Return the names of sides: each drafter, or mix of them, at each fixed length.

    Raises:
        OptionError: What is to be swept is no drafter, or has a length already.
    """
    lengths = list(lengths)
    names: list[str] = []
    for each in (name.strip() for given in drafters for name in given.split(",")):
        if each in ("plain", "none") or ":" in each:
            what = f"sweep = {each[:80]!r} is no drafter to be tried at several lengths."
            raise OptionError(what, "Write suffix or suffix+recycle, and the lengths in lengths.")
        names += [f"{each}:{length}" for length in lengths]
    return names


class OurSide:
    """Writes through `stream`, as any user does.

    Args:
        spec: What it is.
        lm: The model; a warm side has one of its own, so that nobody makes it forget.
    """

    is_ours = True

    def __init__(self, spec: SideSpec, lm: LanguageModel) -> None:
        self.name = spec.name
        self._spec, self._lm = spec, lm

    def describe(self) -> dict[str, Any]:
        """Return its target, what keys and values are kept in, and its drafter."""
        loading, chosen = self._lm.loading, self._spec.speculation
        return {
            "target": self._lm.target.capabilities.name,
            "weights": loading.weights,
            "kv_bits": int(loading.kv_bits or 16),
            "drafter": chosen.drafter,
            "head": loading.head,
            "draft_length": chosen.draft_length,
            "draft_width": chosen.draft_width,
            "store": WARM if self._spec.is_warm else "empty",
        }

    def write(self, job: Job) -> Written:
        """Write one text, with empty stores unless the side is a warm one."""
        if not self._spec.is_warm:
            self._lm.forget()
        begun = first = last = time.perf_counter()
        stream = self._lm.stream(job.tokens, **self._options(job))
        later, rounds = 0, []
        tokens: list[int] = []
        for event in stream.events():
            if isinstance(event, TokenEvent):
                last = time.perf_counter()
                if not tokens:
                    first = last
                later += event.round > 0
                tokens.append(event.token)
            elif isinstance(event, RoundEvent):
                rounds.append(event)
        stats = stream.result.stats
        acceptance = Acceptance()
        for each in rounds:
            acceptance.add(acceptance_of(each))
        return Written(
            token_ids=tuple(tokens),
            first_seconds=first - begun,
            seconds=last - first,
            later=later,
            passes=stats.passes,
            stats=stats,
            acceptance=acceptance,
            drafted_in_rounds=Counter(len(each.drafted) for each in rounds),
        )

    def cpu_seconds(self) -> float:
        """Return 0: it runs in this process."""
        return 0.0

    def close(self) -> None:
        """Nothing to give back: the model is its owner's."""

    def _options(self, job: Job) -> dict[str, Any]:
        options = {
            **dict(self._spec.speculation),
            "max_tokens": job.max_tokens,
            "temperature": job.temperature,
            "seed": job.seed,
        }
        # A hint that an engine without such an option does without: the text is the same.
        hint = {"prediction": job.prediction} if "prediction" in Generation.model_fields else {}
        return {**options, **hint}


def acceptance_of(event: RoundEvent) -> Acceptance:
    """Return what became of one round's draft."""
    acceptance = Acceptance()
    depth_of = _depths(event.drafted)
    siblings: dict[int, int] = {}
    for index, node in enumerate(event.drafted):
        rank = siblings.get(node.parent, 0)
        siblings[node.parent] = rank + 1
        acceptance.count(depth_of(index), rank, node.accepted)
    return acceptance


def _depths(drafted: tuple[Drafted, ...]) -> Callable[[int], int]:
    depths: list[int] = []
    for node in drafted:
        depths.append(1 if node.parent == ROOT else depths[node.parent] + 1)
    return depths.__getitem__
