"""What commands read from the user's files for drafters, and what they keep for the next time."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from forerun.config import Generation, Loading
from forerun.errors import OptionError

if TYPE_CHECKING:
    from forerun.api import LanguageModel

__all__ = ["check_kept", "keep_store", "with_prediction"]

_NAME = re.compile(r"\S*[/\\]\S*|\S+\.[A-Za-z]\w{0,7}")
"""No blank, and a separator or an ending."""


def with_prediction(generation: Generation) -> Generation:
    """Return the options with the text of the file that the prediction names, if it names one.

    What looks like a file's name is one: a misspelt name would else be followed as a text.

    Raises:
        OptionError: It does, and the file can't be used, or there is none.
    """
    named = generation.prediction
    if not named or not (os.path.lexists(named) or _NAME.fullmatch(named)):
        return generation
    from forerun.drafters.corpus import read_text

    text, reason = read_text(named)
    if text is None:
        way_out = "Name a file that is a text in UTF-8, or give the text; one with a blank in it "
        raise OptionError(f"prediction = {named!r}: {reason}.", f"{way_out}is never a name.")
    return generation.replace(prediction=text)


def check_kept(loading: Loading) -> None:
    """Check, before anything is written, that there is a place for what is kept, if it is.

    Raises:
        StoreFileError: There is none.
    """
    for path in filter(None, (loading.store, loading.online_store)):
        from forerun.drafters.store_file import check_place

        check_place(path)


def keep_store(lm: LanguageModel) -> None:
    """Write what was learned from texts, if there are files for it."""
    if lm.loading.store is not None:
        lm.save_store()
    if lm.loading.online_store is not None:
        lm.save_online()
