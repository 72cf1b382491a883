"""What every other package stands on: errors, configuration, registry, artifacts, schemas, random numbers, logging."""
