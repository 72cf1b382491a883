"""Kinds of targets, a file each: one label, several labels, a number, a label a word. The contract is in base.py."""
