// What panel and dashboard say of jobs beside notebooks. Pure.
// Law: a guess is called one; what the scheduler has not told is not said.
import type { IJob, IJobReshape } from '../generated/live';
import type { ITranslate } from './line';

const MINUTE_S = 60;
const OVER = ['done', 'failed', 'stopped'];

/** Tell whether a job has come to its end. */
export function isOver(job: IJob): boolean {
  return OVER.includes(job.state);
}

/** The word for how a job stands. */
export function stateInWords(job: IJob, trans: ITranslate): string {
  switch (job.state) {
    case 'waiting':
      return job.cpus > 0 ? trans('waits for cores') : trans('waits for idle GPUs');
    case 'starting':
      return trans('starting');
    case 'running':
      return job.cpus > 0 ? trans('running') : trans('training');
    case 'stopping':
      return trans('saving');
    case 'held':
      return trans('on hold');
    case 'done':
      return trans('done');
    case 'failed':
      return trans('failed');
    case 'stopped':
      return trans('stopped');
    default:
      return job.state;
  }
}

/** Write a number of cores. */
export function coresInWords(count: number, trans: ITranslate): string {
  return count === 1 ? trans('1 core') : trans('%1 cores', count);
}

/** Write its GPUs: `2 of 1, 2 or 4`, or its cores; those of one that is over are none. */
export function gpusOfJob(job: IJob, trans: ITranslate): string {
  if (isOver(job)) {
    return '–';
  }
  if (job.cpus > 0) {
    return coresInWords(job.cpus, trans);
  }
  const shapes = job.shapes.map(String);
  const last = shapes.pop() ?? '';
  const all = shapes.length === 0 ? last : trans('%1 or %2', shapes.join(', '), last);
  return trans('%1 of %2', job.gpus, all);
}

/** Write how far it is: `epoch 12 of 90 · loss 0.84`; empty where its program tells nothing. */
export function progressOfJob(job: IJob, trans: ITranslate): string {
  const { epoch, epochs, loss } = job;
  const at = epochs === null ? trans('epoch %1', epoch ?? 0) : trans('epoch %1 of %2', epoch ?? 0, epochs);
  return [epoch === null ? '' : at, loss === null ? '' : trans('loss %1', loss)]
    .filter(part => part !== '')
    .join(' · ');
}

/** Write a duration in its two greatest units: `40 s`, `40 min`, `2 h 5 min`. */
export function lasting(seconds: number, trans: ITranslate): string {
  if (seconds < MINUTE_S) {
    return trans('%1 s', Math.round(seconds));
  }
  const minutes = Math.round(seconds / MINUTE_S);
  return minutes < MINUTE_S
    ? trans('%1 min', minutes)
    : trans('%1 h %2 min', Math.floor(minutes / MINUTE_S), minutes % MINUTE_S);
}

/** Guess its end: `40 min on 2 GPUs, 25 min on 4`; those that it has first; empty where nobody knows. */
export function endOfJob(job: IJob, trans: ITranslate): string {
  const ends = [...job.ends_in].sort(
    (a, b) => Number(b.gpus === job.gpus) - Number(a.gpus === job.gpus) || a.gpus - b.gpus
  );
  if (ends.length === 0 || isOver(job)) {
    return job.ends_in_s === null ? '' : lasting(job.ends_in_s, trans);
  }
  return ends
    .map(({ gpus, seconds }, at) => {
      const takes = lasting(seconds, trans);
      if (at > 0) {
        return trans('%1 on %2', takes, gpus);
      }
      return gpus === 1 ? trans('%1 on 1 GPU', takes) : trans('%1 on %2 GPUs', takes, gpus);
    })
    .join(', ');
}

/** Write one change of its GPUs or cores: `5 min ago: 2 GPUs, because a notebook wanted its GPUs`. */
export function reshapeInWords(job: IJob, change: IJobReshape, now: number, trans: ITranslate): string {
  const cores = change.gpus === 0 ? trans('no core') : coresInWords(change.gpus, trans);
  const gpus =
    change.gpus === 0 ? trans('no GPU') : change.gpus === 1 ? trans('1 GPU') : trans('%1 GPUs', change.gpus);
  const had = job.cpus > 0 ? cores : gpus;
  return trans('%1 ago: %2, because %3', lasting(Math.max(0, now - change.at), trans), had, change.why);
}

/** Its GPUs over time as the corners of a line in a box of 1 by 1, from its first GPUs until now; empty without. */
export function allocation(job: IJob, now: number): [number, number][] {
  const [first] = job.reshapes;
  if (first === undefined || now <= first.at) {
    return [];
  }
  const most = Math.max(1, job.cpus, ...job.shapes);
  const x = (at: number): number => Math.min(1, Math.max(0, (at - first.at) / (now - first.at)));
  const corners: [number, number][] = [];
  let level = 0;
  for (const change of job.reshapes) {
    corners.push([x(change.at), level], [x(change.at), change.gpus / most]);
    level = change.gpus / most;
  }
  return [...corners, [1, level]];
}
