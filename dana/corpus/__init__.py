"""Read text of any format into documents and units: cleaning, de-duplication, overlap, segmentation, sampling."""
