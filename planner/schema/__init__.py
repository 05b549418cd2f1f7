"""The vocabulary: frozen records that every room shares."""
