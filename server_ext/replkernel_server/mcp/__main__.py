"""`replkernel mcp`: offers notebooks' kernels to an agent over stdin and stdout.

Law: exit code 0 when the agent has left, 1 when nothing can be offered, 2 for a command that makes no sense;
standard output belongs to the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from replkernel_server.errors import ServerError
from replkernel_server.mcp.access import KERNELS, KERNELS_DEFAULT, NO_SDK, TOKEN, URL, NoAccess, find_access

DESCRIPTION = """\
Offer the notebooks of a Jupyter Server to an agent by the Model Context Protocol: the agent's program starts
this command and talks to it over stdin and stdout. The agent opens a notebook by name, sends cells and
leaves, waits, reads outputs and variables, asks for GPUs, and goes back to earlier points.
"""
EPILOG = f"""\
The Jupyter Server needs the replkernel extension. It is asked with a token, one of its own or of JupyterHub;
an agent can do what that token can. The token is never an argument, for `ps` shows those to others:

  {URL}      the server's address, unless --url names it: http://127.0.0.1:8888/
  {TOKEN}    the token; else JUPYTER_TOKEN, else JUPYTERHUB_API_TOKEN; or --token-file
  {KERNELS}  no kernel is started where so many run (default {KERNELS_DEFAULT})

In the configuration of an agent's program:

  {{"mcpServers": {{"replkernel": {{
      "command": "replkernel",
      "args": ["mcp", "--url", "http://127.0.0.1:8888/", "--token-file", "/home/me/agent-token"]}}}}}}

Examples:
  jupyter server list                                          shows address and token of your server
  (umask 077; cat > ~/agent-token)                             takes the token; only you can read the file
  replkernel mcp --url http://127.0.0.1:8888/ --token-file ~/agent-token --check

Nothing is kept in this process. Whatever ends, cells go on; the agent asks again by notebook and cell.
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser."""
    parser = argparse.ArgumentParser(
        "replkernel mcp", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--url", default="", help=f"the Jupyter Server's address ({URL})")
    parser.add_argument("--token-file", metavar="FILE", default="", help="a file of mode 0600 with the token")
    parser.add_argument(
        "--kernel", default="replkernel", help="the kernelspec to start (default: %(default)s)"
    )
    parser.add_argument(
        "--check", action="store_true", help="ask the server once, say what it answers, and end"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        access = find_access(os.environ, options.url, options.token_file, options.kernel)
        try:
            from replkernel_server.mcp.tools import Tools, make_server
        except ModuleNotFoundError as error:
            raise NoAccess(NO_SDK.format(name=error.name)) from error
        if options.check:
            return _check(asyncio.run(Tools(access).list_notebooks()).structured_content)
        make_server(access).run("stdio")
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _check(told: Mapping[str, Any]) -> int:
    if told["status"] != "ok":
        print(told["reason"], file=sys.stderr)
        return 1
    print(f"The server answers; {len(told['notebooks'])} notebooks have replicated kernels.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
