"""Documents in words and pictures: the recommendation as lines, and any document as one page to look at."""

from planner.report.html_page import GENERATOR, Content, page
from planner.report.page_of_document import file, parsed, shown

__all__ = ["GENERATOR", "Content", "file", "page", "parsed", "shown"]
