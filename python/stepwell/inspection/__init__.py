"""Questions about models and compilations, answered in the words of the source."""
