"""Layout check: a model and a few examples in, the difference of its logits under a layout to those of padded rows."""

from typing import Any

import numpy as np
import torch

from dana.core.errors import ConfigError
from dana.models.folder import quiet_transformers
from dana.models.heads import window_of
from dana.models.varlen import kernel_difference
from dana.train.examples import Examples
from dana.train.layout import BatchLayout, micro_batches
from dana.train.memory import ran_out
from dana.train.model_setup import attending
from dana.train.objectives.base import Collator
from dana.train.settings import TrainSettings

TOLERANCE = 1e-4  # of the largest logit, in float32: attention across examples changes far more
KERNEL_TOLERANCE = 3e-2  # of vectors of size 1, in bfloat16, which rounds at 4e-3


class LayoutCheck:
    """Eight examples from the shortest to the longest, laid out in each way.

    Always in float32 and without dropout, whatever the run computes in: bfloat16 rounds so coarsely that wrong
    attention passes for rounding. What only half precision uses, the variable-length kernel, is tested by itself.

    Args:
        module: From :meth:`dana.train.objectives.base.Objective.module`, on its device, not wrapped.
        examples: What it will be trained on.
        collator: Makes training batches.
        settings: The run.
        device: The module's.
    """

    def __init__(
        self, module: Any, examples: Examples, collator: Collator, settings: TrainSettings, device: torch.device
    ) -> None:
        self._model, self._module, self._settings, self._device = module.model, module, settings, device
        by_length = np.argsort(examples.lengths, kind="stable")
        rows = by_length[np.linspace(0, len(examples) - 1, min(8, len(examples))).astype(int)]
        self._batch = collator.step_batch(examples.take(rows), 0, "token_count")
        self._lengths = self._batch.lengths

    def difference(self, layout: str) -> float:
        """The largest difference to padded rows of any logit, as a share of the largest logit."""
        alone = [np.array([row]) for row in range(len(self._batch.examples))]
        (rows,) = micro_batches(self._lengths, 1 << 30, 0, 1, layout, self._settings.max_tokens)
        expected = self._answers("padded", alone)
        return float((self._answers(layout, rows) - expected).abs().max()) / float(expected.abs().max())

    def problem(self, layout: str) -> str:
        """Why a layout is not for this model; empty if it is."""
        if layout == "padded":
            return ""
        try:
            with quiet_transformers():  # it warns where an architecture cannot change its attention
                found = self.difference(layout)
        except Exception as error:  # whatever an architecture makes of arguments that it does not know
            if ran_out(error):
                return "out of memory"
            return str(error).partition("\n")[0][:120] or type(error).__name__
        if not found <= TOLERANCE:
            return f"its answers differ by {found:.1e} (allowed {TOLERANCE:.0e})"
        kernel = self._kernel_difference() if layout == "unpadded" else 0.0
        return "" if kernel <= KERNEL_TOLERANCE else f"the attention kernel differs by {kernel:.1e}"

    def refuse_if_different(self, layout: str) -> None:
        """Refuse a layout that was asked for.

        Raises:
            ConfigError: If it gives this model other answers.
        """
        if problem := self.problem(layout):
            raise ConfigError(
                f"execution.layout={layout} is not for {self._model.config.model_type}: {problem}; "
                "execution.layout=padded always is"
            )

    def _answers(self, layout: str, rows: list[np.ndarray]) -> torch.Tensor:
        """Logits of the test examples, in the order of the examples."""
        shape = BatchLayout.of(self._model.config, 1 << 30, self._settings.max_tokens, layout)
        micro = self._batch.micro(rows, shape).to(self._device)
        self._module.eval()
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False), attending(self._model, layout):
            logits = micro.logits(self._module).float()
        return logits[torch.argsort(micro.owners, stable=True)]

    def _kernel_difference(self) -> float:
        config = self._model.config
        heads = int(getattr(config, "num_attention_heads", 12))
        dims = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        bounds = torch.tensor(np.cumsum([0, *self._lengths]), dtype=torch.int32, device=self._device)
        windows = {-1, window_of(config) or -1}
        return max(kernel_difference(bounds, heads, dims, window) for window in windows)
