"""recipes/adapt.py, told to stop after STOP_AFTER optimizer steps, on the last rank only."""

import os
import sys

from dana.cli.main import main
from dana.core.launch import StopRequest
from dana.train import loop

steps = []
take_step, is_stopped = loop.take_step, StopRequest.on_any_rank


def take_and_count(*arguments):
    steps.append(1)
    return take_step(*arguments)


def on_any_rank(self, accelerator):
    last = accelerator.process_index == accelerator.num_processes - 1
    self.received = last and len(steps) >= int(os.environ["STOP_AFTER"])
    return is_stopped(self, accelerator)


loop.take_step, StopRequest.on_any_rank = take_and_count, on_any_rank
sys.exit(main(["adapt", *sys.argv[1:]]))
