from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from forerun.cli.options import default_of, flag_of, metavar_of, variable_of, with_options
from forerun.config import Generation, Loading, Options
from forerun.drafters.table import DRAFTERS
from forerun.errors import OptionError

heard: list[tuple[Loading, Generation]] = []


@with_options
def command(loading: Loading, generation: Generation) -> None:
    """Notes what it was given."""
    heard.append((loading, generation))


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(command)


def said(*arguments: str, env: dict[str, str] | None = None) -> tuple[Loading, Generation]:
    """What a command line becomes."""
    heard.clear()
    result = CliRunner().invoke(app, list(arguments), env=env)
    if result.exception is not None:
        raise result.exception
    return heard[0]


def flags(options: Options) -> list[str]:
    """Options as somebody would write them."""
    words: list[str] = []
    for name, value in options:
        flag = flag_of(name)
        if value is None or value is False or value in ((), {}):
            continue
        if value is True:
            words.append(flag)
        elif name == "stop":
            words += [f"{flag}={item}" for item in value]
        elif isinstance(value, tuple):
            words.append(f"{flag}={','.join(map(str, value))}")
        elif isinstance(value, dict):
            words += [f"{flag}={key}={bias!r}" for key, bias in value.items()]
        else:
            words.append(f"{flag}={value}")
    return words


tokens = st.lists(st.integers(0, 300), max_size=4).map(tuple)
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
values: dict[str, st.SearchStrategy[Any]] = {
    "allowed_tokens": st.none() | tokens.filter(bool),
    "banned_tokens": tokens,
    "logit_bias": st.dictionaries(st.integers(0, 300), st.floats(-100, 100), max_size=3),
    "repetition_penalty": st.floats(0.5, 2),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "temperature": st.floats(0, 2),
    "top_k": st.integers(0, 100),
    "top_p": st.floats(0.1, 1),
    "min_p": st.floats(0, 1),
    "seed": st.none() | st.integers(0, 2**64 - 1),
    "drafter": st.sampled_from(["auto", "none", "suffix,bigram"]),
    "draft_length": st.integers(0, 256) | st.just("auto"),
    "rule": st.sampled_from(["match", "tree", "block"]),
    "max_tokens": st.integers(5, 500),
    "min_tokens": st.integers(0, 5),
    "stop": st.lists(text, max_size=3).map(tuple),
    "ignore_eos": st.booleans(),
    "top_logprobs": st.integers(0, 100),
    "raw": st.booleans(),
}


@given(st.fixed_dictionaries(values))
def test_flags_say_what_keywords_say(asked: dict[str, Any]) -> None:
    """Any request written as flags is the request written as keywords."""
    generation = Generation.make(**asked)
    assert said(*flags(generation))[1] == generation


def test_without_flags_all_is_as_declared() -> None:
    """No flag, no change: the library's defaults are the command line's."""
    assert said() == (Loading(), Generation())


@pytest.mark.parametrize("options", [Loading, Generation])
def test_every_field_has_a_flag_a_variable_and_its_own_help(options: type[Options]) -> None:
    """Nothing declared in the configuration is missing on the command line."""
    by_flag = {flag: p for p in typer.main.get_command(app).params for flag in p.opts}
    for name, field in options.model_fields.items():
        parameter: Any = by_flag[flag_of(name)]
        assert parameter.envvar == variable_of(name)
        assert parameter.help == field.description
        assert parameter.help


def test_flags_are_written_in_kebab_case() -> None:
    """`top_k` is `--top-k` and `FORERUN_TOP_K`."""
    assert (flag_of("top_k"), variable_of("top_k")) == ("--top-k", "FORERUN_TOP_K")


def test_lists_are_repeated_or_joined() -> None:
    """Numbers by commas or again; a stop string keeps its comma; a map is pairs."""
    _, generation = said(
        *("--banned-tokens", "1, 2", "--banned-tokens", "3"),
        *("--stop", "a,b", "--stop", "c"),
        *("--logit-bias", "12=-100,7=1.5", "--logit-bias", "8=2"),
    )
    assert generation.banned_tokens == (1, 2, 3)
    assert generation.stop == ("a,b", "c")
    assert generation.logit_bias == {12: -100, 7: 1.5, 8: 2}


def test_a_variable_counts_and_a_flag_wins_over_it() -> None:
    """`FORERUN_TOP_K=5` is `--top-k 5`, unless the flag is there; empty is not there."""
    assert said(env={"FORERUN_TOP_K": "5"})[1].top_k == 5
    assert said("--top-k", "6", env={"FORERUN_TOP_K": "5"})[1].top_k == 6
    assert said(env={"FORERUN_TOP_K": ""})[1].top_k == 0
    assert said(env={"FORERUN_BANNED_TOKENS": "1,2"})[1].banned_tokens == (1, 2)
    assert said(env={"FORERUN_RAW": "1"})[1].raw


def test_the_model_has_a_short_flag() -> None:
    """`-m` is `--model`."""
    assert said("-m", "x.gguf")[0].model == "x.gguf"


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (["--temperature", "-1"], {"temperature": "-1"}),
        (["--temperature", "nan"], {"temperature": "nan"}),
        (["--top-p", "1.5"], {"top_p": "1.5"}),
        (["--max-tokens", "many"], {"max_tokens": "many"}),
        (["--rule", "best"], {"rule": "best"}),
        (["--draft-length", "-1"], {"draft_length": "-1"}),
        (["--lenience", "0.5"], {"lenience": "0.5"}),
        (["--stop", ""], {"stop": [""]}),
    ],
)
def test_refusals_are_the_librarys_own(arguments: list[str], keywords: dict[str, Any]) -> None:
    """What Python refuses, the command line refuses in the same words."""
    with pytest.raises(OptionError) as from_python:
        Generation.make(**keywords)
    with pytest.raises(OptionError) as from_flags:
        said(*arguments)
    assert str(from_flags.value) == str(from_python.value)


def test_half_a_pair_is_refused() -> None:
    """A bias without a value names the flag and shows how to write it."""
    with pytest.raises(OptionError, match="--logit-bias 12=-100"):
        said("--logit-bias", "12")


@pytest.mark.parametrize(
    ("name", "metavar", "default"),
    [
        ("draft_length", "N|auto", "auto"),
        ("rule", "match|speculative|block|tree|lenient", "match"),
        ("banned_tokens", "N,...", ""),
        ("logit_bias", "N=X,...", ""),
        ("stop", "TEXT", ""),
        ("seed", "N", ""),
        ("top_p", "X", "1.0"),
    ],
)
def test_help_shows_kind_and_default(name: str, metavar: str, default: str) -> None:
    """Both follow from the field's type and default."""
    field = Generation.model_fields[name]
    assert (metavar_of(field), default_of(field)) == (metavar, default)


@pytest.mark.parametrize("stop", ["two words", "\n", " \n\t", "a,b", "a b  c"])
def test_a_variable_holds_what_one_flag_would(stop: str) -> None:
    """A stop string from the environment keeps its blanks, line ends and commas."""
    assert said(env={"FORERUN_STOP": stop})[1].stop == (stop,)
    assert said("--stop", "x", env={"FORERUN_STOP": stop})[1].stop == ("x",)
    assert said(env={"FORERUN_STOP": ""})[1].stop == ()


def test_variables_hold_lists_and_maps() -> None:
    """Commas part them, as on the command line; blanks do not."""
    _, generation = said(env={"FORERUN_BANNED_TOKENS": "1, 2", "FORERUN_LOGIT_BIAS": "3=1, 4=-2"})
    assert generation.banned_tokens == (1, 2)
    assert generation.logit_bias == {3: 1, 4: -2}
    with pytest.raises(OptionError, match="2 3"):
        said(env={"FORERUN_BANNED_TOKENS": "1,2 3"})


def test_a_token_has_one_bias() -> None:
    """Two different biases of one token contradict each other; the same one twice does not."""
    with pytest.raises(OptionError, match="gives 5 both 1 and -3"):
        said("--logit-bias", "5=1", "--logit-bias", "5=-3")
    assert said("--logit-bias", "5=1, 5=1")[1].logit_bias == {5: 1}


def test_help_names_every_drafter() -> None:
    """A newcomer need not guess at names; nothing in the table is left out."""
    description = Generation.model_fields["drafter"].description or ""
    names = re.findall(r"[a-z_]+", description.partition(";")[0].partition(":")[2])
    assert [name for name in names if name != "or"] == list(DRAFTERS)
