// What one line under a cell says of its newest execution, and the steps behind it. Pure: no JupyterLab, no DOM.
// Law: a mark is icon and text; nothing is called durable that the server has not called so.
import type { IExecution } from '../generated/live';
import { gpusCounted, numberOfGpus } from './cluster.js';
import type { Translate } from './facts';
import { formatMoney, formatSeconds } from './facts.js'; // With its ending, so that node finds it too.
import { KERNEL_ENDED } from './remembered.js';

/** Which icon stands before a text. */
export type Icon =
  'waiting' | 'moving' | 'running' | 'done' | 'skipped' | 'failed' | 'pending' | 'durable' | 'lost';

/** An icon with its text. */
export interface IMark {
  icon: Icon;
  text: string;
  /** More about it, for the tooltip. */
  title: string;
}

/** One step of an execution; `seconds` is null while nobody has seen its end. */
export interface IStep {
  name: 'queue' | 'gpus' | 'route' | 'elect' | 'bind' | 'start' | 'run' | 'capture' | 'safe';
  label: string;
  title: string;
  /** Seconds after the execution was asked for. */
  from: number;
  seconds: number;
  /** Whether it is under way. */
  open: boolean;
}

/** What the line shows. */
export interface ILine {
  state: IMark;
  /** Where it ran and on what, in short parts. */
  parts: string[];
  safety: IMark | null;
  /** Whether its times go on. */
  ticking: boolean;
}

/** The error of a cell that a person has stopped. */
const INTERRUPTED = 'KeyboardInterrupt';

/** Translates a message with a number in it, as JupyterLab's bundles do. */
export interface ITranslate extends Translate {
  (message: string, ...values: (string | number)[]): string;
}

/** Write what the line says when the server's Unix time is `now`; `models` names GPUs by their UUIDs.
 *
 * `holder` is who holds the GPUs that it waits for, as far as that may be seen.
 */
export function describeLine(
  execution: IExecution,
  models: ReadonlyMap<string, string>,
  now: number,
  trans: ITranslate,
  holder = ''
): ILine {
  const parts: string[] = [];
  if (execution.replica !== '') {
    parts.push(`${execution.replica} · ${execution.host}`);
  }
  const gpus = gpusInWords(execution.gpus, models, trans, execution);
  if (gpus !== '') {
    parts.push(gpus);
  }
  const ran = between(execution.began_at, execution.ended_at ?? now);
  if (ran !== null && execution.state !== 'moving' && !execution.paused) {
    parts.push(trans(execution.state === 'running' ? 'for %1' : 'ran %1', formatSeconds(ran)));
  }
  const waits = execution.state === 'waiting' && !execution.paused;
  const waited = between(execution.wished_at, waits ? now : waitEnd(execution));
  if (waited !== null && (waits || waited >= 0.1)) {
    const count = execution.part || execution.gpus.length || execution.wanted;
    parts.push(waits ? trans('%1 so far', formatSeconds(waited)) : waitedFor(count, waited, trans));
  }
  // Lines that an older release kept have none.
  if (typeof execution.cost === 'number') {
    parts.push(formatMoney(execution.cost, execution.currency));
  }
  return {
    state: stateOf(execution, holder, now, trans),
    parts,
    safety: execution.state === 'done' ? safetyOf(execution, trans) : null,
    ticking: execution.state === 'running' || execution.state === 'waiting'
  };
}

/** When an execution waited no more for GPUs: it got them, or was cancelled; null while it waits, or if it never did. */
function waitEnd({ granted_at, began_at, ended_at }: IExecution): number | null {
  return granted_at ?? (began_at === null ? ended_at : null);
}

/** Tell whether a cell can be cancelled: it waits for GPUs, and no other cell of its notebook is before it. */
export function canCancel(execution: IExecution, cells: Iterable<IExecution>): boolean {
  const before = (one: IExecution): boolean =>
    one.state === 'running' ||
    one.state === 'moving' ||
    (one.accepted_at ?? 0) < (execution.accepted_at ?? 0);
  return (
    execution.state === 'waiting' &&
    ![...cells].some(one => one.state !== 'done' && one.msg_id !== execution.msg_id && before(one))
  );
}

/** Write how long a cell has waited for its GPUs. */
function waitedFor(gpus: number, seconds: number, trans: ITranslate): string {
  const long = `${seconds.toFixed(1)} s`;
  if (gpus === 0) {
    return trans('waited %1 for GPUs', long);
  }
  return trans('waited %1 for %2', long, gpusCounted(gpus, trans));
}

/** Write which GPUs these are: `2 × H100`, or `½ × H100 · 40 GiB` of a part of one. */
export function gpusInWords(
  gpus: readonly string[],
  models: ReadonlyMap<string, string>,
  trans: ITranslate,
  of?: { part: number; part_gb: number }
): string {
  if (gpus.length === 0) {
    return '';
  }
  const named = [...new Set(gpus.map(gpu => models.get(gpu) ?? '').filter(model => model !== ''))];
  const what = named.length === 0 ? trans('GPU') : named.join(', ');
  // Lines that an older release kept say nothing of parts.
  if (of?.part) {
    const memory = of.part_gb > 0 ? ` · ${Number(of.part_gb.toFixed(1))} GiB` : '';
    return `${numberOfGpus(of.part)} × ${what}${memory}`;
  }
  return `${gpus.length} × ${what}`;
}

function stateOf(execution: IExecution, holder: string, now: number, trans: ITranslate): IMark {
  switch (execution.state) {
    case 'queued':
      return mark('waiting', trans('Queued'), trans('Another cell of this notebook runs first'));
    case 'waiting':
      return mark('waiting', waitingText(execution, holder, now, trans), execution.trouble);
    case 'moving':
      return mark('moving', trans('Getting ready'), trans('The replica fetches the variables it needs'));
    case 'running':
      return mark('running', trans('Running'), '');
    case 'done':
      return doneMark(execution, trans);
  }
}

function doneMark(execution: IExecution, trans: ITranslate): IMark {
  if (execution.status === 'aborted') {
    return mark('skipped', trans('Skipped'), trans('A cell before it failed'));
  }
  if (execution.ename === INTERRUPTED) {
    return execution.began_at === null
      ? mark('skipped', trans('Cancelled'), trans('It was interrupted before it began'))
      : mark('skipped', trans('Interrupted'), '');
  }
  if (execution.ename === KERNEL_ENDED) {
    return mark('skipped', trans('Stopped'), trans('Its kernel ended while the cell ran'));
  }
  if (execution.status === 'error') {
    return mark('failed', trans('Failed: %1', execution.ename || trans('error')), '');
  }
  return mark('done', trans('Done'), '');
}

/** Write what a cell waits for: how many GPUs, its place, how long that may take, and who holds them.
 *
 * A guess that `now` has outlived is no longer told.
 */
export function waitingText(execution: IExecution, holder: string, now: number, trans: ITranslate): string {
  if (execution.paused) {
    return pausedText(execution, now, trans);
  }
  const count = execution.wanted;
  const model = execution.model === '' ? '' : `${execution.model} `;
  const what = `${numberOfGpus(count)} ${model}${count <= 1 ? trans('GPU') : trans('GPUs')}`;
  const parts = [trans('Waiting for %1', what)];
  if (execution.trouble !== '') {
    parts.push(trans('no scheduler answers'));
  } else if (execution.position !== null) {
    parts.push(placeInWords(execution, now, trans));
    if (execution.position > 0 && holder !== '') {
      parts.push(trans('held by %1', holder));
    } else if (execution.awaits !== '') {
      parts.push(execution.awaits);
    }
  }
  return parts.join(' · ');
}

/** Write that a cell stands still for a shorter one, and when it is thought to go on. */
function pausedText(execution: IExecution, now: number, trans: ITranslate): string {
  const parts = [trans('Paused for a shorter cell')];
  const left = (execution.estimate_s ?? 0) - (between(execution.told_at, now) ?? 0);
  if (execution.trouble !== '') {
    parts.push(trans('no scheduler answers'));
  } else if (left > 0) {
    parts.push(trans('goes on in about %1', formatEstimate(left)));
  }
  return parts.join(' · ');
}

/** Write a place in the queue, and how long that may take; empty where nobody tells. */
export function placeInWords(
  waiting: Pick<IExecution, 'position' | 'estimate_s' | 'told_at'>,
  now: number,
  trans: ITranslate
): string {
  const { position, estimate_s: estimate } = waiting;
  if (position === null) {
    return '';
  }
  if (position === 0) {
    return trans('its host is getting ready');
  }
  const place = position === 1 ? trans('next in line') : trans('number %1 in line', position);
  const left = (estimate ?? 0) - (between(waiting.told_at, now) ?? 0);
  return left > 0 ? `${place} · ${trans('about %1', formatEstimate(left))}` : place;
}

/** Write how long something may take, roughly. */
export function formatEstimate(seconds: number): string {
  if (seconds < 90) {
    return `${Math.max(1, Math.round(seconds))} s`;
  }
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function safetyOf(execution: IExecution, trans: ITranslate): IMark | null {
  switch (execution.safety) {
    case 'durable':
      return mark('durable', trans('durable'), trans('Its changes are on most replicas and in the store'));
    case 'pending': {
      const checked = execution.unaudited.join(', ');
      const why =
        checked === ''
          ? trans('Its changes are on their way to the other replicas')
          : trans('Not stored yet: %1', checked);
      return mark('pending', trans('not durable yet'), why);
    }
    case 'lost':
      return mark(
        'lost',
        trans('Changes lost: run this cell again'),
        trans('Its process died before its changes reached another replica')
      );
    case 'nothing':
      return null;
  }
}

function mark(icon: Icon, text: string, title: string): IMark {
  return { icon, text, title };
}

function between(from: number | null, to: number | null): number | null {
  return from === null || to === null ? null : Math.max(0, to - from);
}

/** The steps that an execution has gone through, the one that is under way last. */
export function steps(execution: IExecution, now: number, trans: ITranslate): IStep[] {
  const { accepted_at, wished_at, granted_at, election_at } = execution;
  const { sent_at, began_at, ended_at, durable_at } = execution;
  if (accepted_at === null) {
    return []; // Nobody saw its beginning.
  }
  const over = execution.state === 'done';
  const safe = execution.safety === 'pending' ? null : durable_at;
  const found: IStep[] = [];
  const add = (name: IStep['name'], label: string, title: string, from: number | null, to: number | null) => {
    if (from !== null && (to !== null || isOpen(name))) {
      const end = to ?? now;
      found.push({
        name,
        label,
        title,
        from: from - accepted_at,
        seconds: Math.max(0, end - from),
        open: to === null
      });
    }
  };
  const isOpen = (name: IStep['name']): boolean =>
    OPEN[execution.state] === name && (!over || execution.safety === 'pending');
  add(
    'queue',
    trans('Queued'),
    trans('Behind other cells of the notebook'),
    accepted_at,
    wished_at ?? election_at ?? sent_at ?? (over ? ended_at : null)
  );
  add('gpus', trans('GPUs'), trans('Waiting for GPUs'), wished_at, over ? waitEnd(execution) : granted_at);
  add(
    'route',
    trans('Route'),
    trans('Choosing who runs it, and where'),
    granted_at ?? (wished_at === null ? null : sent_at),
    election_at ?? sent_at
  );
  add('elect', trans('Elect'), trans('The replicas agree on who runs it'), election_at, sent_at);
  const bound = bindEnd(execution);
  add(
    'bind',
    trans('Bind'),
    trans('Its GPUs, with the state on them'),
    bound === null ? null : sent_at,
    bound
  );
  add(
    'start',
    trans('Start'),
    trans('The replica fetches the variables it needs'),
    bound ?? sent_at,
    began_at ?? (over ? ended_at : null)
  );
  add('run', trans('Run'), trans('The cell’s own code'), began_at, ended_at);
  const captured =
    ended_at === null || safe === null || !execution.capture_s
      ? null
      : Math.min(ended_at + execution.capture_s, safe);
  if (captured !== null && ended_at !== null && captured > ended_at) {
    add('capture', trans('Capture'), trans('Finding what the cell changed'), ended_at, captured);
    add('safe', trans('Replicate'), trans('Copying it to the other replicas and the store'), captured, safe);
  } else {
    add(
      'safe',
      trans('Make durable'),
      trans('Finding what changed, and copying it to the others'),
      ended_at,
      safe
    );
  }
  return found;
}

/** For how long an execution has had its GPUs, or had them; null where it has none. */
export function leasedFor(execution: IExecution, now: number): number | null {
  const { gpus, granted_at, sent_at, ended_at } = execution;
  return gpus.length === 0 ? null : between(granted_at ?? sent_at, ended_at ?? now);
}

/** When the process had its GPUs, on the scale of the other times; null: it needed none, or nobody knows. */
function bindEnd({ sent_at, began_at, bind_s }: IExecution): number | null {
  return sent_at === null || began_at === null || bind_s === null
    ? null
    : Math.min(sent_at + bind_s, began_at);
}

const OPEN: Record<IExecution['state'], IStep['name']> = {
  queued: 'queue',
  waiting: 'gpus',
  moving: 'start',
  running: 'run',
  done: 'safe'
};
