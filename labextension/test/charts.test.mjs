// The dashboard's charts, and what they say in words. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { charts } from '../lib/models/charts.js';

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
const of = (name, told) => charts(told, ink, trans).find(chart => chart.name === name);

test('there is nothing to draw before the first look', () => {
  assert.deepEqual(charts(past({ points: [] }), ink, trans), []);
});

test('each chart says in words what it shows', () => {
  assert.equal(of('gpus', past()).sentence, 'Now 8 GPUs are provisioned, 3 leased, 1 kept between cells.');
  assert.equal(of('queue', past()).sentence, '1 request waits now.');
  assert.equal(of('waits', past()).sentence, 'No cell with GPUs has ended yet.');
  const delays = [4, 0.1, 2, 1];
  assert.equal(
    of('waits', past({ delays })).sentence,
    'Cells with GPUs (the last 4): half got them within 1.0 s, 95 % within 2.0 s.'
  );
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

test('lines differ in more than their colour, and what happened has a sign', () => {
  const happenings = [{ at: 20, kind: 'replica moved', count: 2 }];
  const [lines, signs] = of('gpus', past({ happenings })).spec.layer;
  assert.equal(lines.data.values.length, 6);
  assert.equal(new Set(lines.encoding.strokeDash.scale.range.map(String)).size, 3);
  assert.deepEqual(signs.data.values, [{ at: 20000, sign: '→', said: 'replica moved: 2' }]);
});
