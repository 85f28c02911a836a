"""Install the judge tests' torch and transformers, but never a CUDA build by accident.

    python tools/judge.py STAMP

First asks pip what it would download. A CPU build is installed and STAMP is touched. A CUDA build
of several gigabytes is refused: the judge tests then do not run and say so, unless CI is set,
where the refusal is a failure (exit code 1). Needs nothing but the standard library and pip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GROUP = "judge"
PIP = (sys.executable, "-m", "pip", "install", "-qq", "--group", GROUP)

# What torch pulls in only where it was built for an accelerator, and how such builds are named.
ACCELERATED = re.compile(r"^(nvidia|cuda|triton|pytorch-triton|rocm|intel-sycl)(-|$)")
LOCAL_BUILD = re.compile(r"\+(cu|rocm|xpu)\d*")

ADVICE = """\
The judge tests compare Forerun with torch and transformers. They need a CPU build of torch, and
pip would not install one: {reason}
Let pip find a CPU build (its find-links or index-url setting), then run `make judge`.
"""


def accelerated(report: dict[str, Any]) -> list[str]:
    """The packages of a pip installation report that belong to an accelerator build."""
    found = []
    for item in report["install"]:
        name = item["metadata"]["name"].lower().replace("_", "-")
        version = item["metadata"]["version"]
        if ACCELERATED.match(name) or (name == "torch" and LOCAL_BUILD.search(version)):
            found.append(f"{name} {version}")
    return sorted(found)


def reason_to_refuse() -> str:
    """Why the group is not to be installed; empty if it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        done = subprocess.run(
            [*PIP, "--dry-run", "--report", str(path)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"pip found no way to install it.\n{done.stderr.strip()}"
        wrong = accelerated(json.loads(path.read_text("utf-8")))
    if not wrong:
        return ""
    return f"it would download {len(wrong)} packages of an accelerator build ({wrong[0]}, …)."


def main(stamp: str) -> int:
    """Install the group and touch the stamp, or say why not."""
    reason = reason_to_refuse()
    if not reason:
        subprocess.run(PIP, check=True)
        Path(stamp).touch()
        return 0
    sys.stderr.write("\n" + ADVICE.format(reason=reason) + "\n")
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
