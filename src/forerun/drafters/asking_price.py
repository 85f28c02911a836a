"""What asking a drafter about one more place takes, as it was of late."""

from __future__ import annotations

__all__ = ["AskingPrice"]

_GAIN = 0.1


class AskingPrice:
    """Follows what questions took, round by round.

    Attributes:
        seconds: What one takes; 0 before a round had any.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._taken, self._questions = 0.0, 0

    def count(self, seconds: float, questions: int = 1) -> None:
        """Count questions that took so long together."""
        self._taken += seconds
        self._questions += questions

    def end_round(self) -> None:
        """Follow what the round's questions took on average; the first such round is believed."""
        if not self._questions:
            return
        surprise = self._taken / self._questions - self.seconds
        self.seconds += surprise * (_GAIN if self.seconds else 1.0)
        self._taken, self._questions = 0.0, 0
