"""Train n-gram language models with modified Kneser-Ney smoothing and measure the cross-entropy of texts."""
