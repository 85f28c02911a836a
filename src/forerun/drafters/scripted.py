"""Guesses a script, token by token: what is likely to be written is known beforehand."""

from __future__ import annotations

from forerun.core.tree import Draft
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.table import DrafterKit
from forerun.errors import OptionError

__all__ = ["Scripted"]


class Scripted(Memoryless):
    """Guesses that the output's i-th token is the script's i-th, whatever came before.

    Args:
        kit: Its script; without one each text's own prompt is the script, for texts that repeat
            what they were given.

    Raises:
        OptionError: The script holds a token that the target does not know.
    """

    name = "scripted"

    def __init__(self, kit: DrafterKit) -> None:
        self._script = kit.script
        for token in kit.script or ():
            if not 0 <= token < kit.vocab_size:
                raise OptionError(
                    f"The script holds token {token}.",
                    f"Token ids go from 0 to {kit.vocab_size - 1}.",
                )

    def guess(self, request: DraftRequest) -> Draft:
        """Return the script's next tokens as a chain."""
        script = self._script
        if script is None:
            script = tuple(request.tokens[: request.prompt_length])
        offset = len(request.tokens) - request.prompt_length
        return Draft.chain(script[offset : offset + request.length], self.name)
