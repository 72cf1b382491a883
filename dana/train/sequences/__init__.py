"""Training sequences cut out of a tokenised corpus, free of any objective."""

LAYOUTS = ("padded", "packed", "unpadded")
