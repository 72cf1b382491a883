"""Training: settings, plan of the steps, loop, held-out losses, memory and speed."""

DENOMINATORS = ("batch", "weight_sum", "token_count")  # of the loss: dana.train.objectives.batch
LAYOUTS = ("padded", "unpadded")  # of micro-batches: dana.train.layout
