"""Copies of a user's model: they share all there is, and in them single modules are others.

Nothing of the user's model is changed. What becomes of its weights, buffers and hooks later counts
in a copy, too; where a module of it is replaced, a copy has to be made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["Structure", "copied", "replaced", "shallow_copy"]


def shallow_copy(module: Any) -> Any:
    """Return another module that shares all there is; copy.copy refuses parametrized ones."""
    kind: Any = type(module)
    other = kind.__new__(kind)
    other.__dict__.update(module.__dict__)
    return other


def replaced(module: Any, path: Sequence[str], make: Callable[[Any], Any]) -> Any:
    """Copy a module and those on the path, without their weights, with another at its end.

    Args:
        module: Nothing of it is changed.
        path: Names from module to module.
        make: Returns what stands there instead, from what stands there.
    """
    if not path:
        return make(module)
    shallow = shallow_copy(module)
    inner = replaced(module._modules[path[0]], path[1:], make)
    shallow.__dict__["_modules"] = {**module._modules, path[0]: inner}
    return shallow


def copied(model: torch.nn.Module, make: Callable[[torch.nn.Module], torch.nn.Module]) -> Any:
    """Copy a module and all in it, each once, without their weights.

    Args:
        model: Nothing of it is changed.
        make: Returns a shallow copy of a module, or what else stands in its place with its
            children.
    """
    made: dict[int, torch.nn.Module] = {}

    def copy(module: torch.nn.Module) -> torch.nn.Module:
        if id(module) not in made:
            made[id(module)] = shallow = make(module)
            own: dict[str, Any] = module.__dict__["_modules"]
            shallow.__dict__["_modules"] = {
                name: None if child is None else copy(child) for name, child in own.items()
            }
        return made[id(module)]

    return copy(model)


class Structure:
    """What a model consists of: its modules, their classes and children, and forwards of their own.

    Args:
        model: The user's.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._known = [
            (module, type(module), module.__dict__.get("forward"), dict(module._modules))
            for module in model.modules()
        ]

    @property
    def is_current(self) -> bool:
        """Whether the model still consists of the same; modules equal themselves alone."""
        return all(
            type(module) is kind
            and module.__dict__.get("forward") == forward
            and module._modules == children
            for module, kind, forward, children in self._known
        )
