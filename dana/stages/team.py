"""The processes of one launch: who is who, and waiting for each other."""

import os
from dataclasses import dataclass
from typing import Any

from dana.config import require
from dana.errors import ConfigError


@dataclass(frozen=True)
class Share:
    """Every `of`-th shard, from the `number`-th on (numbers begin with 0)."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, spec: str) -> "Share":
        """Read ``i/N``, for example ``1/8`` … ``8/8``.

        Raises:
            ConfigError: If it is not that.
        """
        number, slash, of = spec.partition("/")
        fits = bool(slash) and number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)
        require(fits, "--shard", spec, "i/N with i from 1 to N, for example 1/8")
        return cls(int(number) - 1, int(of))


@dataclass(frozen=True)
class Team:
    """The processes that a launcher started together.

    Attributes:
        rank: This one, from 0.
        world: How many.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def of_launch(cls) -> "Team":
        """What ``accelerate launch`` or ``torchrun`` say in the environment; one process without them."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def share(self) -> Share:
        """This process's part of the work."""
        return Share(self.rank, self.world)

    def wait(self) -> None:
        """Until every process has come here.

        Raises:
            ConfigError: If the launcher started processes that cannot find each other.
        """
        if self.world > 1:
            state = _state()
            if state.num_processes != self.world:
                raise ConfigError(f"{self.world} processes were launched, but {state.num_processes} found each other")
            state.wait_for_everyone()


def _state() -> Any:
    """Accelerate's record of the launch; also gives each process on a machine a GPU of its own."""
    import torch
    from accelerate import PartialState

    from dana.train.accelerator import PATIENCE

    return PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE)
