// What stays of lines when their kernel has ended. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

register('./endings.mjs', import.meta.url);
const { keep, recall, restarted, updated } = await import('../lib/models/remembered.js');
const { describeLine } = await import('../lib/models/line.js');

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const ran = (kernel_id, cell_id, more = {}) => ({
  kernel_id,
  cell_id,
  state: 'done',
  safety: 'durable',
  status: 'ok',
  ename: '',
  replica: 'r1',
  host: 'h',
  gpus: [],
  unaudited: [],
  began_at: 1,
  ended_at: 2,
  wished_at: null,
  granted_at: null,
  ...more
});
const cells = (...those) => new Map(those.map(one => [one.cell_id, one]));
const line = execution => describeLine(execution, new Map(), 99, trans);

class Shelf {
  items = new Map();
  room = Infinity;
  get length() {
    return this.items.size;
  }
  key(at) {
    return [...this.items.keys()][at] ?? null;
  }
  getItem(key) {
    return this.items.get(key) ?? null;
  }
  setItem(key, value) {
    if (this.items.size >= this.room) {
      throw new Error('full');
    }
    this.items.set(key, value);
  }
  removeItem(key) {
    this.items.delete(key);
  }
}

test('what an ended kernel ran stays, and is not called durable', () => {
  const shelf = new Shelf();
  keep(shelf, 'a', updated(new Map(), 'k1', cells(ran('k1', 'c1'))), 1);
  const { state, safety, parts } = line(recall(shelf, 'a').get('c1'));
  assert.equal(state.text, 'Done');
  assert.equal(safety, null);
  assert.match(parts.join(' · '), /^r1 · h · ran 1/);
});

test('a cell that ran when its kernel ended has stopped, and no time goes on', () => {
  const known = updated(new Map(), 'k1', cells(ran('k1', 'c1', { state: 'running', ended_at: null })));
  const { state, parts, ticking } = line(known.get('c1'));
  assert.deepEqual([state.text, state.icon, ticking, parts], ['Stopped', 'skipped', false, ['r1 · h']]);
});

test('a restart forgets what this kernel ran, and nothing of the one before', () => {
  const first = updated(new Map(), 'k1', cells(ran('k1', 'c1'), ran('k1', 'c2')));
  const second = updated(first, 'k2', cells(ran('k2', 'c2')));
  assert.deepEqual(
    [...updated(second, 'k2', cells())].map(([cell, { kernel_id }]) => [cell, kernel_id]),
    [['c1', 'k1']]
  );
});

test('after a restart the lines stay, until the same kernel runs their cells again', () => {
  const ended = restarted(updated(new Map(), 'k1', cells(ran('k1', 'c1'), ran('k1', 'c2'))), 'k1');
  const after = updated(ended, 'k1', cells(ran('k1', 'c2')));
  assert.deepEqual(
    [...after].map(([cell, { kernel_id, safety }]) => [cell, kernel_id, safety]),
    [
      ['c1', '', 'nothing'],
      ['c2', 'k1', 'nothing']
    ]
  );
});

test('the oldest notebooks go where there is no room, and damaged entries are nothing', () => {
  const shelf = new Shelf();
  const known = updated(new Map(), 'k', cells(ran('k', 'c')));
  for (let at = 0; at < 30; at++) {
    keep(shelf, `n${at}`, known, at);
  }
  assert.equal(shelf.length, 20);
  assert.deepEqual([recall(shelf, 'n0').size, recall(shelf, 'n29').size], [0, 1]);
  shelf.room = 5;
  keep(shelf, 'new', known, 99);
  assert.equal(recall(shelf, 'new').size, 1);
  shelf.items.set(shelf.key(0), '{');
  keep(shelf, 'other', known, 100);
  assert.equal(recall(shelf, 'other').size, 1);
});
