"""Changes to a loaded model for a run: its attention implementation, compiled encoder, gradient checkpointing."""

from contextlib import AbstractContextManager
from typing import Any

from dana.core.errors import ConfigError
from dana.models.varlen import NAME, register
from dana.train.layout import BatchLayout


def set_up(model: Any, shape: BatchLayout, compiled: bool) -> None:
    """Make a model ready for a choice: its attention and its compiled encoder."""
    if shape.layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    set_compiled(model, compiled)


def set_compiled(model: Any, compiled: bool) -> None:
    """Compile a model's encoder for one fixed shape, in place, or go back to the plain one.

    In place, because a wrapper would rename every parameter in what is saved. The head stays as it is: how many
    tokens are predicted differs from batch to batch.
    """
    if compiled and model.base_model._compiled_call_impl is None:
        model.base_model.compile(dynamic=False)
    if not compiled:
        model.base_model._compiled_call_impl = None  # torch has no public way back


def checkpoint_gradients(model: Any) -> None:
    """Make a model compute its layers again in the backward pass, with the same dropout: the same gradients.

    Raises:
        ConfigError: If it cannot.
    """
    newer = getattr(model, "activation_checkpointing_enable", None)  # the same, under the name of later releases
    try:
        (newer or model.gradient_checkpointing_enable)({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"execution.gradient_checkpointing=true: {model.config.model_type} cannot") from error


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
