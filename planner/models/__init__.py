"""Model files and Hugging Face configurations to checked shapes, their parameters, and what is trained."""
