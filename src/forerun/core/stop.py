"""Where the text ends: the one place that cuts.

Tokens are pushed one at a time, in the order they stand in the text, whatever round they came
from. The first that ends the text is the last that counts; what a draft had after it never was.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, Protocol

from forerun.config import Ending

__all__ = ["Decoder", "FinishReason", "Pushed", "Stop", "Stops"]

FinishReason = Literal["stop", "length", "interrupted"]


class Decoder(Protocol):
    """Turns tokens into text as they come, never half a character."""

    def push(self, token: int) -> str:
        """Return the text that this token completes."""
        ...

    def flush(self) -> str:
        """Return what was held back."""
        ...


class Pushed(NamedTuple):
    """What one token brought.

    Attributes:
        text: Text that is now certain to stand in the output.
        finished: Why the text ends with this token, or None.
        detail: What ended it: the stop string, "end of text", "max_tokens" or "context".
    """

    text: str
    finished: FinishReason | None = None
    detail: str = ""


class Stops(Protocol):
    """What watches one text, and says where it ends."""

    @property
    def left(self) -> int:
        """How many tokens may still be written."""
        ...

    def push(self, token: int) -> Pushed:
        """Take the next token of the text."""
        ...

    def finish(self) -> str:
        """Return the text still held back, for a text that is cut from outside."""
        ...


class Stop:
    """Watches one text.

    Args:
        ending: The request's settings.
        eos_ids: Tokens that end the text; they bring no text themselves.
        decoder: Of this text alone.
        room: Tokens that fit into the context after the prompt.
    """

    def __init__(
        self, ending: Ending, eos_ids: Collection[int], decoder: Decoder, room: int
    ) -> None:
        self._eos_ids = frozenset() if ending.ignore_eos else frozenset(eos_ids)
        self._ending = ending
        self._decoder = decoder
        self._limit = min(ending.max_tokens, room)
        self._limited_by = "max_tokens" if ending.max_tokens <= room else "context"
        self._held = ""  # may become part of a stop string
        self._blind = 0  # a stop string that ends within this much of _held came too early
        self.count = 0

    @property
    def left(self) -> int:
        """How many tokens may still be written."""
        return self._limit - self.count

    def push(self, token: int) -> Pushed:
        """Take the next token of the text."""
        self.count += 1
        if token in self._eos_ids and self.count > self._ending.min_tokens:
            return self._end("stop", "end of text")
        text = self._decoder.push(token)
        if not self._ending.stop and self.count < self._limit:
            return Pushed(text)  # nothing can end it, so nothing is held back
        self._held += text
        found = self._find()
        if found is not None:
            return self._cut(*found)
        if self.count >= self._limit:
            return self._end("length", self._limited_by)
        return Pushed(self._release())

    def finish(self) -> str:
        """Return the text still held back, for a text that is cut from outside."""
        return self._end("interrupted", "interrupted").text

    def _cut(self, start: int, string: str) -> Pushed:
        text, self._held = self._held[:start], ""
        return Pushed(text, "stop", string)

    def _end(self, reason: FinishReason, detail: str) -> Pushed:
        """End the text here, unless what the decoder held back completes a stop string."""
        self._held += self._decoder.flush()
        found = self._find()
        if found is not None:
            return self._cut(*found)
        text, self._held = self._held, ""
        return Pushed(text, reason, detail)

    def _find(self) -> tuple[int, str] | None:
        """Return where the first stop string begins, if one is complete and not too early."""
        if self.count < self._ending.min_tokens:
            self._blind = len(self._held)
            return None
        places = []
        for string in self._ending.stop:
            start = self._held.find(string, max(0, self._blind - len(string) + 1))
            if start >= 0:
                places.append((start, string))
        return min(places, default=None)

    def _release(self) -> str:
        """Return all that can't be the beginning of a stop string any more."""
        keep = max((_overlap(self._held, string) for string in self._ending.stop), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        self._blind = max(0, self._blind - cut)
        return text


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest end of `text` that begins `string` but isn't all of it."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if string.startswith(text[-n:])), 0)
