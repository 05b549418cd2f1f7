"""What commands print: views of documents, drawn by render and set by typeset."""
