"""Networks for the transformers target, loaded from a model's files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import transformers
from transformers.utils import logging as transformers_logging

from forerun.errors import (
    CapabilityError,
    ForerunError,
    ModelFileError,
    NotEnoughMemoryError,
    OptionError,
    UnsupportedModelError,
)
from forerun.events import LoadProgress
from forerun.extras import pip_command
from forerun.models.model import Model
from forerun.targets.transformers import TransformersTarget
from forerun.targets.transformers_release import decoder_layers

__all__ = ["Placing", "open_transformers"]

# The library names a bare pip, which is often another Python's.
_PIP = re.compile(r"(?:python3? -m )?pip3? install (?:-\S+ )*['\"]?([A-Za-z][\w.\[\]<>=-]*)['\"]?")


class Placing(NamedTuple):
    """Where a network is put, and how.

    Attributes:
        device: Such as cpu, cuda:1 or mps; None is the first accelerator, else the processor.
        dtype: The type of its weights: float32, float16 or bfloat16; auto is as stored.
        remote_code: Whether the folder's own code may run.
        bitwise: Whether rows shall have the same bits beside any others.
    """

    device: str | None = None
    dtype: str = "auto"
    remote_code: bool = False
    bitwise: bool = False


def open_transformers(
    model: Model,
    *,
    context: int | None = None,
    placing: Placing | None = None,
    progress: Callable[[LoadProgress], None] | None = None,
) -> TransformersTarget:
    """Load a model's network by transformers and make a target of it.

    Args:
        model: Which: a folder, or a GGUF file that transformers can read.
        context: Most tokens a sequence may hold; None is what the model has positions for.
        placing: On which device, in which type.
        progress: Told when the weights are in memory.

    Raises:
        CapabilityError: transformers lacks a library for it, or the same bits can't be had.
        OptionError: There is no such device, `context` is out of range, or the model was cut.
        ModelFileError: Weights are missing or damaged.
        UnsupportedModelError: transformers does not know it, or it needs code of its own, or it
            can't be a target.
        NotEnoughMemoryError: It does not fit.
    """
    placing = placing or Placing()
    device = _device(placing.device)
    with _quiet():
        network = _loaded(model, placing, device)
    if model.architecture.num_layers != decoder_layers(network.config):
        what = f"{model.name} is cut, and transformers runs a model whole."
        raise OptionError(what, "Name a draft model, or let 'early_exit' leave this one early.")
    if progress is not None:
        size = sum(each.nbytes for each in network.parameters())
        progress(LoadProgress("packing", size, size))
    return TransformersTarget(network, context=context, bitwise=placing.bitwise, name=model.name)


def _device(name: str | None) -> torch.device:
    """Return a device that is there."""
    if name is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if found is None else found
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        told = str(error).splitlines()[0][:120]
        way_out = "Such as cpu, cuda, cuda:1 or mps."
        raise OptionError(f"device = {name!r:.60}: {told}.", way_out) from error
    if device.type == "meta":
        raise OptionError("device = 'meta' holds no numbers.", "Such as cpu, cuda or mps.")
    return device


def _loaded(model: Model, placing: Placing, device: torch.device) -> Any:
    """Load the network; what the library says about it is translated."""
    is_file = model.path.is_file()
    where = {"gguf_file": model.path.name} if is_file else {"use_safetensors": True}
    path = str(model.path.parent if is_file else model.path)
    how = {"trust_remote_code": placing.remote_code, "local_files_only": True}
    try:
        kind: Any = transformers.AutoModelForCausalLM
        if not is_file and transformers.AutoConfig.from_pretrained(path, **how).is_encoder_decoder:
            kind = transformers.AutoModelForSeq2SeqLM
        network, told = kind.from_pretrained(
            path, dtype=placing.dtype, output_loading_info=True, **how, **where
        )
        network = network.eval().to(device)
    except (torch.OutOfMemoryError, MemoryError) as error:
        what = f"{model.name} needs more memory than {device} has."
        raise NotEnoughMemoryError(what, "Choose a smaller model, or dtype bfloat16.") from error
    except Exception as error:  # the library raises whatever its parts do
        raise _translated(model, error) from error
    missing = sorted(told["missing_keys"])
    if missing:  # they would be drawn at random
        what = f"{model.path} lacks {len(missing)} tensors of its network, such as {missing[0]!r}."
        raise ModelFileError(what, "Fetch the model again.")
    return network


def _translated(model: Model, error: Exception) -> ForerunError:
    told = " ".join(str(error).split())[:300]
    if isinstance(error, ImportError) or "pip install" in told:
        told = _PIP.sub(lambda found: pip_command(found[1]), told)
        return CapabilityError(f"transformers cannot load {model.path}: {told}", "Install that.")
    if "trust_remote_code" in str(error):
        what = f"{model.path} brings code of its own, which would run on this machine."
        return UnsupportedModelError(what, "If you trust it, allow it: remote_code, --remote-code.")
    if isinstance(error, (OSError, RuntimeError)) or "safetensors" in type(error).__module__:
        return ModelFileError(f"{model.path} cannot be loaded: {told}.", "Fetch the model again.")
    what = f"transformers cannot load {model.path}: {told}."
    return UnsupportedModelError(what, "A later release of transformers may know it.")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's own bars, which would be drawn over ours."""
    was_shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            transformers_logging.enable_progress_bar()
