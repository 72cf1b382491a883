"""Train n-gram language models with modified Kneser-Ney smoothing, and measure text by them."""
