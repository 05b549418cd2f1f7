"""Kubernetes: one file a resource that a cluster may have, and the pod that all of them hold."""
