"""recipes/adapt.py, told to stop after STOP_AFTER optimizer steps, on the last rank only."""

import os
import sys

from dana.cli.main import main
from dana.core.launch import StopRequest
from dana.train import loop

taken = 0
original = loop.take_step


def counted(*arguments):
    global taken
    taken += 1
    return original(*arguments)


loop.take_step = counted
asked = StopRequest.on_any_rank


def on_any_rank(self, accelerator):
    last = accelerator.process_index == accelerator.num_processes - 1
    self.received = last and taken >= int(os.environ["STOP_AFTER"])
    return asked(self, accelerator)


StopRequest.on_any_rank = on_any_rank
sys.exit(main(["adapt", *sys.argv[1:]]))
