"""Schema of the topics table."""

import pyarrow as pa

# topic: the largest one, from 0.  share: its share of the document.  words: how many words of the document are in the
# topics' vocabulary.  theta: the share of every topic; they sum to 1, and are equal for a document without such words.
TOPICS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("topic", pa.int32(), nullable=False),
        pa.field("share", pa.float32(), nullable=False),
        pa.field("words", pa.int64(), nullable=False),
        pa.field("theta", pa.list_(pa.float32()), nullable=False),
    ]
)
