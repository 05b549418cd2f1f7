"""What could be bought, rented or used, with its bill of materials and prices."""
