"""Documents in words and pictures: the recommendation as lines, and any document as one page to look at."""
