"""What a procurement asks: jobs, limits and offers, from flags or a file."""
