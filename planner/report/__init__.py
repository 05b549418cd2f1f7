"""Documents in words and pictures: the recommendation as lines, and any document as one page to look at."""

from planner.report.html_page import GENERATOR, Content, page
from planner.report.page_of_document import Kept, file, parsed, shown
from planner.report.several_answers import of_answers

__all__ = ["GENERATOR", "Content", "Kept", "file", "of_answers", "page", "parsed", "shown"]
