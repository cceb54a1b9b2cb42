// The dashboard's charts, and what they say in words. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { charts, nowOf } from '../lib/models/charts.js';
import { axisClock, clock } from '../lib/models/clock.js';
import { LiveStore } from '../lib/models/live.js';

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const ink = { text: '#000', grid: '#ccc', lines: ['#111', '#222', '#333'] };
const point = (at, more = {}) => ({
  at,
  provisioned: 8,
  leased: 3,
  lingering: 1,
  waiting: 2,
  ratio: 0.5,
  ...more
});
const past = (more = {}) => ({
  points: [point(10), point(25, { waiting: 1 })],
  happenings: [],
  delays: [],
  ...more
});
const of = (name, told, now = null) => charts(told, now, ink, trans).find(chart => chart.name === name);

test('there is nothing to draw before the first look', () => {
  assert.deepEqual(charts(past({ points: [] }), null, ink, trans), []);
});

test('each chart says in words what it shows', () => {
  assert.equal(of('gpus', past()).sentence, 'Now: 3 of 8 GPUs in use, 1 kept between cells.');
  assert.equal(of('queue', past()).sentence, 'Now: 1 cell is waiting.');
  assert.equal(of('waits', past()).sentence, 'No cell has got GPUs and ended yet.');
  assert.equal(
    of('waits', past({ delays: [2] })).sentence,
    'The last cell that got GPUs waited 2.0 s for them.'
  );
  const delays = [4, 0.1, 2, 1];
  assert.equal(
    of('waits', past({ delays })).sentence,
    'The last 4 cells that got GPUs: half waited at most 1.0 s for them, 95 % at most 4.0 s.'
  );
});

test('demand is told in GPUs, and a queue that took no time is not called one of 0 ms', () => {
  assert.equal(of('ratio', past()).sentence, 'Demand: 4 of 8 GPUs requested');
  const none = past({ points: [point(1, { provisioned: 2, ratio: 0, leased: 0, lingering: 0 })] });
  const kept = past({ points: [point(1, { provisioned: 2, ratio: 0, leased: 0, lingering: 1 })] });
  assert.equal(of('ratio', kept).sentence, 'Demand: 1 of 2 GPUs requested', 'as a notebook keeps it');
  assert.equal(of('ratio', none).sentence, 'Demand: 0 of 2 GPUs requested');
  assert.match(
    of('waits', past({ delays: [0, 0.0004] })).sentence,
    /at most 10 ms for them, 95 % at most 10 ms/
  );
});

test('in a narrow tab a legend has a row for each line', () => {
  const legend = narrow => charts(past(), null, { ...ink, narrow }, trans)[0].spec.config.legend;
  assert.deepEqual([legend(true).columns, legend(false).columns], [1, undefined]);
});

test('what holds now is what the panel shows, not the last look at the cluster', () => {
  const store = new LiveStore();
  const gpu = state => ({ uuid: state, state, lease: '' });
  const said = {
    hosts: [{ name: 'a', state: 'up', gpus: [gpu('lingering'), gpu('idle')] }],
    queue: [{ request: 'q' }, { request: 'r' }],
    scheduler: { url: 'u', trouble: '', waiting: 1, subscription_ratio: 0, booked: [] }
  };
  const rest = { type: 'snapshot', seq: 1, now: 0, kernels: [], executions: [], leases: [], account: null };
  assert.equal(nowOf(store), null);
  store.apply({ ...rest, ...said }, 0);
  const now = nowOf(store);
  const old = past({ points: [point(1, { provisioned: 2, leased: 2, lingering: 0 })] });
  assert.equal(of('gpus', old, now).sentence, 'Now: 0 of 2 GPUs in use, 1 kept between cells.');
  assert.equal(of('queue', old, now).sentence, 'Now: 2 cells are waiting.');
});

test('the share of cells grows to all of them', () => {
  const { values } = of('waits', past({ delays: [3, 1] })).spec.data;
  assert.deepEqual(values, [
    { seconds: 0, share: 0 },
    { seconds: 1, share: 0.5 },
    { seconds: 3, share: 1 },
    { seconds: 3.1500000000000004, share: 1 }
  ]);
  assert.deepEqual(of('waits', past()).spec.data.values, []);
});

test('charts and tables write times as the people of a place do', () => {
  const at = new Date(2026, 10, 28, 21, 7, 30) / 1000;
  assert.equal(clock(at, at, 'de'), '21:07');
  assert.equal(clock(at, at, 'en-US').replace(/\s/, ' '), '9:07 PM');
  const label = (seconds, locale) => axisClock(seconds, locale).replace(/\u202f/g, ' ');
  const twelve = `timeFormat(datum.value, hours(datum.value) < 12 ? "%-I:%M AM" : "%-I:%M PM")`;
  assert.equal(label(false, 'en-US'), twelve);
  assert.equal(
    label(true, 'de'),
    `timeFormat(datum.value, hours(datum.value) < 12 ? "%H:%M:%S" : "%H:%M:%S")`
  );
  assert.equal(of('queue', past()).spec.encoding.x.axis.labelExpr, axisClock(true));
  for (const locale of ['zh-TW', 'fa', 'bn', 'mr', 'my', 'en-US', 'de', 'ko']) {
    for (let hour = 0; hour < 24; hour++) {
      const seconds = new Date(2026, 10, 28, hour, 7, 30) / 1000;
      const [, morning, evening] = /\? ("[^"]*") : ("[^"]*")/.exec(axisClock(false, locale));
      const written = JSON.parse(hour < 12 ? morning : evening)
        .replace(/%(-?)H/, (_, short) => (short ? hour : String(hour).padStart(2, '0')))
        .replace(/%(-?)I/, (_, short) => (short ? hour % 12 || 12 : String(hour % 12 || 12).padStart(2, '0')))
        .replace('%M', '07');
      const same = text => text.replace(/\s/g, ' '); // One space is narrower than the other.
      assert.equal(same(clock(seconds, seconds, locale)), same(written), 'table and axis agree');
    }
  }
});

test('lines differ in more than their colour, and what happened has a sign', () => {
  const happenings = [{ at: 20, kind: 'replica moved', count: 2 }];
  const [lines, signs] = of('gpus', past({ happenings })).spec.layer;
  assert.equal(lines.data.values.length, 6);
  assert.equal(new Set(lines.encoding.strokeDash.scale.range.map(String)).size, 3);
  assert.deepEqual(signs.data.values, [{ at: 20000, sign: '→', said: 'replica moved: 2' }]);
});

test('each GPU has a line and a name of its own, and words for the last look', () => {
  const use = (at, gpu, utilisation) => ({ at, gpu, utilisation, memory_gib: 2 });
  const busy = [
    use(1, 'a/GPU-x-1', 0.1),
    use(1, 'a/GPU-x-2', 0.2),
    use(2, 'a/GPU-x-2', 0.4),
    use(2, 'b/y', 1)
  ];
  const { sentence, spec } = of('busy', past({ busy }));
  assert.equal(sentence, 'Last reading: a GPU 1: 40 %, b GPU 0: 100 %.');
  assert.equal(new Set(spec.data.values.map(one => one.gpu)).size, 3);
  assert.match(of('memory', past({ busy })).sentence, /b GPU 0: 2\.0 GiB/);
});
