// The panel's part about jobs beside notebooks, and the line of a job's GPUs over time.
import * as React from 'react';

import type { IJob } from '../generated/live';
import type { ITranslate } from '../models/line';
import {
  allocation,
  endOfJob,
  gpusOfJob,
  isOver,
  progressOfJob,
  reshapeInWords,
  stateInWords
} from '../models/jobs';

const SHOWN_MAX = 20;
const WIDTH = 120;
const HEIGHT = 24;

/** A job's GPUs from its first ones until now; the words that say the same go with it. */
export function Allocation(props: { job: IJob; now: number; trans: ITranslate }): React.JSX.Element | null {
  const { job, now, trans } = props;
  const corners = allocation(job, now);
  if (corners.length === 0) {
    return null;
  }
  const points = corners.map(([x, y]) => `${(x * WIDTH).toFixed(1)},${((1 - y) * HEIGHT + 1).toFixed(1)}`);
  const words = job.reshapes.map(change => reshapeInWords(job, change, now, trans)).join('\n');
  return (
    <svg
      className="jp-replkernel-allocation"
      width={WIDTH}
      height={HEIGHT + 2}
      viewBox={`0 0 ${WIDTH} ${HEIGHT + 2}`}
      role="img"
      aria-label={words}
    >
      <title>{words}</title>
      <polyline points={points.join(' ')} fill="none" />
    </svg>
  );
}

/** Jobs that are not over, with how far they are and when they are thought to end. */
export function JobsSection(props: {
  jobs: readonly IJob[];
  /** The server's Unix time. */
  now: number;
  trans: ITranslate;
}): React.JSX.Element | null {
  const { now, trans } = props;
  const jobs = props.jobs.filter(job => !isOver(job));
  if (jobs.length === 0) {
    return null;
  }
  const more = jobs.length - SHOWN_MAX;
  return (
    <section aria-labelledby="jp-replkernel-jobs">
      <h2 id="jp-replkernel-jobs">{trans('Jobs')}</h2>
      <ul className="jp-replkernel-jobs">
        {jobs.slice(0, SHOWN_MAX).map(job => {
          const end = endOfJob(job, trans);
          const last = job.reshapes.at(-1);
          const size = gpusOfJob(job, trans);
          const how = [stateInWords(job, trans), job.cpus > 0 ? size : trans('%1 GPUs', size), job.host];
          return (
            <li key={job.job}>
              <strong>{job.yours ? job.job : trans('%1 of %2', job.job, job.user)}</strong>
              <div>{how.filter(part => part !== '').join(' · ')}</div>
              {progressOfJob(job, trans) !== '' && <div>{progressOfJob(job, trans)}</div>}
              {end !== '' && <div>{trans('Ends in about %1', end)}</div>}
              {job.said !== '' && <div>{job.said}</div>}
              {last !== undefined && <div>{reshapeInWords(job, last, now, trans)}</div>}
              <Allocation job={job} now={now} trans={trans} />
            </li>
          );
        })}
      </ul>
      {more > 0 && <p>{trans('and %1 more', more)}</p>}
    </section>
  );
}
