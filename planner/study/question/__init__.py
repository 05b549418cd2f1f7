"""What a design study asks: its file, and the axes that it moves."""
