"""Memory that runs out ends a run with one line that says what to set."""

import re

import pytest
import torch

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train.planner import explain_out_of_memory


@pytest.mark.parametrize(("training", "what"), [(True, "step 1"), (False, "evaluation after step 0")])
def test_memory_that_runs_out_is_one_line_that_says_what_to_set(run, weighted, monkeypatch, training, what):
    forward = SelectedLogits.forward

    def small(self, input_ids, where, **attention):
        if self.training is training:
            raise torch.OutOfMemoryError("not enough")
        return forward(self, input_ids, where, **attention)

    monkeypatch.setattr(SelectedLogits, "forward", small)
    with pytest.raises(DanaError, match=rf"{what}: out of memory with execution\.micro_batch_tokens=512; set it lower"):
        run(weighted, steps=1)


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_other_errors_are_not_taken_for_it(error, taken):
    told = "a step: out of memory" if taken else str(error)
    with (
        pytest.raises(DanaError if taken else type(error), match=re.escape(told)),
        explain_out_of_memory("a step", 8192),
    ):
        raise error
