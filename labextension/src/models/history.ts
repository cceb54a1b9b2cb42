// What of a notebook's history is shown: its points as rows, and which cells' results are no more. Pure.
// Law: a cell is only called undone where the history says so; where nobody knows any more, nothing is said.
import type { IComparisonDocument, IExecution, IHistoryDocument, IHistoryPoint } from '../generated/live';
import { formatBytes } from './facts.js';
import type { ITranslate } from './line';

/** One point, as a row of the list. */
export interface IRow {
  point: string;
  /** `[12]` */
  cell: string;
  source: string;
  changed: string;
  /** Marks and the ends of branches. */
  names: string[];
  /** Whether the notebook is here. */
  here: boolean;
  /** Whether what the cell changed is no more in the state. */
  undone: boolean;
  at: number;
}

function changedInWords(point: IHistoryPoint, trans: ITranslate): string {
  const own = point.changed.filter(name => !/^[@_]/.test(name)).join(', ');
  const names = own === '' ? trans('process state') : own;
  const all = point.more > 0 ? trans('%1 and %2 more', names, point.more) : names;
  return [all, formatBytes(point.bytes)].filter(part => part !== '').join(' · ');
}

/** The points that one can go to, the newest first; where the notebook went back is not one of its own. */
export function rowsOf(document: IHistoryDocument, trans: ITranslate): IRow[] {
  const names = new Map<string, string[]>();
  const called = [...Object.entries(document.marks), ...Object.entries(document.branches)];
  for (const [name, point] of called) {
    names.set(point, [...(names.get(point) ?? []), name]);
  }
  return document.points
    .filter(point => point.to === null)
    .map(point => ({
      point: point.point,
      cell: `[${point.cell}]`,
      source: point.source,
      changed: changedInWords(point, trans),
      names: names.get(point.point) ?? [],
      here: point.point === document.here,
      undone: point.known && !point.past,
      at: point.at
    }))
    .reverse();
}

/** Tell whether what a cell's newest execution changed is no more in the state. */
export function isUndone(document: IHistoryDocument | null, execution: IExecution): boolean {
  const points = document?.points.filter(one => one.to === null && one.cell_id === execution.cell_id) ?? [];
  const newest = points[points.length - 1];
  const ranSince = newest !== undefined && execution.count !== null && execution.count > newest.cell;
  return newest !== undefined && !ranSince && newest.known && !newest.past && execution.state === 'done';
}

/** The marks of a point, which can be taken away. */
export function marksOf(document: IHistoryDocument, point: string): string[] {
  return Object.keys(document.marks).filter(name => document.marks[name] === point);
}

/** Write what differs between two points, a line for each variable. */
export function differencesInWords(found: IComparisonDocument, trans: ITranslate): string[] {
  const side = (bytes: number | null | undefined, shown = ''): string => {
    const size = bytes === null || bytes === undefined ? trans('not there') : formatBytes(bytes);
    return shown === '' ? size : `${shown} (${size})`;
  };
  const lines = found.differences.map(
    one => `${one.name}: ${side(one.before, one.was)} → ${side(one.after, one.now)}`
  );
  return found.more > 0 ? [...lines, trans('and %1 more', found.more)] : lines;
}
