"""What `%replkernel --help` says, of all questions and of one; how answers with columns are written."""

from __future__ import annotations

from collections.abc import Sequence

HELP = """\
%replkernel status   the replicas of this kernel: host, role, what each has applied (--json: as JSON)
%replkernel where    which replica, host and process ran this cell
%replkernel state    the captured variables by size: what checking them takes, whether they are safe (--all)
%replkernel pins     what binds this notebook to one replica, and why
%replkernel sync     check all variables now, however large, and wait until they are durable
%replkernel migrate HOST   move one of the replicas to this host, if it is up; the next cells tell
%replkernel hibernate   after this cell: no replica stays, all variables come back with the next cell
%replkernel fresh    in VS Code: this notebook begins empty when it is opened or restarted the next time
%replkernel forget-missing   alone in a cell: go on without the variables whose bytes no store has any more
%replkernel history  what cells changed, and the points that you can go back to
%replkernel undo [N]   after this cell: all variables as before the last N changes; `redo [N]` the other way
%replkernel goto NAME  after this cell: all variables as after this cell number, or at this mark
%replkernel mark NAME  name this point, which is kept then; `unmark NAME`
%replkernel branch NAME   go on under this name; `switch NAME`, `branches`, `compare A B`
%replkernel --help   this text; `%replkernel pins --help` and the like say what the columns mean"""

DETAILS = {
    "status": """\
%replkernel status [--json]

The replicas of this kernel with their hosts, which of them runs cells, and the last execution that each
has applied. What a cell changed is durable once a majority of them has it. --json: as a JSON document.
  pinned   what binds the notebook to that replica (`%replkernel pins` says why). `replkernel status` in a
           terminal asks the hosts alone: there a lost object has the name that it had when it was lost""",
    "where": """\
%replkernel where

The replica, host and process that run this cell, the kernel's id, and whether the host's agent is there.""",
    "state": """\
%replkernel state [--all]

The variables as they are copied to other replicas: those that share objects stand in one row. The 30
largest; --all: every one.
  BYTES    what they take
  CHECK    how long it took to look for changes in them
  DURABLE  whether what they are now would be there after this process is lost; of what
           `replkernel.keep` has captured now and then, since which cell it would not
  TYPE     of the variable; `component` where several share something""",
    "pins": """\
%replkernel pins

What cannot be copied to another replica. Cells run on the one that has it while that lives; once it is
lost, a use of the variable says so by name. All other variables travel.
  REPLICA  where the object is
  CELL     the cell to run again where it is lost; `del` of the variable sets the notebook free
  WHY      what keeps it, or in which way a replica rebuilt something else
A class of your own travels with `replkernel.register`: `help(replkernel.register)` says how.""",
    "sync": """\
%replkernel sync

When this cell's code has ended, all variables are checked for changes, large ones too, and the reply waits
until a majority of the replicas has them. It says what is durable then, and what is not. An interrupt ends
the waiting; what is left is checked in idle time, as after any cell.""",
    "migrate": """\
%replkernel migrate HOST

Move one of the replicas to this host, if it is up; the next cells tell. `replkernel status` in a terminal
names the hosts.""",
    "hibernate": """\
%replkernel hibernate

After this cell no process and no memory is taken; the next cell brings all variables back. A kernel that
has something which cannot be copied does not hibernate, and says what (`%replkernel pins`).""",
    "fresh": """\
%replkernel fresh

In VS Code a notebook that is closed and opened again finds its variables. After this it does not: it begins
empty the next time. What it has now stays until then; `%reset -f` empties it at once.""",
    "history": """\
%replkernel history

The points that are kept, the newest last: the state after each cell that changed something. Cells that
changed nothing have none. `>` is where the notebook is.
  CELL     the number of the cell
  CHANGED  names of variables and process state (`@random`, `@cwd`) that it changed
  BYTES    what these take
Settings REPLKERNEL_HISTORY_POINTS, _HOURS and _MIB bound what is kept; `%replkernel mark NAME` keeps one.""",
    "undo": """\
%replkernel undo [N] [--yes]      %replkernel redo [N] [--yes]

Once this cell has ended, all variables, random generators, the working directory, the environment and
options are as before the last N changes (1 without a number). No cell runs again; only what differs is
rebuilt. Files and what others have seen stay as they are; cell numbers go on. What cannot be copied is named
first, and nothing is done without --yes. `redo` goes forward again until a cell changes something.""",
    "goto": """\
%replkernel goto NAME [--yes]

As `undo`, to a mark, to the end of a branch, or to the number of a cell.""",
    "mark": """\
%replkernel mark NAME [CELL]      %replkernel unmark NAME

Name the state after this cell, or after an earlier one. A named point is kept until `unmark`, whatever the
settings say.""",
    "branch": """\
%replkernel branch NAME    %replkernel switch NAME    %replkernel branches    %replkernel compare A B

A branch is a line of work: `branch` begins one here, `switch` goes to the end of another, `branches` lists
them. `compare` names the variables that differ between two points, with what they hold, in short, and
their bytes at each.""",
    "forget-missing": """\
%replkernel forget-missing

Alone in a cell: go on without the variables whose bytes no store has any more. They are named.""",
}
"""By the verb of the question."""


def align(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
