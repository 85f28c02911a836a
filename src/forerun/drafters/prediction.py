"""Guesses the text that the user expects: an edited file is mostly the file as it was.

The prediction is followed token by token. Where the text departs from it, the place where the
text's last tokens stand in the prediction is looked for: ahead of where both agreed last (a long
agreement counts anywhere), the longest first, of equals the nearest. Until there is one, two
guesses are kept: that as many tokens were replaced as were written, and that all were put in.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.tree import Draft
from forerun.drafters.grow import grow
from forerun.drafters.memory import Follower
from forerun.drafters.protocol import NOWHERE, DraftRequest, Guess, Place
from forerun.drafters.table import DrafterKit

__all__ = ["Expected", "Prediction"]

_LONGEST = 8  # tokens that are looked for in the prediction
_NEAR = (0, 16, 256)  # how far ahead one and two tokens that agree are believed; more, anywhere
_SOLID = 4  # tokens in a row that settle where both texts stand
# Confidence where nothing agrees yet, and after a number of tokens that agreed; fitted to texts of
# the default model against versions of themselves with tokens replaced, put in and left out.
_LOST = 0.25
_FOUND = [0.98 - 0.3 * 0.8**run for run in range(24)]


class Expected:
    """A prediction, to be searched.

    A text is kept as a string of its tokens' own characters, one each, which Python searches fast.
    """

    __slots__ = ("text", "tokens")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.text = _string(tokens)

    def find(self, tail: str, anchor: int) -> tuple[int, int]:
        """Return where the prediction goes on, and how many tokens agree; (-1, 0) if none do.

        Args:
            tail: The text's last tokens.
            anchor: Where the prediction went on when both agreed for certain.
        """
        for size in range(len(tail), 0, -1):
            end = len(self.text)
            if size < len(_NEAR):
                end = min(end, anchor + _NEAR[size])
            found = self.text.find(tail[-size:], max(anchor - size + 1, 0), end)
            if found >= 0:
                return found + size, size
            if size == _LONGEST and (found := self.text.find(tail)) >= 0:
                return found + size, size  # something is written again, or was moved
        return -1, 0


class _Spot:
    """Where text and prediction stand against each other.

    Args:
        expected: The prediction.
        anchor: Where it went on when both agreed for certain.
        at: Where it goes on if all is well.
        run: Tokens in a row that agreed; 0 where nothing does.
        tail: The text's last tokens.
    """

    __slots__ = ("_anchor", "_at", "_expected", "_run", "_tail")

    def __init__(self, expected: Expected, anchor: int, at: int, run: int, tail: str) -> None:
        self._expected = expected
        self._anchor, self._at, self._run, self._tail = anchor, at, run, tail

    def guesses(self, most: int) -> Sequence[Guess]:
        tokens, at = self._expected.tokens, self._at
        sure = _FOUND[min(self._run, len(_FOUND) - 1)] if self._run else _LOST
        guesses: list[Guess] = []
        if at < len(tokens):
            guesses.append(Guess(tokens[at], sure, Prediction.name, 0))
        if self._run == 0 and self._anchor < len(tokens) and self._anchor != at:
            token = tokens[self._anchor]
            if not guesses or token != guesses[0].token:
                guesses.append(Guess(token, sure / 2, Prediction.name, len(guesses)))
        return guesses[:most]

    def after(self, token: int) -> _Spot:
        tokens, at = self._expected.tokens, self._at
        tail = self._tail[1 - _LONGEST :] + chr(token)
        if at < len(tokens) and tokens[at] == token:
            run = self._run + 1
            return _Spot(
                self._expected, at + 1 if run >= _SOLID else self._anchor, at + 1, run, tail
            )
        found, run = self._expected.find(tail, self._anchor)
        if run == 0:
            return _Spot(self._expected, self._anchor, min(at + 1, len(tokens)), 0, tail)
        return _Spot(self._expected, found if run >= _SOLID else self._anchor, found, run, tail)


class _Course:
    """One text's way along its prediction; each token's spot is kept, to go back to."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.spots: list[_Spot] = []
        self._start = 0
        self._prediction: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    def push(self, token: int) -> None:
        """Take note of a token; where it leads is found out once there is a prediction."""
        self.tokens.append(token)

    def cut(self, length: int) -> None:
        """Go back."""
        del self.tokens[length:]
        del self.spots[max(length - self._start, 0) + 1 :]

    def copy(self) -> _Course:
        """Return one that stands at the same place."""
        twin = _Course()
        twin.tokens, twin.spots = self.tokens.copy(), self.spots.copy()
        twin._start, twin._prediction = self._start, self._prediction
        return twin

    def follow(self, prediction: Sequence[int], start: int) -> _Spot:
        """Return where the output, all tokens from `start` on, stands now."""
        if start != self._start or prediction != self._prediction or not self.spots:
            self._start, self._prediction = start, prediction
            self.spots = [_Spot(Expected(prediction), 0, 0, 0, "")]
        for token in self.tokens[start + len(self.spots) - 1 :]:
            self.spots.append(self.spots[-1].after(token))
        return self.spots[-1]


class Prediction(Follower[_Course]):
    """Follows a request's prediction; has no guess for a request without one."""

    name = "prediction"

    def __init__(self, kit: DrafterKit) -> None:
        super().__init__(_Course)

    def guess(self, memory: _Course, request: DraftRequest) -> Draft:
        """Return a comb of points."""
        return grow(self._spot(memory, request), request)

    def place(self, request: DraftRequest) -> Place:
        """Return where the text stands in its prediction."""
        if not request.prediction:
            return NOWHERE
        return self._spot(self._in_step(request.sequence, request.tokens), request)

    def _spot(self, memory: _Course, request: DraftRequest) -> Place:
        if not request.prediction:
            return NOWHERE
        return memory.follow(request.prediction, request.prompt_length)


def _string(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))
