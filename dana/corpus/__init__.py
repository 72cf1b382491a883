"""Read text of any format into documents and units: cleaning, overlap, segmentation, sampling."""
