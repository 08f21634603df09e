"""Work that is recorded once and launched often: graphs, and compiled functions."""
