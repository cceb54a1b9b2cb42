// The dashboard's tables: who holds GPUs now, and which cells wait for some.
import * as React from 'react';

import type { NameKernel } from '../models/cluster';
import { formatHours } from '../models/facts';
import type { ITranslate } from '../models/line';
import type { LiveStore } from '../models/live';
import { heldNow, waitsNow } from '../models/usage';

const ROWS_MAX = 100;
const DAY_S = 24 * 3600;

/** Write a Unix time: the time of day, with its date where that is not of the last day. */
function clock(at: number, now: number): string {
  const date = new Date(at * 1000);
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  return now - at < DAY_S
    ? date.toLocaleTimeString(undefined, time)
    : date.toLocaleString(undefined, { ...time, day: 'numeric', month: 'short' });
}

function Table(props: {
  title: string;
  /** Said where there is no row. */
  none: string;
  heads: string[];
  rows: { key: string; cells: string[] }[];
  trans: ITranslate;
}): React.JSX.Element {
  const { title, none, heads, rows, trans } = props;
  const more = rows.length - ROWS_MAX;
  return (
    <section className="jp-replkernel-chart jp-replkernel-now" aria-label={title}>
      <h2>{title}</h2>
      {rows.length === 0 ? (
        <p>{none}</p>
      ) : (
        <table>
          <thead>
            <tr>
              {heads.map(head => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_MAX).map(row => (
              <tr key={row.key}>
                {row.cells.map((cell, at) => (
                  <td key={heads[at]}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {more > 0 && <p>{trans('and %1 more', more)}</p>}
    </section>
  );
}

/** Both tables at the server's Unix time `now`. */
export function NowTables(props: {
  store: LiveStore;
  now: number;
  name: NameKernel;
  trans: ITranslate;
}): React.JSX.Element | null {
  const { store, now, name, trans } = props;
  if (!store.told) {
    return null;
  }
  const since = (at: number): string => (at === 0 ? '–' : clock(at, now));
  const held = heldNow(store, now, name, trans).map(({ key, who, gpus, host, use, since: at, gpuHours }) => ({
    key,
    cells: [who, gpus, host, use, since(at), gpuHours === null ? '–' : formatHours(gpuHours)]
  }));
  const waits = waitsNow(store, now, name, trans).map(({ key, who, gpus, place, since: at }) => ({
    key,
    cells: [who, gpus, place === '' ? '–' : place, since(at)]
  }));
  const who = trans('Notebook');
  const gpus = trans('GPUs');
  return (
    <>
      {!store.current && <p>{trans('Reconnecting… showing the last known state')}</p>}
      <Table
        title={trans('Who holds GPUs now')}
        none={trans('Nobody holds a GPU.')}
        heads={[who, gpus, trans('Host'), trans('State'), trans('Since'), trans('GPU-hours')]}
        rows={held}
        trans={trans}
      />
      <Table
        title={trans('Cells that wait now')}
        none={trans('No cell waits for GPUs.')}
        heads={[who, gpus, trans('Place'), trans('Since')]}
        rows={waits}
        trans={trans}
      />
    </>
  );
}
