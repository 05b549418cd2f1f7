"""One home for reading a question: flags, files and Python keywords to one request over pools."""
