"""What people look at: the command line, reports, the live page, pictures."""
