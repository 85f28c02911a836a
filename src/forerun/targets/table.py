"""The targets: one line a target, loaded when chosen.

Listed means tested: every target here passes the conformance suite of the protocol.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from forerun.config import Loading
from forerun.errors import (
    CapabilityError,
    NativeModuleError,
    OptionError,
    UnsupportedModelError,
)
from forerun.events import LoadProgress
from forerun.extras import pip_command
from forerun.models.head_file import HeadFile
from forerun.models.model import Model
from forerun.targets.head import Head
from forerun.targets.protocol import Target
from forerun.targets.readout import Readout

__all__ = ["HEADS", "READOUTS", "TARGETS", "OpenedTarget", "check_beside", "check_placed"]
__all__ += ["open_head", "open_readout", "open_target", "target_on"]

TARGETS: dict[str, str] = {
    "native": "forerun.targets.native:NativeTarget",
    "reference": "forerun.targets.reference:ReferenceTarget",
    "transformers": "forerun.targets.transformers_load:open_transformers",
}

HEADS: dict[str, str] = {
    "native": "forerun.targets.native_head:NativeHead",
    "reference": "forerun.targets.reference_head:ReferenceHead",
}
"""What computes a head's passes beside a target's."""

READOUTS: dict[str, str] = {
    "native": "forerun.targets.native_readout:NativeReadout",
    "reference": "forerun.targets.reference_readout:ReferenceReadout",
}
"""What computes heads without attention beside it."""


class OpenedTarget(NamedTuple):
    """A target, and why it is not the native one.

    Attributes:
        target: The target; its capabilities say which.
        reason: Why "auto" did not take the native one; empty otherwise.
    """

    target: Target
    reason: str = ""


def open_target(
    spec: str,
    model: Model,
    *,
    context: int | None = None,
    threads: int | None = None,
    kv_bits: int | None = None,
    placing: tuple[str | None, str, bool, bool] | None = None,
    progress: Callable[[LoadProgress], None] | None = None,
) -> OpenedTarget:
    """Open the target that `spec` names for a model.

    Args:
        spec: A name, or "auto": native where it is compiled and runs the model; else transformers
            for a model that only that runs, and reference for the others.
        model: Which model.
        context: Most tokens a sequence may hold; None is what the model was trained for.
        threads: Threads of a pass; None is one for each usable core.
        kv_bits: 16 or 32, of each number in the keys and values; None is 16.
        placing: For transformers: device, type of the weights, whether the folder's code may run,
            and whether rows shall have the same bits beside any others.
        progress: Called as the weights are packed.

    Raises:
        OptionError: No target is called that, an option is out of range, or the target at hand
            has no threads or bits to choose.
        CapabilityError: transformers is asked for and is not installed.
        NativeModuleError: The native target is asked for and is not compiled.
        UnsupportedModelError: The target asked for cannot run the model.
        ModelFileError: The weights are damaged, or the file changed.
        NotEnoughMemoryError: They need more memory than there is.
    """
    if spec not in (*TARGETS, "auto"):
        known = ", ".join(TARGETS)
        raise OptionError(f"There is no target {spec!r}.", f"There are {known}; and 'auto'.")
    reason = ""
    if spec not in ("reference", "transformers"):
        try:
            _refuse_foreign(model)
            native = _kind("native")
            options = {"threads": threads, "kv_bits": kv_bits, "progress": progress}
            return OpenedTarget(native(model, context=context, **options))
        except (NativeModuleError, UnsupportedModelError) as error:
            if spec == "native":
                raise
            reason = str(error) if isinstance(error, NativeModuleError) else error.what
    if spec == "transformers" or (model.foreign and spec == "auto"):
        _refuse("transformers", reason, threads=threads, kv_bits=kv_bits)
        return OpenedTarget(_on_transformers(model, context, placing, progress), reason)
    _refuse("reference", reason, threads=threads, kv_bits=kv_bits)
    _refuse_foreign(model)
    return OpenedTarget(_kind("reference")(model, context=context, progress=progress), reason)


def check_placed(name: str, loading: Loading) -> None:
    """Refuse what says where and in which type transformers runs, where something else does.

    Args:
        name: Of the target that runs the model.
        loading: What it was opened with.

    Raises:
        OptionError: A device or a type is named, and the target is not transformers.
    """
    for option, unsaid in (("device", None), ("dtype", "auto")):
        value = getattr(loading, option)
        if value != unsaid and name != "transformers":
            what = f"{option} = {value} is for the transformers target, and {name} runs this model."
            raise OptionError(what, f"Choose target 'transformers', or leave {option} out.")


def target_on(
    network: Any, model: Model, *, context: int | None = None, bitwise: bool = False
) -> Target:
    """Make a target of a network of transformers that the user holds; nothing of it is changed.

    Args:
        network: What AutoModelForCausalLM.from_pretrained returned.
        model: Whose tokens it knows.
        context: Most tokens a sequence may hold; None is what the network has positions for.
        bitwise: Whether rows shall have the same bits beside any others.

    Raises:
        OptionError: It is no such network, knows fewer tokens than the tokenizer, or is trained.
        CapabilityError: transformers is not installed, or the same bits can't be had.
        UnsupportedModelError: It can't be a target.
    """
    _want_transformers("")
    kind: Any = importlib.import_module("forerun.targets.transformers").TransformersTarget
    target: Target = kind(network, context=context, bitwise=bitwise, name=model.name)
    if target.vocab_size < model.architecture.vocab_size:
        known, needed = target.vocab_size, model.architecture.vocab_size
        what = f"The network knows {known} tokens, and {model.name} has {needed}."
        raise OptionError(what, "Name the folder that the network came from.")
    return target


def _refuse(target: str, reason: str, **options: int | None) -> None:
    """Refuse what only the native target has to choose."""
    own = {"reference": "numpy's", "transformers": "torch's"}[target]
    for name, value in options.items():
        if value is not None:
            what = f"{name} = {value} is for the native target; {target} goes by {own} own."
            raise OptionError(" ".join(filter(None, [what, reason])), f"Leave {name} out.")


def _refuse_foreign(model: Model) -> None:
    if model.foreign:
        way_out = "Choose target 'transformers', or 'auto'."
        raise UnsupportedModelError(model.foreign, way_out)


def _on_transformers(
    model: Model,
    context: int | None,
    placing: tuple[str | None, str, bool, bool] | None,
    progress: Callable[[LoadProgress], None] | None,
) -> Target:
    _want_transformers(model.foreign)
    loading = importlib.import_module("forerun.targets.transformers_load")
    where = None if placing is None else loading.Placing(*placing)
    opened: Target = loading.open_transformers(
        model, context=context, placing=where, progress=progress
    )
    return opened


def open_head(
    head: HeadFile,
    model: Model,
    target: Target,
    *,
    kv_bits: int | None = None,
    force: bool = False,
) -> Head:
    """Open a head beside its target: in the same context, on as many threads.

    Args:
        head: The head's file.
        model: The target's model.
        target: The target.
        kv_bits: 16 or 32, of each number in the keys and values; None is 16.
        force: Take a head that was learned from another target, if its sizes fit.

    Raises:
        CapabilityError: No head runs beside such a target.
        OptionError: The head is of another kind.
        OtherTargetError: The head was learned from another target, or does not fit this one.
        ModelFileError: The weights are damaged, or a file changed.
        NotEnoughMemoryError: They need more memory than there is.
    """
    beside = _beside(target, HEADS)
    options: dict[str, Any] = {"context": target.context_length, "force": force}
    if beside.endswith(":NativeHead"):
        options |= {"threads": target.capabilities.threads, "kv_bits": kv_bits}
    opened: Head = _loaded(beside)(head, model, **options)
    return opened


def open_readout(head: HeadFile, model: Model, target: Target, *, force: bool = False) -> Readout:
    """Open a head without attention beside its target; as `open_head`.

    Raises:
        OptionError: The head is of a kind with attention.
        CapabilityError: No head runs beside such a target.
        OtherTargetError: The head was learned from another target, or does not fit this one.
        ModelFileError: The weights are damaged, or a file changed.
        NotEnoughMemoryError: They need more memory than there is.
    """
    opened: Readout = _loaded(_beside(target, READOUTS))(head, model, force=force)
    return opened


def check_beside(target: Target) -> None:
    """Refuse a target that no head runs beside.

    Raises:
        CapabilityError: It is such a one; the way out names drafters that need no head.
    """
    name = target.capabilities.name
    if name not in HEADS:
        known = " and ".join(HEADS)
        what = f"A head runs beside the targets {known} only, and this model runs on {name}."
        raise CapabilityError(what, "Choose drafter suffix, lookup, recycle or model, or auto.")


def _beside(target: Target, table: Mapping[str, str]) -> str:
    """Return what runs beside a target."""
    check_beside(target)
    return table[target.capabilities.name]


def _kind(name: str) -> Any:
    return _loaded(TARGETS[name])


def _loaded(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(module), attribute)


def _want_transformers(reason: str) -> None:
    lacking = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if lacking:
        what = f"Target 'transformers' needs {' and '.join(lacking)}."
        raise CapabilityError(" ".join(filter(None, [reason, what])), pip_command("forerun[hf]"))
