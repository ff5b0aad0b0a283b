"""A scheme as data: tables, rules, decoders, stop rules. No clock, no socket, no framework."""
