// The dashboard's tables: who holds GPUs now, and which cells wait for some.
import * as React from 'react';

import type { IJob } from '../generated/live';
import { clock } from '../models/clock';
import type { NameKernel } from '../models/cluster';
import { formatHours } from '../models/facts';
import { coresInWords, endOfJob, gpusOfJob, isOver, progressOfJob, stateInWords } from '../models/jobs';
import type { ITranslate } from '../models/line';
import { formatEstimate } from '../models/line';
import type { LiveStore } from '../models/live';
import { heldNow, waitsNow } from '../models/usage';
import { Allocation } from './jobsSection';

const ROWS_MAX = 100;
const CHANGES_MAX = 12;

function Table(props: {
  title: string;
  /** Said where there is no row. */
  none: string;
  heads: string[];
  rows: { key: string; cells: React.ReactNode[] }[];
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

/** Jobs beside notebooks: how each stands, and why their GPUs changed, the newest first. */
function JobTables(props: { jobs: readonly IJob[]; now: number; trans: ITranslate }): React.JSX.Element {
  const { jobs, now, trans } = props;
  const rows = jobs.map(job => ({
    key: job.job,
    cells: [
      job.yours ? job.job : trans('%1 of %2', job.job, job.user),
      stateInWords(job, trans),
      gpusOfJob(job, trans),
      job.host === '' ? '–' : job.host,
      progressOfJob(job, trans) || '–',
      (isOver(job) ? '' : endOfJob(job, trans)) || '–',
      job.cpus > 0 ? trans('%1 of cores', formatHours(job.cpu_hours)) : formatHours(job.gpu_hours),
      isOver(job) ? '–' : <Allocation job={job} now={now} trans={trans} />
    ]
  }));
  const changes = jobs
    .flatMap(job =>
      job.reshapes.map((change, at) => ({
        job: job.job,
        had: job.cpus > 0 ? coresInWords(change.gpus, trans) : change.gpus,
        change,
        at,
        key: `${job.job}/${at}`
      }))
    )
    .sort((a, b) => b.change.at - a.change.at || b.at - a.at)
    .map(({ job, had, change, key }) => ({
      key,
      cells: [clock(change.at, now), job, change.gpus === 0 ? trans('none') : had, change.why]
    }));
  const [name, gpus] = [trans('Job'), trans('GPUs')];
  return (
    <>
      <Table
        title={trans('Jobs beside notebooks')}
        none=""
        heads={[
          name,
          trans('State'),
          gpus,
          trans('Host'),
          trans('Progress'),
          trans('Ends in about'),
          trans('GPU-hours'),
          trans('GPUs over time')
        ]}
        rows={rows}
        trans={trans}
      />
      <Table
        title={trans('Why jobs’ GPUs changed')}
        none={trans('No job has had GPUs yet.')}
        heads={[trans('Since'), name, gpus, trans('Why')]}
        rows={changes.slice(0, CHANGES_MAX)}
        trans={trans}
      />
    </>
  );
}

/** All tables at the server's Unix time `now`. */
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
  const waits = waitsNow(store, now, name, trans).map(({ key, who, gpus, place, holder, since: at }) => ({
    key,
    cells: [
      who,
      gpus,
      place || '–',
      holder || '–',
      since(at),
      at === 0 ? '–' : formatEstimate(Math.max(0, now - at))
    ]
  }));
  const who = trans('Notebook');
  const gpus = trans('GPUs');
  return (
    <>
      {!store.current && <p>{trans('Reconnecting… showing the last known state')}</p>}
      <Table
        title={trans('Who holds GPUs now')}
        none={trans(
          'Nobody holds a GPU. To get one, open a notebook with a Python 3 (replicated) kernel and choose GPUs in its toolbar.'
        )}
        heads={[who, gpus, trans('Host'), trans('State'), trans('Since'), trans('GPU-hours so far')]}
        rows={held}
        trans={trans}
      />
      <Table
        title={trans('Cells waiting now')}
        none={trans('No cell is waiting for GPUs.')}
        heads={[who, gpus, trans('Place'), trans('Held by'), trans('Since'), trans('Waiting for')]}
        rows={waits}
        trans={trans}
      />
      {store.jobs.length > 0 && <JobTables jobs={store.jobs} now={now} trans={trans} />}
    </>
  );
}
