"""Text of any format to documents and units: reading, cleaning, de-duplication, overlap, segmentation, sampling."""
