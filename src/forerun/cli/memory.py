"""What commands read from the user's files for drafters, and what they keep for the next time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forerun.config import Generation
from forerun.errors import OptionError

if TYPE_CHECKING:
    from forerun.api import LanguageModel

__all__ = ["keep_store", "with_prediction"]


def with_prediction(generation: Generation) -> Generation:
    """Return the options with the text of the file that the prediction names, if it names one.

    Raises:
        OptionError: It does, and the file can't be used.
    """
    named = generation.prediction
    if not named or not os.path.isfile(named):
        return generation
    from forerun.drafters.corpus import read_text

    text, reason = read_text(named)
    if text is None:
        raise OptionError(f"prediction = {named!r}: {reason}.", "Give a text in UTF-8.")
    return generation.replace(prediction=text)


def keep_store(lm: LanguageModel) -> None:
    """Write what was learned from texts, if there is a file for it."""
    if lm.loading.store is not None:
        lm.save_store()
