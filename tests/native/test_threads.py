"""The threads of the native target where the system gives few, and where there are many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forerun.models.model import load_model
from forerun.targets.native import NativeTarget
from models.tiny_gguf import Tiny
from targets.row_cases import alone

# Each thread reserves megabytes of addresses for its stack, of which there is room for a few.
POOR = """
import os, resource, sys
from forerun.errors import OptionError
from forerun.models.model import load_model
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Row

model = load_model(sys.argv[1])
poor, modest = NativeTarget(model, threads=200), NativeTarget(model, threads=2)
sequence, other = poor.open(), modest.open()
expected = modest.score([Row(other, 1, 0, -1)]).logits
with open("/proc/self/statm") as sizes:
    now = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (now + (100 << 20), before[1]))
for _ in range(3):
    try:
        poor.score([Row(sequence, 1, 0, -1)])
    except OptionError as error:
        assert "threads = 200" in error.what, error
    else:
        raise AssertionError("200 threads were there")
assert (modest.score([Row(other, 1, 0, -1)]).logits == expected).all()
resource.setrlimit(resource.RLIMIT_AS, before)
assert (poor.score([Row(sequence, 1, 0, -1)]).logits == expected).all()
"""

# Daemon threads that hardly ever are outside of a pass, and the interpreter's end.
ENDED = """
import sys, threading, time
import forerun

lm = forerun.load(sys.argv[1], threads=2)
lm.generate([1, 2, 3], max_tokens=4, temperature=1.0, seed=1)
inside = threading.Event()

def read():
    while True:
        inside.set()
        lm.target.free(lm.target.open([1] * 4000))

for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
inside.wait()
time.sleep(0.1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how a process is kept poor is the system's")
def test_threads_that_the_system_refuses_are_an_error(tmp_path: Path) -> None:
    """Told as often as it is asked for; nothing hangs or ends, and once there is room it works."""
    path = Tiny().write(tmp_path / "tiny.gguf")
    command = [sys.executable, "-c", POOR, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_more_threads_than_cores_are_only_slower(tmp_path: Path) -> None:
    """As many as are allowed give the bits of one."""
    model = load_model(Tiny().write(tmp_path / "tiny.gguf"))
    one, many = (NativeTarget(model, threads=threads) for threads in (1, 256))
    np.testing.assert_array_equal(alone(many, [1, 2], [3]), alone(one, [1, 2], [3]))


def test_python_may_end_during_a_pass(tmp_path: Path) -> None:
    """A daemon thread's pass neither fails the process nor writes anything as it ends."""
    path = Tiny(context=4096).write(tmp_path / "tiny.gguf")
    command = [sys.executable, "-c", ENDED, str(path)]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
