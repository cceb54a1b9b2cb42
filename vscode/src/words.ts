// What is written under a cell and in the side bar. Pure.
import type { Execution, Gpu, Known, Replica } from './told';

/** An entry of the side bar. */
export interface Entry {
  label: string;
  detail: string;
  icon: string;
  below: Entry[];
}

/** Name an entry by its place; with another name once something is below it, so that it is shown unfolded. */
export function idOf(above: string, index: number, { below }: Entry): string {
  return `${above}/${index}${below.length === 0 ? '' : '+'}`;
}

/** Write what a cell's newest run does, when the router's time is `now`; `icon` names one of VS Code's. */
export function cellInWords(run: Execution, now: number): { text: string; tooltip: string } {
  const parts = [stateOf(run)];
  if (run.replica !== '') {
    parts.push(`${run.replica} · ${run.host}`);
  }
  if (run.gpus.length > 0) {
    const count = run.part || run.gpus.length;
    parts.push(count > 1 ? `${count} GPUs` : `${count} GPU`);
  }
  if (run.began_at !== null && (run.state === 'running' || run.state === 'done')) {
    parts.push(`${Math.max(0, (run.ended_at ?? now) - run.began_at).toFixed(1)} s`);
  }
  if (run.state === 'done' && run.safety !== 'nothing') {
    parts.push(SAFE[run.safety]);
  }
  return { text: parts.join(' · '), tooltip: run.trouble };
}

const SAFE = {
  durable: '$(check) durable',
  pending: 'not durable yet',
  lost: '$(warning) changes lost: run this cell again'
};

function stateOf(run: Execution): string {
  switch (run.state) {
    case 'queued':
      return '$(clock) Queued';
    case 'waiting':
      return `$(clock) ${waitingInWords(run)}`;
    case 'moving':
      return '$(sync) Getting ready';
    case 'running':
      return '$(play) Running';
    case 'done':
      if (run.status === 'aborted') {
        return '$(circle-slash) Skipped';
      }
      return run.status === 'error' ? `$(error) Failed: ${run.ename || 'error'}` : '$(pass) Done';
  }
}

/** Write roughly how long something takes, as the kernel's own line does. */
function roughly(seconds: number): string {
  if (seconds < 90) {
    return `${Math.max(1, Math.round(seconds))} s`;
  }
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function waitingInWords(run: Execution): string {
  if (run.paused === true) {
    const left = run.estimate_s === null ? '' : `, goes on in about ${roughly(run.estimate_s)}`;
    return `Paused for a shorter cell${left}`;
  }
  const what = `Waiting for ${run.wanted === 1 ? '1 GPU' : `${run.wanted} GPUs`}`;
  if (run.trouble !== '') {
    return `${what}, no scheduler answers`;
  }
  if (run.position === null) {
    return what;
  }
  const place =
    run.position === 0
      ? 'its host is getting ready'
      : run.position === 1
        ? 'next in line'
        : `number ${run.position} in line`;
  const rest = run.estimate_s === null ? '' : `, about ${roughly(run.estimate_s)}`;
  return `${what}, ${place}${rest}`;
}

/** What the side bar explains in place of a tree; package.json has the sentences. */
export type Standing = 'missing' | 'alone' | 'idle' | 'told';

/** Return what the side bar has to tell, where `jupyter` says whether there is an extension that runs cells. */
export function standing(known: Known, jupyter: boolean): Standing {
  if (known.kernelId !== '' || known.hosts.length > 0) {
    return 'told';
  }
  if (known.missing) {
    return 'missing';
  }
  return known.trouble !== '' ? 'told' : jupyter ? 'idle' : 'alone';
}

/** Write the side bar's tree. */
export function treeOf(known: Known): Entry[] {
  if (known.kernelId === '' && known.hosts.length === 0) {
    return known.trouble === '' || known.missing ? [] : [entry('replkernel', known.trouble, 'warning')];
  }
  return [gpus(known), replicas(known), hosts(known)];
}

function gpus({ held, waiting }: Known): Entry {
  const detail = held.length === 0 ? 'none held' : `${held.length} held by this notebook`;
  const behind =
    waiting === 0 ? '' : `, ${waiting === 1 ? '1 cell is waiting' : `${waiting} cells are waiting`} in the cluster`;
  return entry(
    'GPUs',
    `${detail}${behind}`,
    'circuit-board',
    held.map(gpu => entry(gpu, '', 'circuit-board'))
  );
}

function replicas({ replicas: all, state, trouble }: Known): Entry {
  const at = { none: 'no kernel', rests: 'hibernated', live: `${all.length}` }[state] ?? state;
  return entry('Replicas', trouble === '' ? at : trouble, 'layers', all.map(replica));
}

function replica(one: Replica): Entry {
  const pins = (one.pinned ?? []).map(pin =>
    entry(pin.name, pin.reason ?? 'cannot leave this replica', 'pin')
  );
  const died = one.last_death ? [entry('Last process', one.last_death, 'warning')] : [];
  const icon = one.role === 'executor' ? 'play-circle' : 'circle-outline';
  return entry(one.replica, [one.role, one.host].filter(Boolean).join(' · '), icon, [...pins, ...died]);
}

function hosts({ hosts: all }: Known): Entry {
  const rows = all.map(host => entry(host.name, host.state ?? '', 'server', (host.gpus ?? []).map(gpu)));
  return entry('Hosts', `${all.length}`, 'server', rows);
}

const GPU_WORDS: Record<string, string> = {
  idle: 'free',
  active: 'leased',
  lingering: 'kept between cells',
  job: 'used by a job',
  reclaiming: 'asked back'
};

function gpu(one: Gpu): Entry {
  const busy =
    one.utilisation === null || one.utilisation === undefined
      ? ''
      : `${Math.round(one.utilisation * 100)} % busy`;
  const state = one.state === undefined ? '' : (GPU_WORDS[one.state] ?? one.state);
  return entry(one.name ?? 'GPU', [state, busy].filter(Boolean).join(' · '), 'circuit-board');
}

function entry(label: string, detail: string, icon: string, below: Entry[] = []): Entry {
  return { label, detail, icon, below };
}

const GPU_COUNT = /^([1-9]|[1-5][0-9]|6[0-4]|0|0?\.[0-9]{1,3})$/;

/** No smaller part of a GPU is leased. */
const PART_MIN = 0.01;

/** Say why this is not a number of GPUs; nothing if it is one. */
export function badCount(text: string): string | undefined {
  const count = text.trim();
  const small = count.includes('.') && Number(count) < PART_MIN;
  return GPU_COUNT.test(count) && !small
    ? undefined
    : 'A whole number from 0 to 64, or a part of one GPU: 0.5';
}

/** Return a cell's metadata with so many GPUs asked for; 0: none. Everything else in it stays. */
export function withGpus(
  metadata: Readonly<Record<string, unknown>>,
  count: number
): Record<string, unknown> {
  const inner = record(metadata['metadata']);
  const own = { ...record(inner['replkernel']) };
  if (count === 0) {
    delete own['gpus'];
  } else {
    own['gpus'] = count;
  }
  if (count === 0 || count > 1 || (count === 1 && !own['vram_gb'])) {
    delete own['share']; // Only a part of one GPU can be shared, or one with a bound of its memory.
  }
  const rest = { ...inner };
  delete rest['replkernel'];
  const written = Object.keys(own).length === 0 ? rest : { ...rest, replkernel: own };
  return { ...metadata, metadata: written };
}

/** How many GPUs a cell's metadata ask for. */
export function gpusAsked(metadata: Readonly<Record<string, unknown>>): number {
  const { gpus: count } = record(record(metadata['metadata'])['replkernel']);
  return typeof count === 'number' ? count : 0;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
