"""Errors of predictions: residuals, metrics, validation."""
