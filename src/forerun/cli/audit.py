"""`forerun audit`."""

from __future__ import annotations

from forerun.cli.options import with_options
from forerun.config import Loading


@with_options
def audit(loading: Loading) -> None:
    """See the promises kept on this machine."""
