"""The steps a user runs. A stage opens artifacts, calls the layers below and commits an artifact; no maths here."""
