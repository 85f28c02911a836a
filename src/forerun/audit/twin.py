"""The warp and plain decoding written a second time, slowly, in plain floats: the audit's judge.

Nothing here calls `forerun.core`. Whatever the production warp, its state along a draft or the
rules do, the law of a text must be this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from forerun.config import Generation

__all__ = ["TextLaw", "law_after", "text_law"]

TextLaw = dict[tuple[int, ...], float]
"""The probability of each text."""

Weights = dict[int, float]


def law_after(
    logits: Sequence[float],
    prompt: Sequence[int],
    output: Sequence[int],
    options: Generation,
    stop_ids: Collection[int] = (),
) -> list[float]:
    """Return the law of the token after `output`, one probability for each token.

    Args:
        logits: The target's, one for each token.
        prompt: Tokens before the output.
        output: Tokens written so far.
        options: Sampling settings and min_tokens.
        stop_ids: Tokens that end the text.
    """
    weights = _allowed(logits, output, options, stop_ids)
    for token in weights:
        weights[token] += options.logit_bias.get(token, 0.0)
        weights[token] = _penalised(token, weights[token], prompt, output, options)
    if options.temperature == 0:
        likeliest = min(weights, key=lambda x: (-weights[x], x))
        weights = {likeliest: 0.0}
    else:
        weights = {x: w / options.temperature for x, w in weights.items()}
        weights = _truncated(weights, options)
    law = _law(weights)
    return [law.get(token, 0.0) for token in range(len(logits))]


def _allowed(
    logits: Sequence[float],
    output: Sequence[int],
    options: Generation,
    stop_ids: Collection[int],
) -> Weights:
    weights = {}
    for token, logit in enumerate(logits):
        banned = token in options.banned_tokens
        banned |= options.allowed_tokens is not None and token not in options.allowed_tokens
        banned |= len(output) < options.min_tokens and token in stop_ids
        if not banned:
            weights[token] = float(logit)
    return weights


def _penalised(
    token: int, weight: float, prompt: Sequence[int], output: Sequence[int], options: Generation
) -> float:
    if token in prompt or token in output:
        factor = options.repetition_penalty
        weight = weight / factor if weight > 0 else weight * factor
    if token in output:
        weight -= options.presence_penalty
        weight -= options.frequency_penalty * list(output).count(token)
    return weight


def _truncated(weights: Weights, options: Generation) -> Weights:
    """Apply top-k, then top-p, then min-p; of equal tokens the lowest id counts as likelier."""
    order = sorted(weights, key=lambda x: (-weights[x], x))
    if options.top_k > 0:
        order = order[: options.top_k]
    law, kept, reached = _law({x: weights[x] for x in order}), [], 0.0
    for token in order:
        if reached >= options.top_p:
            break
        kept.append(token)
        reached += law[token]
    law = _law({x: weights[x] for x in kept})
    return {x: weights[x] for x in kept if law[x] >= options.min_p * law[kept[0]]}


def _law(weights: Weights) -> dict[int, float]:
    top = max(weights.values())
    masses = {token: math.exp(weight - top) for token, weight in weights.items()}
    total = math.fsum(masses.values())
    return {token: mass / total for token, mass in masses.items()}


def text_law(
    logits_after: Callable[[Sequence[int]], Sequence[float]],
    prompt: Sequence[int],
    options: Generation,
    eos_ids: Collection[int] = (),
    output: tuple[int, ...] = (),
) -> TextLaw:
    """Return the probability of every text that plain decoding can write after `output`.

    Args:
        logits_after: The target: tokens so far to logits.
        prompt: Tokens before the text.
        options: All settings; the text ends with a token of `eos_ids` or at max_tokens.
        eos_ids: Tokens that end the text, unless it ignores its end.
        output: Where to begin.
    """
    stop_ids = () if options.ignore_eos else eos_ids
    if len(output) >= options.max_tokens or (output and output[-1] in stop_ids):
        return {output: 1.0}
    texts: TextLaw = {}
    logits = logits_after((*prompt, *output))
    law = law_after(logits, prompt, output, options, stop_ids)
    for token, mass in enumerate(law):
        if mass > 0.0:
            rest = text_law(logits_after, prompt, options, eos_ids, (*output, token))
            for text, probability in rest.items():
                texts[text] = texts.get(text, 0.0) + mass * probability
    return texts
