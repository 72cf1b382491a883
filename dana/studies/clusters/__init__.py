"""Cluster the units of a pool by Gaussian mixtures of their vectors and describe the clusters."""

from dana.core.studies import Study

HELP = "Cluster the units of the pool and name each cluster by its words"
STUDY = Study(
    "clusters",
    settings=f"{__name__}.settings:ClusterSettings",
    commands={"clusters": (HELP, f"{__name__}.command:add_clusters")},
    steps=f"{__name__}.stage:steps",
    sections=f"{__name__}.pool:sections",
    groups={"clusters": "cluster"},
)
