"""What a layout and compiled code need of the model itself."""

from contextlib import AbstractContextManager
from typing import Any

from dana.mlm.varlen import NAME, register
from dana.train.batch import Shape


def set_up(model: Any, shape: Shape, compiled: bool) -> None:
    """Make a model ready for a choice: its attention and its compiled encoder."""
    if shape.layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    set_compiled(model, compiled)


def set_compiled(model: Any, compiled: bool) -> None:
    """Compile a model's encoder for one fixed shape, in place, or go back to the plain one.

    In place, because a wrapper would rename every parameter in what is saved. The head stays as it is: how many
    tokens are hidden differs from batch to batch.
    """
    if compiled:
        model.base_model.compile(dynamic=False)
    else:
        model.base_model._compiled_call_impl = None  # torch has no public way back


class attending(AbstractContextManager):
    """A model's attention, switched to what a layout needs while it is entered."""

    def __init__(self, model: Any, layout: str) -> None:
        self._model, self._switch = model, layout == "unpadded"

    def __enter__(self) -> None:
        if self._switch:
            register()
            self._before: str = self._model.config._attn_implementation
            self._model.set_attn_implementation(NAME)

    def __exit__(self, *error: object) -> None:
        if self._switch:
            self._model.set_attn_implementation(self._before)
