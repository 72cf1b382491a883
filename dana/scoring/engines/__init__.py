"""Scoring with a saved selector on the engines that others run: their data sets and pipelines."""
