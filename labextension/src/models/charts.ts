// The dashboard's charts as Vega-Lite specifications, made from the cluster's past. Pure.
// Law: lines differ in their dashes too, never in colour alone; each chart has a sentence that says the same.
import type { IBusy, IHappening, IPast, IPoint } from '../generated/live';
import { axisClock } from './clock.js';
import { count } from './cluster.js';
import { formatSeconds } from './facts.js';
import type { ITranslate } from './line';
import type { LiveStore } from './live';

/** A Vega-Lite specification. */
export type Spec = Record<string, unknown>;

/** One chart. */
export interface IChart {
  name: 'gpus' | 'queue' | 'waits' | 'ratio' | 'busy' | 'memory';
  title: string;
  /** For those who do not see it. */
  sentence: string;
  spec: Spec;
}

/** The colours of the page that a chart is drawn on. */
export interface IInk {
  text: string;
  grid: string;
  lines: readonly [string, string, string];
  /** Whether the page is so narrow that a legend has a row for each line. */
  narrow?: boolean;
}

const HEIGHT = 170;
const TICKS = 5;
/** The chart of waits is at least so wide. */
const MOMENT_S = 0.1;
/** Of less than this the axis tells seconds. */
const SHORT_S = 600;
const DASHES = [
  [1, 0],
  [6, 3],
  [2, 2]
];

/** The cluster at this moment, in counts. */
export interface INow {
  gpus: number;
  used: number;
  kept: number;
  waiting: number;
}

/** Count what the panel shows, so that both say the same; null while nobody tells. */
export function nowOf(store: LiveStore): INow | null {
  const { scheduler, queue } = store;
  if (!store.current || scheduler.waiting === null) {
    return null;
  }
  const uses = count(store.hosts);
  const gpus = Object.values(uses).reduce((sum, some) => sum + some, 0);
  return {
    gpus,
    used: uses.used + uses.job + uses.asked,
    kept: uses.kept,
    waiting: Math.max(scheduler.waiting, queue.length)
  };
}

/** Make the charts; none while there is nothing to draw. */
export function charts(past: IPast, live: INow | null, ink: IInk, trans: ITranslate): IChart[] {
  const last = past.points.at(-1);
  if (last === undefined) {
    return [];
  }
  const { provisioned, leased, lingering, waiting } = last;
  const now = live ?? { gpus: provisioned, used: leased, kept: lingering, waiting };
  return [
    gpus(past, now, ink, trans),
    ...(past.busy?.length ? [busy(past.busy, past, ink, trans), memory(past.busy, past, ink, trans)] : []),
    queue(past, now, ink, trans),
    waits(past, ink, trans),
    ratio(past, last, now, ink, trans)
  ];
}

function gpus(past: IPast, now: INow, ink: IInk, trans: ITranslate): IChart {
  const kinds: [string, (point: IPoint) => number][] = [
    [trans('in the cluster'), point => point.provisioned],
    [trans('in use'), point => point.leased],
    [trans('kept between cells'), point => point.lingering]
  ];
  const values = past.points.flatMap(point =>
    kinds.map(([what, count]) => ({ at: point.at * 1000, what, count: count(point) }))
  );
  const order = kinds.map(([what]) => what);
  const most = Math.max(...values.map(value => value.count));
  const lines = {
    data: { values },
    mark: { type: 'line', interpolate: 'step-after', strokeWidth: 2 },
    encoding: {
      x: time(past),
      y: { field: 'count', type: 'quantitative', ...whole(most, trans('GPUs')) },
      color: { field: 'what', scale: { domain: order, range: ink.lines }, legend: LEGEND },
      strokeDash: { field: 'what', scale: { domain: order, range: DASHES }, legend: LEGEND }
    }
  };
  return {
    name: 'gpus',
    title: trans('GPUs'),
    sentence: trans('Now: %1 of %2 GPUs in use, %3 kept between cells.', now.used, now.gpus, now.kept),
    spec: dressed(ink, { layer: [lines, ...events(past, ink, trans)] })
  };
}

function busy(uses: IBusy[], past: IPast, ink: IInk, trans: ITranslate): IChart {
  const name = nameGpus(uses, trans);
  const last = newest(uses).map(one => trans('%1: %2 %', name(one), percent(one)));
  return {
    name: 'busy',
    title: trans('How busy each GPU is'),
    sentence: trans('Last reading: %1.', last.join(', ')),
    spec: perGpu(uses, name, percent, [0, 100], trans('busy, %'), past, ink)
  };
}

function memory(uses: IBusy[], past: IPast, ink: IInk, trans: ITranslate): IChart {
  const name = nameGpus(uses, trans);
  const last = newest(uses).map(one => trans('%1: %2 GiB', name(one), one.memory_gib.toFixed(1)));
  const most = Math.max(1, ...uses.map(one => one.memory_gib));
  return {
    name: 'memory',
    title: trans('Memory in use on each GPU'),
    sentence: trans('Last reading: %1.', last.join(', ')),
    spec: perGpu(uses, name, one => one.memory_gib, [0, most], trans('GiB'), past, ink)
  };
}

const percent = (one: IBusy): number => Math.round(one.utilisation * 100);

/** What was noted at the last look. */
function newest(uses: IBusy[]): IBusy[] {
  const at = uses.at(-1)?.at;
  return uses.filter(one => one.at === at);
}

/** Name each GPU by its host and its number there. */
function nameGpus(uses: IBusy[], trans: ITranslate): (one: IBusy) => string {
  const found = [...new Set(uses.map(one => one.gpu))].sort();
  const host = (gpu: string): string => gpu.slice(0, gpu.indexOf('/'));
  const number = (gpu: string): number => found.filter(one => host(one) === host(gpu)).indexOf(gpu);
  const names = new Map(found.map(gpu => [gpu, trans('%1 GPU %2', host(gpu), number(gpu))]));
  return one => names.get(one.gpu) ?? one.gpu;
}

/** A line for each GPU; they differ in their dashes too. */
function perGpu(
  uses: IBusy[],
  name: (one: IBusy) => string,
  value: (one: IBusy) => number,
  domain: [number, number],
  title: string,
  past: IPast,
  ink: IInk
): Spec {
  const values = uses.map(one => ({ at: one.at * 1000, gpu: name(one), value: value(one) }));
  return dressed(ink, {
    data: { values },
    mark: { type: 'line', interpolate: 'step-after', strokeWidth: 2, point: true },
    encoding: {
      x: time(past),
      y: { field: 'value', type: 'quantitative', scale: { domain }, axis: { title, tickCount: TICKS } },
      color: { field: 'gpu', scale: { range: ink.lines }, legend: LEGEND },
      strokeDash: { field: 'gpu', scale: { range: DASHES }, legend: LEGEND },
      tooltip: [{ field: 'gpu' }, { field: 'value', title }]
    }
  });
}

/** What happened, as marks on the time axis with a sign and a tooltip each. */
function events(past: IPast, ink: IInk, trans: ITranslate): Spec[] {
  const { happenings } = past;
  if (happenings.length === 0) {
    return [];
  }
  const names: Record<IHappening['kind'], string> = {
    'replica moved': trans('replica moved'),
    'move given up': trans('move given up'),
    'hosts added': trans('hosts added'),
    'hosts gone': trans('hosts gone')
  };
  const signs: Record<IHappening['kind'], string> = {
    'replica moved': '→',
    'move given up': '×',
    'hosts added': '+',
    'hosts gone': '−'
  };
  const values = happenings.map(({ at, kind, count }) => ({
    at: at * 1000,
    sign: signs[kind],
    said: `${names[kind]}: ${count}`
  }));
  return [
    {
      data: { values },
      mark: { type: 'text', fontSize: 15, fontWeight: 'bold', color: ink.text, baseline: 'top' },
      encoding: {
        x: time(past),
        y: { value: 0 },
        text: { field: 'sign' },
        tooltip: [{ field: 'said', title: trans('Event') }]
      }
    }
  ];
}

function queue(past: IPast, now: INow, ink: IInk, trans: ITranslate): IChart {
  return {
    name: 'queue',
    title: trans('Cells waiting for GPUs'),
    sentence:
      now.waiting === 1 ? trans('Now: 1 cell is waiting.') : trans('Now: %1 cells are waiting.', now.waiting),
    spec: overTime(
      past,
      'waiting',
      whole(Math.max(...past.points.map(point => point.waiting)), trans('cells')),
      ink
    )
  };
}

function ratio(past: IPast, last: IPoint, now: INow, ink: IInk, trans: ITranslate): IChart {
  return {
    name: 'ratio',
    title: trans('Demand'),
    sentence: trans(
      'Demand: %1 of %2 GPUs requested',
      // What is held was requested, also by a notebook that has gone on since and asks for none at the moment.
      Math.max(now.used + now.kept, Math.round(last.ratio * Math.max(last.provisioned, now.gpus))),
      Math.max(last.provisioned, now.gpus)
    ),
    spec: overTime(
      past,
      'ratio',
      {
        scale: { domain: [0, Math.max(1, ...past.points.map(point => point.ratio))] },
        axis: { title: trans('requested per GPU'), tickCount: TICKS }
      },
      ink
    )
  };
}

function waits(past: IPast, ink: IInk, trans: ITranslate): IChart {
  const sorted = [...past.delays].sort((a, b) => a - b);
  const steps = sorted.map((seconds, at) => ({ seconds, share: (at + 1) / sorted.length }));
  const longest = Math.max(MOMENT_S, (sorted.at(-1) ?? 0) * 1.05);
  const values =
    sorted.length === 0 ? [] : [{ seconds: 0, share: 0 }, ...steps, { seconds: longest, share: 1 }];
  const within = (share: number): number | undefined => sorted[Math.ceil(share * sorted.length) - 1];
  const [median, late] = [within(0.5), within(0.95)];
  return {
    name: 'waits',
    title: trans('How long cells waited for GPUs'),
    sentence:
      median === undefined || late === undefined
        ? trans('No cell has got GPUs and ended yet.')
        : sorted.length === 1
          ? trans('The last cell that got GPUs waited %1 for them.', queuedInWords(median))
          : trans(
              'The last %1 cells that got GPUs: half waited at most %2 for them, 95 % at most %3.',
              sorted.length,
              queuedInWords(median),
              queuedInWords(late)
            ),
    spec: dressed(ink, {
      data: { values },
      mark: { type: 'line', interpolate: 'step-after', strokeWidth: 2, color: ink.lines[0] },
      encoding: {
        x: { field: 'seconds', type: 'quantitative', axis: { title: trans('seconds of waiting') } },
        y: {
          field: 'share',
          type: 'quantitative',
          scale: { domain: [0, 1] },
          axis: { title: trans('share of cells'), format: '%' }
        }
      }
    })
  };
}

/** Write how long a cell waited; what is served at once is not called 0 ms, for the way there takes time as well. */
function queuedInWords(seconds: number): string {
  return formatSeconds(Math.max(0.01, seconds));
}

function overTime(past: IPast, field: 'waiting' | 'ratio', y: Spec, ink: IInk): Spec {
  return dressed(ink, {
    data: { values: past.points.map(point => ({ at: point.at * 1000, value: point[field] })) },
    mark: { type: 'line', interpolate: 'step-after', strokeWidth: 2, color: ink.lines[0] },
    encoding: { x: time(past), y: { field: 'value', type: 'quantitative', ...y } }
  });
}

const LEGEND = { title: null, orient: 'top' };

/** The axis of times, as the tables above write them: of a short time it tells seconds. */
function time(past: IPast): Spec {
  const span = (past.points.at(-1)?.at ?? 0) - (past.points[0]?.at ?? 0);
  const axis = { title: null, tickCount: 5, labelOverlap: true, labelSeparation: 8 };
  return { field: 'at', type: 'temporal', axis: { ...axis, labelExpr: axisClock(span < SHORT_S) } };
}

/** The axis of a count: whole numbers from 0 on. */
function whole(most: number, title: string): Spec {
  const top = Math.max(1, most);
  return {
    scale: { domain: [0, top], nice: top > TICKS },
    axis: { title, format: 'd', tickCount: Math.min(TICKS, top) }
  };
}

function dressed(ink: IInk, spec: Spec): Spec {
  const colours = { labelColor: ink.text, titleColor: ink.text };
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v5.json',
    width: 'container',
    height: HEIGHT,
    autosize: { type: 'fit', contains: 'padding' },
    background: 'transparent',
    config: {
      axis: { ...colours, gridColor: ink.grid, domainColor: ink.grid, tickColor: ink.grid },
      legend: ink.narrow ? { ...colours, columns: 1 } : colours,
      view: { stroke: null }
    },
    ...spec
  };
}
