"""The plug into transformers: `model.generate(..., custom_generate=forerun.hf.generate)`.

transformers prepares prompts, processors and stopping criteria as it always does; Forerun writes
the text, drafting as it goes. At temperature 0 the tokens are those that `generate` writes by
itself, up to floating-point near-ties; with sampling they have its law.

Example:
    model.generate(**inputs, max_new_tokens=100, custom_generate=forerun.hf.generate)
    model.generate(**inputs, custom_generate=forerun.hf.generate, drafter="lookup", seed=7)
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from forerun.errors import CapabilityError
from forerun.extras import pip_command
from forerun.hf.wishes import Wishes

if TYPE_CHECKING:
    import torch

__all__ = ["forget", "generate"]


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    inputs_tensor: torch.Tensor | None = None,
    **options: Any,
) -> Any:
    """Write texts with drafts; for option `custom_generate` of a model's `generate`.

    Processors and criteria are called once for each token that is written, in order, with that
    text alone: [1, tokens], padding included as `generate` would show it. What they raise is
    raised. A padded row is written on as if it stood alone, wherever its padding stands.

    Args:
        model: The target.
        input_ids: [texts, tokens] int64; with an encoder, what its decoder begins with.
        logits_processor: What transformers has prepared; it makes the law that is drawn from.
        stopping_criteria: Likewise; the text ends with the first token that meets one.
        generation_config: Likewise.
        inputs_tensor: What an encoder has read, if there is one, for drafters to copy from; its
            states and mask are among the options.
        drafter: A name, several joined by commas, "auto" or "none".
        draft_length: Tokens drafted, or "auto".
        draft_width: Children of a token in a draft tree, or "auto".
        draft_model: For drafter `model`: a causal language model with the target's vocabulary, or
            its folder.
        draft_layers: For drafter `early_exit`: how many of the target's layers.
        seed: Of what is drawn; by default torch's own generator gives one, so that
            `torch.manual_seed` and `transformers.set_seed` hold.
        options: Those above from `drafter` on, and what transformers has prepared for passes.

    Returns:
        What `generate` returns: [texts, tokens] int64, or with `return_dict_in_generate` an output
        whose `sequences` they are.

    Raises:
        OptionError: Something is asked for that can't be had with drafts; the message says which.
        UnsupportedModelError: The model can't be a target.
        PromptError: A row holds nothing, or padding stands in its middle; or an encoder's states
            and its mask do not fit.
    """
    unheard = _dropped(sys._getframe(1))
    wishes = Wishes(**{name: options.pop(name) for name in Wishes._fields if name in options})
    prepared = list(logits_processor or ()), list(stopping_criteria or ()), generation_config
    write = _part("forerun.hf.writing").write
    given = {**unheard, **options, "inputs_tensor": inputs_tensor}
    return write(model, input_ids, prepared, wishes, given)


def _signature() -> inspect.Signature:
    """Return the signature by which transformers knows which of its arguments are for us."""
    kinds, kept = inspect.Parameter, dict(inspect.signature(generate).parameters)
    last = kept.pop("options")
    own = [
        kinds(
            name,
            kinds.KEYWORD_ONLY,
            default=Wishes._field_defaults[name],
            annotation=Wishes.__annotations__[name].__forward_arg__,
        )
        for name in Wishes._fields
    ]
    return inspect.Signature([*kept.values(), *own, last], return_annotation="Any")


generate.__signature__ = _signature()  # type: ignore[attr-defined]


def forget() -> None:
    """Let go of the last model that was written with: it is kept, as it was tried and timed."""
    _part("forerun.hf.runner").forget()


def _part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        what = f"forerun.hf needs {error.name}."
        raise CapabilityError(what, pip_command("forerun[hf]")) from None


def _dropped(caller: Any) -> dict[str, Any]:
    """Return arguments of `generate` that it keeps from functions that are plugged into it.

    They would be left out in silence otherwise. Whoever else calls has none.
    """
    is_plugged = caller.f_code.co_name == "generate" and "custom_generate" in caller.f_locals
    return {
        name: caller.f_locals.get(name) if is_plugged else None
        for name in ("streamer", "assistant_model")
    }
