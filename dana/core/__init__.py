"""What every other package stands on.

These are errors, configuration, registry, artifacts, schemas, random numbers and logging.
"""
