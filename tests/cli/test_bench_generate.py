from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.bench import machine
from forerun.bench.race import bench as race_bench
from forerun.bench.race import run as race_run
from forerun.bench.race.ours import OurSide
from forerun.bench.race.peers import RACE_PEERS
from models.random_head import random_head
from models.tiny_gguf import Tiny

SIDES = ("--sides", "plain,auto,suffix:3,auto:warm")
KEPT = "Every sample is kept in {} (--keep names another folder)."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Little of the machine is read, nobody waits, and runs are kept elsewhere."""
    monkeypatch.setattr(machine, "_READ", 1 << 20)
    monkeypatch.setattr(machine, "_BATCHES", 1)
    monkeypatch.setattr(race_run, "_SETTLE", 0)
    monkeypatch.setattr(race_bench, "_CURVE_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    lines = [
        {"question_id": 1, "task": "qa", "turns": ["the the the", "and?"]},
        {"question_id": "b", "category": "rag", "turns": ["abc abc abc"]},
    ]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")


def asked(*more: str) -> tuple[str, ...]:
    """The command on two small prompts."""
    small = ("--prompts", "p.jsonl", "--max-tokens", "6", "--repeats", "2", "--threads", "1")
    return ("bench", "generate", *small, *more)


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_the_last_line_is_the_report(run: Any, temperature: str) -> None:
    """Speeds, tokens per pass and ratios by side and task, and that all wrote the same."""
    result = run(*asked(*SIDES, "--temperature", temperature, "--seed", "7", "--json"))
    assert result.exit_code == 0
    record = json.loads(result.stdout.splitlines()[-1])
    assert result.stderr.split() == KEPT.format(record["samples"]).split()
    assert record["identical"] is True
    assert set(record["sides"]) == {"plain", "auto", "suffix:3", "auto:warm"}
    for side in record["sides"].values():
        for figure in ("tokens_per_second", "tokens_per_pass"):
            assert side[figure]["overall"] > 0
            assert set(side[figure]["by_task"]) == {"qa", "rag"}
    assert record["sides"]["plain"]["tokens_per_pass"]["overall"] == 1
    for pair in ("auto/plain", "suffix:3/plain", "auto/suffix:3", "auto/auto:warm"):
        interval = record["ratios"][pair]["overall"]
        assert interval["low"] <= interval["value"] <= interval["high"]
    assert (record["seed"], record["repeats"], record["max_tokens"]) == (7, 2, 6)


def test_a_warm_side_has_a_model_of_its_own(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the others would make it forget."""
    models: dict[str, set[int]] = {}
    honest = OurSide.write

    def watched(self: OurSide, job: Any) -> Any:
        models.setdefault(self.name, set()).add(id(self._lm))
        return honest(self, job)

    monkeypatch.setattr(OurSide, "write", watched)
    assert run(*asked(*SIDES, "--json")).exit_code == 0
    assert models["plain"] == models["auto"] == models["suffix:3"]
    assert models["auto:warm"].isdisjoint(models["auto"])


def test_every_sample_is_kept(run: Any) -> None:
    """With what it ran on before, and the report behind."""
    result = run(*asked("--keep", "runs", "--json"))
    (path,) = Path("runs").iterdir()
    about, *samples, report = map(json.loads, path.read_text("utf-8").splitlines())
    assert about["machine"]["threads"] == 1
    assert len(samples) == 2 * 2 * 3
    assert {s["side"] for s in samples} == {"plain", "auto"}
    assert all(len(s["token_ids"]) == s["stats"]["tokens"] for s in samples)
    assert report == json.loads(result.stdout)
    assert report["samples"] == str(path)


def test_a_person_gets_tables(run: Any) -> None:
    """And the run's file lies where the reference says."""
    result = run(*asked("--tasks", "rag", "--turns", "1"))
    assert result.exit_code == 0
    for said in ("tokens/s", "over plain", "rag", "drafting", "wrote the same tokens"):
        assert said in result.stdout
    assert "qa" not in result.stdout
    assert len(list(Path("benchmarks/runs").iterdir())) == 1


def test_a_report_and_a_plot_are_files(run: Any) -> None:
    """Beside what is printed."""
    pytest.importorskip("matplotlib")
    result = run(*asked("--report", "race.md", "--plot", "race.svg"))
    assert result.exit_code == 0
    assert Path("race.md").read_text("utf-8").startswith("# ")
    assert "<svg" in Path("race.svg").read_text("utf-8")


def test_a_sweep_says_whether_choosing_lengths_pays(run: Any) -> None:
    """Every drafter and mix at every length, the best of each task, and what v and c foretell."""
    sweep = ("--sweep", "suffix,suffix+recycle", "--lengths", "0,2", "--report", "race.md")
    result = run(*asked("--sides", "auto", *sweep, "--json"))
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    fixed = {f"{name}:{length}" for name in ("suffix", "suffix+recycle") for length in (0, 2)}
    assert set(record["sides"]) == {"plain", "auto", *fixed}
    assert record["identical"] is True
    best = record["best_fixed"]
    assert {best["overall"]["at_least"], best["by_task"]["qa"]["at_least"]} == {1, 0.95}
    for own in (best["overall"], *best["by_task"].values()):
        assert own["side"] in {"plain", *fixed}
        assert own["verdict"] in ("holds", "fails", "undecided")
    for name in ("auto", "suffix:2"):
        assert record["sides"][name]["foretold"]["by_task"]["qa"]["ratio"] > 0
    assert record["pass_cost"]["1"] == 1
    text = Path("race.md").read_text("utf-8")
    assert "## auto against the best fixed length of each task" in text
    assert "Foretold by v, c and acceptance" in text


def test_a_side_that_writes_otherwise_ends_with_1(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt and side are named, on standard error and in the record."""
    honest = OurSide.write

    def lying(self: OurSide, job: Any) -> Any:
        options = OurSide._options(self, job)
        seed = options["seed"] + (self.name == "auto" and job.max_tokens == 6)
        return honest(self, type(job)(job.tokens, job.max_tokens, job.temperature, seed))

    monkeypatch.setattr(OurSide, "write", lying)
    result = run(*asked("--temperature", "1", "--seed", "7", "--json"))
    assert result.exit_code == 1
    assert "auto left plain's text of prompt" in result.stderr
    record = json.loads(result.stdout)
    assert record["identical"] is False
    assert {each["side"] for each in record["differences"]} == {"auto"}


def test_ctrl_c_keeps_what_there_is(start: Any, tmp_path: Path) -> None:
    """The report of the samples so far, marked as interrupted, and all of them in the file."""
    arguments = asked("--repeats", "5000", "--max-tokens", "64", "--json", "--keep", "runs")
    process = start(*arguments, cwd=tmp_path)
    try:
        while not (tmp_path / "runs").exists() or _size(tmp_path / "runs") < 20_000:
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    record = json.loads(out)
    assert record["interrupted"] is True
    assert record["sides"]["plain"]["tokens_per_second"]["overall"] > 0
    (path,) = (tmp_path / "runs").iterdir()
    samples = path.read_text("utf-8").splitlines()[1:-1]
    assert len(samples) >= 5
    assert sum(side["tokens"] for side in record["sides"].values()) == sum(
        len(json.loads(line)["token_ids"]) for line in samples
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sides", "plain,warp"), "There is no drafter 'warp'"),
        (("--sides", "plain,plain"), "'plain' is named twice"),
        (("--sides", "suffix:long"), "'long' is no draft length"),
        (("--sweep", "plain"), "no drafter to be tried"),
        (("--sweep", "sufix"), "There is no drafter 'sufix'"),
        (("--sweep", "suffix", "--lengths", "300"), "lengths = '300'"),
        (("--sweep", "suffix", "--lengths", "2,2"), "'suffix:2' is named twice"),
        (("--lengths", "2"), "lengths = 2 are of a sweep, and there is none"),
        (("--q4-0", "p.jsonl"), "q4_0 = 'p.jsonl' is for side llama.cpp:q4_0"),
        (("--sides", "plain,suffix", "--head", "h.gguf"), "is asked by none of the sides"),
        (("--prompts", "nowhere.jsonl"), "can't be read"),
        (("--tasks", "cooking"), "no prompt of task 'cooking'"),
        (("--repeats", "0"), "repeats = '0'"),
        (("--max-tokens", "-1"), "max_tokens = '-1'"),
        (("--limit", "0"), "limit = '0'"),
        (("--temperature", "-1"), "temperature = '-1'"),
        (("--report", "nowhere/r.md"), "no such folder"),
        (("--report", "."), "a folder"),
        (("--keep", "p.jsonl"), "keep = 'p.jsonl' can't be written"),
    ],
)
def test_what_cannot_be_is_one_line(run: Any, arguments: tuple[str, ...], said: str) -> None:
    """Wrong use ends with 2, what is wrong, and no output."""
    result = run(*asked(*arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_side_that_drafts_with_a_head_takes_the_named_one(run: Any) -> None:
    """By itself and in auto; the report says which, and all sides write the same."""
    sized = Tiny(width=64, inner=96, layers=3, context=512, quantisation="Q4_1")
    model = forerun.load(sized.write(Path("tiny.gguf"))).model
    random_head(Path("head.gguf"), model, size=200)
    sides = ("--sides", "plain,auto,eagle:2", "-m", "tiny.gguf", "--head", "head.gguf")
    result = run(*asked(*sides, "--json"))
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["identical"] is True
    assert record["sides"]["eagle:2"]["settings"]["head"] == "head.gguf"
    assert record["sides"]["eagle:2"]["acceptance"]["by_position"][0][0] > 0


def test_peers_alone_are_no_race(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One side at least is Forerun's; the error about a side names the peers."""
    monkeypatch.setitem(RACE_PEERS, "fake", "bench.race.fakes:EchoEngine")
    result = run(*asked("--sides", "fake"))
    assert result.exit_code == 2
    assert "None of the sides is Forerun" in result.stderr
    assert "Peers: " in run(*asked("--sides", "plain,fak")).stderr


def test_a_peer_that_fails_is_said_and_the_others_go_on(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writes, one can't be opened: the report has both."""
    monkeypatch.setitem(RACE_PEERS, "fake", "bench.race.fakes:EchoEngine")
    monkeypatch.setitem(RACE_PEERS, "fake:closed", "bench.race.fakes:EchoEngine")
    result = run(*asked("--sides", "plain,fake,fake:closed", "--json"))
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["sides"]["fake"]["tokens_per_second"]["overall"] == pytest.approx(2.5)
    assert record["sides"]["fake:closed"]["error"] == "RuntimeError: out of order"
    assert record["ratios"]["fake:closed/plain"]["overall"] is None
    assert record["ratios"]["fake/plain"]["overall"]["value"] > 0


def test_names_of_tasks_are_no_markup(run: Any) -> None:
    """Tables, progress and the report in Markdown show them as they are."""
    names = ["[/x]", "[red]", "[link=x]y", "a|b"]
    lines = [{"question_id": n, "task": n, "turns": ["the the"]} for n in names]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    result = run(*asked("--report", "r.md"))
    assert result.exit_code == 0
    assert all(name in result.stdout for name in names)
    assert "| a\\|b |" in Path("r.md").read_text("utf-8")


@pytest.mark.parametrize("tokens", ["4096", "99999", "4090"])
def test_a_race_without_room_is_refused(run: Any, tokens: str) -> None:
    """Where no prompt and its text fit into the context, nothing is measured."""
    result = run(*asked("--max-tokens", tokens, "--keep", "runs"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the context is 4096" in result.stderr
    assert not Path("runs").exists()
