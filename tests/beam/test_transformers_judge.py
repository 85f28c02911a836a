"""The definition against transformers' own beam search, and the target that runs its networks."""

from __future__ import annotations

from itertools import product

import pytest

from beam.cases import drafter_for, rule_of, searched
from forerun.beam.ask import BeamAsk
from forerun.beam.plain import plain_beams
from forerun.config import Sampling
from forerun.core.beams import EarlyStopping
from forerun.core.warp import Warp
from forerun.targets.toy import ToyTarget
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

PROMPT, LONGEST, V = (3, 7, 2, 9), 10, 23
ENDS = (1, 5)
NEAR = 1e-5  # what float32 leaves of a sum, over the sum
STOPPINGS: tuple[EarlyStopping, ...] = (False, True, "never")


@pytest.mark.parametrize("family", ["llama", "bloom", "t5"])
def test_the_beams_are_those_of_transformers(family: str) -> None:
    """Tokens of all beams in order, and their scores, plain and with drafts; in float32.

    Where two beams' scores are nearer than float32 tells, they may have changed places. The first
    network scores trees, the second chains only, the third reads a source.
    """
    import torch

    from forerun.targets.transformers import TransformersTarget

    torch.set_num_threads(1)  # so little work is done sooner by one
    network = tiny_network(family, vocab_size=V, eos_token_id=list(ENDS))
    target = TransformersTarget(network)
    encoder = target.capabilities.encoder
    prompt, source = (PROMPT, None) if encoder is None else (tuple(encoder.start), PROMPT)
    drafter = drafter_for("bigram", ToyTarget.random(V, 1, 3))
    cases = product(STOPPINGS, ((1.0, 0, 1.0), (0.0, 4, 1.0), (-1.0, 0, 1.3)))
    for case, (stopping, (penalty, least, repetition)) in enumerate(cases):
        beams = (2, 4, 5)[case % 3]
        with torch.no_grad():
            theirs = network.generate(
                torch.tensor([PROMPT]),
                num_beams=beams,
                num_return_sequences=beams,
                early_stopping=stopping,
                length_penalty=penalty,
                max_new_tokens=LONGEST,
                min_new_tokens=least,
                repetition_penalty=repetition,
                do_sample=False,
                return_dict_in_generate=True,
                output_scores=True,
                pad_token_id=1,
                eos_token_id=list(ENDS),
            )
        rule = rule_of(beams, LONGEST, penalty=penalty, stopping=stopping, ends=ENDS)
        warp = Warp(Sampling(repetition_penalty=repetition), V, ENDS, least)
        ask = BeamAsk(prompt, rule, warp, 2, 1, source=source)
        ours = plain_beams(target, prompt, rule, warp, source)
        scores = theirs.sequences_scores.tolist()
        assert [each.score for each in ours] == pytest.approx(scores, rel=NEAR, abs=NEAR)
        found = [each.text.tokens for each in ours]
        for place, sequence in enumerate(theirs.sequences.tolist()):
            text = _output(sequence[len(prompt) :])
            near = [score == pytest.approx(scores[place], rel=NEAR, abs=NEAR) for score in scores]
            assert text in [each for each, is_near in zip(found, near, strict=True) if is_near]
        if case % 4 == 0:
            drafted, stats = searched(target, ask, drafter)
            assert [each.text.tokens for each in drafted] == found
            assert stats.drafted > 0


def _output(output: list[int]) -> tuple[int, ...]:
    """Return what stands up to the first end."""
    ends = [place + 1 for place, token in enumerate(output) if token in ENDS]
    return tuple(output[: min(ends, default=len(output))])
