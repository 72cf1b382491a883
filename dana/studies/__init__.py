"""Studies: experiments of papers, one per folder; the core imports none of them."""
