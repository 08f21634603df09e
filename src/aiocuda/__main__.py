"""``python -m aiocuda`` is the command ``aiocuda``."""

from aiocuda._cli import main

if __name__ == "__main__":
    raise SystemExit(main())
