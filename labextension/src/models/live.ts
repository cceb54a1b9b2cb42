// What the server has told, put together. Pure: no JupyterLab, no DOM, no clock.
// Law: messages are taken in the order of their numbers; after a gap nothing counts until a snapshot comes.
import type {
  IAccount,
  IChanges,
  IExecution,
  IHost,
  IJob,
  IKernel,
  ILease,
  IScheduler,
  ISnapshot,
  IWaiting,
  Message
} from '../generated/live';

/** `host2` before `host10`; made once, for making one takes long. */
const ORDER = new Intl.Collator(undefined, { numeric: true });

/** What a message has changed. */
export interface ITouched {
  /** Kernels that changed, came or went, themselves or one of their executions. */
  kernels: Set<string>;
  /** Cells of which the newest execution changed or went, by kernel. */
  cells: Map<string, Set<string>>;
  /** Whether hosts, leases, queue, scheduler or account changed. */
  cluster: boolean;
}

/** Everything that is known of the kernels of this server and their cluster. */
export class LiveStore {
  private _seq: number | null = null;
  private _told = false;
  private _skew = 0;
  private readonly _kernels = new Map<string, IKernel>();
  private readonly _executions = new Map<string, IExecution>();
  /** The newest execution of each cell, by kernel and cell. */
  private readonly _newest = new Map<string, Map<string, IExecution>>();
  private readonly _hosts = new Map<string, IHost>();
  private _names: readonly string[] | null = [];
  private _sorted: readonly IHost[] | null = [];
  private _models: Map<string, string> | null = null;
  private _leases: readonly ILease[] = [];
  private _queue: readonly IWaiting[] = [];
  private _scheduler: IScheduler = {
    url: '',
    trouble: '',
    waiting: null,
    subscription_ratio: null,
    booked: []
  };
  private _account: IAccount | null = null;
  private _jobs: readonly IJob[] = [];

  /** Whether a snapshot has come and no change was missed since. */
  get current(): boolean {
    return this._seq !== null;
  }

  /** Whether a snapshot has ever come. */
  get told(): boolean {
    return this._told;
  }

  /** Why what is known of a kernel may not hold now; empty when it does. */
  doubt(kernelId: string): '' | 'no connection' | 'no answer' {
    if (!this.current) {
      return 'no connection';
    }
    return this._kernels.get(kernelId)?.answers === false ? 'no answer' : '';
  }

  get queue(): readonly IWaiting[] {
    return this._queue;
  }

  get leases(): readonly ILease[] {
    return this._leases;
  }

  get scheduler(): IScheduler {
    return this._scheduler;
  }

  /** One's own jobs, an administrator's everybody's: those that are over last. */
  get jobs(): readonly IJob[] {
    return this._jobs;
  }

  get account(): IAccount | null {
    return this._account;
  }

  /** All hosts in the order of their names. */
  get hosts(): readonly IHost[] {
    this._names ??= [...this._hosts.keys()].sort(ORDER.compare);
    this._sorted ??= this._names.flatMap(name => this._hosts.get(name) ?? []);
    return this._sorted;
  }

  /** The models of all GPUs by their UUIDs. */
  get models(): ReadonlyMap<string, string> {
    this._models ??= new Map(
      [...this._hosts.values()].flatMap(host => host.gpus.map(gpu => [gpu.uuid, gpu.model] as const))
    );
    return this._models;
  }

  get kernels(): readonly IKernel[] {
    return [...this._kernels.values()];
  }

  kernel(kernelId: string): IKernel | null {
    return this._kernels.get(kernelId) ?? null;
  }

  /** The newest execution of a cell. */
  ofCell(kernelId: string, cellId: string): IExecution | null {
    return this._newest.get(kernelId)?.get(cellId) ?? null;
  }

  /** The newest execution of each cell of a kernel. */
  cells(kernelId: string): ReadonlyMap<string, IExecution> {
    return this._newest.get(kernelId) ?? new Map<string, IExecution>();
  }

  /** The execution of a kernel that was accepted last. */
  newest(kernelId: string): IExecution | null {
    let newest: IExecution | null = null;
    for (const one of this.cells(kernelId).values()) {
      newest = newest === null || begun(one) >= begun(newest) ? one : newest;
    }
    return newest;
  }

  /** The server's Unix time when the page's is `pageSeconds`. */
  serverTime(pageSeconds: number): number {
    return pageSeconds - this._skew;
  }

  /** Nothing more is heard: what is known stays, until a snapshot says what holds. */
  interrupted(): void {
    this._seq = null;
  }

  /** Take a message that came at the page's Unix time; null says that one was missed before it. */
  apply(message: Message, pageSeconds: number): ITouched | null {
    if (message.type === 'snapshot') {
      return this._start(message, pageSeconds);
    }
    if (this._seq === null || message.seq !== this._seq + 1) {
      this._seq = null;
      return null;
    }
    this._seq = message.seq;
    this._skew = pageSeconds - message.now;
    return this._change(message);
  }

  private _start(message: ISnapshot, pageSeconds: number): ITouched {
    this._seq = message.seq;
    this._told = true;
    this._skew = pageSeconds - message.now;
    const has = <T>(list: readonly T[], name: (one: T) => string): Set<string> => new Set(list.map(name));
    const kernels = has(message.kernels, one => one.kernel_id);
    const executions = has(message.executions, one => one.msg_id);
    const hosts = has(message.hosts, one => one.name);
    return this._change({
      ...message,
      type: 'changes',
      gone: {
        kernels: [...this._kernels.keys()].filter(name => !kernels.has(name)),
        executions: [...this._executions.keys()].filter(name => !executions.has(name)),
        hosts: [...this._hosts.keys()].filter(name => !hosts.has(name))
      }
    });
  }

  private _change(message: IChanges): ITouched {
    const touched: ITouched = { kernels: new Set(), cells: new Map(), cluster: false };
    for (const name of message.gone?.executions ?? []) {
      this._drop(name, touched);
    }
    for (const name of message.gone?.kernels ?? []) {
      this._kernels.delete(name);
      touched.kernels.add(name);
    }
    for (const kernel of message.kernels ?? []) {
      this._kernels.set(kernel.kernel_id, kernel);
      touched.kernels.add(kernel.kernel_id);
    }
    for (const execution of message.executions ?? []) {
      this._put(execution, touched);
    }
    touched.cluster = this._cluster(message);
    return touched;
  }

  private _cluster(message: IChanges): boolean {
    const hosts = message.hosts ?? [];
    const gone = message.gone?.hosts ?? [];
    if (gone.length > 0 || hosts.some(host => !this._hosts.has(host.name))) {
      this._names = null;
    }
    hosts.forEach(host => this._hosts.set(host.name, host));
    gone.forEach(name => this._hosts.delete(name));
    if (hosts.length + gone.length > 0) {
      this._sorted = this._models = null;
    }
    this._leases = message.leases ?? this._leases;
    this._queue = message.queue ?? this._queue;
    this._scheduler = message.scheduler ?? this._scheduler;
    this._account = message.account ?? this._account;
    this._jobs = message.jobs ?? this._jobs;
    const parts = [message.leases, message.queue, message.scheduler, message.account, message.jobs];
    return hosts.length + gone.length > 0 || parts.some(part => part !== undefined && part !== null);
  }

  private _put(execution: IExecution, touched: ITouched): void {
    this._executions.set(execution.msg_id, execution);
    let cells = this._newest.get(execution.kernel_id);
    if (cells === undefined) {
      cells = new Map();
      this._newest.set(execution.kernel_id, cells);
    }
    const known = cells.get(execution.cell_id);
    if (known === undefined || known.msg_id === execution.msg_id || begun(execution) >= begun(known)) {
      cells.set(execution.cell_id, execution);
      touch(execution, touched);
    }
  }

  private _drop(msgId: string, touched: ITouched): void {
    const gone = this._executions.get(msgId);
    if (gone === undefined) {
      return;
    }
    this._executions.delete(msgId);
    const cells = this._newest.get(gone.kernel_id);
    if (cells?.get(gone.cell_id)?.msg_id !== msgId) {
      return;
    }
    cells.delete(gone.cell_id);
    touch(gone, touched);
    if (cells.size === 0) {
      this._newest.delete(gone.kernel_id);
    }
  }
}

function begun(execution: IExecution): number {
  const { accepted_at, ended_at } = execution;
  return accepted_at ?? ended_at ?? Infinity; // One of the router before this one is the newest while it runs.
}

function touch(execution: IExecution, touched: ITouched): void {
  touched.kernels.add(execution.kernel_id);
  const cells = touched.cells.get(execution.kernel_id) ?? new Set();
  touched.cells.set(execution.kernel_id, cells.add(execution.cell_id));
}
