"""Points of a study and their trials: clusters, exact plans on them, what is tried next, what keeps them."""
