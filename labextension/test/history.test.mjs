// What is shown of a notebook's history: rows, undone cells, differences, where keys lead.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

register('./endings.mjs', import.meta.url);
const { differencesInWords, isUndone, marksOf, rowsOf } = await import('../lib/models/history.js');
const { rowAfter } = await import('../lib/components/historySection.js');

const trans = (text, ...values) =>
  values.reduce((said, value, at) => said.replace(`%${at + 1}`, value), text);
const point = (name, cell, more = {}) => ({
  point: name,
  cell,
  at: 0,
  source: `cell ${cell}`,
  cell_id: `c${cell}`,
  changed: ['x'],
  more: 0,
  bytes: 0,
  parent: null,
  to: null,
  branch: 'main',
  past: true,
  known: true,
  ...more
});
const history = (points, more = {}) => ({
  here: points[0].point,
  points,
  more: 0,
  marks: {},
  branches: {},
  branch: 'main',
  kept_bytes: 0,
  undo: true,
  redo: true,
  ...more
});
const ran = (cell_id, count, state = 'done') => ({ cell_id, count, state });

test('rows are the points that one can go to, the newest first', () => {
  const points = [
    point('1.0', 1),
    point('2.0', 2, { past: false, changed: ['_', '@random'], more: 3 }),
    point('3.0', 3, { to: '1.0' })
  ];
  const rows = rowsOf(history(points, { marks: { start: '1.0' }, branches: { main: '2.0' } }), trans);
  assert.deepEqual(
    rows.map(row => [row.cell, row.here, row.undone, row.names]),
    [
      ['[2]', false, true, ['main']],
      ['[1]', true, false, ['start']]
    ]
  );
  assert.match(rows[0].changed, /^process state and 3 more/);
  assert.deepEqual(marksOf(history(points, { marks: { start: '1.0' } }), '1.0'), ['start']);
});

test('a cell is undone where its newest point is no more in the state, and nobody can say that it ran since', () => {
  const gone = history([point('1.0', 1), point('2.0', 2, { past: false })]);
  assert.equal(isUndone(gone, ran('c2', 2)), true);
  assert.equal(isUndone(gone, ran('c1', 1)), false);
  assert.equal(isUndone(gone, ran('c2', 3)), false);
  assert.equal(isUndone(gone, ran('c2', 2, 'running')), false);
  assert.equal(isUndone(gone, ran('other', 2)), false);
  assert.equal(isUndone(null, ran('c2', 2)), false);
  const forgotten = history([point('1.0', 1), point('2.0', 2, { past: false, known: false })]);
  assert.equal(isUndone(forgotten, ran('c2', 2)), false);
});

test('differences have a line each, and keys lead within the list', () => {
  const found = {
    differences: [
      { name: 'x', before: 10 },
      { name: 'y', before: 1, after: 2, was: '[1]' }
    ],
    more: 4
  };
  const lines = differencesInWords(found, trans);
  assert.equal(lines.length, 3);
  assert.match(lines[0], /^x: .* → not there$/);
  assert.match(lines[1], /^y: \[1\] \(.*\) → /);
  assert.equal(lines[2], 'and 4 more');
  assert.deepEqual(
    ['ArrowDown', 'ArrowUp', 'Home', 'End', 'a'].map(key => rowAfter(key, 0, 3)),
    [1, 0, 0, 2, null]
  );
});
