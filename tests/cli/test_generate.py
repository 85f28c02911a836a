from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import forerun
import forerun.cli.compare
from forerun.config import Loading
from forerun.core.tree import Draft
from forerun.drafters.protocol import DraftRequest
from forerun.drafters.suffix import Suffix
from forerun.errors import EngineError
from forerun.events import Result
from models.tiny_folder import TinyFolder
from models.tiny_gguf import Tiny

PROMPT = "the then he in"
ASK = ("--max-tokens", "24", "--seed", "7")


@pytest.fixture(scope="session")
def lm(tiny: Path) -> forerun.LanguageModel:
    return forerun.load(str(tiny))


def lines(output: str) -> list[dict[str, Any]]:
    """Every line as JSON; none may be anything else."""
    return [json.loads(line) for line in output.splitlines()]


def expected(lm: forerun.LanguageModel, **options: Any) -> Result:
    lm.forget()  # a command starts from nothing, too
    return lm.generate(PROMPT, max_tokens=24, seed=7, **options)


def test_the_text_and_nothing_else_is_on_stdout(run: Any, lm: forerun.LanguageModel) -> None:
    """Stdout is the library's text and one line end; stderr is empty."""
    result = run("generate", PROMPT, *ASK)
    assert result.exit_code == 0
    assert result.stdout == expected(lm).text + "\n"
    assert result.stderr == ""


def test_a_dash_reads_the_prompt_from_stdin(run: Any, lm: forerun.LanguageModel) -> None:
    """`-` stands for standard input."""
    assert run("generate", "-", *ASK, stdin=PROMPT).stdout == expected(lm).text + "\n"


def test_a_folder_is_a_model(run: Any, tmp_path: Path) -> None:
    """`-m FOLDER --weights int4` writes the library's text; a GGUF file has types of its own."""
    path = TinyFolder(Tiny(width=64, inner=96)).write(tmp_path)
    result = run("generate", PROMPT, *ASK, "-m", str(path), "--weights", "int4")
    assert result.exit_code == 0
    truth = forerun.load(path, weights="int4").generate(PROMPT, max_tokens=24, seed=7)
    assert result.stdout == truth.text + "\n"
    assert truth.text != forerun.load(path).generate(PROMPT, max_tokens=24, seed=7).text
    refused = run("generate", PROMPT, "--weights", "int4")
    assert refused.exit_code == 2
    assert "nothing is quantised twice" in " ".join(refused.stderr.split())


def test_json_is_the_events_and_the_result(run: Any, lm: forerun.LanguageModel) -> None:
    """One object a line; tokens add up to the text; the last line has all the statistics."""
    result = run("generate", PROMPT, *ASK, "--json")
    *events, last = lines(result.stdout)
    truth = expected(lm)
    assert result.stderr == ""
    assert last["event"] == "result"
    assert last["text"] == truth.text
    assert last["token_ids"] == list(truth.token_ids)
    assert (last["finish_reason"], last["exact"], last["seed"]) == ("length", True, 7)
    tokens = [event for event in events if event["event"] == "token"]
    rounds = [event for event in events if event["event"] == "round"]
    assert "".join(token["text"] for token in tokens) == truth.text
    assert [token["token"] for token in tokens] == last["token_ids"]
    assert sum(each["emitted"] for each in rounds) == len(tokens) == last["stats"]["tokens"]
    assert last["stats"]["passes"] == len(rounds)
    assert {"tokens_per_pass", "tokens_per_second", "drafted", "accepted"} <= set(last["stats"])


@pytest.mark.parametrize("temperature", ["0", "1"])
@pytest.mark.parametrize("drafter", ["auto", "lookup", "bigram", "model", "scripted", "random"])
def test_no_drafter_changes_the_tokens(run: Any, drafter: str, temperature: str) -> None:
    """With a seed, any drafter's tokens are those of plain decoding."""
    ask = ("generate", PROMPT, *ASK, "--json", "--temperature", temperature)
    plain = lines(run(*ask, "--drafter", "none").stdout)[-1]
    drafted = lines(run(*ask, "--drafter", drafter).stdout)[-1]
    assert drafted["token_ids"] == plain["token_ids"]
    assert plain["stats"]["drafted"] == 0


def test_lenient_is_marked(run: Any) -> None:
    """The one rule that changes the law says so."""
    last = lines(run("generate", PROMPT, *ASK, "--json", "--rule", "lenient").stdout)[-1]
    assert (last["exact"], last["guarantee"]) == (False, "lenient")


def test_show_prints_a_receipt_beside_the_text(run: Any, lm: forerun.LanguageModel) -> None:
    """Legend and receipt are on stderr, so that a piped text stays the text."""
    result = run("generate", PROMPT, *ASK, "--show", "--draft-length", "5")
    truth = expected(lm, draft_length=5)
    assert result.stdout == truth.text + "\n"
    for word in ("accepted from suffix", "corrected", "bonus", "tokens per pass", "acceptance"):
        assert word in result.stderr
    for word in ("tokens per second", "per token", "guarantee", "bitwise", "seed"):
        assert word in result.stderr
    assert f"{truth.stats.tokens_per_pass:.2f}" in result.stderr
    assert f"{truth.stats.accepted} of {truth.stats.drafted}" in result.stderr


def test_show_tells_several_drafters_apart(run: Any) -> None:
    """Each drafter of a mixture has its own line in the receipt."""
    result = run(
        "generate", PROMPT, *ASK, "--show", "--drafter", "lookup,random", "--draft-length", "3"
    )
    receipt = [line.split() for line in result.stderr.splitlines()]
    assert {"lookup", "random"} <= {words[0] for words in receipt if words}


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_compare_shows_the_same_text_twice(run: Any, temperature: str) -> None:
    """Both texts side by side, their passes, and the receipt; the seed it draws is for both."""
    ask = ("--max-tokens", "24", "--ignore-eos", "--temperature", temperature)
    result = run("generate", PROMPT, *ask, "--compare")
    assert result.exit_code == 0
    for word in ("plain", "speculative", "The same 24 tokens", "instead of 24"):
        assert word in result.stdout
    assert "guarantee" in result.stderr


class _BrokenPromise:
    """A language model whose plain text is another one."""

    def __init__(self, lm: forerun.LanguageModel) -> None:
        self._lm, self.loading = lm, lm.loading

    def stream(self, prompt: str, **options: Any) -> forerun.Stream:
        if options["drafter"] == "none":
            options["banned_tokens"] = expected(self._lm).token_ids[3:4]
        return self._lm.stream(prompt, **options)


def test_compare_ends_with_1_if_the_texts_differ(
    run: Any, lm: forerun.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken promise is said and is the exit code."""

    def broken(loading: Loading, **begin: str) -> _BrokenPromise:
        return _BrokenPromise(lm)

    monkeypatch.setattr(forerun.cli.compare, "open_model", broken)
    result = run("generate", PROMPT, *ASK, "--compare")
    assert result.exit_code == 1
    assert "DIFFERENT from token" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([PROMPT, "--show", "--json"], "--json and --show contradict"),
        ([PROMPT, "--compare", "--json"], "--json and --compare contradict"),
        ([PROMPT, "--show", "--compare"], "draws no rounds"),
        ([PROMPT, "--top-logprobs", "2"], "Only --json tells log-probabilities: top_logprobs = 2."),
        ([PROMPT, "--dtype", "float16"], "dtype = float16 is for the transformers target"),
        ([PROMPT, "--device", "cpu"], "device = cpu is for the transformers target"),
        ([PROMPT, "--drafter", "none", "--draft-length", "5"], "drafter 'none' drafts nothing"),
        ([PROMPT, "--compare", "--drafter", "none"], "compares nothing"),
        ([PROMPT, "--compare", "--rule", "lenient"], "not the same tokens"),
        ([PROMPT, "--compare", "--rule", "block", "--temperature", "1"], "not the same tokens"),
        ([PROMPT, "--temperature", "nan"], "temperature = 'nan'"),
        ([PROMPT, "--temperature=-1"], "temperature = '-1'"),
        ([PROMPT, "--top-p", "0"], "top_p = '0'"),
        ([PROMPT, "--repetition-penalty", "inf"], "repetition_penalty = 'inf'"),
        ([PROMPT, "--drafter", "sufix"], "Did you mean 'suffix'?"),
        ([PROMPT, "--rule", "best"], "rule = 'best'"),
        ([PROMPT, "--rule", "block", "--draft-width", "2"], "draft_width = 2"),
        ([PROMPT, "--min-tokens", "9", "--max-tokens", "8"], "min_tokens = 9"),
        ([PROMPT, "--banned-tokens", "1,x"], "banned_tokens"),
        ([PROMPT, "--context", "1"], "context = '1'"),
        ([""], "The prompt is ''"),
        ([" \n"], "The prompt is"),
        (["the " * 4096], "tokens, the context 4096"),
        (["a\udcffb"], "lone surrogate"),
    ],
)
def test_wrong_use_is_one_clear_line(run: Any, arguments: list[str], words: str) -> None:
    """What cannot be ends with exit code 2, one line on stderr, and nothing on stdout."""
    result = run("generate", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    "arguments", [["generate"], ["generate", "x", "--tempo", "1"], ["write"], ["pull", "a", "b"]]
)
def test_unknown_words_end_with_2(run: Any, arguments: list[str]) -> None:
    """A missing argument, an unknown flag or command, one argument too many."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage" in result.stderr


def damaged(tiny: Path, folder: Path) -> dict[str, Path]:
    """Files that are no model, by what is wrong with them."""
    whole = tiny.read_bytes()
    contents = {
        "truncated": whole[: len(whole) // 2],
        "header": whole[:20],
        "corrupt": whole[:8] + b"\xff" * 64 + whole[72:],
        "empty": b"",
        "text": b"This is no model.",
    }
    for name, content in contents.items():
        (folder / f"{name}.gguf").write_bytes(content)
    Tiny(architecture="gpt2").write(folder / "unsupported.gguf")
    names = (*contents, "unsupported", "missing")
    return {name: folder / f"{name}.gguf" for name in names} | {"folder": folder}


@pytest.mark.parametrize(
    "what",
    ["truncated", "header", "corrupt", "empty", "text", "unsupported", "missing", "folder"],
)
def test_a_file_that_is_no_model_ends_with_3(
    run: Any, tiny: Path, tmp_path: Path, what: str
) -> None:
    """Nothing could start: exit code 3 and one line with the file's name."""
    path = damaged(tiny, tmp_path)[what]
    result = run("generate", PROMPT, "-m", str(path))
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert str(path) in result.stderr


def test_a_name_nearly_right_is_suggested(run: Any) -> None:
    """`smollm` is asked back."""
    result = run("generate", PROMPT, "-m", "smollm")
    assert result.exit_code == 3
    assert "Did you mean 'smollm2'?" in result.stderr


@pytest.mark.model
def test_the_default_model_writes_the_same_text_with_any_seeded_drafter(run: Any) -> None:
    """On the default model, `--json` with and without drafts has the same token ids."""
    ask: tuple[str, ...]
    ask = ("generate", "the sea, the sea, the sea, the", "-m", "smollm2", "--max-tokens", "4")
    ask += ("--raw", "--temperature", "1", "--seed", "7", "--json")
    plain = lines(run(*ask, "--drafter", "none").stdout)[-1]
    drafted = lines(run(*ask).stdout)[-1]
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["drafted"] > 0


def test_what_was_written_before_an_error_stays(
    run: Any, lm: forerun.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of JSON is a result, the text's line is ended, the error has its own."""

    def breaks(memory: object, request: DraftRequest) -> Draft:
        if request.round == 3:
            raise EngineError("The drafter broke.")
        return Draft()

    monkeypatch.setattr(Suffix, "guess", lambda self, *asked: breaks(*asked))
    asked = ("generate", PROMPT, *ASK, "--drafter", "suffix", "--draft-length", "5")
    result = run(*asked, "--json")
    *_, last = lines(result.stdout)
    written = list(expected(lm, drafter="none").token_ids[:3])
    assert (result.exit_code, last["event"], last["token_ids"]) == (1, "result", written)
    assert last["finish_reason"] == "interrupted"
    assert "The drafter broke." in result.stderr
    assert run(*asked).stdout.endswith("\n")


def test_a_files_own_words_steer_no_terminal(run: Any, tmp_path: Path) -> None:
    """Control characters that a template puts into an error are escaped."""
    metadata = {"tokenizer.chat_template": "{{ raise_exception('no \x1b[31m\u202e') }}"}
    path = Tiny(metadata=metadata).write(tmp_path / "hostile.gguf")
    result = run("generate", PROMPT, "-m", str(path))
    assert result.exit_code == 3
    assert "no \\x1b[31m\\u202e" in result.stderr


def test_a_template_that_makes_nothing_is_refused(run: Any, tmp_path: Path) -> None:
    """Not called an empty prompt: the user's was not."""
    path = Tiny(metadata={"tokenizer.chat_template": "{{ '' }}"}).write(tmp_path / "nothing.gguf")
    result = run("generate", PROMPT, "-m", str(path))
    assert result.exit_code == 3
    assert "--raw" in result.stderr


@pytest.mark.parametrize("command", [("generate", PROMPT), ("chat",)])
@pytest.mark.parametrize(
    ("flag", "value", "drafter"),
    [("--draft-model", "x.gguf", "model"), ("--draft-layers", "1", "model"),
     ("--draft-layers", "1", "early_exit"), ("--script", "the", "scripted")],
)  # fmt: skip
def test_an_option_of_another_drafter_is_refused(
    run: Any, command: tuple[str, ...], flag: str, value: str, drafter: str
) -> None:
    """It would change nothing; whoever gave it expects that it does."""
    for asked in ((), ("--drafter", "suffix"), ("--drafter", "none")):
        result = run(*command, flag, value, *asked)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.search(f"Choose drafter .*'{drafter}'", result.stderr)
    if flag != "--draft-model":
        assert run(*command, *ASK, flag, value, "--drafter", f"lookup, {drafter}").exit_code == 0


def test_a_store_is_kept_from_run_to_run(run: Any, tmp_path: Path) -> None:
    """Made at the end of the first, read by the second; a damaged one is refused."""
    store = tmp_path / "store"
    ask = ("generate", PROMPT, *ASK, "--drafter", "suffix", "--draft-length", "4", "--json")
    passes = []
    for _ in range(2):
        result = run(*ask, "--store", str(store))
        assert result.exit_code == 0
        passes.append(lines(result.stdout)[-1]["stats"]["passes"])
    assert passes[1] < passes[0]
    store.write_bytes(store.read_bytes()[:-1])
    refused = run(*ask, "--store", str(store))
    assert refused.exit_code == 3
    assert "truncated or damaged" in refused.stderr
    small = run(*ask, "--store", str(store), "--store-tokens", "100")
    assert (small.exit_code, store.exists()) == (2, True)


def test_a_comparison_keeps_the_store_too(run: Any, tmp_path: Path) -> None:
    """What it wrote is there for the next text."""
    store = tmp_path / "store"
    assert run("generate", PROMPT, *ASK, "--compare", "--store", str(store)).exit_code == 0
    assert store.stat().st_size > 0


def test_a_store_without_a_place_is_refused_before_the_text(run: Any, tmp_path: Path) -> None:
    """What was learned would be lost."""
    for command in ("generate", PROMPT), ("chat",):
        refused = run(*command, *ASK, "--store", str(tmp_path / "none" / "store"))
        assert (refused.exit_code, refused.stdout) == (3, "")
        assert "there is no folder" in refused.stderr


def test_a_corpus_is_told_and_read(run: Any, tmp_path: Path) -> None:
    """How much it is, and what was skipped; a hostile name steers no terminal."""
    (tmp_path / "a.txt").write_text("the then he in")
    (tmp_path / "b\x1b[31m").write_bytes(b"\0")
    result = run("generate", PROMPT, *ASK, "--corpus", str(tmp_path))
    assert result.exit_code == 0
    assert "Corpus: 1 file, 10 tokens." in result.stderr
    assert "is skipped: it is binary." in result.stderr
    assert "\x1b" not in result.stderr
    assert run("generate", PROMPT, "--corpus", str(tmp_path / "none")).exit_code == 2


def test_a_prediction_is_a_file_or_the_text_itself(
    run: Any, lm: forerun.LanguageModel, tmp_path: Path
) -> None:
    """Either is followed; a file that is no text is refused, a drafter that reads none, too."""
    text = expected(lm).text
    (tmp_path / "file").write_text(text, "utf-8")
    ask = ("generate", PROMPT, *ASK, "--drafter", "prediction", "--draft-length", "4", "--json")
    passes = []
    for prediction in (str(tmp_path / "file"), text, "zzz"):
        result = run(*ask, "--prediction", prediction)
        assert result.exit_code == 0
        passes.append(lines(result.stdout)[-1]["stats"]["passes"])
    assert passes[0] == passes[1] < passes[2]
    (tmp_path / "file").write_bytes(b"\0")
    assert run(*ask, "--prediction", str(tmp_path / "file")).exit_code == 2
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing"):
        result = run(*ask, "--prediction", str(tmp_path / name))
        assert (result.exit_code, name in result.stderr) == (2, True)
    for text_or_name, code in (("mian.py", 2), ("a/b", 2), ("x = 3.14", 0), ("Yes.", 0)):
        assert run(*ask, "--prediction", text_or_name).exit_code == code
    refused = run("generate", PROMPT, "--drafter", "suffix", "--prediction", text)
    assert refused.exit_code == 2


@pytest.mark.parametrize("command", [("generate", "-"), ("chat",)])
def test_input_without_an_end_is_refused(
    run: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A device, say; nothing more of it is read, and nothing written."""
    monkeypatch.setattr("forerun.cli.consoles.MOST_INPUT", 1 << 20)
    refused = run(*command, stdin="x" * (1 << 20) + "x")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "more than 1 million characters" in refused.stderr
