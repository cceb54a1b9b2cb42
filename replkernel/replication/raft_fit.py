"""How PySyncObj 0.3.17 is fitted to this project: which of its parts are replaced, once per process.

Every member of a group runs the same parts, so all hosts need the same release. Law: whatever is
replaced keeps PySyncObj's own interface.
"""

from __future__ import annotations

import _socket
import logging
import socket
import threading
from typing import Final

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.serializer
import pysyncobj.syncobj
import pysyncobj.tcp_connection
import pysyncobj.transport
from pysyncobj.version import VERSION

from replkernel.errors import ReplkernelError
from replkernel.replication.raft_files import MetaFile, ReadySerializer, TidyJournal, open_whole
from replkernel.replication.raft_listener import RaftListener
from replkernel.replication.raft_wire import BoundedConnection, NoCompression, sealed_channel

# Importing PySyncObj puts a version for Windows there, on every system.
socket.inet_ntop = _socket.inet_ntop

FITTED_VERSION: Final = "0.3.17"

_lock = threading.Lock()
_fitted = False


def fit_pysyncobj() -> None:
    """Put our parts in place, once per process; raise when PySyncObj is another release."""
    global _fitted
    with _lock:
        if _fitted:
            return
        if VERSION != FITTED_VERSION:
            raise ReplkernelError(
                f"PySyncObj {VERSION} is installed, but replkernel is fitted to {FITTED_VERSION}: "
                f"pip install pysyncobj=={FITTED_VERSION}."
            )
        # Protocol 2 writes bytes as text, half as large again.
        setattr(pysyncobj.pickle, "__protocol", 5)
        pysyncobj.tcp_connection.zlib = NoCompression
        pysyncobj.syncobj.getEncryptor = sealed_channel
        pysyncobj.transport.TcpConnection = BoundedConnection
        pysyncobj.transport.TcpServer = RaftListener
        pysyncobj.journal.MetaStorer = MetaFile
        pysyncobj.syncobj.createJournal = TidyJournal
        pysyncobj.syncobj.Serializer = ReadySerializer
        pysyncobj.serializer.open = open_whole
        # The Raft thread wakes members itself; the notifier's pipe would never be closed.
        pysyncobj.syncobj.PIPE_NOTIFIER_ENABLED = False
        # Its warnings repeat every tick while a disk is full; failures that matter are told by raft_node.
        logging.getLogger("pysyncobj").setLevel(logging.ERROR)
        _fitted = True
