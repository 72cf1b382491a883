"""Clusters of units: a Gaussian mixture of their vectors, its choice, and what tells its clusters apart."""

from dana.core.studies import Study

STUDY = Study(
    "clusters",
    settings=f"{__name__}.settings:ClusterSettings",
    commands={
        "clusters": (
            "Find what the general text is made of: clusters of its units, named by their words",
            f"{__name__}.command:add_clusters",
        )
    },
    cells=f"{__name__}.stage:cells",
    sections=f"{__name__}.pool:sections",
    groups={"clusters": "cluster"},
)
