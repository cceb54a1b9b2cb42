// What a reply says about the execution it ends. Pure: no JupyterLab, no DOM.
// Law: what does not have the announced type is left out, never guessed.
import type { ITranslate } from './line';

/** What `execute_reply.metadata.replkernel` carries about one execution. */
export interface ICellFacts {
  /** The replica that ran the cell (`r2`). */
  replica: string;
  /** The host that the replica lives on. */
  host: string;
  /** UUIDs of the GPUs that were leased for the cell. */
  gpus: string[];
  /** Which part of the one GPU; 0: all of it. */
  part: number;
  /** Seconds for which the GPUs were leased, if any were. */
  leaseSeconds: number | null;
  /** What the lease has cost, with its currency; null where nothing is charged. */
  cost: string | null;
  /** Seconds that the request waited before it ran. */
  queuedSeconds: number | null;
  /** Bytes of replicated state after the cell. */
  stateBytes: number | null;
  /** Whether the cell was already durable when its reply left. */
  durable: boolean | null;
}

/** A label and its text, for people. */
export type Row = readonly [label: string, text: string];

/** Translates one message, as JupyterLab's bundles do. */
export type Translate = (message: string) => string;

function asRecord(value: unknown): Record<string, unknown> | null {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
}

function asSize(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
}

/** Write money: `0.42 EUR`; small amounts with more digits. */
export function formatMoney(amount: number, currency: string): string {
  const digits = amount !== 0 && amount < 0.1 ? 4 : 2;
  return `${amount.toFixed(digits)} ${currency}`.trim();
}

function asCost(cost: unknown, currency: unknown): string | null {
  const amount = asSize(cost);
  return amount === null ? null : formatMoney(amount, typeof currency === 'string' ? currency : '');
}

/** Read the facts out of a message's metadata; null when a stock kernel sent it. */
export function readFacts(metadata: unknown): ICellFacts | null {
  const given = asRecord(asRecord(metadata)?.['replkernel']);
  if (given === null || typeof given['replica'] !== 'string' || typeof given['host'] !== 'string') {
    return null;
  }
  const gpus = Array.isArray(given['gpus']) ? (given['gpus'] as unknown[]) : [];
  return {
    replica: given['replica'],
    host: given['host'],
    gpus: gpus.filter((gpu): gpu is string => typeof gpu === 'string'),
    part: asSize(given['part']) ?? 0,
    leaseSeconds: asSize(given['lease_s']),
    cost: asCost(given['cost'], given['currency']),
    queuedSeconds: asSize(given['queued_s']),
    stateBytes: asSize(given['state_bytes']),
    durable: typeof given['durable'] === 'boolean' ? given['durable'] : null
  };
}

/** Write a number of bytes as people read it: `512 B`, `1.5 KiB`, `20 MiB`. */
export function formatBytes(size: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = size;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 10 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit] ?? ''}`;
}

/** Write a duration: milliseconds below a second, else seconds with one decimal. */
export function formatSeconds(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

/** Write GPU-hours. */
export function formatHours(hours: number): string {
  return hours >= 100 ? hours.toFixed(0) : hours.toFixed(2);
}

/** Write for how long something has been there, in its greatest unit. */
export function formatAge(seconds: number, trans: Translate): string {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) {
    return trans('less than a minute');
  }
  const hours = Math.floor(minutes / 60);
  const [count, unit] =
    hours < 1
      ? [minutes, trans('min')]
      : hours < 48
        ? [hours, trans('h')]
        : [Math.floor(hours / 24), trans('days')];
  return `${count} ${unit}`;
}

/** The one line of the status bar. */
export function summary(facts: ICellFacts | null, trans: ITranslate): string {
  if (facts === null) {
    return trans('Replicated');
  }
  return `${trans('Replica')} ${facts.replica} · ${facts.host}`;
}

/** Everything that is known, as rows for a table. */
export function describe(facts: ICellFacts, trans: Translate): Row[] {
  const rows: Row[] = [
    [trans('Replica'), facts.replica],
    [trans('Host'), facts.host],
    [trans('GPUs'), facts.gpus.length === 0 ? trans('none') : facts.gpus.join(', ')]
  ];
  if (facts.leaseSeconds !== null && facts.gpus.length > 0) {
    rows.push([trans('GPU lease'), formatSeconds(facts.leaseSeconds)]);
  }
  if (facts.cost !== null) {
    rows.push([trans('Cost'), facts.cost]);
  }
  if (facts.queuedSeconds !== null) {
    rows.push([trans('Waited'), formatSeconds(facts.queuedSeconds)]);
  }
  if (facts.stateBytes !== null) {
    rows.push([trans('Replicated state'), formatBytes(facts.stateBytes)]);
  }
  if (facts.durable !== null) {
    rows.push([trans('Durable when the reply left'), facts.durable ? trans('yes') : trans('not yet')]);
  }
  return rows;
}
