"""What every target must do: listed in `targets_under_test` means tested.

The judge is the target itself in its simplest use: a fresh sequence, one row, one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun.errors import CapabilityError, EngineError, PromptError
from forerun.targets.checks import Watch, read_prompt
from forerun.targets.protocol import Row, Target
from targets.targets_under_test import TARGETS

Logits = NDArray[np.float32]

TEXT = [0, 3, 1, 4, 2, 0, 0, 3]
OTHER = [4, 4, 1, 0, 2]
# A tree of 8 rows below a text: parents, then tokens; the path 0, 2, 5 is its longest.
TREE_PARENTS = [-1, -1, 0, 0, 1, 2, 2, 5]
TREE_TOKENS = [1, 2, 3, 0, 3, 4, 1, 2]


@pytest.fixture(scope="module", params=sorted(TARGETS))
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]()


@pytest.fixture
def trees(target: Target) -> None:
    if not target.capabilities.trees:
        pytest.skip("this target scores chains only")


def alone(target: Target, text: Sequence[int]) -> Logits:
    """Return the logits after a text, by a fresh sequence and a pass of one row."""
    sequence = target.open(text[:-1])
    logits = target.score([Row(sequence, text[-1], len(text) - 1, -1)]).logits
    target.free(sequence)
    return logits.reshape(-1)


def assert_same(target: Target, found: Logits, expected: Logits) -> None:
    """Assert equality as the target promises it: of all bits, or within rounding."""
    if target.capabilities.exactness == "bitwise":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def assert_holds(target: Target, sequence: int, text: Sequence[int]) -> None:
    """Assert that the sequence holds `text`, by its length and what it makes of one more token."""
    assert target.length(sequence) == len(text)
    logits = target.score([Row(sequence, 2, len(text), -1)]).logits
    assert_same(target, logits[0], alone(target, [*text, 2]))


def chain(sequence: int, start: int, tokens: Sequence[int]) -> list[Row]:
    return [Row(sequence, token, start + i, i - 1) for i, token in enumerate(tokens)]


def tree(sequence: int, start: int) -> list[Row]:
    rows: list[Row] = []
    for token, parent in zip(TREE_TOKENS, TREE_PARENTS, strict=True):
        rows.append(
            Row(sequence, token, start if parent < 0 else rows[parent].position + 1, parent)
        )
    return rows


def along(rows: Sequence[Row], index: int) -> list[int]:
    """Return the tokens from the first ancestor of a row down to itself."""
    tokens: list[int] = []
    while index != -1:
        tokens.insert(0, rows[index].token)
        index = rows[index].parent
    return tokens


def test_it_is_a_target(target: Target) -> None:
    """It has all of the protocol's parts, and is large enough for this suite."""
    assert isinstance(target, Target)
    assert target.vocab_size >= 5
    assert target.context_length >= 40
    assert target.weight_bytes > 0
    assert target.capabilities.exactness in ("bitwise", "same law")
    assert target.capabilities.devices


def test_logits_are_float32_and_finite(target: Target) -> None:
    """One row of the vocabulary's size for each row scored."""
    sequence = target.open(TEXT)
    logits = target.score(chain(sequence, len(TEXT), OTHER)).logits
    assert logits.shape == (len(OTHER), target.vocab_size)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    assert not np.array_equal(logits[0], logits[1])  # else nothing here could fail
    target.free(sequence)


@pytest.mark.parametrize("wanted", [[], [4], [0, 2], [3, 1], [2, 2]])
def test_logits_asked_for_come_in_the_order_asked(target: Target, wanted: list[int]) -> None:
    """Any rows, in any order, none included."""
    sequence = target.open(TEXT)
    rows = chain(sequence, len(TEXT), OTHER)
    everything = target.score(rows).logits
    some = target.score(rows, logits=wanted).logits
    assert some.shape == (len(wanted), target.vocab_size)
    assert_same(target, some, everything[wanted])
    target.free(sequence)


@pytest.mark.parametrize("most", [1, 3, 64])
def test_a_prompts_hidden_states_can_be_watched(target: Target, most: int) -> None:
    """Part by part, those that single rows have; and the sequence holds the prompt."""
    layers = sorted({0, target.capabilities.layers // 2, target.capabilities.layers})
    single = target.open()
    expected: list[dict[int, Logits]] = []
    for position, token in enumerate(TEXT):
        scores = target.score([Row(single, token, position, -1)], layers=layers)
        target.commit(single, [0])
        expected.append({layer: scores.hidden[layer].copy() for layer in layers})
    seen: list[dict[int, Logits]] = []

    def see(start: int, hidden: Mapping[int, Logits]) -> None:
        assert start == len(seen)
        assert sorted(hidden) == layers
        count = len(hidden[layers[0]])
        seen.extend({n: hidden[n][i : i + 1].copy() for n in layers} for i in range(count))

    sequence = target.open()
    read_prompt(target, sequence, TEXT, most, Watch(layers, see))
    assert len(seen) == len(TEXT)
    for found, own in zip(seen, expected, strict=True):
        for layer in layers:
            assert_same(target, found[layer], own[layer])
    assert_holds(target, sequence, TEXT)
    target.free(sequence)
    target.free(single)


@pytest.mark.parametrize("split", range(1, len(TEXT)))
def test_a_text_is_scored_the_same_however_it_is_split(target: Target, split: int) -> None:
    """Prompt, one pass of many rows, or many passes of one: the same logits after each token."""
    sequence = target.open(TEXT[:split])
    rows = chain(sequence, split, TEXT[split:])
    found = target.score(rows).logits
    for i in range(len(rows)):
        assert_same(target, found[i], alone(target, TEXT[: split + i + 1]))
    target.commit(sequence, range(len(rows)))
    assert_holds(target, sequence, TEXT)
    target.free(sequence)


def test_an_empty_sequence_can_be_opened_and_scored(target: Target) -> None:
    """The first token stands at position 0."""
    sequence = target.open()
    assert target.length(sequence) == 0
    found = target.score(chain(sequence, 0, TEXT)).logits
    assert_same(target, found[-1], alone(target, TEXT))
    target.commit(sequence, [0, 1])
    assert_holds(target, sequence, TEXT[:2])
    target.free(sequence)


def test_siblings_do_not_see_each_other(target: Target, trees: None) -> None:
    """Each row of a tree is scored as if its own ancestors were all there is."""
    sequence = target.open(TEXT)
    rows = tree(sequence, len(TEXT))
    found = target.score(rows).logits
    for i in range(len(rows)):
        assert_same(target, found[i], alone(target, TEXT + along(rows, i)))
    target.free(sequence)


def test_many_sequences_in_one_pass_do_not_see_each_other(target: Target, trees: None) -> None:
    """Rows of three sequences, interleaved, trees among them, are each as if alone."""
    texts = {target.open(text): text for text in (TEXT, OTHER, TEXT[:1])}
    rows: list[Row] = []
    place: dict[tuple[int, int], int] = {}
    for index in range(len(TREE_TOKENS)):
        for sequence, text in texts.items():
            row = tree(sequence, len(text))[index]
            place[sequence, index] = len(rows)
            rows.append(row._replace(parent=place.get((sequence, row.parent), -1)))
    found = target.score(rows).logits
    for i, row in enumerate(rows):
        assert_same(target, found[i], alone(target, texts[row.sequence] + along(rows, i)))
    for sequence, text in texts.items():
        path = [place[sequence, i] for i in (0, 2, 5)]
        target.commit(sequence, path)
        assert target.length(sequence) == len(text) + 3
    for sequence, text in texts.items():
        assert_holds(target, sequence, [*text, 1, 3, 4])
        target.free(sequence)


@pytest.mark.parametrize("path", [[], [0], [1, 4], [0, 3], [0, 2, 5, 7], [0, 2, 6]])
def test_only_the_committed_path_is_kept(target: Target, trees: None, path: list[int]) -> None:
    """After commit the sequence is the text with that path, as if no other row had ever been."""
    sequence = target.open(TEXT)
    target.score(tree(sequence, len(TEXT)))
    target.commit(sequence, path)
    assert_holds(target, sequence, TEXT + [TREE_TOKENS[i] for i in path])
    target.free(sequence)


def test_scored_is_not_committed(target: Target) -> None:
    """A pass changes nothing until it is committed; the next one begins at the same place."""
    sequence = target.open(TEXT)
    target.score(chain(sequence, len(TEXT), OTHER))
    assert_holds(target, sequence, TEXT)
    target.commit(sequence, [])
    with pytest.raises(EngineError):
        target.commit(sequence, [0])  # committing took the pending rows
    assert_holds(target, sequence, TEXT)
    target.free(sequence)


def test_pending_rows_outlive_other_sequences_calls(target: Target) -> None:
    """What is done to other sequences between score and commit makes no difference."""
    one, two, three = target.open(TEXT), target.open(OTHER), target.open(TEXT)
    target.score(chain(one, len(TEXT), [1, 2, 3]))
    target.score(chain(two, len(OTHER), [4]))
    target.commit(two, [0])
    target.rollback(two, 2)
    target.free(three)
    four = target.fork(one)
    target.commit(one, [0, 1])
    assert_holds(target, one, [*TEXT, 1, 2])
    assert_holds(target, two, OTHER[:2])
    assert_holds(target, four, TEXT)
    for sequence in (one, two, four):
        target.free(sequence)


def test_rollback_drops_pending_rows(target: Target) -> None:
    """Also where it forgets nothing else."""
    sequence = target.open(TEXT)
    target.score(chain(sequence, len(TEXT), OTHER))
    target.rollback(sequence, len(TEXT))
    with pytest.raises(EngineError):
        target.commit(sequence, [0])
    assert_holds(target, sequence, TEXT)
    target.free(sequence)


@pytest.mark.parametrize("length", range(len(TEXT) + 1))
def test_rolled_back_it_is_as_if_never_there(target: Target, length: int) -> None:
    """To any length, and on from there with other tokens."""
    sequence = target.open(TEXT)
    target.rollback(sequence, length)
    assert_holds(target, sequence, TEXT[:length])
    target.score(chain(sequence, length, OTHER))
    target.commit(sequence, [0, 1, 2])
    assert_holds(target, sequence, TEXT[:length] + OTHER[:3])
    target.free(sequence)


def test_forks_go_their_own_ways(target: Target) -> None:
    """A fork holds the same tokens; then neither growth, rollback nor end of one is seen."""
    one = target.open(TEXT)
    two = target.fork(one)
    three = target.fork(two)
    assert len({one, two, three}) == 3
    target.score([*chain(one, len(TEXT), [1]), Row(two, 4, len(TEXT), -1)])
    target.commit(one, [0])
    target.commit(two, [1])
    target.rollback(three, 2)
    assert_holds(target, two, [*TEXT, 4])
    target.free(one)
    assert_holds(target, two, [*TEXT, 4])
    assert_holds(target, three, TEXT[:2])
    target.free(two)
    target.free(three)


def test_a_freed_name_is_unknown(target: Target) -> None:
    """Every call on it is refused; other sequences go on."""
    kept, sequence = target.open(TEXT), target.open(OTHER)
    target.free(sequence)
    for call in (
        lambda: target.length(sequence),
        lambda: target.score([Row(sequence, 0, len(OTHER), -1)]),
        lambda: target.commit(sequence, []),
        lambda: target.rollback(sequence, 0),
        lambda: target.fork(sequence),
        lambda: target.free(sequence),
    ):
        with pytest.raises(EngineError):
            call()
    assert_holds(target, kept, TEXT)
    target.free(kept)


def test_wrong_rows_are_refused_and_leave_no_trace(target: Target) -> None:
    """Unknown sequence or token, a parent that is none, a position that isn't the next."""
    one, two = target.open(TEXT), target.open(OTHER)
    n = len(TEXT)
    good = Row(one, 1, n, -1)
    for wrong in (
        [Row(one + two + 1000, 1, n, -1)],
        [Row(one, -1, n, -1)],
        [Row(one, target.vocab_size, n, -1)],
        [Row(one, 1, n + 1, -1)],
        [Row(one, 1, n - 1, -1)],
        [good, Row(one, 1, n, 0)],
        [good, Row(one, 1, n + 1, 1)],
        [good, Row(one, 1, n + 1, 2), Row(one, 1, n + 1, 0)],
        [good, Row(one, 1, n + 1, -2)],
        [good, Row(two, 1, n + 1, 0)],
    ):
        with pytest.raises(EngineError):
            target.score(wrong)
    assert_holds(target, one, TEXT)
    assert_holds(target, two, OTHER)
    target.free(one)
    target.free(two)


def test_the_context_can_be_filled_and_not_exceeded(target: Target) -> None:
    """The last position of the context can be scored; one further is refused."""
    sequence = target.open([0] * (target.context_length - 1))
    last = target.context_length - 1
    assert target.score([Row(sequence, 1, last, -1)]).logits.shape == (1, target.vocab_size)
    target.commit(sequence, [0])
    with pytest.raises(EngineError, match="stands at"):
        target.score([Row(sequence, 1, last + 1, -1)])
    target.free(sequence)


@pytest.mark.parametrize(
    "path", [[1], [0, 2], [1, 0], [0, 0], [0, 1, 2, 3], [-1], [0, 1, 2, 9], [3]]
)
def test_what_is_no_path_cannot_be_committed(target: Target, path: list[int]) -> None:
    """Gaps, wrong order, repeats, strangers, other sequences' rows; nothing of it is kept."""
    one, two = target.open(TEXT), target.open(OTHER)
    target.score([*chain(one, len(TEXT), [1, 2, 3]), Row(two, 1, len(OTHER), -1)])
    with pytest.raises(EngineError):
        target.commit(one, path)
    assert_holds(target, one, TEXT)
    target.free(one)
    target.free(two)


@pytest.mark.parametrize("length", [-1, len(TEXT) + 1])
def test_rollback_goes_back_only(target: Target, length: int) -> None:
    """To a length that the sequence has had."""
    sequence = target.open(TEXT)
    with pytest.raises(EngineError):
        target.rollback(sequence, length)
    assert_holds(target, sequence, TEXT)
    target.free(sequence)


def test_wrong_prompts_are_refused(target: Target) -> None:
    """Unknown tokens, one token more than the context, and a source nothing could encode."""
    for prompt in ([-1], [0, target.vocab_size], [0] * (target.context_length + 1)):
        with pytest.raises(PromptError):
            target.open(prompt)
    if target.capabilities.encoder is None:
        with pytest.raises(CapabilityError):
            target.open(TEXT, source=[1, 2])
    else:
        with pytest.raises(PromptError):
            target.open(TEXT, source=[])


@pytest.fixture
def depths(target: Target) -> range:
    """After how many layers a pass may end."""
    if not target.capabilities.layers:
        pytest.skip("this target's passes are whole")
    return range(1, target.capabilities.layers + 1)


def test_first_layers_see_a_rows_own_ancestors(target: Target, depths: range, trees: None) -> None:
    """Ended after any layer, a pass gives each row what it has alone; after the last, the whole."""
    one, two = target.open(TEXT), target.open(OTHER)
    rows = [*tree(one, len(TEXT)), Row(two, 1, len(OTHER), -1)]
    for until in depths:
        found = target.score(rows, logits=[8, 5, 0, 7], until=until).logits
        for place, i in enumerate((5, 0, 7), 1):
            text = TEXT + along(rows, i)
            lonely = target.open(text[:-1])
            row = Row(lonely, text[-1], len(text) - 1, -1)
            assert_same(target, found[place], target.score([row], until=until).logits[0])
            target.free(lonely)
    assert_same(target, found, target.score(rows, logits=[8, 5, 0, 7]).logits)
    target.free(one)
    target.free(two)


def test_first_layers_are_not_the_whole(target: Target, depths: range) -> None:
    """Each layer has a say; else nothing here could fail."""
    sequence = target.open(TEXT)
    rows = chain(sequence, len(TEXT), OTHER)
    found = {target.score(rows, until=until).logits.tobytes() for until in depths}
    assert len(found) == len(depths)
    target.free(sequence)


def test_what_the_first_layers_scored_is_not_kept(target: Target, depths: range) -> None:
    """Nothing of it can be committed, whatever was pending before, and whole passes go on as ever.

    Also in a fork, and where the rows of one pass were scored by the other.
    """
    sequence = target.open(TEXT)
    rows = chain(sequence, len(TEXT), OTHER)
    expected = target.score(rows).logits
    for until in depths:
        target.score(rows)
        target.score(rows[::-1][-1:], until=until)
        with pytest.raises(EngineError):
            target.commit(sequence, [0])
        target.score(rows, until=until)
        other = target.fork(sequence)
        with pytest.raises(EngineError):
            target.commit(sequence, range(len(rows)))
        target.commit(sequence, [])
        assert_holds(target, other, TEXT)
        target.free(other)
        assert_same(target, target.score(rows).logits, expected)
    target.commit(sequence, [0, 1])
    target.score(chain(sequence, len(TEXT) + 2, OTHER), until=1)
    assert_holds(target, sequence, TEXT + OTHER[:2])
    target.free(sequence)


def test_layers_that_are_not_there_are_refused(target: Target, depths: range) -> None:
    """None of them, one too many, and wrong rows as ever; nothing is left behind."""
    sequence = target.open(TEXT)
    row = Row(sequence, 1, len(TEXT), -1)
    for until in (0, -1, len(depths) + 1, 2**70):
        with pytest.raises(EngineError, match="layer"):
            target.score([row], until=until)
    with pytest.raises(EngineError):
        target.score([row._replace(position=1)], until=1)
    assert_holds(target, sequence, TEXT)
    target.free(sequence)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_history_leaves_the_tokens_it_says(target: Target, data: st.DataObject) -> None:
    """Grown, rolled back, forked and freed at random, each sequence is as if newly opened."""
    texts = {target.open(TEXT): list(TEXT)}
    for _ in range(data.draw(st.integers(1, 12))):
        sequence = data.draw(st.sampled_from(sorted(texts)))
        text = texts[sequence]
        match data.draw(st.sampled_from(["grow", "back", "fork", "free"])):
            case "grow":
                tokens = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
                target.score(chain(sequence, len(text), tokens))
                kept = data.draw(st.integers(0, len(tokens)))
                target.commit(sequence, range(kept))
                text += tokens[:kept]
            case "back":
                length = data.draw(st.integers(0, len(text)))
                target.rollback(sequence, length)
                del text[length:]
            case "fork" if len(texts) < 4:
                texts[target.fork(sequence)] = text.copy()
            case "free" if len(texts) > 1:
                target.free(sequence)
                del texts[sequence]
    for sequence, text in texts.items():
        assert_holds(target, sequence, text)
        target.free(sequence)
