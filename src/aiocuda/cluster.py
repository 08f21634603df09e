"""Workers with devices of their own, on Ray: calls, objects and collectives, awaited."""

from aiocuda._cluster.cluster import Cluster as Cluster
from aiocuda._cluster.cluster import start as start
from aiocuda._cluster.groups import ClusterGroup as ClusterGroup
from aiocuda._cluster.worker import Remote as Remote
from aiocuda._cluster.worker import Worker as Worker
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Cluster", "ClusterGroup", "Remote", "Worker", "start"]

_name_publicly(__name__, globals(), __all__)
