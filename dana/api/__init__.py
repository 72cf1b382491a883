"""The Python interface: the commands as functions on lists, tables, data sets and paths; import it as ``dana``."""
