// What people read in the status bar and the dialog, from what a reply carries. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { describe, formatBytes, formatSeconds, readFacts, summary } from '../lib/models/facts.js';

const same = (message, ...values) => message.replace('%1', values[0]);
const reply = {
  replica: 'r2',
  host: 'alpha',
  gpus: [],
  lease_s: 0,
  queued_s: 0.002,
  state_bytes: 2048,
  durable: false
};

test('a stock kernel’s metadata gives no facts', () => {
  assert.equal(readFacts({ started: 'now' }), null);
  assert.equal(readFacts(undefined), null);
  assert.equal(readFacts({ replkernel: 'r1' }), null);
});

test('a reply of ours names replica and host', () => {
  assert.equal(summary(readFacts({ replkernel: reply }), same), 'Replica r2 · alpha');
});

test('leased GPUs are named in the table; the summary is no place for what may be gone since', () => {
  const facts = readFacts({ replkernel: { ...reply, gpus: ['GPU-1', 7], lease_s: 12 } });
  assert.equal(summary(facts, same), 'Replica r2 · alpha');
  assert.deepEqual(describe(facts, same).slice(2, 4), [
    ['GPUs', 'GPU-1'],
    ['GPU lease', '12.0 s']
  ]);
});

test('what a cell cost is named with its currency, small amounts with more digits', () => {
  const costs = (cost, currency) =>
    Object.fromEntries(describe(readFacts({ replkernel: { ...reply, cost, currency } }), same)).Cost;
  assert.equal(costs(1.5, 'EUR'), '1.50 EUR');
  assert.equal(costs(0.00123, undefined), '0.0012');
  assert.equal(costs('free', 'EUR'), undefined);
});

test('a fact of the wrong type is left out of the table', () => {
  const facts = readFacts({ replkernel: { ...reply, queued_s: 'soon', state_bytes: -1, durable: 1 } });
  assert.deepEqual(
    describe(facts, same).map(([label]) => label),
    ['Replica', 'Host', 'GPUs']
  );
});

test('before the first reply the kernel is only said to be replicated', () => {
  assert.equal(summary(null, same), 'Replicated');
});

test('sizes and durations read well', () => {
  assert.equal(formatBytes(512), '512 B');
  assert.equal(formatBytes(1536), '1.5 KiB');
  assert.equal(formatBytes(20 * 1024 * 1024), '20 MiB');
  assert.equal(formatSeconds(0.002), '2 ms');
  assert.equal(formatSeconds(2.25), '2.3 s');
});
