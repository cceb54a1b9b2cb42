// What the server extension tells a page. Written by `make types` from the server's structs: change those.

/** What this user has used, saved and may have; no quota is null. */
export interface IAccount {
  user: string;
  gpu_hours: number;
  saved_gpu_hours: number;
  gpu_hours_month: number;
  gpu_hours_month_quota: number | null;
  gpus_held: number;
  gpu_quota: number | null;
  spent_month: number | null;
  budget_month: number | null;
  currency: string;
}

/** GPUs that are booked, for whom, from when until when (Unix times), and how many are ready. */
export interface IBooked {
  gpus: number;
  whom: string;
  model: string;
  begins: number;
  ends: number;
  ready: number | null;
}

/** How much a GPU computed (0 to 1) at a Unix time, and how many GiB it held; `gpu` is `host/uuid`. */
export interface IBusy {
  at: number;
  gpu: string;
  utilisation: number;
  memory_gib: number;
}

/** What became otherwise between `seq` - 1 and `seq`; a list that is null stays as it was. */
export interface IChanges {
  type: 'changes';
  seq: number;
  now: number;
  kernels?: IKernel[];
  executions?: IExecution[];
  hosts?: IHost[];
  gone?: IGone;
  leases?: ILease[] | null;
  queue?: IWaiting[] | null;
  scheduler?: IScheduler | null;
  account?: IAccount | null;
  jobs?: IJob[] | null;
}

/** Variables that differ between two points; `more` counts those that are not listed. */
export interface IComparisonDocument {
  differences: IDifference[];
  more: number;
}

/** A variable that differs between two points, with its bytes at each; None where there is none. */
export interface IDifference {
  name: string;
  before?: number | null;
  after?: number | null;
  was?: string;
  now?: string;
}

/** One run of a cell, with the time of each step that has come and was seen. */
export interface IExecution {
  kernel_id: string;
  msg_id: string;
  cell_id: string;
  code_digest: string;
  state: 'done' | 'moving' | 'queued' | 'running' | 'waiting';
  safety: 'durable' | 'lost' | 'nothing' | 'pending';
  status: string;
  ename: string;
  count: number | null;
  replica: string;
  host: string;
  gpus: string[];
  part: number;
  part_gb: number;
  wanted: number;
  model: string;
  position: number | null;
  estimate_s: number | null;
  awaits: string;
  told_at: number | null;
  paused: boolean;
  trouble: string;
  unaudited: string[];
  accepted_at: number | null;
  wished_at: number | null;
  granted_at: number | null;
  election_at: number | null;
  sent_at: number | null;
  began_at: number | null;
  ended_at: number | null;
  durable_at: number | null;
  capture_s: number | null;
  bind_s: number | null;
  cost: number | null;
  currency: string;
}

/** The names of what is no more; executions by their messages' ids. */
export interface IGone {
  kernels?: string[];
  executions?: string[];
  hosts?: string[];
}

/** One GPU; `lease` is empty where nobody holds it, or somebody of whom this user may see nothing. */
export interface IGpu {
  uuid: string;
  model: string;
  memory_bytes: number;
  memory_used_bytes: number | null;
  utilisation: number | null;
  state: string;
  lease: string;
}

/** Something that happened at a Unix time, so often. */
export interface IHappening {
  at: number;
  kind: 'hosts added' | 'hosts gone' | 'move given up' | 'replica moved';
  count: number;
}

/** All points that are kept, the oldest first, and their names. */
export interface IHistoryDocument {
  here: string;
  points: IHistoryPoint[];
  more: number;
  marks: Record<string, string>;
  branches: Record<string, string>;
  branch: string;
  kept_bytes: number;
  undo: boolean;
  redo: boolean;
}

/** The state after one cell. `point` is its address, which every request for a point takes. */
export interface IHistoryPoint {
  point: string;
  cell: number;
  at: number;
  source: string;
  cell_id: string;
  changed: string[];
  more: number;
  bytes: number;
  parent: string | null;
  to: string | null;
  branch: string;
  past: boolean;
  known: boolean;
}

/** GPUs that a kernel holds; they linger when `cell` (a message's id) is empty. */
export interface IHolding {
  lease: string;
  host: string;
  gpus: string[];
  cell: string;
  since: number;
  part: number;
  part_gb: number;
}

/** One host with its GPUs; `why` is what one that is being drained waits for. */
export interface IHost {
  name: string;
  state: string;
  gpus: IGpu[];
  why?: string;
}

/** A job that this user may see; `gpus` is how many it runs with, `said` a clause about how it stands. */
export interface IJob {
  job: string;
  state: string;
  user: string;
  yours: boolean;
  host: string;
  gpus: number;
  shapes: number[];
  epoch: number | null;
  epochs: number | null;
  loss: number | null;
  ends_in_s: number | null;
  ends_in: IJobEnd[];
  gpu_hours: number;
  said: string;
  reshapes: IJobReshape[];
  cpus: number;
  cpu_hours: number;
}

/** In how many seconds a job would be done with so many GPUs all along. */
export interface IJobEnd {
  gpus: number;
  seconds: number;
}

/** From the Unix time `at` on a job has had so many GPUs, or cores; `why` is a clause. */
export interface IJobReshape {
  at: number;
  gpus: number;
  why: string;
}

/** One replicated kernel. `answers` is false while its router does not. */
export interface IKernel {
  kernel_id: string;
  state: string;
  served: boolean;
  routed: boolean;
  cwd: string;
  began: number;
  rested: number;
  state_bytes: number;
  rest: string;
  answers: boolean;
  executor: string;
  execution_count: number;
  default_gpus: number;
  default_vram_gb: number;
  scheduler_trouble: string;
  checkpoint_trouble: string;
  replicas: IReplica[];
  holdings: IHolding[];
  move: IMove | null;
}

/** One lease that this user may see: his own, an administrator's everybody's; `since` 0 is not told. */
export interface ILease {
  lease: string;
  kernel_id: string;
  host: string;
  gpus: string[];
  user: string;
  notebook: string;
  yours: boolean;
  since: number;
  part: number;
  part_gb: number;
}

/** What cannot come back: a variable, and its type. */
export interface ILost {
  name: string;
  type: string;
}

/** A replica's move to a host; `trouble` says why it came to nothing, empty while it is under way. */
export interface IMove {
  host: string;
  trouble: string;
}

/** Why nothing was done. `reason` is one word: `busy`, `hibernated`, `confirm`, `moved`, `refused`, or of */
export interface INotDone {
  message: string;
  reason: string;
  lost?: ILost[];
}

/** The past, oldest first; `delays` are the seconds that the last cells with GPUs waited for them. */
export interface IPast {
  points: IPoint[];
  happenings: IHappening[];
  delays: number[];
  busy?: IBusy[];
}

/** A variable that keeps the notebook on a replica, and why. */
export interface IPin {
  name: string;
  reason: string;
}

/** The cluster at a Unix time; `ratio` is the subscription ratio. */
export interface IPoint {
  at: number;
  provisioned: number;
  leased: number;
  lingering: number;
  waiting: number;
  ratio: number;
}

/** One replica; `lag` is how many log entries it is behind, `pid` its process's number (0: none now). */
export interface IReplica {
  replica: string;
  host: string;
  role: string;
  raft_role: string;
  lag: number;
  state_bytes: number;
  pins: IPin[];
  last_death: string;
  pid: number;
}

/** Which scheduler was asked, and what is wrong with it, if anything; without a URL there is none. */
export interface IScheduler {
  url: string;
  trouble: string;
  waiting: number | null;
  subscription_ratio: number | null;
  booked?: IBooked[];
}

/** Everything, as of `seq`. */
export interface ISnapshot {
  type: 'snapshot';
  seq: number;
  now: number;
  kernels: IKernel[];
  executions: IExecution[];
  hosts: IHost[];
  leases: ILease[];
  queue: IWaiting[];
  scheduler: IScheduler;
  account: IAccount | null;
  jobs?: IJob[];
}

/** One request that waits, and that this user may see; of a `position` or `since` of 0 nothing is told. */
export interface IWaiting {
  request: string;
  kernel_id: string;
  gpus: number;
  user: string;
  notebook: string;
  yours: boolean;
  position: number;
  since: number;
  estimate_s: number | null;
}

/** One message. */
export type Message = ISnapshot | IChanges;
