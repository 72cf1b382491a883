"""Masked language modelling as pure functions: which tokens are hidden, what each costs, and what text is trained on."""
