"""What a run found, as tables, figures and one page that answers questions in order."""
