// What the page knows from the server's messages. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { count, countsInWords, rowsSeen, useOf } from '../lib/models/cluster.js';
import { kernelMark } from '../lib/models/kernelMark.js';
import { LiveStore } from '../lib/models/live.js';

const run = (msg_id, cell_id = 'c', more = {}) => ({
  kernel_id: 'k',
  msg_id,
  cell_id,
  state: 'done',
  ...more
});
const snapshot = (seq, more = {}) => ({
  type: 'snapshot',
  seq,
  now: 100,
  kernels: [],
  executions: [],
  hosts: [],
  leases: [],
  queue: [],
  scheduler: { url: '', trouble: '', waiting: null, subscription_ratio: null, booked: [] },
  account: null,
  ...more
});
const changes = (seq, more = {}) => ({ type: 'changes', seq, now: 100, ...more });

test('a snapshot, then changes in the order of their numbers', () => {
  const store = new LiveStore();
  assert.equal(store.apply(changes(1), 0), null);
  store.apply(snapshot(4, { executions: [run('m1', 'c', { state: 'running' })] }), 0);
  assert.equal(store.ofCell('k', 'c').state, 'running');
  const touched = store.apply(changes(5, { executions: [run('m1')] }), 0);
  assert.deepEqual([...touched.cells.get('k')], ['c']);
  assert.equal(store.ofCell('k', 'c').state, 'done');
  assert.ok(store.current);
});

test('after a gap nothing counts until everything comes anew', () => {
  const store = new LiveStore();
  store.apply(snapshot(1), 0);
  assert.equal(store.apply(changes(3), 0), null);
  assert.equal(store.current, false);
  assert.equal(store.apply(changes(4), 0), null);
  assert.notEqual(store.apply(snapshot(4), 0), null);
  assert.notEqual(store.apply(changes(5), 0), null);
});

test('of a cell the newest execution counts, in whichever order they are told', () => {
  const store = new LiveStore();
  const executions = [run('new', 'c', { accepted_at: 20 }), run('old', 'c', { accepted_at: 10 })];
  store.apply(snapshot(1, { executions }), 0);
  assert.equal(store.ofCell('k', 'c').msg_id, 'new');
  store.apply(changes(2, { gone: { executions: ['old'] } }), 0);
  assert.equal(store.ofCell('k', 'c').msg_id, 'new');
  const touched = store.apply(changes(3, { gone: { executions: ['new'] } }), 0);
  assert.equal(store.ofCell('k', 'c'), null);
  assert.deepEqual([...touched.cells.get('k')], ['c']);
});

test('one that runs since before its router is the newest of its cell', () => {
  const store = new LiveStore();
  const executions = [run('old', 'c', { accepted_at: 10 }), run('runs', 'c', { accepted_at: null })];
  store.apply(snapshot(1, { executions }), 0);
  assert.equal(store.ofCell('k', 'c').msg_id, 'runs');
});

test('of a kernel the execution that was accepted last is the newest, though its cell has run before', () => {
  const store = new LiveStore();
  assert.equal(store.newest('k'), null);
  const executions = [
    run('a1', 'a', { accepted_at: 1 }),
    run('b1', 'b', { accepted_at: 2 }),
    run('c1', 'c', { accepted_at: 3 })
  ];
  store.apply(snapshot(1, { executions }), 0);
  assert.equal(store.newest('k').msg_id, 'c1');
  store.apply(changes(2, { executions: [run('a2', 'a', { accepted_at: 4 })] }), 0);
  assert.equal(store.newest('k').msg_id, 'a2');
  store.apply(changes(3, { executions: [run('c1', 'c', { accepted_at: 3, safety: 'durable' })] }), 0);
  assert.equal(store.newest('k').msg_id, 'a2');
});

test('what a later snapshot does not name is gone', () => {
  const store = new LiveStore();
  const hosts = [
    { name: 'h10', gpus: [] },
    { name: 'h2', gpus: [{ uuid: 'g', model: 'H100' }] }
  ];
  store.apply(snapshot(1, { executions: [run('m')], hosts, kernels: [{ kernel_id: 'k' }] }), 0);
  assert.deepEqual(
    store.hosts.map(host => host.name),
    ['h2', 'h10']
  );
  assert.equal(store.models.get('g'), 'H100');
  const touched = store.apply(snapshot(9), 0);
  assert.equal(store.ofCell('k', 'c'), null);
  assert.equal(store.kernel('k'), null);
  assert.deepEqual(store.hosts, []);
  assert.equal(store.models.size, 0);
  assert.ok(touched.cluster && touched.kernels.has('k'));
});

test('a list that is not told stays, an empty one empties it', () => {
  const store = new LiveStore();
  store.apply(snapshot(1, { queue: [{ request: 'r' }] }), 0);
  assert.equal(store.apply(changes(2), 0).cluster, false);
  assert.equal(store.queue.length, 1);
  assert.equal(store.apply(changes(3, { queue: [] }), 0).cluster, true);
  assert.equal(store.queue.length, 0);
});

test('the page’s clock is compared with the server’s', () => {
  const store = new LiveStore();
  store.apply(snapshot(1), 0);
  store.apply(changes(2, { now: 100 }), 130);
  assert.equal(store.serverTime(131), 101);
});

test('a thousand changes leave each cell with its newest execution', () => {
  const store = new LiveStore();
  const hosts = Array.from({ length: 500 }, (_, i) => ({ name: `h${i}`, gpus: [] }));
  const executions = Array.from({ length: 200 }, (_, i) => run(`m${i}`, `c${i}`));
  store.apply(snapshot(0, { hosts, executions }), 0);
  for (let seq = 1; seq <= 1000; seq += 1) {
    store.apply(
      changes(seq, { executions: [run(`m${seq % 200}`, `c${seq % 200}`, { state: 'running' })] }),
      0
    );
  }
  assert.equal(store.ofCell('k', 'c1').state, 'running');
  assert.equal(store.cells('k').size, 200);
});

test('a cell that was run again is told by that run, also where another router saw the first one', () => {
  const store = new LiveStore();
  const first = run('m1', 'a', { accepted_at: null, safety: 'lost', ended_at: 3 });
  store.apply(snapshot(1, { executions: [first] }), 0);
  store.apply(changes(2, { executions: [run('m2', 'a', { accepted_at: 7, safety: 'durable' })] }), 0);
  assert.equal(store.ofCell('k', 'a').msg_id, 'm2');
});

test('a notebook is called durable only when every newest execution of its cells is', () => {
  const same = message => message;
  const mark = (executions, rest = 'awake', replicas = []) => {
    const store = new LiveStore();
    store.apply(snapshot(1, { executions, kernels: [{ kernel_id: 'k', rest, answers: true, replicas }] }), 0);
    return kernelMark(store, 'k', same);
  };
  const safe = (cell, safety) => run(`m${cell}`, cell, { safety });
  assert.equal(mark([safe('a', 'durable'), safe('b', 'pending')]), '● 1 not durable yet');
  assert.equal(mark([safe('a', 'durable'), safe('b', 'nothing')]), '✔ durable');
  const pinned = [{ pins: [{ name: 's' }] }, { pins: [{ name: 's' }] }];
  assert.equal(mark([safe('a', 'durable')], 'awake', pinned), '✔ durable, but for what is pinned (1)');
  assert.equal(mark([safe('a', 'lost'), safe('b', 'pending')]), '✖ 1 cell lost its changes');
  const died = run('mx', 'a', { safety: 'lost', ename: 'ExecutorLost', ended_at: 5 });
  assert.equal(mark([died, run('my', 'b', { safety: 'durable', ended_at: 4 })]), '✖ 1 cell lost its changes');
  assert.equal(
    mark([died, run('my', 'b', { safety: 'durable', ended_at: 6 })]),
    '✔ durable, 1 cell lost its changes',
    'others went on'
  );
  const store = new LiveStore();
  const kernels = [{ kernel_id: 'k', rest: 'awake', answers: true, replicas: [] }];
  store.apply(snapshot(1, { executions: [safe('a', 'lost'), safe('b', 'durable')], kernels }), 0);
  assert.equal(
    kernelMark(store, 'k', same, id => id !== 'a'),
    '✔ durable',
    'its cell was deleted'
  );
  assert.equal(mark([safe('a', 'durable')], 'asleep'), '');
  const runs = run('mb', 'b', { state: 'running' });
  assert.equal(mark([safe('a', 'durable'), runs]), '', 'the cell that runs is not durable');
  assert.equal(mark([]), '');
  assert.equal(kernelMark(new LiveStore(), 'k', same), '');
});

test('a notebook of which nothing is heard is not called durable without saying so', () => {
  const same = message => message;
  const store = new LiveStore();
  const kernel = { kernel_id: 'k', rest: 'awake', answers: true, replicas: [] };
  store.apply(snapshot(1, { executions: [run('m', 'a', { safety: 'durable' })], kernels: [kernel] }), 0);
  assert.equal(kernelMark(store, 'k', same), '✔ durable');
  store.apply(changes(2, { kernels: [{ ...kernel, answers: false }] }), 0);
  assert.equal(kernelMark(store, 'k', same), '✔ durable (no answer)');
  store.interrupted();
  assert.equal(kernelMark(store, 'k', same), '✔ durable (reconnecting)');
});

test('GPUs are counted by what they do; those of a host that is away are out of reach', () => {
  const same = message => message;
  const gpus = ['idle', 'active', 'lingering', 'reclaiming', ''].map(state => ({ state }));
  const hosts = [
    { name: 'a', state: 'up', gpus },
    { name: 'b', state: 'not answering', gpus: [{ state: 'idle' }] }
  ];
  const words = countsInWords(count(hosts), same);
  assert.equal(words, '2 free, 1 in use, 1 kept between cells, 1 asked back, 1 out of reach');
  assert.equal(countsInWords(count([]), same), 'no GPUs');
  assert.equal(useOf({ state: 'draining' }, { state: 'active' }), 'used');
});

test('of a long list only what is seen is drawn', () => {
  assert.deepEqual(rowsSeen(0, 240, 24, 500), { first: 0, end: 14 });
  assert.deepEqual(rowsSeen(2400, 240, 24, 500), { first: 96, end: 114 });
  assert.deepEqual(rowsSeen(99999, 240, 24, 500), { first: 500, end: 500 });
  assert.deepEqual(rowsSeen(0, 240, 24, 3), { first: 0, end: 3 });
});
