"""One request: what was asked, and the text as it grows."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from forerun.config import Generation
from forerun.core.coins import AddressedCoins, Coins
from forerun.core.rules import Chance, make_rule
from forerun.core.stop import Decoder, FinishReason, Stop, Stops
from forerun.core.warp import Warp
from forerun.drafters.protocol import Guesser
from forerun.errors import CapabilityError, PromptError
from forerun.events import Result, Stats, TokenEvent
from forerun.native import fast_noise, fast_warp
from forerun.printable import counted
from forerun.targets.checks import Watch, check_source
from forerun.targets.protocol import Target

__all__ = ["AUTO_DRAFT_LENGTH", "Ask", "Request"]

AUTO_DRAFT_LENGTH = 5
"""What draft length "auto" means under a rule that draws coins."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a caller asks for.

    Attributes:
        prompt: Tokens; at least one.
        options: Sampling, speculation and ending.
        seed: The noise's seed, drawn by the caller if the options give none.
        eos_ids: Tokens that end the text.
        decoder: Turns this text's tokens into text.
        sample: Which of several samples of the prompt.
        prediction: The output that is expected, for drafters; empty if nothing is.
        source: What the target's encoder reads; None for a target without one.
        warp: What makes the law, instead of what the options say.
        stop: What ends the text, likewise.
    """

    prompt: tuple[int, ...]
    options: Generation
    seed: int
    eos_ids: Collection[int]
    decoder: Decoder
    sample: int = 0
    prediction: tuple[int, ...] = ()
    source: tuple[int, ...] | None = None
    warp: Warp | None = None
    stop: Stops | None = None


class Request:
    """A request's state: waiting until it is opened, running until `finish` is set.

    Between rounds the target has committed all tokens but the last: that one is the root of the
    next draft.
    """

    def __init__(self, name: int, ask: Ask, target: Target) -> None:
        self.name = name
        self.options = ask.options
        self.prompt = ask.prompt
        self.seed = ask.seed
        self.prediction = ask.prediction
        self.source = ask.source
        self.rule = make_rule(ask.options.rule, ask.options.lenience)
        self._check(target)
        room = target.context_length - len(ask.prompt)
        self.stop: Stops = ask.stop or Stop(ask.options, ask.eos_ids, ask.decoder, room)
        # A text that ignores its end needn't be kept from it, and goes on behind it.
        self.ends = frozenset(() if ask.options.ignore_eos else ask.eos_ids)
        self.warp = ask.warp or fast_warp(
            ask.options,
            target.vocab_size,
            self.ends,
            ask.options.min_tokens,
            target.capabilities.threads,
        )
        self.state = self.warp.start(ask.prompt)
        self.noise = fast_noise(ask.seed, ask.sample)
        self.coins: Coins = AddressedCoins(ask.seed, ask.sample)
        self.exactness = target.capabilities.exactness
        self.target_name = target.capabilities.name
        self.has_trees = target.capabilities.trees
        self.guesser: Guesser | None = None  # once opened, if its drafts are chosen each round
        self.layers: tuple[int, ...] = ()  # once opened, those that its drafter watches
        self.tokens = list(ask.prompt)
        self.events: list[TokenEvent] = []
        self.stats = Stats(prompt_tokens=len(ask.prompt) + len(ask.source or ()))
        self.round = 0
        self.sequence: int | None = None  # the target's name for it, once opened
        self.read = 0  # tokens of the prompt that the target holds
        self.watch: Watch | None = None  # who is shown hidden states of the prompt
        self._admitted = 0.0
        self.finish: tuple[FinishReason, str] | None = None
        self._tail = ""  # text released by an interruption
        if self.stop.left <= 0:
            self.finish = ("length", "max_tokens")

    def _check(self, target: Target) -> None:
        if not self.prompt:
            raise PromptError("The prompt is empty.", "Give at least one token.")
        if len(self.prompt) >= target.context_length:
            size = counted(len(self.prompt), "token")
            raise PromptError(
                f"The prompt has {size}, the context {target.context_length}.",
                "Shorten the prompt, so that at least one token can follow.",
            )
        unknown = [t for t in self.prompt if not 0 <= t < target.vocab_size]
        if unknown:
            raise PromptError(
                f"The prompt holds token {unknown[0]}.",
                f"Token ids go from 0 to {target.vocab_size - 1}.",
            )
        encoder = target.capabilities.encoder
        if self.source is not None:
            check_source(self.source, encoder)
        elif encoder is not None:
            raise PromptError("This target's encoder has nothing to read.", "Give a source.")
        width = self.options.draft_width
        if width != "auto" and width > 1 and not target.capabilities.trees:
            raise CapabilityError(
                f"draft_width = {width}: this target scores chains only.",
                "Use draft_width 1.",
            )

    @property
    def output(self) -> Sequence[int]:
        """The tokens written so far."""
        return self.tokens[len(self.prompt) :]

    @property
    def is_read(self) -> bool:
        """Whether the target holds all of the prompt but the root."""
        return self.read >= len(self.prompt) - 1

    def admit(self) -> None:
        """Count the time from now on until the prompt is read."""
        self._admitted = time.perf_counter()

    def has_read(self, tokens: int) -> None:
        """Count tokens of the prompt that the target holds now, besides those before."""
        self.read += tokens
        if self.is_read:
            self.stats.prompt_seconds = time.perf_counter() - self._admitted

    @property
    def is_free(self) -> bool:
        """Whether each round may choose how much is drafted.

        Not under a rule that draws coins: what a coin is for must not hang on how fast a pass was,
        or a seed would no longer give the same text.
        """
        return self.options.draft_length == "auto" and self.rule.draws_from == "noise"

    @property
    def room(self) -> int:
        """How long the next draft may be, so that nothing is drafted that can't be emitted."""
        return max(0, self.stop.left - 1)

    @property
    def guarantee(self) -> Literal["bitwise", "same law", "lenient"]:
        """How the text relates to plain decoding's with the same seed."""
        if not self.rule.exact:
            return "lenient"
        # A rule with coins of its own samples another text from the same law.
        samples = self.rule.draws_from == "coins" and self.options.temperature > 0
        return "same law" if samples else self.exactness

    @property
    def chance(self) -> Chance:
        """Where this round's rule takes its numbers from."""
        return Chance(self.noise, self.coins, self.round)

    def interrupt(self, why: str = "interrupted") -> None:
        """End the text here, from outside; what is held back is text too."""
        if self.finish is None:
            self._tail = self.stop.finish()
            self.finish = ("interrupted", why)

    def result(self) -> Result:
        """Return the text as far as it is."""
        reason, detail = self.finish or ("interrupted", "still running")
        return Result(
            request=self.name,
            text="".join(event.text for event in self.events) + self._tail,
            token_ids=tuple(self.output),
            finish_reason=reason,
            finish_detail=detail,
            exact=self.rule.exact,
            guarantee=self.guarantee,
            seed=self.seed,
            tokens=tuple(self.events),
            stats=self.stats.copy(),
            target=self.target_name,
        )
