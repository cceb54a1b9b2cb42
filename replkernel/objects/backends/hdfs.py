"""``hdfs://[user@]host[:port]/directory``: objects in Hadoop's file system, by pyarrow through fsspec.

pyarrow needs a Java runtime and Hadoop's libhdfs, and reads JAVA_HOME, HADOOP_HOME and CLASSPATH from the
agent's own environment. HDFS replaces a file by removing it first: a document is absent for that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from replkernel.objects.backend import ATTEMPTS, CONNECT_TIMEOUT_S, StoreFault, full, unreachable
from replkernel.objects.backends.tree import TreeBackend, is_full
from replkernel.objects.url import prefix_of, setting_error

PORT = 8020
DETAIL_LENGTH_MAX = 200
ROOT = "replkernel"
CLIENT_SETTINGS = {
    "ipc.client.connect.timeout": str(int(CONNECT_TIMEOUT_S * 1000)),
    "ipc.client.connect.max.retries": str(ATTEMPTS - 1),
    "ipc.client.connect.max.retries.on.timeouts": str(ATTEMPTS - 1),
    "dfs.client.failover.max.attempts": str(ATTEMPTS),
}
"""Hadoop's client waits for minutes unless it is told not to."""

_REACH = "check the name node's address and port, and that it runs"
_RUNTIME = "install both, and set JAVA_HOME, HADOOP_HOME and CLASSPATH (from hadoop classpath --glob)"


def open_backend(url: str, env: Mapping[str, str]) -> TreeBackend:
    """Connect to the name node that `url` names."""
    from fsspec.implementations.arrow import HadoopFileSystem

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        raise setting_error(
            url, "its host or port cannot be read", "write hdfs://host:8020/directory"
        ) from None
    if not host:
        raise setting_error(url, "it names no host", "write hdfs://host:8020/directory")
    root = "/" + (prefix_of(url, parts.path) or ROOT)
    user = unquote(parts.username) if parts.username else env.get("HADOOP_USER_NAME")
    try:
        files = HadoopFileSystem(host, port, user, extra_conf=CLIENT_SETTINGS, skip_instance_cache=True)
    except OSError as error:
        raise fault(error) from error
    return TreeBackend(files, root, fault, staged=True)


def fault(error: Exception) -> StoreFault:
    """Return the fault that words what pyarrow raised."""
    text = " ".join(str(error).split())
    brief = text[:DETAIL_LENGTH_MAX]
    if "libjvm" in text or "libhdfs" in text:
        return StoreFault("cannot be used without Java and Hadoop's libhdfs", _RUNTIME, refused=True)
    if isinstance(error, PermissionError) or "AccessControlException" in text or "Permission denied" in text:
        return StoreFault(
            f"refuses access ({brief})", "check the user and the rights of the directory", refused=True
        )
    if is_full(error) or "quota" in text.lower():
        return full(brief)
    if "ConnectException" in text or "Connection refused" in text or "UnknownHost" in text:
        return unreachable(brief, _REACH)
    return StoreFault(f"failed ({brief})", _REACH)
