"""dana: continued pretraining for domain-adapted language models.

Give it a little text from your task and a lot of general text. It finds the general text that looks
like yours, continues pretraining a language model on it, fine-tunes the result on your labelled task
and says, with statistics, whether it helped. Start with ``dana --help`` or ``docs/architecture.md``.
"""

__version__ = "0.1.0"
