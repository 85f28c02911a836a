"""The command `forerun` and `python -m forerun`: a door that an early Ctrl-C goes through."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from forerun.cli.main import main as run
    except KeyboardInterrupt:  # half a second of imports is long enough to think better of it
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
