"""What we are measured against: the least that could do the same. Each is a program of its own."""
