// Which executions a page shows in which cells, which it leaves alone, and which it tells the journal are saved.
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { Ledger } from '../lib/models/ledger.js';

let ledger;
let cells;

beforeEach(() => {
  ledger = new Ledger();
  cells = { c1: { codeDigest: 'print', own: null }, c2: { codeDigest: 'plot', own: null } };
});

const run = (msgId, more = {}) => ({
  msgId,
  cellId: 'c1',
  codeDigest: 'print',
  executionCount: 1,
  running: false,
  started: 1,
  ended: 2,
  version: 1,
  outputs: [],
  ...more
});

const shown = (...executions) =>
  ledger.decide(executions, id => cells[id] ?? null).map(({ execution }) => execution.msgId);

test('a page that is opened shows what ended and follows what runs', () => {
  const running = run('m2', { cellId: 'c2', codeDigest: 'plot', running: true, version: 2 });
  assert.deepEqual(shown(run('m1'), running), ['m1', 'm2']);
  assert.deepEqual([...ledger.following], [['m2', 'c2']]);
  assert.deepEqual(shown({ ...running, running: false, version: 3 }), ['m2']);
  assert.equal(ledger.following.size, 0);
  assert.equal(ledger.version, 3);
});

test('what a user clears after it was shown stays cleared', () => {
  assert.deepEqual(shown(run('m1')), ['m1']);
  assert.deepEqual(shown(run('m1')), []);
});

test('a router that counts anew brings nothing back, but a display that was updated is shown', () => {
  const outputs = [{ output_type: 'display_data', data: { 'text/plain': 'x' }, metadata: {} }];
  assert.deepEqual(shown(run('m1', { version: 5, outputs })), ['m1']);
  assert.deepEqual(shown(run('m1', { version: 6, outputs })), []);
  assert.deepEqual(shown(run('m1', { version: 2, outputs })), []);
  assert.equal(ledger.version, 2);
  assert.deepEqual(shown(run('m1', { version: 7, outputs: [] })), ['m1']);
});

test('a cell whose code is not the code that ran is left alone', () => {
  cells.c1 = { codeDigest: 'edited', own: null };
  assert.deepEqual(shown(run('m1')), []);
  assert.deepEqual(shown(run('m2', { running: true, version: 2 })), []);
  assert.equal(ledger.following.size, 0);
  assert.deepEqual(shown(run('m2', { version: 3 })), []);
  assert.deepEqual(ledger.toAcknowledge(), []); // No notebook holds them, and a later page may have their code.
});

test('of a cell only the newest execution is shown, in whatever order the answers come', () => {
  const waiting = run('m3', { running: true, started: null, ended: null, version: 3 });
  assert.deepEqual(shown(run('m2', { started: 5, version: 9 }), run('m1', { started: 4, version: 8 })), [
    'm2'
  ]);
  assert.deepEqual(shown(waiting), ['m3']);
  assert.deepEqual(shown(run('m2', { started: 5, version: 10 })), []);
  assert.deepEqual(shown(run('m4', { started: 6, version: 11 })), []);
});

test('an execution that was aborted in the queue does not outrank a later one', () => {
  shown(run('m1', { started: null, ended: 5 }));
  assert.deepEqual(shown(run('m2', { started: 6, ended: 7, version: 2 })), ['m2']);
});

test('what the page itself sees running is left alone, and is saved with the notebook once it ended', () => {
  cells.c1 = { codeDigest: 'print', own: 'm1' };
  assert.deepEqual(shown(run('m1', { running: true })), []);
  assert.deepEqual(shown(run('m1', { version: 2 })), []);
  assert.deepEqual(ledger.toAcknowledge(), []); // Its last messages may still be on their way here.
  ledger.ended('m1');
  assert.deepEqual(ledger.toAcknowledge(), ['m1']);
});

test('after an interruption the journal speaks for the page’s own execution, even if its cell was edited', () => {
  cells.c1 = { codeDigest: 'edited', own: 'm1' };
  ledger.interrupt(['m1']);
  ledger.ended('m1'); // It was sent again after the gap, as far as anybody knows.
  assert.deepEqual(ledger.toAcknowledge(), []);
  const placements = ledger.decide([run('m1', { running: true })], id => cells[id] ?? null);
  assert.deepEqual(
    placements.map(({ takeOver }) => takeOver),
    [true]
  );
  assert.deepEqual(shown(run('m1', { version: 2 })), ['m1']);
  assert.deepEqual(ledger.toAcknowledge(), ['m1']);
});

test('an older execution is not shown over one that the page has asked for since', () => {
  cells.c1 = { codeDigest: 'print', own: 'm2' };
  assert.deepEqual(shown(run('m1')), []);
});

test('executions of other notebooks are neither shown nor acknowledged', () => {
  assert.deepEqual(shown(run('m1', { cellId: 'elsewhere' })), []);
  assert.deepEqual(ledger.toAcknowledge(), []);
});

test('what has no place any more is acknowledged once it has ended', () => {
  const running = run('m1', { running: true });
  shown(running);
  delete cells.c1;
  assert.deepEqual(shown({ ...running, version: 2, running: false }), []);
  assert.deepEqual(ledger.toAcknowledge(), ['m1']);
});

test('what has been acknowledged is not acknowledged again', () => {
  shown(run('m1'));
  ledger.ended('m2');
  ledger.acknowledged(['m1']);
  assert.deepEqual(ledger.toAcknowledge(), ['m2']);
});

test('a cell does not wait for an execution that the journal has lost', () => {
  shown(run('m1', { running: true }));
  assert.deepEqual(ledger.vanished(new Set(['m1'])), []);
  assert.deepEqual(ledger.vanished(new Set()), ['c1']);
  assert.equal(ledger.following.size, 0);
});
