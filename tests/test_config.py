"""Options: every bound from both sides, every kind of value that callers pass, every refusal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forerun.config import (
    Ending,
    Generation,
    Loading,
    Options,
    Sampling,
    Speculation,
    check_together,
)
from forerun.errors import OptionError

GROUPS = (Sampling, Speculation, Ending, Generation, Loading)

LEAST, TINY = 5e-324, 2.0**-53
# option: (values just inside, values just outside)
BOUNDS: dict[str, tuple[list[Any], list[Any]]] = {
    "repetition_penalty": ([0.01, 1, 100], [0, -1, 0.0099, 100.1]),
    "presence_penalty": ([-100, 0, 100], [-100.1, 100.1]),
    "frequency_penalty": ([-100, 0, 100], [-100.1, 100.1]),
    "temperature": ([0, -0.0, LEAST, 1000], [-LEAST, -1, 1000.1]),
    "top_k": ([0, 1, 10**30], [-1]),
    "top_p": ([LEAST, 1 - TINY, 1], [0, -0.0, -1, 1 + 2 * TINY]),
    "min_p": ([0, LEAST, 1], [-LEAST, 1 + 2 * TINY]),
    "seed": ([None, 0, 2**64 - 1], [-1, 2**64]),
    "draft_length": ([0, 256, "auto"], [-1, 257, "AUTO", "", None]),
    "draft_width": ([1, 64], [0, -1, 65]),
    "max_tokens": ([0, 1, 10**30], [-1]),
    "min_tokens": ([0, 256], [-1]),
    "top_logprobs": ([0, 100], [-1, 101]),
    "drafter": (["none", "auto", "lookup,suffix"], [""]),
    "rule": (["match", "speculative", "block", "tree", "lenient"], ["Match", "", "mach"]),
    "stop": ([(), ("\n",), ("a", "b")], [("",), ("a", ""), ""]),
}
WHOLE = ["top_k", "seed", "draft_length", "draft_width", "max_tokens", "min_tokens", "top_logprobs"]
REAL = [
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_p",
    "min_p",
]
INSIDE = [(name, value) for name, (inside, _) in BOUNDS.items() for value in inside]
OUTSIDE = [(name, value) for name, (_, outside) in BOUNDS.items() for value in outside]


def refusal(**values: Any) -> str:
    with pytest.raises(OptionError) as caught:
        Generation.make(**values)
    return str(caught.value)


@pytest.mark.parametrize(("name", "value"), INSIDE)
def test_values_inside_of_their_bounds_are_taken_as_they_are(name: str, value: object) -> None:
    """Both ends included where the end is included."""
    assert getattr(Generation.make(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_values_outside_of_their_bounds_are_refused_with_name_value_and_way_out(
    name: str, value: object
) -> None:
    """The message names the option, the value, and says what the option is and its default."""
    message = refusal(**{name: value})
    offending = "" if name == "stop" else value
    assert message.startswith(f"{name} = {offending!r}: ")
    description = Generation.model_fields[name].description
    assert description is not None
    assert description in message
    default = getattr(Generation(), name)
    assert message.endswith(description if default is None else f" (default: {default!r})")


def test_every_option_has_its_bounds_tested() -> None:
    """A new option stands in the table above, or is none with bounds."""
    without = {"allowed_tokens", "banned_tokens", "logit_bias", "lenience", "ignore_eos", "raw"}
    without |= {"prediction", "tenant", "begin"}  # see below
    assert set(BOUNDS) | without == set(Generation.model_fields)


@pytest.mark.parametrize(
    ("name", "longest"), [("tenant", 256), ("begin", 100_000), ("prediction", 16_000_000)]
)
def test_names_and_predictions_have_a_longest(name: str, longest: int) -> None:
    """Text, empty too, and not without end; the message shows the beginning."""
    for value in ("", "x", "x" * longest):
        assert getattr(Generation.make(**{name: value}), name) == value
    message = refusal(**{name: "x" * (longest + 1)})
    assert message.startswith(f"{name} = 'xxx")
    assert len(message) < 500
    refusal(**{name: 3})


@pytest.mark.parametrize("option", ["corpus", "store"])
def test_what_is_to_be_kept_needs_room(option: str) -> None:
    """A store of no tokens holds nothing; one path is one path."""
    with pytest.raises(OptionError, match=f"{option} needs room, and store_tokens is 0"):
        Loading.make(**{option: "x", "store_tokens": 0})


@pytest.mark.parametrize("tokens", [1, 127])
def test_a_store_has_room_for_a_text(tokens: int) -> None:
    """Or is none at all."""
    with pytest.raises(OptionError, match=f"store_tokens = {tokens} has room for no text"):
        Loading.make(store_tokens=tokens)
    assert Loading.make(store_tokens=128).store_tokens == 128
    assert Loading.make(corpus=Path("x")).corpus == Loading.make(corpus="x").corpus == ("x",)
    assert Loading.make(corpus=["x", Path("y")]).corpus == ("x", "y")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"drafter": "none", "draft_length": 1}, "draft_length = 1"),
        ({"drafter": "none", "draft_width": 2}, "draft_width = 2"),
        ({"draft_length": 0, "draft_width": 2}, "draft_width = 2"),
    ],
)
def test_a_draft_that_nobody_makes_has_no_shape(asked: dict[str, Any], named: str) -> None:
    """Given together on the command line: refused instead of ignored."""
    with pytest.raises(OptionError, match=named):
        check_together(Loading(), Generation.make(**asked))
    harmless = ({"drafter": "none", "draft_length": 0, "draft_width": 1}, {"draft_length": 0})
    for each in harmless:
        check_together(Loading(), Generation.make(**each))


def test_learning_online_is_for_a_head_that_drafts_by_itself() -> None:
    """Its bounds are refused where it is off, and it is where nothing would be learned."""
    check_together(Loading(online=True, online_rows=9), Generation(drafter="eagle"))
    for drafter in ("auto", "suffix,eagle", "none", "medusa"):
        with pytest.raises(OptionError, match="online is for drafter 'eagle'"):
            check_together(Loading(online=True), Generation(drafter=drafter))
    for name, value in (
        ("online_rows", 9),
        ("online_reach", 1.0),
        ("online_tenants", 3),
        ("online_store", "file"),
    ):
        Loading.make(online=True, **{name: value})
        with pytest.raises(OptionError, match=f"{name} = .* which is off"):
            Loading.make(**{name: value})


@pytest.mark.parametrize(
    ("loading", "generation", "drafter"),
    [
        ({"corpus": "x"}, {"drafter": "lookup"}, "suffix"),
        ({"store": "x"}, {"drafter": "none"}, "suffix"),
        ({}, {"prediction": "x", "drafter": "suffix,bigram"}, "prediction"),
    ],
)
def test_what_no_drafter_reads_is_refused(
    loading: dict[str, Any], generation: dict[str, Any], drafter: str
) -> None:
    """Given together, an option and a drafter that has no use for it; auto has."""
    with pytest.raises(OptionError, match=f"is for drafter '{drafter}'"):
        check_together(Loading.make(**loading), Generation.make(**generation))
    for named in ("auto", f"lookup,{drafter}"):
        check_together(Loading.make(**loading), Generation.make(**{**generation, "drafter": named}))


@pytest.mark.parametrize("name", WHOLE + REAL)
@pytest.mark.parametrize("value", [True, False, np.True_, [1], {"a": 1}, "one", b"x", object()])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    """Truth values too: `top_k=True` is a mistake, not a one."""
    refusal(**{name: value})


@pytest.mark.parametrize("name", WHOLE + REAL)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf", np.float32("nan")])
def test_nan_and_infinity_are_refused(name: str, value: object) -> None:
    """As numbers, as text, as numpy's."""
    refusal(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_half_a_token_is_refused(name: str) -> None:
    """1.5 is not cut to 1."""
    refusal(**{name: 1.5})
    refusal(**{name: "1.5"})


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, np.int32, np.int64, np.uint64, str])
def test_numpy_and_written_whole_numbers_are_taken(name: str, kind: Any) -> None:
    """What argmax, a data frame or the environment gives becomes a plain int."""
    value = getattr(Generation.make(**{name: kind(3)}), name)
    assert value == 3
    assert type(value) is int


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("kind", [float, int, np.float16, np.float32, np.float64, np.int64, str])
def test_numpy_and_written_real_numbers_are_taken(name: str, kind: Any) -> None:
    """They become a plain float."""
    value = getattr(Generation.make(**{name: kind(1)}), name)
    assert value == 1
    assert type(value) is float


def test_the_largest_seed_may_be_numpys() -> None:
    """An unsigned 64-bit integer is just what a seed is."""
    assert Generation.make(seed=np.uint64(2**64 - 1)).seed == 2**64 - 1


@pytest.mark.parametrize("name", ["allowed_tokens", "banned_tokens"])
@pytest.mark.parametrize(
    "value", [(3, 1), [3, 1], ["3", "1"], np.array([3, 1]), range(3, -1, -2), (np.int32(3), 1)]
)
def test_token_lists_of_any_kind_become_tuples_of_int(name: str, value: object) -> None:
    """Lists from JSON, arrays, ranges."""
    ids = getattr(Generation.make(**{name: value}), name)
    assert ids == (3, 1)
    assert [type(token) for token in ids] == [int, int]


@pytest.mark.parametrize("name", ["allowed_tokens", "banned_tokens"])
@pytest.mark.parametrize("value", [3, "31", [True], [1.5], [None], ["x"]])
def test_what_is_no_list_of_token_ids_is_refused(name: str, value: object) -> None:
    """A single id, a string of digits, truth values."""
    assert refusal(**{name: value}).startswith(f"{name} = ")


@pytest.mark.parametrize(("length", "width"), [(16, 64), (256, 4), ("auto", 64), (0, 64)])
def test_a_draft_may_be_long_or_wide(length: Any, width: int) -> None:
    """Up to 1024 tokens in all."""
    assert Generation.make(draft_length=length, draft_width=width).draft_width == width


@pytest.mark.parametrize(("length", "width"), [(17, 64), (256, 5), (256, 64)])
def test_a_draft_may_not_be_long_and_wide(length: int, width: int) -> None:
    """One request could ask for gigabytes of logits."""
    assert "1024 is the most; lower" in refusal(draft_length=length, draft_width=width)


@pytest.mark.parametrize(
    "value", [{"12": -100}, {12: -100.0}, {np.int64(12): np.float32(-100)}, {"12": "-100"}]
)
def test_a_bias_may_come_from_json(value: object) -> None:
    """JSON knows string keys only."""
    assert Generation.make(logit_bias=value).logit_bias == {12: -100.0}


@pytest.mark.parametrize(
    "value",
    [
        {"x": 1},
        {1: math.nan},
        {1: math.inf},
        {1: 1.1e10},
        {1: -1.1e10},
        {True: 1},
        {1: True},
        {1.5: 1},
        [(1, 1)],
        5,
        None,
    ],
)
def test_what_is_no_bias_is_refused(value: object) -> None:
    """By name, with a default that is one."""
    message = refusal(logit_bias=value)
    assert message.startswith("logit_bias = ")
    assert "(default: {})" in message


def test_a_single_stop_string_is_one_stop_string() -> None:
    """Not three strings of one letter each."""
    assert Generation.make(stop="END").stop == ("END",)
    assert Generation.make(stop=["END", "\n\n"]).stop == ("END", "\n\n")


@pytest.mark.parametrize("value", [None, 3, [3], [None], b"x", [b"\xff"]])
def test_what_is_no_stop_string_is_refused(value: object) -> None:
    """Bytes that are no text included."""
    assert refusal(stop=value).startswith("stop = ")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("temprature", "temperature"),
        ("topk", "top_k"),
        ("max_token", "max_tokens"),
        ("stops", "stop"),
        ("drafters", "drafter"),
        ("logits_bias", "logit_bias"),
    ],
)
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(wrong: str, meant: str) -> None:
    """A typing error must not be ignored."""
    assert refusal(**{wrong: 1}) == f"There is no option {wrong!r}. Did you mean {meant!r}?"


def test_an_option_unlike_any_other_is_refused_too() -> None:
    """Without a guess, but with a way out."""
    assert refusal(zzz=1) == "There is no option 'zzz'. See the reference of options."


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"lenience": 0.5}, ["lenience = 0.5", "'lenient'", "'match'", "leave lenience out"]),
        ({"lenience": 1, "rule": "block"}, ["lenience = 1.0", "'block'"]),
        ({"draft_width": 2, "rule": "block"}, ["draft_width = 2", "'block'", "width 1"]),
        ({"draft_width": 2, "rule": "speculative"}, ["draft_width = 2", "'speculative'"]),
        ({"draft_width": 2, "rule": "lenient", "lenience": 0.5}, ["draft_width = 2", "'lenient'"]),
        (
            {"min_tokens": 3, "max_tokens": 2},
            ["min_tokens = 3", "max_tokens = 2", "lower", "raise"],
        ),
        ({"min_tokens": 257}, ["min_tokens = 257", "max_tokens = 256"]),
    ],
)
def test_contradictions_are_refused_by_both_names(values: dict[str, Any], named: list[str]) -> None:
    """The message says which two options disagree, and what to do."""
    message = refusal(**values)
    assert [part for part in named if part not in message] == []


@pytest.mark.parametrize(
    "values",
    [
        {"rule": "lenient", "lenience": 1e-9},
        {"rule": "lenient"},
        {"rule": "tree", "draft_width": 64},
        {"rule": "match", "draft_width": 64, "draft_length": 16},
        {"min_tokens": 7, "max_tokens": 7},
        {"min_tokens": 0, "max_tokens": 0},
    ],
)
def test_what_agrees_is_taken(values: dict[str, Any]) -> None:
    """The checks for contradictions refuse nothing else."""
    options = Generation.make(**values)
    assert {name: getattr(options, name) for name in values} == values


@pytest.mark.parametrize("lenience", [0, -0.5, 1.1, math.nan, True])
def test_lenience_lies_above_0_and_up_to_1(lenience: object) -> None:
    """0 would accept everything."""
    assert refusal(rule="lenient", lenience=lenience).startswith("lenience = ")


def test_a_value_of_any_length_makes_a_short_message() -> None:
    """Strangers' input is shown, but not all of it."""
    for value in ("9" * 10**5, ["x"] * 10**5, -(10**5000), {"a": "b" * 10**5}):
        assert len(refusal(max_tokens=value)) < 400
    assert len(refusal(**{"x" * 10**5: 1})) < 400


@pytest.mark.parametrize("group", GROUPS)
def test_the_defaults_are_valid_and_described(group: type[Options]) -> None:
    """Each default passes its own check, and each option has one sentence of help."""
    assert group.make(**dict(group())) == group()
    for name, field in group.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_refuses_alike_however_it_is_built(group: type[Options]) -> None:
    """By call, by `make`, by `replace`: pydantic's own error never gets out."""
    for build in (group, group.make, group().replace):
        with pytest.raises(OptionError, match="no option 'nonsense'"):
            build(nonsense=1)


def test_options_cannot_be_changed() -> None:
    """Two requests may share them."""
    options = Generation.make(temperature=0.5)
    with pytest.raises(ValidationError, match="frozen"):
        options.temperature = 1.0
    with pytest.raises(ValidationError):
        del options.temperature


def test_the_callers_own_collections_stay_theirs() -> None:
    """What is changed after the call changes no option."""
    bias, stop, banned = {1: 1.0}, ["a"], [1]
    options = Generation.make(logit_bias=bias, stop=stop, banned_tokens=banned)
    bias[2], stop[0], banned[0] = 2.0, "b", 2
    assert (options.logit_bias, options.stop, options.banned_tokens) == ({1: 1.0}, ("a",), (1,))


def test_replace_changes_a_copy_and_checks_it() -> None:
    """The rest is kept, the original too, and contradictions are found across old and new."""
    options = Generation.make(max_tokens=5, logit_bias={1: 2}, seed=3)
    changed = options.replace(temperature=1)
    assert options.temperature == 0
    assert changed == Generation.make(max_tokens=5, logit_bias={1: 2}, seed=3, temperature=1)
    with pytest.raises(OptionError, match="min_tokens = 6"):
        options.replace(min_tokens=6)


values = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(inside)
        for name, (inside, _) in BOUNDS.items()
        if name != "min_tokens"
    }
    | {
        "logit_bias": st.dictionaries(st.integers(0, 9), st.floats(-100, 100)),
        "allowed_tokens": st.lists(st.integers(0, 9)),
        "ignore_eos": st.booleans(),
    },
)


@given(values)
def test_options_survive_json(chosen: dict[str, Any]) -> None:
    """Written as JSON and read again they are the same options."""
    if chosen.get("rule") in ("block", "speculative", "lenient") or "draft_length" in chosen:
        chosen.pop("draft_width", None)  # not every length and rule goes with every width
    options = Generation.make(**chosen)
    text = json.dumps(options.model_dump(mode="json"), allow_nan=False)
    assert Generation.make(**json.loads(text)) == options


@pytest.mark.parametrize(
    ("values_", "has"),
    [
        ({}, False),
        ({"repetition_penalty": 1.01}, True),
        ({"presence_penalty": -0.5}, True),
        ({"frequency_penalty": 0.1}, True),
        ({"presence_penalty": -0.0, "temperature": 2, "logit_bias": {1: 1}}, False),
    ],
)
def test_the_text_is_counted_only_if_a_penalty_asks(values_: dict[str, Any], has: bool) -> None:
    """Each of the three alone is enough, negative values too."""
    assert Sampling.make(**values_).has_penalties is has


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", ""),
        ("draft_layers", 0),
        ("draft_layers", True),
        ("context", 1),
        ("context", -5),
        ("target", "gpu"),
        ("threads", 0),
        ("threads", -1),
        ("threads", 10_000),
        ("instruction_set", "AVX2"),
        ("instruction_set", "sse"),
    ],
)
def test_loading_has_bounds_too(name: str, value: object) -> None:
    """A context needs room for a prompt's token and one more."""
    with pytest.raises(OptionError, match=f"{name} = "):
        Loading.make(**{name: value})


def test_threads_are_the_native_targets() -> None:
    """The reference target has none to choose."""
    assert Loading.make(threads=2).threads == 2
    with pytest.raises(OptionError, match="threads = 2 is for the native target"):
        Loading.make(threads=2, target="reference")


@pytest.mark.parametrize("seed", [2**64, 10**30])
def test_a_seed_too_large_is_told_its_bound(seed: int) -> None:
    """To the last digit, which a float would not show."""
    with pytest.raises(OptionError, match="less than 18446744073709551616"):
        Generation.make(seed=seed)


def test_a_draft_model_without_a_name_is_refused() -> None:
    """An empty path would be the current folder."""
    with pytest.raises(OptionError, match="draft_model = ''"):
        Loading.make(draft_model="")


@pytest.mark.parametrize(
    ("group", "option", "place"),
    [(Generation, "context", "load"), (Loading, "temperature", "generate and stream")],
)
def test_an_option_in_the_wrong_place_is_told_its_own(
    group: type[Options], option: str, place: str
) -> None:
    """What loads a model and what writes a text are asked for in different calls."""
    with pytest.raises(OptionError, match=f"It is an option of {place}"):
        group.make(**{option: 1})
