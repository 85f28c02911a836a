"""How what Forerun can use, but does not need, is installed."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

__all__ = ["pip_command"]


def pip_command(*what: str) -> str:
    """Return the command that installs something beside this Forerun, in any shell.

    A bare `pip` is often that of another Python, which does not find Forerun at all.

    Args:
        what: What pip is to install, such as `forerun[train]`.
    """
    python, here = Path(sys.executable or "python"), Path(os.path.abspath("."))
    if python.is_relative_to(here):
        python = python.relative_to(here)
    return f"{shlex.quote(str(python))} -m pip install {shlex.join(what)}"
