"""How far predictions are off: residuals, errors by group, validation, accuracy on a site's own runs."""
