"""N-gram language models: counts, modified Kneser-Ney smoothing, ARPA files, cross-entropy of texts."""
