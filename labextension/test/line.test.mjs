// What the line under a cell says, and the steps behind it. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { canCancel, describeLine, formatEstimate, leasedFor, steps } from '../lib/models/line.js';

const trans = (message, ...values) => message.replace(/%(\d)/g, (_, number) => String(values[number - 1]));
const none = new Map();
const execution = (more = {}) => ({
  state: 'done',
  safety: 'durable',
  status: 'ok',
  ename: '',
  replica: 'r2',
  host: 'alpha',
  gpus: [],
  wanted: 0,
  model: '',
  position: null,
  estimate_s: null,
  awaits: '',
  told_at: null,
  paused: false,
  trouble: '',
  unaudited: [],
  accepted_at: 10,
  wished_at: null,
  granted_at: null,
  election_at: null,
  sent_at: 10,
  began_at: 11,
  ended_at: 14,
  durable_at: 15,
  capture_s: null,
  bind_s: null,
  cost: null,
  currency: '',
  ...more
});
const line = (more, now = 20, models = none) => describeLine(execution(more), models, now, trans);

test('a cell that is done names its replica, its time and its safety, each by icon and text', () => {
  const done = line({});
  assert.deepEqual([done.state.icon, done.state.text], ['done', 'Done']);
  assert.deepEqual(done.parts, ['r2 · alpha', 'ran 3.0 s']);
  assert.deepEqual([done.safety.icon, done.safety.text], ['durable', 'durable']);
  assert.equal(done.ticking, false);
});

test('a cell that is done says what it has cost, where that is counted', () => {
  assert.deepEqual(line({ cost: 0.25, currency: 'EUR' }).parts, ['r2 · alpha', 'ran 3.0 s', '0.25 EUR']);
});

test('a cell that runs tells for how long', () => {
  assert.deepEqual(line({ state: 'running', ended_at: null }).parts, ['r2 · alpha', 'for 9.0 s']);
});

test('only what the server calls durable is called so', () => {
  const marks = ['pending', 'lost', 'nothing'].map(safety => line({ safety }).safety?.text ?? '');
  assert.deepEqual(marks, ['not durable yet', 'Changes lost: run this cell again', '']);
  assert.equal(line({ state: 'running', ended_at: null }).safety, null);
  assert.equal(line({ safety: 'pending', unaudited: ['big'] }).safety.title, 'Not stored yet: big');
});

test('a cell that is paused for a shorter one tells when it goes on, and no place in a line', () => {
  const paused = { state: 'waiting', paused: true, wanted: 1, position: 1, wished_at: 5, ended_at: null };
  const text = more => line({ ...paused, ...more }, 20).state.text;
  assert.equal(text({}), 'Paused for a shorter cell');
  assert.equal(text({ estimate_s: 330, told_at: 20 }), 'Paused for a shorter cell · goes on in about 6 min');
  assert.equal(text({ trouble: 'gone' }), 'Paused for a shorter cell · no scheduler answers');
  assert.deepEqual(line(paused, 20).parts, ['r2 · alpha']);
});

test('a cell that waits tells its place and how long that may take', () => {
  const waiting = { state: 'waiting', replica: '', wanted: 2, wished_at: 12, sent_at: null, began_at: null };
  const text = (more, holder) =>
    describeLine(execution({ ...waiting, ended_at: null, ...more }), none, 20, trans, holder).state.text;
  assert.equal(text({}), 'Waiting for 2 GPUs');
  assert.equal(text({ position: 3, model: 'H100' }), 'Waiting for 2 H100 GPUs · number 3 in line');
  const told = { position: 1, told_at: 12 };
  assert.equal(text({ ...told, estimate_s: 7 }), 'Waiting for 2 GPUs · next in line', 'it took longer');
  const guess = 'Waiting for 2 GPUs · next in line · about 3 min';
  assert.equal(text({ position: 1, estimate_s: 180 }), guess);
  assert.equal(text({ ...told, estimate_s: 188, awaits: '2 cells compute' }), `${guess} · 2 cells compute`);
  const awaits = '2 cells compute';
  assert.equal(text({ position: 1, estimate_s: 180, awaits }, 'b.ipynb'), `${guess} · held by b.ipynb`);
  assert.equal(text({ position: 0 }), 'Waiting for 2 GPUs · its host is getting ready');
  assert.equal(text({ trouble: 'why' }), 'Waiting for 2 GPUs · no scheduler answers');
  assert.equal(text({ wanted: 0.5, model: 'H100' }), 'Waiting for ½ H100 GPU');
  assert.deepEqual(line({ ...waiting, ended_at: null }, 20).parts, ['8.0 s so far']);
  assert.equal(line({ ...waiting, ended_at: null }, 20).ticking, true);
});

test('a cell that has waited for its GPUs says how long, and for how many', () => {
  const waited = more => line({ wished_at: 10, granted_at: 10.25, gpus: ['g0'], ...more }).parts.at(-1);
  assert.equal(waited({}), 'waited 0.3 s for 1 GPU');
  assert.equal(waited({ granted_at: 21.4, gpus: ['g0', 'g1'] }), 'waited 11.4 s for 2 GPUs');
  assert.equal(waited({ part: 0.5 }), 'waited 0.3 s for ½ GPU');
});

test('a cell that was cancelled still tells how long it has waited', () => {
  const cut = { status: 'error', ename: 'KeyboardInterrupt', replica: '', sent_at: null, began_at: null };
  const cancelled = { ...cut, wished_at: 10, ended_at: 48, safety: 'nothing', durable_at: null };
  assert.deepEqual(line({ ...cancelled, wanted: 2 }).parts, ['waited 38.0 s for 2 GPUs']);
  assert.deepEqual(line(cancelled).parts, ['waited 38.0 s for GPUs']);
  assert.deepEqual(named(steps(execution(cancelled), 60, trans)), [
    ['queue', 0, 0, false],
    ['gpus', 0, 38, false]
  ]);
});

test('a cell can be cancelled that waits before all others of its notebook', () => {
  const first = execution({ msg_id: 'a', state: 'waiting', accepted_at: 1 });
  const second = execution({ msg_id: 'b', state: 'waiting', accepted_at: 2 });
  const over = execution({ msg_id: 'c', accepted_at: 0 });
  assert.deepEqual(
    [first, second, over].map(one => canCancel(one, [over, first, second])),
    [true, false, false]
  );
  assert.equal(canCancel(second, [execution({ msg_id: 'd', state: 'running', accepted_at: 3 })]), false);
});

test('GPUs are named by their models as far as these are known', () => {
  const models = new Map([
    ['g0', 'H100'],
    ['g1', 'H100']
  ]);
  assert.equal(line({ gpus: ['g0', 'g1'] }, 20, models).parts[1], '2 × H100');
  assert.equal(line({ gpus: ['g9'] }, 20, models).parts[1], '1 × GPU');
  assert.equal(line({ gpus: ['g0'], part: 0.5, part_gb: 40 }, 20, models).parts[1], '½ × H100 · 40 GiB');
});

test('GPUs are leased from the grant, or, if they were kept, from the start, to the end', () => {
  assert.equal(leasedFor(execution({ gpus: ['g0'], granted_at: 9, sent_at: 10 }), 20), 5);
  assert.equal(leasedFor(execution({ gpus: ['g0'], ended_at: null }), 20), 10);
  assert.equal(leasedFor(execution(), 20), null);
});

test('what was skipped or stopped is no failure', () => {
  const marks = [
    [{ status: 'aborted' }, 'Skipped'],
    [{ status: 'error', ename: 'KeyboardInterrupt', began_at: null }, 'Cancelled'],
    [{ status: 'error', ename: 'KeyboardInterrupt' }, 'Interrupted']
  ];
  for (const [more, text] of marks) {
    assert.deepEqual([line(more).state.icon, line(more).state.text], ['skipped', text]);
  }
});

test('a failure names the error', () => {
  assert.equal(line({ status: 'error', ename: 'ExecutorLost' }).state.text, 'Failed: ExecutorLost');
});

const named = found => found.map(({ name, from, seconds, open }) => [name, from, seconds, open]);

test('the steps of a cell with GPUs follow each other', () => {
  const found = steps(execution({ wished_at: 10.5, granted_at: 12, sent_at: 12.5, began_at: 13 }), 20, trans);
  assert.deepEqual(named(found), [
    ['queue', 0, 0.5, false],
    ['gpus', 0.5, 1.5, false],
    ['route', 2, 0.5, false],
    ['start', 2.5, 0.5, false],
    ['run', 3, 1, false],
    ['safe', 4, 1, false]
  ]);
});

test('an election and the binding of GPUs are steps where they took place', () => {
  const bound = execution({ wished_at: 10.5, granted_at: 12, sent_at: 12.5, began_at: 13.5, bind_s: 0.25 });
  assert.deepEqual(named(steps(bound, 20, trans)).slice(2, 5), [
    ['route', 2, 0.5, false],
    ['bind', 2.5, 0.25, false],
    ['start', 2.75, 0.75, false]
  ]);
  const longer = { ...bound, bind_s: 9 }; // Clocks of two processes: never beyond the cell's beginning.
  assert.deepEqual(named(steps(longer, 20, trans)).slice(3, 5), [
    ['bind', 2.5, 1, false],
    ['start', 3.5, 0, false]
  ]);
  const elected = execution({ election_at: 10.25, sent_at: 10.5, began_at: 11 });
  assert.deepEqual(named(steps(elected, 20, trans)).slice(0, 3), [
    ['queue', 0, 0.25, false],
    ['elect', 0.25, 0.25, false],
    ['start', 0.5, 0.5, false]
  ]);
});

test('what it took to find the changes is a step of its own, once that is known', () => {
  const found = steps(execution({ capture_s: 0.25 }), 20, trans);
  assert.deepEqual(named(found).slice(-2), [
    ['capture', 4, 0.25, false],
    ['safe', 4.25, 0.75, false]
  ]);
  const slow = steps(execution({ capture_s: 3 }), 20, trans);
  assert.deepEqual(named(slow).slice(-2), [
    ['capture', 4, 1, false],
    ['safe', 5, 0, false]
  ]);
  const before = steps(execution({ capture_s: 3, durable_at: 13.9 }), 20, trans);
  assert.equal(before.at(-1).label, 'Make durable');
});

test('the step that is under way goes on until now', () => {
  const running = execution({ state: 'running', ended_at: null, durable_at: null, safety: 'pending' });
  assert.deepEqual(named(steps(running, 20, trans)).at(-1), ['run', 1, 9, true]);
  const pending = execution({ durable_at: null, safety: 'pending' });
  assert.deepEqual(named(steps(pending, 20, trans)).at(-1), ['safe', 4, 6, true]);
  const queued = execution({
    state: 'queued',
    sent_at: null,
    began_at: null,
    ended_at: null,
    safety: 'pending'
  });
  assert.deepEqual(named(steps(queued, 20, trans)), [['queue', 0, 10, true]]);
  const waiting = execution({ ...queued, state: 'waiting', wished_at: 11 });
  assert.deepEqual(named(steps(waiting, 20, trans)), [
    ['queue', 0, 1, false],
    ['gpus', 1, 9, true]
  ]);
});

test('a cell that was lost is not made durable for ever', () => {
  const lost = steps(execution({ safety: 'lost', durable_at: null }), 20, trans);
  assert.equal(lost.at(-1).name, 'run');
});

test('an execution that nobody saw begin has no steps', () => {
  assert.deepEqual(steps(execution({ accepted_at: null }), 20, trans), []);
});

test('estimates are rough', () => {
  assert.deepEqual([0.2, 45, 600, 7200].map(formatEstimate), ['1 s', '45 s', '10 min', '2.0 h']);
});
