"""The options of beam search, each declared once; flags, help and reference derive from them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from forerun.config import Generation, Options, Real, Whole

__all__ = ["BeamGeneration", "Beaming", "EarlyStoppingName"]

EarlyStoppingName = Literal["false", "true", "never"]


def _yes_or_no(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


class Beaming(Options):
    """How beam search looks for likely texts."""

    beams: Whole | None = Field(
        None,
        ge=1,
        le=64,
        description="Search for likely texts with so many beams, instead of writing one token "
        "after the other: after each token the so many likeliest texts go on.",
    )
    beams_returned: Whole | None = Field(
        None,
        ge=1,
        le=64,
        description="How many of the texts found are returned, the best ones; by default all, as "
        "many as there are beams.",
    )
    length_penalty: Real = Field(
        1.0,
        ge=-10,
        le=10,
        description="Texts are compared by the sum of their tokens' log-probabilities over length "
        "** length_penalty: above 0 longer texts gain, 0 compares the sums.",
    )
    early_stopping: Annotated[EarlyStoppingName, BeforeValidator(_yes_or_no)] = Field(
        "false",
        description="When a search ends that has found as many texts as there are beams: 'true' at "
        "once; 'false' when no beam, held to be complete as it is, would be better than the worst "
        "of them; 'never' when none could still become better.",
    )

    @model_validator(mode="after")
    def _beams_to_return(self) -> Self:
        if self.beams is None:
            for name in ("beams_returned", "length_penalty", "early_stopping"):
                value = getattr(self, name)
                if value != type(self).model_fields[name].default:
                    raise ValueError(
                        f"{name} = {value} is for beam search; give beams, too, or leave it out."
                    )
        elif self.beams_returned is not None and self.beams_returned > self.beams:
            raise ValueError(
                f"beams_returned = {self.beams_returned} are more than beams = {self.beams}; "
                "lower the one or raise the other."
            )
        return self


# What goes with beam search only as it is by default, and what to do instead.
_NOT_FOR_BEAMS = {
    "temperature": "beam search draws nothing: leave it out, or write without beams",
    "top_k": "beam search draws nothing: leave it out, or write without beams",
    "top_p": "beam search draws nothing: leave it out, or write without beams",
    "min_p": "beam search draws nothing: leave it out, or write without beams",
    "seed": "beam search draws nothing: leave it out, or write without beams",
    "rule": "beam search has a rule of its own, which is exact: leave it out",
    "stop": "a beam ends at the model's own end: leave it out and cut the text yourself",
    "top_logprobs": "each beam tells its own tokens' log-probabilities: leave it out",
}


class BeamGeneration(Generation, Beaming):
    """All that one beam search may ask for: of `Generation` what draws no tokens."""

    @model_validator(mode="after")
    def _goes_with_beams(self) -> Self:
        if self.beams is None:
            raise ValueError("beams = None searches for nothing; give a number, or leave it out.")
        for name, way_out in _NOT_FOR_BEAMS.items():
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{name} = {value!r} does not go with beams; {way_out}.")
        if self.max_tokens == 0:
            raise ValueError("max_tokens = 0 leaves nothing to search for; give 1 or more.")
        return self
