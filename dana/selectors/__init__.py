"""Ways of choosing text. Each ends in the same scores table, so nothing downstream differs."""
