"""Models of full size on one GPU: what is trained, and how quickly a worker's message is made."""
