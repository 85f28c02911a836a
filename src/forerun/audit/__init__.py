"""The audit: what users run to see the promises kept on their machine."""

from __future__ import annotations

from forerun.audit.certificate import Certificate
from forerun.audit.run import run_audit

__all__ = ["Certificate", "run_audit"]
