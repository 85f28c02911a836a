"""Tokens to text, one token at a time, without ever emitting half a character or losing one.

A token is a run of bytes that may begin or end inside a character. The bytes go through an
incremental UTF-8 decoder, which holds back an unfinished character; what can no longer become one
is U+FFFD. So the text written while streaming is the text decoded at the end, for every sequence
of ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence, Set

from forerun.errors import PromptError

__all__ = ["Detokenizer"]


class Detokenizer:
    """Turns tokens into text as they come.

    Args:
        pieces: The bytes of every token, by id.
        hidden: Tokens that leave no text.
        opens: Tokens after which the encoder writes one space of its own; None if it never does.
            That space is taken away again, at the start as well.
        after: Tokens that came before: their text is not emitted, but a character they left
            unfinished is.
        opens_late: Hidden tokens at the start leave it a start.
        first: The bytes of every token at a start, if more is otherwise there than a space.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        hidden: Set[int] = frozenset(),
        opens: Set[int] | None = None,
        after: Sequence[int] = (),
        opens_late: bool = False,
        first: Sequence[bytes] | None = None,
    ) -> None:
        self._pieces, self._first = pieces, first
        self._hidden = hidden
        self._lasting = hidden if opens_late else frozenset()
        self._opens = opens
        self._at_opening = opens is not None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in after:
            self.push(token)

    def push(self, token: int) -> str:
        """Return the text that `token` completes, empty while a character is unfinished.

        Raises:
            PromptError: The id is not in the vocabulary.
        """
        if not 0 <= token < len(self._pieces):
            raise PromptError(
                f"Token {token} is not in the vocabulary of {len(self._pieces)} tokens.",
                "Use ids from the same model's tokenizer.",
            )
        piece = b"" if token in self._hidden else self._pieces[token]
        if self._opens is not None:
            opening = self._at_opening
            self._at_opening = token in self._opens or (opening and token in self._lasting)
            if opening and not self._at_opening:
                piece = self._first[token] if self._first else piece.removeprefix(b" ")
        if piece.isascii() and not self._decoder.getstate()[0]:
            return piece.decode("ascii")
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return what was held back, an unfinished character as U+FFFD, and start afresh."""
        return self._decoder.decode(b"", final=True)
