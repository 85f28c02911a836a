"""Other engines that can be timed beside Forerun: one line a peer, loaded when chosen."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from forerun.bench.sides import Side, Tokens
from forerun.errors import OptionError

__all__ = ["PEERS", "PeerKit", "open_peer", "peer_names"]

PEERS: dict[str, str] = {
    "llama.cpp": "forerun.bench.llama_cpp:LlamaCpp",
}


class PeerKit(NamedTuple):
    """What a peer is opened with.

    Attributes:
        path: The model's file.
        threads: Threads of its passes.
        context: Tokens each pass attends to.
        most_rows: The longest pass, or text written, behind the context.
        prefill: The longest prompt to be timed.
    """

    path: str
    threads: int
    context: Tokens
    most_rows: int
    prefill: int


def peer_names(given: Iterable[str]) -> tuple[str, ...]:
    """Return the peers named, each once; a name may be several joined by commas.

    Raises:
        OptionError: There is no such peer.
    """
    names = [name.strip() for each in given for name in each.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            what = f"There is no peer {name[:80]!r}."
            raise OptionError(what, f"Known peers: {', '.join(PEERS)}.")
    return tuple(dict.fromkeys(names))


@contextmanager
def open_peer(name: str, kit: PeerKit) -> Iterator[Side]:
    """Open a peer for the length of a `with` block.

    Raises:
        StartError: It is not installed, or can't open the file.
    """
    module, attribute = PEERS[name].split(":")
    side: Side = getattr(importlib.import_module(module), attribute)(*kit)
    try:
        yield side
    finally:
        side.close()
