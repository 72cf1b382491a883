"""``python -m dana``."""

from dana.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
