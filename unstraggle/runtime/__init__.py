"""One round after the other, live: the round, its worker, its master, and what goes between them."""
