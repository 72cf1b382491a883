"""Reading text in the formats people have, and telling which documents were kept and which were not."""
