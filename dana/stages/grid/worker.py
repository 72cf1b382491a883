"""The process that runs cells one after another: JSON lines in, JSON lines out.

``python -m dana.stages.grid.worker`` reads a cell a line from standard input (stage, arguments, log file) and answers
each with a line on standard output. When standard input ends, because the grid is done, was interrupted or its process
died, a cell that is running is interrupted and removes what it was writing.
"""

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dana.core.errors import DanaError
from dana.core.logging import get_logger, setup
from dana.stages.grid.cell import call_stage

log = get_logger(__name__)


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Run one cell; gives ``made`` and ``seconds``, or ``error`` and ``exit_code`` (1 of what is no dana error)."""
    try:
        made, seconds = call_stage(order["stage"], order["arguments"])
        return {"made": made, "seconds": seconds}
    except DanaError as error:
        log.error("%s", error)
        return {"error": str(error), "exit_code": error.exit_code}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "exit_code": 1}


def serve() -> None:
    """Answer every line of standard input; never returns, the end of the input raises KeyboardInterrupt."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    setup()
    while True:
        order = orders.get()
        path = Path(order["log"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as stream:
            for descriptor in (1, 2):
                os.dup2(stream.fileno(), descriptor)
        said = answer(order)
        sys.stdout.flush()
        sys.stderr.flush()
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def _read(orders: "SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
    try:
        serve()
    except KeyboardInterrupt:
        sys.exit(0)
