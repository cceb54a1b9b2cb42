// What `replkernel follow` tells, and what is known of it now. Pure: no VS Code, no processes.
// Law: a line that is not understood changes nothing; nothing is called durable that the kernel has not called so.

export interface Execution {
  msg_id: string;
  cell_id: string;
  state: 'queued' | 'waiting' | 'moving' | 'running' | 'done';
  safety: 'pending' | 'durable' | 'lost' | 'nothing';
  status: string;
  ename: string;
  host: string;
  replica: string;
  gpus: string[];
  /** Which part of the one GPU; 0 or nothing: all of it. */
  part?: number;
  wanted: number;
  position: number | null;
  estimate_s: number | null;
  /** Whether it waits because it has left its GPUs for a shorter cell. */
  paused?: boolean;
  trouble: string;
  accepted_at: number | null;
  began_at: number | null;
  ended_at: number | null;
}

export interface Replica {
  replica: string;
  host?: string;
  role?: string;
  state_bytes?: number;
  pinned?: { name: string; reason?: string }[];
  last_death?: string;
}

export interface Gpu {
  uuid?: string;
  name?: string;
  state?: string;
  utilisation?: number | null;
  lease?: string;
}

export interface Host {
  name: string;
  state?: string;
  gpus?: Gpu[];
}

interface Line {
  kernel_id: string;
  now?: number;
  afresh?: boolean;
  state?: string | null;
  executions?: Execution[];
  holdings?: { host: string; gpus: string[] }[] | null;
  kernel?: { state?: string; replicas?: Replica[] } | null;
  hosts?: Host[] | null;
  waiting?: unknown[] | null;
  trouble?: string;
}

/** So many cells are remembered: no notebook that people read has more. */
const CELLS_MAX = 5000;

/** What is known of one notebook's kernel. */
export class Known {
  kernelId = '';
  state = 'none';
  trouble = '';
  /** Whether no program was found that could tell anything. */
  missing = false;
  now = 0;
  /** When `now` was told, by this machine's clock, in seconds. */
  toldAt = 0;
  replicas: Replica[] = [];
  hosts: Host[] = [];
  held: string[] = [];
  waiting = 0;
  readonly cells = new Map<string, Execution>();

  /** Take one line; whether it was one. */
  take(text: string, at: number): boolean {
    const line = read(text);
    if (line === null) {
      return false;
    }
    if (line.afresh === true) {
      this.cells.clear();
      this.replicas = [];
      this.held = [];
    }
    this.kernelId = line.kernel_id;
    this.trouble = line.trouble ?? '';
    this.missing = false;
    this.state = line.state ?? this.state;
    this.replicas = line.kernel?.replicas ?? this.replicas;
    this.hosts = line.hosts ?? this.hosts;
    this.held = line.holdings?.flatMap(one => one.gpus) ?? this.held;
    this.waiting = line.waiting?.length ?? this.waiting;
    if (line.now !== undefined) {
      this.now = line.now;
      this.toldAt = at;
    }
    for (const execution of line.executions ?? []) {
      this.note(execution);
    }
    if (this.state !== 'live') {
      // Who would tell of them has gone: no clock goes on for a cell that nobody runs any more.
      for (const [cell, { state }] of this.cells) {
        if (state !== 'done') {
          this.cells.delete(cell);
        }
      }
    }
    return true;
  }

  private note(execution: Execution): void {
    const before = this.cells.get(execution.cell_id);
    const older = (before?.accepted_at ?? 0) > (execution.accepted_at ?? Infinity);
    if (before !== undefined && before.msg_id !== execution.msg_id && older) {
      return; // A later run of the cell is known already.
    }
    this.cells.delete(execution.cell_id);
    this.cells.set(execution.cell_id, execution);
    const oldest = this.cells.keys().next().value;
    if (this.cells.size > CELLS_MAX && oldest !== undefined) {
      this.cells.delete(oldest);
    }
  }

  /** The router's time now, as far as this machine's clock tells. */
  time(at: number): number {
    return this.now + Math.max(0, at - this.toldAt);
  }
}

function read(text: string): Line | null {
  try {
    const line = JSON.parse(text) as Partial<Line> | null;
    return typeof line?.kernel_id === 'string' ? (line as Line) : null;
  } catch {
    return null;
  }
}
