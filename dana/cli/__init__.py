"""The command line ``dana``: a file a group of commands, each with its flags beside its action."""
