"""Chat models asked to tell two classes apart from a few examples: back-ends, the script, the parser, the study."""
