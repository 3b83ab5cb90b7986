"""Figures, documents, and pages made of them."""
