"""A script of the project, which is no part of the package, as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

__all__ = ["loaded"]


def loaded(path: str) -> ModuleType:
    """Return the script at a path from the project's root; it is run as an import would."""
    script = Path(__file__).parents[2] / path
    spec = importlib.util.spec_from_file_location(f"{script.stem}_script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
