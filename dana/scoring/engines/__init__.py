"""Scoring on the engines that others run: their datasets and pipelines to scores, with a saved selector."""
