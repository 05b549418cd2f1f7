"""The offer: a document with its bill, proof and break-even prices."""
