"""``python -m dana``: the same program as the command ``dana``."""

from dana.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
