// Outputs in normal form, what differs between two lists of them, and what is read of a journal's answer.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import { textDigest } from '../lib/models/digest.js';
import { readPage } from '../lib/models/journal.js';
import { edits, equal, readOutputs, settleText } from '../lib/models/outputs.js';

const stream = (text, name = 'stdout') => ({ output_type: 'stream', name, text });
const display = text => ({ output_type: 'display_data', data: { 'text/plain': text }, metadata: {} });

/** What a person sees after the edits, as JupyterLab would carry them out. */
function carryOut(shown, steps) {
  let outputs = [...shown];
  for (const step of steps) {
    if (step.kind === 'replace') {
      outputs = [...step.outputs];
    } else if (step.kind === 'add') {
      outputs.push(step.output);
    } else if (step.kind === 'set') {
      outputs[step.index] = step.output;
    } else {
      outputs[step.index] = { ...outputs[step.index], text: outputs[step.index].text + step.text };
    }
  }
  return outputs;
}

test('a progress bar leaves its last state', () => {
  assert.equal(settleText(' 10%\r 20%\r100%\ndone\n'), '100%\ndone\n');
  assert.equal(settleText('long line\rshort'), 'shortline');
  assert.equal(settleText('abc\b\bX\n\b'), 'aX\n');
  assert.equal(settleText('a\r\nb\r\n'), 'a\nb\n');
});

test('neighbouring texts of one stream are one output, also across a carriage return', () => {
  assert.deepEqual(readOutputs([stream('1%'), stream('\r2%'), stream('oh', 'stderr'), stream('x')]), [
    stream('2%'),
    stream('oh', 'stderr'),
    stream('x')
  ]);
});

test('the normal form has lines joined and nothing that a notebook does not hold', () => {
  const loaded = [
    { output_type: 'stream', name: 'stdout', text: ['a\n', 'b\n'] },
    {
      output_type: 'display_data',
      data: { 'text/plain': 'x' },
      metadata: {},
      transient: { display_id: 'd' }
    },
    { output_type: 'execute_result', data: {}, metadata: {}, execution_count: 3, extra: 1 },
    { output_type: 'error', ename: 'E', evalue: 'v', traceback: ['t'] },
    { output_type: 'strange' },
    null
  ];
  assert.deepEqual(readOutputs(loaded), [
    stream('a\nb\n'),
    display('x'),
    { output_type: 'execute_result', data: {}, metadata: {}, execution_count: 3 },
    { output_type: 'error', ename: 'E', evalue: 'v', traceback: ['t'] }
  ]);
});

test('equal outputs need no edit, whatever the order of their members', () => {
  const other = { metadata: {}, data: { 'text/plain': 'x' }, output_type: 'display_data' };
  assert.ok(equal(display('x'), other));
  assert.deepEqual(edits([stream('a'), display('x')], [stream('a'), other]), []);
});

test('text that only grew is only added to', () => {
  assert.deepEqual(edits([stream('line 1\n')], [stream('line 1\nline 2\n')]), [
    { kind: 'append', index: 0, text: 'line 2\n' }
  ]);
});

test('the edits lead to what is wanted', () => {
  const states = [
    [],
    [stream('a')],
    [stream('ab'), display('x')],
    [display('x'), stream('b')],
    [display('y')],
    [stream('ab'), stream('e', 'stderr'), stream('c')],
    [stream('e', 'stderr'), stream('c')]
  ];
  for (const shown of states) {
    for (const wanted of states) {
      assert.deepEqual(carryOut(shown, edits(shown, wanted)), wanted);
    }
  }
});

test('a text never follows a change of kind in place, for JupyterLab would join it to the output before', () => {
  const steps = edits([stream('a')], [display('x'), stream('b')]);
  assert.deepEqual(
    steps.map(step => step.kind),
    ['replace']
  );
});

test('an answer of the journal is read, and what is not an execution of a cell is left out', () => {
  const execution = {
    msg_id: 'm1',
    cell_id: 'c1',
    code_digest: 'd',
    execution_count: 4,
    state: 'ok',
    started: 10,
    ended: 12.5,
    version: 7,
    outputs: [stream('a')]
  };
  const page = readPage({
    status: 'ok',
    executions: [execution, { ...execution, cell_id: '' }, { ...execution, version: 'x' }, 5],
    more: true
  });
  assert.deepEqual(page, {
    executions: [
      {
        msgId: 'm1',
        cellId: 'c1',
        codeDigest: 'd',
        executionCount: 4,
        running: false,
        started: 10,
        ended: 12.5,
        version: 7,
        outputs: [stream('a')]
      }
    ],
    more: true
  });
});

test('a refusal is no answer', () => {
  assert.equal(readPage({ status: 'error', ename: 'E', evalue: '' }), null);
  assert.equal(readPage(undefined), null);
});

test('the digest of a text is its SHA-256 in UTF-8', () => {
  const text = 'print("größer 🚀")\n';
  assert.equal(textDigest(text), createHash('sha256').update(text, 'utf8').digest('hex'));
});
