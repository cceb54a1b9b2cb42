// Where a replica can be moved to, and how a move is told. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { moveInWords, moves, targets } from '../lib/models/moves.js';

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const gpu = state => ({ uuid: state, state });
const host = (name, state = 'up', gpus = []) => ({ name, state, gpus });
const kernel = { replicas: [{ host: 'h1' }, { host: 'h2' }] };

test('hosts that are up and have no replica are offered, with what is free there', () => {
  const hosts = [host('h1'), host('h3', 'down'), host('h4', 'up', [gpu('idle'), gpu('active')]), host('h5')];
  assert.deepEqual(targets(kernel, hosts, trans), [
    { host: 'h4', label: 'h4 (1/2 free)' },
    { host: 'h5', label: 'h5 (no GPUs)' }
  ]);
  assert.deepEqual(targets(kernel, [host('h6', 'draining')], trans), []);
});

test('a move is told while it is under way, and why it came to nothing', () => {
  assert.equal(moveInWords(null, trans), '');
  assert.equal(moveInWords({ host: 'h4', trouble: '' }, trans), 'Moving a replica to h4 …');
  assert.equal(
    moveInWords({ host: 'h4', trouble: 'it is full.' }, trans),
    'The replica could not move to h4: it is full.'
  );
  assert.deepEqual([null, { trouble: '' }, { trouble: 'no' }].map(moves), [false, true, false]);
});
