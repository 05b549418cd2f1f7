"""What a study answers: the document, its front, sensitivities and importance."""
