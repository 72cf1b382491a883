"""Topics: documents to shares of topics, topics to words; by an embedded topic model or latent Dirichlet allocation."""
