"""What runs inside the training job. PyTorch is an extra (``pip install clusterwright[runtime]``) and imported late."""
